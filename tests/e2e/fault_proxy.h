// A TCP connection's misfortunes, on demand.
#ifndef DIVVY_TESTS_E2E_FAULT_PROXY_H_
#define DIVVY_TESTS_E2E_FAULT_PROXY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"

namespace divvy {

// Listens on a free port of 127.0.0.1 and passes what comes on to another, until it is told to
// behave worse. Thread-safe. Passing on is done by a thread of its own; a method that changes
// something returns once nothing passes under the old rules any more (microseconds), and blocks no
// longer.
//
//   ASSIGN_OR_RETURN(auto proxy, FaultProxy::Start("127.0.0.1:4711"));
//   ... a client connects to proxy->address() ...
//   proxy->Swallow(FaultProxy::kFromTarget);   // the peer hears us, but we do not hear it
//   proxy->Heal();
class FaultProxy {
 public:
  // From who has connected to the target; back.
  enum Direction : int { kToTarget = 0, kFromTarget = 1 };

  // `target`: "127.0.0.1:port"; nobody need listen there yet. InvalidArgument: no such address;
  // others are the operating system's.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(const std::string& target);
  ~FaultProxy();  // cuts what is there, joins
  FaultProxy(const FaultProxy&) = delete;

  std::string address() const { return address_; }

  // Every connection ends in a reset, on both sides.
  void CutAll();
  // As CutAll, once exactly `bytes` more have passed in that direction.
  void CutAfter(Direction direction, int64_t bytes);
  // New connections go to another port of 127.0.0.1 from now on; those that are there stay. Not
  // ended by Heal.
  absl::Status Retarget(const std::string& target);
  // New connections are reset at once; those that are there stay.
  void Refuse();
  // Half-open: what is sent in that direction is taken and thrown away.
  void Swallow(Direction direction);
  // A partition: what is sent in that direction waits, at first here and then with the sender, and
  // arrives after Heal.
  void Stall(Direction direction);
  // Every byte arrives that much later.
  void Delay(absl::Duration delay);
  // Ends all of the above. Connections that have lost bytes are cut: their streams make no sense
  // any more.
  void Heal();
  // One of the faults that Heal ends, by its number: 0 to kNumFaults - 1.
  static constexpr int kNumFaults = 6;
  void Inject(int fault, Direction direction, Random& random);

  int64_t bytes(Direction direction) const;  // passed on so far
  int open_connections() const;
  int accepted() const;  // connections so far, refused ones apart
  // Blocks until so many bytes have passed, or so many connections are open. False: not within
  // `timeout`.
  bool WaitForBytes(Direction direction, int64_t bytes, absl::Duration timeout);
  bool WaitForConnections(int open, absl::Duration timeout);

 private:
  struct Rules {
    int target_port = 0;
    bool refuse = false;
    std::array<bool, 2> swallow = {}, stall = {};
    absl::Duration delay;
    std::array<std::optional<int64_t>, 2> cut_after;  // new ones: the loop takes them
    bool cut_all = false, cut_lossy = false;          // once
  };
  struct Counts {
    std::array<int64_t, 2> bytes = {};
    int open = 0, accepted = 0;
  };
  class Loop;

  FaultProxy(Descriptor listener, Rules rules, std::string address);
  template <typename Change>
  void Apply(Change change);
  // The loop's side. TakeRules ends the changes that count once; false: stop.
  bool TakeRules(Rules& rules);
  void Publish(const Counts& counts);
  void Wake();

  const std::string address_;
  const Descriptor wake_;  // eventfd
  mutable Mutex mu_;
  CondVar changed_;
  Rules rules_ DIVVY_GUARDED_BY(mu_);
  // changes of rules
  uint64_t wanted_ DIVVY_GUARDED_BY(mu_) = 0, taken_ DIVVY_GUARDED_BY(mu_) = 0,
                   applied_ DIVVY_GUARDED_BY(mu_) = 0;
  bool stopping_ DIVVY_GUARDED_BY(mu_) = false;
  Counts counts_ DIVVY_GUARDED_BY(mu_);
  ThreadPoolExecutor thread_{1};  // last: joined first
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_FAULT_PROXY_H_
