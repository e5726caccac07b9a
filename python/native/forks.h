// Processes that a Python program forks. They have no part in the job.
#ifndef DIVVY_PYTHON_NATIVE_FORKS_H_
#define DIVVY_PYTHON_NATIVE_FORKS_H_

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy::python {

// From now on a process that this one forks has no part in the job:
//   - its thread runs neither a step nor the program. The connections and threads of Divvy do not
//     survive a fork, so a call would never return there;
//   - signals have the effect that they had before divvy.run. Divvy's handlers write to a pipe that
//     the child shares with its parent, so a SIGTERM to the child would end the parent.
// multiprocessing's start method "fork" and os.fork make such processes.
void LeaveJobInForks();

// Puts back the handlers of signals that a task replaces: at its own end, and in forked processes.
// REQUIRES: one at a time.
class KeptSignals {
 public:
  KeptSignals();
  ~KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

  // In the child of a fork: puts back the handlers, except where the program has set one of its own
  // since. Nothing if there is no KeptSignals.
  static void PutBackInChild();

 private:
  std::map<int, struct sigaction> kept_;
};

// Marks a call of a function of the program, which may fork. A child that returns from the
// function, or raises in it, would go on as the task, on connections that it shares with its
// parent. The guard's destructor ends such a child with exit code 70, after a line on standard
// error.
class ForkGuard {
 public:
  // `what` is the function, such as "step \"train\"".
  explicit ForkGuard(absl::string_view what);
  ~ForkGuard() { EndChild(""); }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // Ends this process if it is such a child. `raised` is the text of its exception; empty: none.
  void EndChild(absl::string_view raised) const;

 private:
  const pid_t process_;
  const std::string what_;
};

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_FORKS_H_
