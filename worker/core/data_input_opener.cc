#include "worker/core/data_input_opener.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/guarded.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/trace_range.h"
#include "data/dataset.h"
#include "protocol/error.h"
#include "strategy/step.h"
#include "strategy/strategy.h"
#include "worker/core/element_digest.h"

namespace divvy {
namespace {

absl::Status Gone(ResourceId iterator) {
  return MakeError(
      Reason::kInputAborted,
      absl::StrCat("iterator ", iterator.value(),
                   " is not open on this worker: it was closed, or lost with its session"));
}

// An iterator whose next elements can be looked at. Elements that have been looked at are kept, and
// are not read again unless Seek moves past them.
class PeekedIterator : public DatasetIterator {
 public:
  using Element = absl::StatusOr<std::optional<Nest>>;
  explicit PeekedIterator(std::unique_ptr<DatasetIterator> iterator)
      : iterator_(std::move(iterator)) {}

  // The next `count` elements, or fewer at the end of the data. If reading one of them fails, Peek
  // returns its error, and Next will return it, too. REQUIRES: called once, before Next and Seek.
  absl::StatusOr<Nest::List> Peek(int64_t count) {
    Nest::List elements;
    while (static_cast<int64_t>(elements.size()) < count) {
      const Element& next = next_.emplace_back(iterator_->Next());
      RETURN_IF_ERROR(next);
      if (!*next) break;
      elements.push_back(**next);
    }
    return elements;
  }
  Element Next() override {
    ++position_;
    if (next_.empty()) return iterator_->Next();
    Element next = std::move(next_.front());
    next_.pop_front();
    return next;
  }
  // An element that has been looked at is not read again, because a source of text would have to
  // start from its beginning.
  absl::Status Seek(int64_t position) override {
    const auto is_element = [](const Element& next) { return next.ok() && next->has_value(); };
    while (position_ < position && !next_.empty() && is_element(next_.front()))
      next_.pop_front(), ++position_;
    if (position_ == position && !next_.empty()) return absl::OkStatus();
    next_.clear();
    position_ = position;
    return iterator_->Seek(position);
  }
  std::optional<int64_t> size() override { return iterator_->size(); }

 private:
  const std::unique_ptr<DatasetIterator> iterator_;
  std::deque<Element> next_;  // elements that have been read and not yet returned
  int64_t position_ = 0;      // of the next element to be returned
};

struct Opened {
  std::unique_ptr<DatasetIterator> iterator;
  OpenedInput input;
  bool fetch_to_device = true;
};

// The current strategy of a dataset function: this worker's replicas, no variables.
StrategyParts PartsFor(const InputContext& context, Executor& executor) {
  StrategyParts parts;
  parts.executor = &executor;
  parts.replica_devices.assign(static_cast<size_t>(context.num_replicas_in_sync), Device{});
  return parts;
}

// Number of elements that the coordinator compares between workers. Two workers that shuffle ten
// elements differently begin with the same element in 1 of 10 passes, and with the same three
// elements in 1 of 720.
constexpr int64_t kMostCompared = 3;

// Every worker reads the first elements, so that the coordinator can compare them. It reads no more
// elements than the prefetch reads anyway beside the first step; that number is the same on every
// worker. If an element cannot be read, there is no digest, and the step that reads it gets the
// error.
void PeekAtFirst(Opened& opened, int64_t ahead) {
  auto peeked = std::make_unique<PeekedIterator>(std::move(opened.iterator));
  const absl::StatusOr<Nest::List> first = peeked->Peek(std::min(kMostCompared, 1 + ahead));
  if (first.ok() && !first->empty()) opened.input.first = DigestOf(Nest(*first));
  opened.iterator = std::move(peeked);
}

absl::StatusOr<Opened> OpenData(const MakeResource& resource, const InputContext& context,
                                Executor& executor) {
  const BoundDataSource source(resource.source, resource.args);
  ASSIGN_OR_RETURN(const InputOptions options, DataSourceRegistry::Options(resource.source));
  Strategy strategy(PartsFor(context, executor));
  const StrategyScope scope = strategy.Scope();
  RETURN_IF_ERROR(scope.status());
  ASSIGN_OR_RETURN(Dataset dataset, DataSourceRegistry::Open(source, context));
  const int64_t ahead = options.prefetch_per_replica * context.num_replicas_in_sync;
  if (ahead > 0) dataset = dataset.Prefetch(ahead);
  Opened opened{dataset.Iterate({nullptr, &executor}), {}, options.fetch_to_device};
  opened.input.elements = opened.iterator->size();
  if (resource.leased) PeekAtFirst(opened, ahead);
  return opened;
}

}  // namespace

// One iterator of this worker. An iterator has one reader at a time: a step, or the task that
// prefetches for one. No lock is held during a read.
//
// A background task prefetches wanted positions, as long as the iterator gives them next. This is
// checked after every read, and whenever positions are wanted.
class DataInputOpener::Cursor : public std::enable_shared_from_this<Cursor> {
 public:
  using Elements = absl::StatusOr<std::vector<Nest>>;

