// How a process is asked to end: by a signal, or by something inside it.
#ifndef DIVVY_BASE_TERMINATION_H_
#define DIVVY_BASE_TERMINATION_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// Turns SIGTERM, SIGINT and requests of the process itself into events that one thread waits for.
// SIGHUP and SIGUSR1 end nothing: to the first, who waits says in the log that certificates are
// read again by themselves; to the second, what OnStatusAsked was given. From then on SIGPIPE and
// SIGXFSZ are ignored: the write that would raise them fails, and whoever wrote says what that
// means.
//
//   // first thing in main; threads that were there before do no harm
//   Termination termination;
//   ... start the role; its callbacks call termination.Request(code, why) ...
//   const Termination::Event event = termination.Wait();
//
// Thread-safe. REQUIRES: one at a time in a process.
class Termination {
 public:
  struct Event {
    int signal = 0;      // SIGTERM or SIGINT; 0: Request
    int exit_code = 0;   // of Request; of a signal: 128 + its number
    bool asked = false;  // by AskToEnd: no signal has come
    std::string why;     // of Request; may be empty
  };

  Termination();
  // From then on the signals do nothing, unless LetSignalsKill was called: the process ends with
  // the exit code it has.
  ~Termination();
  Termination(const Termination&) = delete;

  // Blocks until the next signal or request. Requests go first.
  Event Wait() { return *WaitFor(absl::InfiniteDuration()); }
  // The same; nullopt: `timeout` has passed.
  std::optional<Event> WaitFor(absl::Duration timeout);
  // What a SIGUSR1 logs; nothing before this. `status` is called by the thread that waits, and so
  // must live as long as somebody does.
  void OnStatusAsked(std::function<std::string()> status);
  // As if SIGTERM had come: for who speaks to the process by another way than signals. Never
  // blocks.
  void AskToEnd();
  // Makes Wait return. Only the first counts; never blocks.
  void Request(int exit_code, std::string why);
  // From now on a signal kills the process at once: for a drain that a person has no patience for.
  static void LetSignalsKill();

 private:
  bool TakeRequest(Event& event);
  bool TakeSignal(Event& event);
  void Answer(int signal);  // one that ends nothing

  int signals_ = -1;  // what the handler has noticed, a byte each
  int wake_ = -1;     // eventfd
  Mutex mu_;
  bool requested_ DIVVY_GUARDED_BY(mu_) = false;
  bool taken_ DIVVY_GUARDED_BY(mu_) = false;
  Event request_ DIVVY_GUARDED_BY(mu_);
  std::function<std::string()> status_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_TERMINATION_H_
