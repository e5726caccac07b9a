// Queues of devices that are none, and the events between them.
#ifndef DIVVY_OPS_CUDA_TESTING_HOST_QUEUES_H_
#define DIVVY_OPS_CUDA_TESTING_HOST_QUEUES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/parallel.h"

namespace divvy::cuda {

// Thread-safe. What is added runs in one of these manners, all of which a device may show:
//   kAtOnce   when it is added
//   kLate     as late as events allow: only when somebody waits for it, and then nothing but it and
//             what it waited for
//   kAnyTime  some of it whenever something is added, by a seed; the rest as kLate
// A missing wait between two queues is seen under kLate: what is read was not yet written.
class HostQueues {
 public:
  enum class Manner { kAtOnce, kLate, kAnyTime };

  HostQueues(int num_devices, Manner manner, uint64_t seed);
  ~HostQueues();

  Manner manner() const { return manner_; }
  HostStream& stream(int device, Queue queue);
  void Add(int device, Queue queue, std::function<void()> work) {
    stream(device, queue).Add(std::move(work));
  }
  Event Record(int device, Queue queue);
  void Wait(int device, Queue queue, Event event);
  bool HasCome(Event event);
  void Await(Event event);
  void Release(Event event);
  // All that the queue was told so far.
  void Finish(int device, Queue queue);
  void FinishAll();

 private:
  class OneQueue;
  struct Point;  // an Event
  void AnyTime();

  const Manner manner_;
  // Held while work runs: several threads may give work to one device.
  Mutex mu_;
  Random random_;
  std::vector<std::unique_ptr<OneQueue>> streams_;
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_QUEUES_H_
