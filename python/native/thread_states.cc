#include "python/native/thread_states.h"

#include <pybind11/pybind11.h>

#include <vector>

#include "base/mutex.h"

namespace divvy::python {
namespace {

// The states of threads that have ended. Such a thread cannot free its own: that wants the GIL,
// which whoever waits for the thread's end may hold. Never destroyed.
struct EndedThreads {
  Mutex mu;
  std::vector<PyThreadState*> states DIVVY_GUARDED_BY(mu);
};
EndedThreads& Ended() {
  static EndedThreads* const ended = new EndedThreads();
  return *ended;
}

// REQUIRES: the GIL is held.
void FreeEnded() {
  std::vector<PyThreadState*> states;
  {
    MutexLock lock(Ended().mu);
    states.swap(Ended().states);
  }
  for (PyThreadState* const state : states) {
    PyThreadState_Clear(state);
    PyThreadState_Delete(state);
  }
}

struct Kept {
  ~Kept() {
    if (state == nullptr) return;
    MutexLock lock(Ended().mu);
    Ended().states.push_back(state);
  }
  PyThreadState* state = nullptr;
};
thread_local Kept kept;

}  // namespace

void KeepThreadState() {
  if (kept.state != nullptr || PyGILState_GetThisThreadState() != nullptr) return;
  PyGILState_Ensure();
  FreeEnded();
  kept.state = PyEval_SaveThread();
}

}  // namespace divvy::python
