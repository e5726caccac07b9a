// Queues of emulated devices, and the events between them.
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

// Thread-safe. Operations run in one of these manners, all of which are possible on a real device:
//
//   kAtOnce   when they are added
//   kLate     as late as events allow: only when someone waits for an operation, and then only that
//             operation and those that it waits for
//   kAnyTime  some of them whenever one is added, chosen by a seed; the others as kLate
//
// kLate reveals a missing wait between two queues: the data that is read has not been written yet.
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
  bool HasCompleted(Event event);
  void Await(Event event);
  void Release(Event event);
  // All operations that were issued to the queue so far.
  void Finish(int device, Queue queue);
  void FinishAll();

 private:
  class OneQueue;
  struct Point;  // an Event
  void AnyTime();

  const Manner manner_;
  // Held while work runs, since several threads may give work to one device.
  Mutex mu_;
  Random random_;
  std::vector<std::unique_ptr<OneQueue>> streams_;
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_QUEUES_H_
