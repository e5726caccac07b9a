// Datasets that combine others: Zip, Concatenate, FlatMap, Interleave, Unbatch, and Cache, which
// keeps what it has read.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/guarded.h"
#include "base/status_macros.h"
#include "data/progress.h"
#include "data/recipes.h"
#include "data/stacking.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

// ---- Zip

class ZipIterator : public PositionedIterator {
 public:
  ZipIterator(std::vector<Source> sources, std::vector<std::string> keys)
      : sources_(std::move(sources)), keys_(std::move(keys)) {}

 private:
  Element At(int64_t position) override {
    Nest::List elements;
    for (Source& source : sources_) {
      ASSIGN_OR_RETURN(std::optional<Nest> element, source.At(position));
      if (!element) return std::nullopt;
      elements.push_back(*std::move(element));
    }
    if (keys_.empty()) return Nest(std::move(elements));
    Nest::Dict dict;
    for (size_t i = 0; i < keys_.size(); ++i) dict.emplace(keys_[i], std::move(elements[i]));
    return Nest(std::move(dict));
  }

  std::optional<int64_t> KnownSize() override {
    std::optional<int64_t> least;
    for (Source& source : sources_) {
      const std::optional<int64_t> size = source.size();
      if (!size) return std::nullopt;
      least = std::min(least.value_or(*size), *size);
    }
    return least;
  }

  std::vector<Source> sources_;
  // Empty: elements are lists.
  const std::vector<std::string> keys_;
};

// ---- Concatenate

class ConcatenateIterator : public RowIterator {
 public:
  ConcatenateIterator(std::vector<Source> sources, const DataEnvironment& environment) {
    for (Source& source : sources)
      parts_.emplace_back(std::move(source), environment, "Concatenate");
  }

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    for (MeasuredSource& part : parts_) {
      const size_t had = rows.size();
      RETURN_IF_ERROR(part.Rows(position, most, rows));
      if (rows.size() > had) return absl::OkStatus();
      position -= *part.length();
    }
    return absl::OkStatus();
  }

  std::optional<int64_t> KnownSize() override {
    std::optional<int64_t> sum = 0;
    for (MeasuredSource& part : parts_) {
      const std::optional<int64_t> size = part.size();
      sum = size && sum ? MultiplyAdd(1, *sum, *size) : std::nullopt;
    }
    return sum;
  }

  std::vector<MeasuredSource> parts_;
};

// ---- FlatMap, Interleave

absl::StatusOr<Dataset> Expand(absl::string_view what, const ExpandFn& fn, const Nest& element) {
  return internal::Guarded<absl::StatusOr<Dataset>>(what, [&] { return fn(element); });
}

class FlatMapIterator : public RowIterator {
 public:
  FlatMapIterator(Source source, const DataEnvironment& environment, ExpandFn fn)
      : source_(std::move(source)),
        environment_(environment),
        clock_(ClockOf(environment)),
        fn_(std::move(fn)) {}

 private:
  // What one element of the source has become.
  using Part = absl::StatusOr<MeasuredSource>;

  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    if (position < first_) {
      first_ = number_ = 0;
      part_.reset();
    }
    Progress progress(clock_);
    while (true) {
      Open();
      if (!part_) return absl::OkStatus();
      if (part_->ok()) {
        const size_t had = rows.size();
        RETURN_IF_ERROR((*part_)->Rows(position - first_, most, rows));
        if (rows.size() > had) return absl::OkStatus();
        first_ += *(*part_)->length();
      } else {
        // A bad element counts as one, so that a Seek past it works.
        if (position == first_ || !IsOfAnElement(part_->status())) return part_->status();
        ++first_;
      }
      ++number_;
      part_.reset();
      progress.Tick([&] {
        return absl::StrCat("FlatMap has expanded ", number_, " elements on the way to element ",
                            position);
      });
    }
  }

  // Makes part_ that of element number_ of the source, or null at the end.
  void Open() {
    if (part_) return;
    const Element element = source_.At(number_);
    if (element.ok() && !*element) return;
    part_.emplace(element.ok() ? PartOf(**element) : Part(element.status()));
  }

  Part PartOf(const Nest& element) const {
    ASSIGN_OR_RETURN(const Dataset dataset, Expand("a FlatMap function", fn_, element));
    return MeasuredSource(Source(dataset.recipe(), environment_), environment_, "FlatMap");
  }

  Source source_;
  const DataEnvironment environment_;
  const Clock& clock_;
  const ExpandFn fn_;
  int64_t number_ = 0;  // of the source's element that is open, or is opened next
  int64_t first_ = 0;   // the position of its first element
  std::optional<Part> part_;
};

