// A TCP proxy that cuts, delays, stalls or refuses connections on demand.
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

// Listens on a free port of 127.0.0.1 and forwards every connection to a target, until a method
// changes the rules. Thread-safe. A thread of its own forwards the bytes. A method that changes a
// rule blocks until no byte passes under the old rules any more (microseconds).
//
//   ASSIGN_OR_RETURN(auto proxy, FaultProxy::Start("127.0.0.1:4711"));
//   ... a client connects to proxy->address() ...
//   proxy->Swallow(FaultProxy::kFromTarget);   // the target hears the client, but not the reverse
//   proxy->Heal();
class FaultProxy {
 public:
  // kToTarget: from the client to the target. kFromTarget: from the target to the client.
  enum Direction : int { kToTarget = 0, kFromTarget = 1 };

  // `target` is "127.0.0.1:port". Nothing needs to listen there yet. Errors: InvalidArgument for
  // another form of address, or an error of the operating system.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(const std::string& target);
  ~FaultProxy();  // cuts the connections and joins the thread
  FaultProxy(const FaultProxy&) = delete;

  std::string address() const { return address_; }

  // Ends every connection by a reset on both sides.
  void CutAll();
  // The same, once exactly `bytes` more bytes have passed in that direction.
  void CutAfter(Direction direction, int64_t bytes);
  // Forwards new connections to another port of 127.0.0.1; existing ones stay. Heal does not undo
  // this.
  absl::Status Retarget(const std::string& target);
  // Resets new connections at once; existing ones stay.
  void Refuse();
  // Half-open: accepts and discards the bytes sent in that direction.
  void Swallow(Direction direction);
  // A partition: bytes sent in that direction wait, first here and then at the sender. They arrive
  // after Heal.
  void Stall(Direction direction);
  // Delivers every byte later by `delay`.
  void Delay(absl::Duration delay);
  // Ends all of the above. Cuts the connections that have lost bytes, because their streams are no
  // longer valid.
  void Heal();
  // Injects one of the faults that Heal ends, by its number from 0 to kNumFaults - 1.
  static constexpr int kNumFaults = 6;
  void Inject(int fault, Direction direction, Random& random);

  int64_t bytes(Direction direction) const;  // forwarded so far
  int open_connections() const;
  int accepted() const;  // connections so far, without refused ones
  // Block until this many bytes have passed, or this many connections are open. Return false after
  // `timeout`.
  bool WaitForBytes(Direction direction, int64_t bytes, absl::Duration timeout);
  bool WaitForConnections(int open, absl::Duration timeout);

 private:
  struct Rules {
    int target_port = 0;
    bool refuse = false;
    std::array<bool, 2> swallow = {}, stall = {};
    absl::Duration delay;
    std::array<std::optional<int64_t>, 2> cut_after;  // new limits, which the loop takes over
    bool cut_all = false, cut_lossy = false;          // done once
  };
  struct Counts {
    std::array<int64_t, 2> bytes = {};
    int open = 0, accepted = 0;
  };
  class Loop;

  FaultProxy(Descriptor listener, Rules rules, std::string address);
  template <typename Change>
  void Apply(Change change);
  // Called by the loop. TakeRules ends the changes that are done once; it returns false when the
  // loop must stop.
  bool TakeRules(Rules& rules);
  void Publish(const Counts& counts);
  void Wake();

  const std::string address_;
  const Descriptor wake_;  // eventfd
  mutable Mutex mu_;
  CondVar changed_;
  Rules rules_ DIVVY_GUARDED_BY(mu_);
  // Numbers of changes of the rules.
  uint64_t wanted_ DIVVY_GUARDED_BY(mu_) = 0, taken_ DIVVY_GUARDED_BY(mu_) = 0,
                   applied_ DIVVY_GUARDED_BY(mu_) = 0;
  bool stopping_ DIVVY_GUARDED_BY(mu_) = false;
  Counts counts_ DIVVY_GUARDED_BY(mu_);
  ThreadPoolExecutor thread_{1};  // the last member, so it is joined first
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_FAULT_PROXY_H_