  Cursor(ResourceId id, Executor& executor, std::shared_ptr<const std::vector<Device>> devices)
      : id_(id), executor_(executor), devices_(std::move(devices)) {}

  void SetOpened(absl::StatusOr<Opened> opened) {
    {
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
    ReadOnIfWanted();
  }

  bool fetches_to_device() {
    MutexLock lock(mu_);
    return fetch_to_device_;
  }

  void Close() {
    const std::map<int64_t, Ahead> forgotten = [this] {
      MutexLock lock(mu_);
      closed_ = true;
      changed_.NotifyAll();
      return std::exchange(ahead_, {});
    }();
  }

  Elements Read(std::optional<int64_t> first, int64_t count) {
    std::optional<Elements> ahead;
    RETURN_IF_ERROR(Acquire(first, count, ahead));
    if (ahead) return *std::move(ahead);
    Elements elements = ReadAcquired(first, count);
    Release();
    ReadOnIfWanted();
    return elements;
  }

  void Want(const InputLease& positions) {
    {
      MutexLock lock(mu_);
      ahead_[positions.first].count =
          std::min(positions.count, static_cast<int64_t>(devices_->size()));
    }
    ReadOnIfWanted();
  }

  void Forget(int64_t first) {
    std::map<int64_t, Ahead>::node_type forgotten;  // destroyed after the lock
    MutexLock lock(mu_);
    forgotten = ahead_.extract(first);
  }

  void ForgetWhatHasBegun() {
    std::vector<std::map<int64_t, Ahead>::node_type> forgotten;  // destroyed after the lock
    MutexLock lock(mu_);
    for (auto next = ahead_.begin(); next != ahead_.end();) {
      const auto one = next++;
      if (one->second.begun) forgotten.push_back(ahead_.extract(one));
    }
  }

 private:
  // A prefetch of positions.
  struct Ahead {
    int64_t count = 0;
    bool begun = false;
    std::optional<Elements> elements;
  };

  // Waits until the iterator is free or the wanted elements have been prefetched. In the second
  // case `ahead` gets the elements, and the iterator is not acquired.
  absl::Status Acquire(std::optional<int64_t> first, int64_t count,
                       std::optional<Elements>& ahead) {
    MutexLock lock(mu_);
    const auto is_here = [&]() DIVVY_REQUIRES(mu_) {
      const auto found = first ? ahead_.find(*first) : ahead_.end();
      return found != ahead_.end() && found->second.elements && found->second.count == count;
    };
    changed_.Wait(
        mu_, [&]() DIVVY_REQUIRES(mu_) { return closed_ || (opened_ && (!busy_ || is_here())); });
    if (closed_) return Gone(id_);
    RETURN_IF_ERROR(error_);
    if (is_here()) ahead = std::move(ahead_.find(*first)->second.elements);
    if (first) ahead_.erase(*first);
    if (!ahead) busy_ = true;
    return absl::OkStatus();
  }

  void Release() {
    MutexLock lock(mu_);
    busy_ = false;
    changed_.NotifyAll();
  }

  // REQUIRES: acquired.
  Elements ReadAcquired(std::optional<int64_t> first, int64_t count) {
    Elements elements =
        internal::Guarded<Elements>("reading data", [&] { return ReadOn(first, count); });
    if (!elements.ok()) position_.reset();
    return elements;
  }

  Elements ReadOn(std::optional<int64_t> first, int64_t count) {
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

  // The wanted positions that the iterator gives next, if the iterator is free; else null.
  Ahead* NextWanted() DIVVY_REQUIRES(mu_) {
    if (!opened_ || closed_ || busy_ || !error_.ok() || !fetch_to_device_ || !position_)
      return nullptr;
    const auto next = ahead_.find(*position_);
    return next == ahead_.end() || next->second.begun ? nullptr : &next->second;
  }

  void ReadOnIfWanted() {
    {
      MutexLock lock(mu_);
      if (NextWanted() == nullptr) return;
    }
    executor_.PostBlocking("read ahead", [self = shared_from_this()] { self->ReadAllAhead(); });
  }

  // Ends when the next positions are not wanted, or when the iterator has another reader. That
  // reader checks again for wanted positions.
  void ReadAllAhead() {
    for (;;) {
      int64_t first = 0, count = 0;
      {
        MutexLock lock(mu_);
        Ahead* const next = NextWanted();
        if (next == nullptr) return;
        next->begun = busy_ = true;
        first = *position_;
        count = next->count;
      }
      Elements elements = ReadAcquired(first, count);
      if (elements.ok()) BringToDevices(*elements);
      Keep(first, std::move(elements));
    }
  }

  // If a GPU has no room now, it may have room when the step begins. The step copies the rest.
  void BringToDevices(std::vector<Nest>& elements) const {
    const TraceRange range("batch ahead");
    for (size_t id = 0; id < elements.size(); ++id) {
      absl::StatusOr<Nest> there = BatchOn(elements[id], (*devices_)[id]);
      if (!there.ok()) return;
      elements[id] = *std::move(there);
    }
  }

  // Keeps the elements if they are still wanted.
  void Keep(int64_t first, Elements elements) {
    MutexLock lock(mu_);
    const auto wanted = ahead_.find(first);
    if (wanted != ahead_.end() && wanted->second.begun)
      wanted->second.elements.emplace(std::exchange(elements, std::vector<Nest>()));
    busy_ = false;
    changed_.NotifyAll();
  }

  const ResourceId id_;
  Executor& executor_;
  const std::shared_ptr<const std::vector<Device>> devices_;
  Mutex mu_;
  CondVar changed_;
  bool opened_ DIVVY_GUARDED_BY(mu_) = false, closed_ DIVVY_GUARDED_BY(mu_) = false,
               busy_ DIVVY_GUARDED_BY(mu_) = false;
  absl::Status error_ DIVVY_GUARDED_BY(mu_);
  bool fetch_to_device_ DIVVY_GUARDED_BY(mu_) = true;
  // By first position.
  std::map<int64_t, Ahead> ahead_ DIVVY_GUARDED_BY(mu_);
  // Owned by the reader while busy_.
  std::unique_ptr<DatasetIterator> iterator_;
  // Position of iterator_, if it is known. Owned by the reader while busy_, else guarded by mu_.
  std::optional<int64_t> position_ = 0;
};

namespace {

std::shared_ptr<const std::vector<Device>> IfAnyIsGpu(std::vector<Device> devices) {
  const bool any = std::any_of(devices.begin(), devices.end(),
                               [](Device device) { return device.kind == Device::Kind::kGpu; });
  if (!any) devices.clear();
  return std::make_shared<const std::vector<Device>>(std::move(devices));
}

}  // namespace

DataInputOpener::DataInputOpener(Executor& executor, std::vector<Device> replica_devices)
    : executor_(executor), devices_(IfAnyIsGpu(std::move(replica_devices))) {}

void DataInputOpener::Open(const MakeResource& resource, int worker_index, int num_workers,
                           int replicas, ResultCallback<OpenedInput> done) {
  const auto cursor = std::make_shared<Cursor>(resource.iterator, executor_, devices_);
  {
    MutexLock lock(mu_);
    cursors_[resource.iterator] = cursor;
  }
  InputContext context;
  context.num_replicas_in_sync = replicas;
  context.worker_index = worker_index;
  context.num_workers = num_workers;
  context.seed = resource.leased ? resource.seed
                                 : MixSeeds(resource.seed, static_cast<uint64_t>(worker_index));
  executor_.PostBlocking(
      "open data", [&executor = executor_, cursor, resource, context, done = std::move(done)] {
        absl::StatusOr<Opened> opened = internal::Guarded<absl::StatusOr<Opened>>(
            "the data source", [&] { return OpenData(resource, context, executor); });
        absl::StatusOr<OpenedInput> input =
            opened.ok() ? absl::StatusOr<OpenedInput>(opened->input) : opened.status();
        cursor->SetOpened(std::move(opened));
        done(std::move(input));
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
  // Destroying the iterator may wait for its prefetch.
  executor_.PostBlocking("close data", [cursor = std::move(cursor)] {});
}

std::shared_ptr<DataInputOpener::Cursor> DataInputOpener::Find(ResourceId iterator) {
  MutexLock lock(mu_);
  const auto found = cursors_.find(iterator);
  return found == cursors_.end() ? nullptr : found->second;
}

absl::StatusOr<std::vector<Nest>> DataInputOpener::Read(ResourceId iterator,
                                                        std::optional<int64_t> first,
                                                        int64_t count) {
  const std::shared_ptr<Cursor> cursor = Find(iterator);
  if (cursor == nullptr) return Gone(iterator);
  return cursor->Read(first, count);
}

void DataInputOpener::ReadAhead(const InputLease& positions) {
  const std::shared_ptr<Cursor> cursor = devices_->empty() ? nullptr : Find(positions.iterator);
  if (cursor != nullptr) cursor->Want(positions);
}

void DataInputOpener::ForgetAhead(const InputLease& positions) {
  const std::shared_ptr<Cursor> cursor = devices_->empty() ? nullptr : Find(positions.iterator);
  if (cursor != nullptr) cursor->Forget(positions.first);
}

void DataInputOpener::ForgetAhead() {
  std::map<ResourceId, std::shared_ptr<Cursor>> cursors;
  {
    MutexLock lock(mu_);
    cursors = cursors_;
  }
  for (const auto& [id, cursor] : cursors) cursor->ForgetWhatHasBegun();
}

bool DataInputOpener::FetchesToDevice(ResourceId iterator) {
  const std::shared_ptr<Cursor> cursor = Find(iterator);
  return cursor != nullptr && cursor->fetches_to_device();
}

}  // namespace divvy
