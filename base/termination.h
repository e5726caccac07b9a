// Termination: turns signals and requests to end the process into events.
#ifndef DIVVY_BASE_TERMINATION_H_
#define DIVVY_BASE_TERMINATION_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// Turns SIGTERM, SIGINT and the process' own requests into events, for which one thread waits.
//
// SIGHUP and SIGUSR1 do not end the process. The waiting thread answers them with a log line: to
// SIGHUP, that certificates are reloaded anyway; to SIGUSR1, the text of OnStatusAsked. SIGPIPE and
// SIGXFSZ are ignored, so the write that would raise them fails with an error.
//
//   // First thing in main. Threads that exist already do no harm.
//   Termination termination;
//   ... start the role; its callbacks call termination.Request(code, why) ...
//   const Termination::Event event = termination.Wait();
//
// Thread-safe. REQUIRES: a process has one at a time.
class Termination {
 public:
  struct Event {
    // SIGTERM or SIGINT; 0 for Request.
    int signal = 0;
    // The code given to Request, or 128 + the signal's number.
    int exit_code = 0;
    // Whether AskToEnd caused the event, and not a signal.
    bool asked = false;
    // The reason given to Request; may be empty.
    std::string why;
  };

  Termination();
  // From then on the signals have no effect, unless LetSignalsKill was called: the process ends
  // with the exit code that it already has.
  ~Termination();
  Termination(const Termination&) = delete;

  // Blocks until the next signal or request. A request comes before signals.
  Event Wait() { return *WaitFor(absl::InfiniteDuration()); }
  // As Wait. nullopt: `timeout` has passed.
  std::optional<Event> WaitFor(absl::Duration timeout);
  // Sets the text that a SIGUSR1 logs; before this call SIGUSR1 logs nothing. The waiting thread
  // calls `status`, so whatever `status` uses must live as long as a thread waits.
  void OnStatusAsked(std::function<std::string()> status);
  // Has the effect of a SIGTERM. For callers that reach the process by other means, such as an RPC.
  // Never blocks.
  void AskToEnd();
  // Makes Wait return. Only the first call counts. Never blocks.
  void Request(int exit_code, std::string why);
  // From now on SIGTERM and SIGINT kill the process at once. For a drain that takes too long for
  // the operator.
  static void LetSignalsKill();

 private:
  bool TakeRequest(Event& event);
  bool TakeSignal(Event& event);
  // For a signal that does not end the process.
  void Answer(int signal);

  int signals_ = -1;  // the read end of the handler's pipe: one byte for each signal
  int wake_ = -1;     // eventfd
  Mutex mu_;
  bool requested_ DIVVY_GUARDED_BY(mu_) = false;
  bool taken_ DIVVY_GUARDED_BY(mu_) = false;
  Event request_ DIVVY_GUARDED_BY(mu_);
  std::function<std::string()> status_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_TERMINATION_H_