// As TensorFlow's deterministic interleave: a slot whose dataset has ended gets the next element
// of the source when its turn comes again.
class InterleaveIterator : public PositionedIterator {
 public:
  InterleaveIterator(Source source, const DataEnvironment& environment, ExpandFn fn,
                     int64_t cycle_length, int64_t block_length)
      : source_(std::move(source)),
        environment_(environment),
        clock_(ClockOf(environment)),
        fn_(std::move(fn)),
        slots_(static_cast<size_t>(cycle_length)),
        block_length_(block_length) {}

 private:
  struct Slot {
    Source source;
    int64_t next = 0;  // the position of its next element
  };

  Element At(int64_t position) override {
    if (position < next_) {
      for (std::optional<Slot>& slot : slots_) slot.reset();
      next_ = number_ = taken_ = 0;
      turn_ = open_ = 0;
      ended_ = false;
    }
    Progress progress(clock_);
    while (next_ < position) {
      const Element element = Step(/*counts_errors=*/true);
      if (!element.ok() && !IsOfAnElement(element.status())) return element;
      if (element.ok() && !*element) return std::nullopt;
      progress.Tick([&] {
        return absl::StrCat("Interleave has read ", next_, " elements on the way to element ",
                            position);
      });
    }
    return Step(/*counts_errors=*/false);
  }

  // Takes the next element. An error is taken as an element if `counts_errors`, so that a Seek past
  // it works; otherwise it is not taken, and the next call returns it again.
  Element Step(bool counts_errors) {
    while (!ended_ || open_ > 0) {
      std::optional<Slot>& slot = slots_[turn_];
      if (!slot && ended_) {
        NextTurn();
      } else if (!slot) {
        const absl::Status opened = Open(slot);
        if (opened.ok()) continue;
        if (counts_errors) ++number_, ++next_;
        return opened;
      } else {
        Element element = slot->source.At(slot->next);
        if (element.ok() ? element->has_value() : counts_errors) {
          ++slot->next;
          ++next_;
          if (++taken_ == block_length_) NextTurn();
        }
        if (!element.ok() || *element) return element;
        slot.reset();
        --open_;
        NextTurn();
      }
    }
    return std::nullopt;
  }

  // Opens the source's next element in a free slot; the slot stays free at the source's end.
  absl::Status Open(std::optional<Slot>& slot) {
    ASSIGN_OR_RETURN(const std::optional<Nest> element, source_.At(number_));
    ended_ = !element;
    if (ended_) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Dataset dataset, Expand("an Interleave function", fn_, *element));
    ++number_;
    slot.emplace(Slot{Source(dataset.recipe(), environment_)});
    ++open_;
    return absl::OkStatus();
  }

  void NextTurn() {
    taken_ = 0;
    turn_ = (turn_ + 1) % slots_.size();
  }

  Source source_;
  const DataEnvironment environment_;
  const Clock& clock_;
  const ExpandFn fn_;
  std::vector<std::optional<Slot>> slots_;
  const int64_t block_length_;
  int64_t next_ = 0;    // the position of the next element
  int64_t number_ = 0;  // the next element of the source
  int64_t taken_ = 0;   // from the slot whose turn it is
  size_t turn_ = 0, open_ = 0;
  bool ended_ = false;  // the source
};

// ---- Unbatch

class UnbatchIterator : public RowIterator {
 public:
  UnbatchIterator(Source source, const DataEnvironment& environment)
      : source_(std::move(source)), clock_(ClockOf(environment)) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    Progress progress(clock_);
    while (true) {
      // The last batch that begins at `position` or before. Empty batches begin where others do.
      const auto after = std::upper_bound(begins_.begin(), begins_.end(), position);
      const int64_t number = after - begins_.begin() - 1, begin = *(after - 1);
      absl::StatusOr<int64_t> count = Load(number);
      if (!count.ok()) {
        if (position == begin || !IsOfAnElement(count.status())) return count.status();
        count = 1;  // A bad batch counts as one element, so that a Seek past it works.
      } else if (batch_ == nullptr) {
        return absl::OkStatus();
      }
      if (position - begin < *count) {
        rows.Add(batch_, position - begin, std::min(most, *count - (position - begin)));
        return absl::OkStatus();
      }
      begins_.push_back(begin + *count);
      progress.Tick([&] {
        return absl::StrCat("Unbatch has read ", number + 1, " batches on the way to element ",
                            position);
      });
    }
  }

  // Makes batch_ that of this number, or null at the end. Returns the number of its rows.
  absl::StatusOr<int64_t> Load(int64_t number) {
    if (number_ == number && batch_ != nullptr) return batch_->count();
    batch_.reset();
    number_ = number;
    ASSIGN_OR_RETURN(std::optional<Nest> batch, source_.At(number));
    if (!batch) return 0;
    const absl::StatusOr<int64_t> count = NumRows(*batch);
    if (!count.ok()) return WithContext(count.status(), "Unbatch");
    batch_ = Block::OfRows(*std::move(batch), *count, layout_);
    layout_ = batch_->layout();
    return *count;
  }

  Source source_;
  const Clock& clock_;
  // Where each batch begins, as far as they have been read; the last one is the next to be read.
  std::vector<int64_t> begins_ = {0};
  int64_t number_ = -1;  // of batch_
  std::shared_ptr<const Block> batch_;
  std::shared_ptr<const BlockLayout> layout_;
};

