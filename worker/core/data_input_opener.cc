#include "worker/core/data_input_opener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cluster/error.h"
#include "data/dataset.h"
#include "data/guarded.h"
#include "strategy/strategy.h"

namespace divvy {
namespace {

absl::Status Gone(ResourceId iterator) {
  return MakeError(Reason::kInputAborted, absl::StrCat("iterator ", iterator.value(), " is not open on this worker: it was closed, or lost with its session"));
}

struct Opened {
  std::unique_ptr<DatasetIterator> iterator;
  std::optional<int64_t> elements;
  bool fetch_to_device = true;
};

// What a dataset function finds current: this worker's replicas, no variables.
StrategyParts PartsFor(const InputContext& context, Executor& executor) {
  StrategyParts parts;
  parts.executor = &executor;
  parts.replica_devices.assign(static_cast<size_t>(context.num_replicas_in_sync), Device{});
  return parts;
}

absl::StatusOr<Opened> OpenData(const MakeResource& resource, const InputContext& context, Executor& executor) {
  const BoundDataSource source(resource.source, resource.args);
  ASSIGN_OR_RETURN(const InputOptions options, DataSourceRegistry::Options(resource.source));
  Strategy strategy(PartsFor(context, executor));
  const StrategyScope scope = strategy.Scope();
  RETURN_IF_ERROR(scope.status());
  ASSIGN_OR_RETURN(Dataset dataset, DataSourceRegistry::Open(source, context));
  const int64_t ahead = options.prefetch_per_replica * context.num_replicas_in_sync;
  if (ahead > 0) dataset = dataset.Prefetch(ahead);
  Opened opened{dataset.Iterate({nullptr, &executor}), std::nullopt, options.fetch_to_device};
  opened.elements = opened.iterator->size();
  return opened;
}

}  // namespace

// One iterator of this worker. An iterator has one reader at a time, and no lock is held while it reads.
class DataInputOpener::Cursor {
 public:
  explicit Cursor(ResourceId id) : id_(id) {}

  void SetOpened(absl::StatusOr<Opened> opened) {
    MutexLock lock(mu_);
    if (opened.ok()) {
      iterator_ = std::move(opened->iterator);
      fetch_to_device_ = opened->fetch_to_device;
    } else {
      error_ = opened.status();
    }
    opened_ = true;
    changed_.NotifyAll();
  }

  bool fetches_to_device() {
    MutexLock lock(mu_);
    return fetch_to_device_;
  }

  void Close() {
    MutexLock lock(mu_);
    closed_ = true;
    changed_.NotifyAll();
  }

  absl::StatusOr<std::vector<Nest>> Read(std::optional<int64_t> first, int64_t count) {
    RETURN_IF_ERROR(Acquire());
    absl::StatusOr<std::vector<Nest>> elements =
        internal::Guarded<absl::StatusOr<std::vector<Nest>>>("reading data", [&] { return ReadAcquired(first, count); });
    if (!elements.ok()) position_.reset();
    MutexLock lock(mu_);
    busy_ = false;
    changed_.NotifyAll();
    return elements;
  }

 private:
  absl::Status Acquire() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return closed_ || (opened_ && !busy_); });
    if (closed_) return Gone(id_);
    RETURN_IF_ERROR(error_);
    busy_ = true;
    return absl::OkStatus();
  }

  // REQUIRES: acquired.
  absl::StatusOr<std::vector<Nest>> ReadAcquired(std::optional<int64_t> first, int64_t count) {
    if (first && first != position_) RETURN_IF_ERROR(iterator_->Seek(*first));
    if (first) position_ = first;
    std::vector<Nest> elements;
    while (static_cast<int64_t>(elements.size()) < count) {
      ASSIGN_OR_RETURN(std::optional<Nest> element, iterator_->Next());
      if (!element) break;
      elements.push_back(*std::move(element));
      if (position_) ++*position_;
    }
    return elements;
  }

  const ResourceId id_;
  Mutex mu_;
  CondVar changed_;
  bool opened_ DIVVY_GUARDED_BY(mu_) = false, closed_ DIVVY_GUARDED_BY(mu_) = false, busy_ DIVVY_GUARDED_BY(mu_) = false;
  absl::Status error_ DIVVY_GUARDED_BY(mu_);
  bool fetch_to_device_ DIVVY_GUARDED_BY(mu_) = true;
  std::unique_ptr<DatasetIterator> iterator_;  // its reader's, while busy_
  std::optional<int64_t> position_ = 0;        // of iterator_, where known; its reader's
};

void DataInputOpener::Open(const MakeResource& resource, int worker_index, int num_workers, int replicas, ResultCallback<std::optional<int64_t>> done) {
  const auto cursor = std::make_shared<Cursor>(resource.iterator);
  {
    MutexLock lock(mu_);
    cursors_[resource.iterator] = cursor;
  }
  InputContext context;
  context.num_replicas_in_sync = replicas;
  context.worker_index = worker_index;
  context.num_workers = num_workers;
  context.seed = resource.leased ? resource.seed : MixSeeds(resource.seed, static_cast<uint64_t>(worker_index));
  executor_.PostBlocking("open data", [&executor = executor_, cursor, resource, context, done = std::move(done)] {
    absl::StatusOr<Opened> opened = internal::Guarded<absl::StatusOr<Opened>>("the data source", [&] { return OpenData(resource, context, executor); });
    absl::StatusOr<std::optional<int64_t>> elements = std::optional<int64_t>();
    if (opened.ok()) {
      elements = opened->elements;
    } else {
      elements = opened.status();
    }
    cursor->SetOpened(std::move(opened));
    done(std::move(elements));
  });
}

void DataInputOpener::Close(ResourceId iterator) {
  std::shared_ptr<Cursor> cursor;
  {
    MutexLock lock(mu_);
    const auto found = cursors_.find(iterator);
    if (found == cursors_.end()) return;
    cursor = std::move(found->second);
    cursors_.erase(found);
  }
  cursor->Close();
  executor_.PostBlocking("close data", [cursor = std::move(cursor)] {});  // the iterator's end may wait for what it reads ahead
}

std::shared_ptr<DataInputOpener::Cursor> DataInputOpener::Find(ResourceId iterator) {
  MutexLock lock(mu_);
  const auto found = cursors_.find(iterator);
  return found == cursors_.end() ? nullptr : found->second;
}

absl::StatusOr<std::vector<Nest>> DataInputOpener::Read(ResourceId iterator, std::optional<int64_t> first, int64_t count) {
  const std::shared_ptr<Cursor> cursor = Find(iterator);
  if (cursor == nullptr) return Gone(iterator);
  return cursor->Read(first, count);
}

bool DataInputOpener::FetchesToDevice(ResourceId iterator) {
  const std::shared_ptr<Cursor> cursor = Find(iterator);
  return cursor != nullptr && cursor->fetches_to_device();
}

}  // namespace divvy
