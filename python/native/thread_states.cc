#include "python/native/thread_states.h"

#include <pybind11/pybind11.h>

#include <vector>

#include "base/mutex.h"

namespace divvy::python {
namespace {

// The states of threads that have ended. Such a thread cannot free its own: that wants the GIL,
// which whoever waits for the thread's end may hold.
struct EndedThreads {
  Mutex mu;
  std::vector<PyThreadState*> states DIVVY_GUARDED_BY(mu);
};
// Never destroyed. Only a forked process exchanges it, before it has a second thread.
EndedThreads* ended = new EndedThreads();

// REQUIRES: the GIL is held.
void FreeEnded() {
#if PY_VERSION_HEX >= 0x030C0000
  return;  // From 3.12 on this would take its state from the thread that frees another's.
#endif
  std::vector<PyThreadState*> states;
  {
    MutexLock lock(ended->mu);
    states.swap(ended->states);
  }
  for (PyThreadState* const state : states) {
    PyThreadState_Clear(state);
    PyThreadState_Delete(state);
  }
}

struct Kept {
  ~Kept() {
    if (state == nullptr) return;
    MutexLock lock(ended->mu);
    ended->states.push_back(state);
  }
  PyThreadState* state = nullptr;
};
thread_local Kept kept;

}  // namespace

void ForgetThreadStates() { ended = new EndedThreads(); }

void KeepThreadState() {
  if (kept.state != nullptr || PyGILState_GetThisThreadState() != nullptr) return;
  PyGILState_Ensure();
  FreeEnded();
  kept.state = PyEval_SaveThread();
}

}  // namespace divvy::python
