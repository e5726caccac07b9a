// Data in a live process: opened and read on threads that may block.
#ifndef DIVVY_WORKER_CORE_DATA_INPUT_OPENER_H_
#define DIVVY_WORKER_CORE_DATA_INPUT_OPENER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "tensor/nest.h"
#include "worker/core/step_runner.h"

namespace divvy {

// The InputOpener of a worker: calls the registered DataSource functions. One of a worker; steps
// read through it.
class DataInputOpener : public InputOpener {
 public:
  // Elements that are read ahead of their step are brought to `replica_devices`; where none of
  // these is a GPU none are, for a dataset that prefetches has them at hand. REQUIRES: `executor`
  // outlives this and every Open; this outlives every Read.
  explicit DataInputOpener(Executor& executor, std::vector<Device> replica_devices = {});

  // The context of a leased source is the same on every worker but for worker_index; of another its
  // seed is made from the resource's and the index.
  void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
            ResultCallback<OpenedInput> done) override;
  void Close(ResourceId iterator) override;
  // Positions are read ahead only once they are what the iterator gives next: so it never goes back
  // for a step before.
  void ReadAhead(const InputLease& positions) override;
  void ForgetAhead(const InputLease& positions) override;
  // All that has been read ahead, or is being read: it will be read again. For when a device has
  // met a failure, and what was on its way there may be spoilt.
  void ForgetAhead();

  // Up to `count` elements of the iterator: those from position `first` on, sought where they do
  // not follow what was read last, or (without `first`) the next ones. Fewer: the data has ended.
  // Blocks, first until the iterator is open. The error of the source, or of reading. Aborted with
  // Reason::kInputAborted: it is not open on this worker, or was closed. Elements that were read
  // ahead may lie on the replicas' devices already, in replica order.
  absl::StatusOr<std::vector<Nest>> Read(ResourceId iterator, std::optional<int64_t> first,
                                         int64_t count);
  // Whether what it gives is to be brought to the replicas' devices
  // (InputOptions::fetch_to_device). REQUIRES: it has been read from, or it does not matter.
  bool FetchesToDevice(ResourceId iterator);

 private:
  class Cursor;
  std::shared_ptr<Cursor> Find(ResourceId iterator);

  Executor& executor_;
  const std::shared_ptr<const std::vector<Device>> devices_;  // empty: nothing is read ahead
  Mutex mu_;
  std::map<ResourceId, std::shared_ptr<Cursor>> cursors_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_DATA_INPUT_OPENER_H_