// ---- Cache

// Keeps elements in pieces of kPiece consecutive ones, each read when one of its elements is first
// asked for. So a worker that reads parts of a pass keeps only these.
class CacheIterator : public RowIterator {
 public:
  explicit CacheIterator(Source source) : source_(std::move(source)) {}

 private:
  static constexpr int64_t kPiece = 1024;
  struct Piece {
    RowList rows;
    // Whether an error came behind these rows: what follows is not kept.
    bool is_cut = false;
  };

  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    std::shared_ptr<const Piece>& piece = pieces_[position / kPiece];
    if (piece == nullptr) {
      ASSIGN_OR_RETURN(piece, Read(position / kPiece * kPiece));
    }
    const int64_t place = position % kPiece;
    const int64_t left = static_cast<int64_t>(piece->rows.size()) - place;
    if (left <= 0) return piece->is_cut ? source_.Rows(position, 1, rows) : absl::OkStatus();
    rows.Add(piece, /*kept_rows=*/0,
             piece->rows.refs().subspan(static_cast<size_t>(place),
                                        static_cast<size_t>(std::min(left, most))));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Piece>> Read(int64_t first) {
    auto piece = std::make_shared<Piece>();
    for (int64_t have = 0; have < kPiece; have = static_cast<int64_t>(piece->rows.size())) {
      piece->is_cut = !source_.Rows(first + have, kPiece - have, piece->rows).ok();
      if (static_cast<int64_t>(piece->rows.size()) == have) break;
    }
    RETURN_IF_ERROR(piece->rows.Tidy(RowList::Tail::kAny));
    return piece;
  }

  std::optional<int64_t> KnownSize() override { return source_.size(); }

  Source source_;
  std::map<int64_t, std::shared_ptr<const Piece>> pieces_;
};

// ---- recipes

// A dataset of several sources. `Make` makes its iterator from them.
class SeveralRecipe : public DatasetRecipe {
 public:
  using Make =
      std::function<std::unique_ptr<DatasetIterator>(std::vector<Source>, const DataEnvironment&)>;
  SeveralRecipe(std::vector<Recipe> sources, Make make)
      : sources_(std::move(sources)), make_(std::move(make)) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const override {
    std::vector<Source> sources;
    for (const Recipe& source : sources_) sources.emplace_back(source, environment);
    return make_(std::move(sources), environment);
  }

 private:
  const std::vector<Recipe> sources_;
  const Make make_;
};

}  // namespace

Recipe ZipRecipe(std::vector<Recipe> sources, std::vector<std::string> keys) {
  return std::make_shared<SeveralRecipe>(
      std::move(sources),
      [keys = std::move(keys)](std::vector<Source> sources, const DataEnvironment&) {
        return std::make_unique<ZipIterator>(std::move(sources), keys);
      });
}

Recipe ConcatenateRecipe(std::vector<Recipe> sources) {
  return std::make_shared<SeveralRecipe>(
      std::move(sources), [](std::vector<Source> sources, const DataEnvironment& environment) {
        return std::make_unique<ConcatenateIterator>(std::move(sources), environment);
      });
}

Recipe FlatMapRecipe(Recipe source, ExpandFn fn) {
  return MakeTransform<FlatMapIterator>(
      std::move(source), Rules(ElementOrder::kNew, /*keeps_all=*/true), std::move(fn));
}

Recipe InterleaveRecipe(Recipe source, ExpandFn fn, int64_t cycle_length, int64_t block_length) {
  return MakeTransform<InterleaveIterator>(std::move(source),
                                           Rules(ElementOrder::kNew, /*keeps_all=*/true),
                                           std::move(fn), cycle_length, block_length);
}

Recipe UnbatchRecipe(Recipe source) {
  return MakeTransform<UnbatchIterator>(std::move(source),
                                        Rules(ElementOrder::kNew, /*keeps_all=*/true));
}

Recipe CacheRecipe(Recipe source) {
  return MakeTransform<CacheIterator>(std::move(source),
                                      Rules(ElementOrder::kSame, /*keeps_all=*/true));
}

}  // namespace divvy::data_internal
