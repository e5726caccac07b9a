// Data in a process of a cluster: opened and read on threads that may block.
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

// The InputOpener of a worker: calls the registered DataSource functions. A worker has one, and its
// steps read through it. Thread-safe; only Read blocks.
class DataInputOpener : public InputOpener {
 public:
  // Prefetched elements are copied to `replica_devices`. If none of these is a GPU, this class
  // prefetches nothing, because a dataset's own prefetch has its elements on the CPU.
  // REQUIRES: `executor` outlives this and every Open; this outlives every Read.
  explicit DataInputOpener(Executor& executor, std::vector<Device> replica_devices = {});

  // A leased source gets the same InputContext on every worker, except for worker_index. For other
  // sources, the seed also depends on the worker index.
  void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
            ResultCallback<OpenedInput> done) override;
  void Close(ResourceId iterator) override;
  // Positions are prefetched only when the iterator gives them next, so that the iterator never has
  // to seek back for an earlier step.
  void ReadAhead(const InputLease& positions) override;
  void ForgetAhead(const InputLease& positions) override;
  // Drops everything that has been prefetched or is being prefetched; it is read again when a step
  // needs it. Called after a failure of a GPU, because copies that were in flight then may be
  // wrong.
  void ForgetAhead();

  // Reads up to `count` elements of the iterator: from position `first`, seeking there if
  // necessary, or without `first` the next ones. Fewer elements mean that the data has ended.
  // Prefetched elements may already lie on the replicas' devices, in the order of the replicas.
  // Blocks until the iterator is open, and while it reads.
  //
  // Errors: the error of opening the source or of reading it. Aborted with Reason::kInputAborted:
  // the iterator is not open on this worker, or was closed.
  absl::StatusOr<std::vector<Nest>> Read(ResourceId iterator, std::optional<int64_t> first,
                                         int64_t count);
  // Whether the iterator's elements should be copied to the replicas' devices
  // (InputOptions::fetch_to_device). The answer is known after the first Read of the iterator;
  // false for an unknown iterator.
  bool FetchesToDevice(ResourceId iterator);

 private:
  class Cursor;
  std::shared_ptr<Cursor> Find(ResourceId iterator);

  Executor& executor_;
  const std::shared_ptr<const std::vector<Device>> devices_;  // empty: nothing is prefetched
  Mutex mu_;
  std::map<ResourceId, std::shared_ptr<Cursor>> cursors_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_DATA_INPUT_OPENER_H_
