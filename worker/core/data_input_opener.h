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

// The InputOpener of a worker: calls the registered DataSource functions. One of a worker; steps read through it.
class DataInputOpener : public InputOpener {
 public:
  // REQUIRES: `executor` outlives this and every Open; this outlives every Read.
  explicit DataInputOpener(Executor& executor) : executor_(executor) {}

  // The context of a leased source is the same on every worker but for worker_index; of another its seed is made from the resource's and the index.
  void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas, ResultCallback<std::optional<int64_t>> done) override;
  void Close(ResourceId iterator) override;

  // Up to `count` elements of the iterator: those from position `first` on, sought where they do not follow what was read last, or (without `first`) the next
  // ones. Fewer: the data has ended. Blocks, first until the iterator is open. The error of the source, or of reading. Aborted with Reason::kInputAborted:
  // it is not open on this worker, or was closed.
  absl::StatusOr<std::vector<Nest>> Read(ResourceId iterator, std::optional<int64_t> first, int64_t count);
  // Whether what it gives is to be brought to the replicas' devices (InputOptions::fetch_to_device). REQUIRES: it has been read from, or it does not matter.
  bool FetchesToDevice(ResourceId iterator);

 private:
  class Cursor;
  std::shared_ptr<Cursor> Find(ResourceId iterator);

  Executor& executor_;
  Mutex mu_;
  std::map<ResourceId, std::shared_ptr<Cursor>> cursors_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_DATA_INPUT_OPENER_H_
