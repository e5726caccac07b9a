// The kinds of datasets. Internal to data/: programs use the methods of Dataset, which document
// each kind and check its arguments.
#ifndef DIVVY_DATA_RECIPES_H_
#define DIVVY_DATA_RECIPES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/block.h"
#include "data/dataset.h"

namespace divvy::data_internal {

using Recipe = std::shared_ptr<const DatasetRecipe>;
// nullopt: past the end.
using Element = absl::StatusOr<std::optional<Nest>>;
// False: an error, or the end.
inline bool IsElement(const Element& element) { return element.ok() && element->has_value(); }

// An iterator that computes each element from its position, so a seek only sets the position. An
// error belongs to its position: Next returns it again until a Seek moves elsewhere.
class PositionedIterator : public DatasetIterator {
 public:
  Element Next() final;
  absl::Status Seek(int64_t position) final;
  std::optional<int64_t> size() final;

  // Adds the elements from `position` on to `rows`: some, but at most `most`. None: `position` is
  // past the end. An error is that of element `position`. Does not depend on Seek and does not
  // change what Next returns. REQUIRES: position >= 0, most >= 1.
  absl::Status RowsAt(int64_t position, int64_t most, RowList& rows);
  // As RowsAt for elements position, position + step, ... REQUIRES: step >= 1
  absl::Status EveryRowAt(int64_t position, int64_t step, int64_t most, RowList& rows);

 protected:
  // The element at `position`. Cheap if `position` is one more than in the previous call. Every
  // position past the end is nullopt too.
  virtual Element At(int64_t position) = 0;
  // As RowsAt. The default adds one element, as At returns it.
  virtual absl::Status Rows(int64_t position, int64_t most, RowList& rows);
  // As EveryRowAt, with a step above 1. The default adds one element, as Rows does.
  virtual absl::Status EveryRow(int64_t position, int64_t step, int64_t most, RowList& rows) {
    return Rows(position, 1, rows);
  }
  // The size, if it is known before Next has reached the end.
  virtual std::optional<int64_t> KnownSize() { return std::nullopt; }

 private:
  int64_t position_ = 0;
  // One more than the position of the last element that Next returned.
  int64_t behind_last_seen_ = 0;
  std::optional<int64_t> learnt_size_;
};

// A PositionedIterator that passes on rows of blocks, and makes an element of its own of one only
// where Next asks for it.
class RowIterator : public PositionedIterator {
 protected:
  Element At(int64_t position) final;
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override = 0;

 private:
  RowList one_;
};

// An iterator that makes blocks of consecutive elements, or of every so many-th, and keeps the last
// one. A block has as many rows as are asked for, and more from one to the next as long as the
// elements are read in order, up to kMostRows.
class BlockIterator : public PositionedIterator {
 public:
  static constexpr int64_t kMostRows = 4096;

 protected:
  // A block of the elements position, position + step, ...: some, but at most `most`. Null:
  // `position` is past the end. An error is that of element `position`.
  virtual absl::StatusOr<std::shared_ptr<const Block>> BlockAt(int64_t position, int64_t step,
                                                               int64_t most) = 0;

  Element At(int64_t position) final;
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) final {
    return EveryRow(position, 1, most, rows);
  }
  absl::Status EveryRow(int64_t position, int64_t step, int64_t most, RowList& rows) final;

 private:
  // Makes the element at `position` one of block_, or block_ null at the end.
  absl::Status Load(int64_t position, int64_t step, int64_t most);

  std::shared_ptr<const Block> block_;
  int64_t first_ = 0;  // the position of the first row of block_
  int64_t step_ = 1;   // from each row to the next
  int64_t end_ = 0;    // the position of the row that would follow the last block
  int64_t rows_ahead_ = 1;
};

// The iterator of the dataset from which another one is made. At(p) seeks only if necessary.
class Source {
 public:
  Source(const Recipe& recipe, const DataEnvironment& environment)
      : iterator_(recipe->Iterate(environment)),
        positioned_(dynamic_cast<PositionedIterator*>(iterator_.get())) {}
  Element At(int64_t position);
  // As PositionedIterator::RowsAt.
  absl::Status Rows(int64_t position, int64_t most, RowList& rows);
  // As PositionedIterator::EveryRowAt.
  absl::Status EveryRow(int64_t position, int64_t step, int64_t most, RowList& rows);
  std::optional<int64_t> size() { return iterator_->size(); }

 private:
  std::unique_ptr<DatasetIterator> iterator_;
  PositionedIterator* positioned_;  // iterator_, or null if it is of another kind
  // The position of the next Next; nullopt after an error.
  std::optional<int64_t> position_ = 0;
};

// A source whose length is wanted, but only at its end. Asking for its size before each element
// would interrupt a source that reads ahead. So the size is asked for once, and counted if it is
// still unknown when the end has been passed.
class MeasuredSource {
 public:
  // `reader` is for log lines.
  MeasuredSource(Source source, const DataEnvironment& environment, std::string reader);
  // As Source::Rows. If it adds none, `position` is past the end, and length() is known.
  absl::Status Rows(int64_t position, int64_t most, RowList& rows);
  std::optional<int64_t> length() const { return length_; }
  std::optional<int64_t> size() { return length_ ? length_ : source_.size(); }

 private:
  absl::StatusOr<int64_t> Count();

  Source source_;
  const Clock* clock_;
  std::string reader_;
  bool asked_ = false;
  std::optional<int64_t> length_;
};

// Whether the error belongs to one element, after which reading can continue. Other errors prevent
// that.
inline bool IsOfAnElement(const absl::Status& error) {
  return error.code() == absl::StatusCode::kDataLoss ||
         error.code() == absl::StatusCode::kInvalidArgument;
}

// a * b + c; nullopt on overflow. A position that overflows is past every end.
std::optional<int64_t> MultiplyAdd(int64_t a, int64_t b, int64_t c);

// Returns `status` with "`where`: " before its message.
absl::Status WithContext(const absl::Status& status, absl::string_view where);

// sources.cc
Recipe FailedRecipe(absl::Status reason);
// The rows of the Nest that `load` returns. Each iterator calls it once.
Recipe RowsRecipe(std::function<absl::StatusOr<Nest>(const DataEnvironment&)> load);
Recipe IdxRecipe(std::string images, std::string labels);
Recipe GeneratorRecipe(std::function<Element(int64_t)> element, int64_t size);

// csv_source.cc
Recipe CsvRecipe(std::string files, std::vector<CsvColumn> columns, char separator);

// text_sources.cc
Recipe LibsvmRecipe(std::string files, int64_t below, LibsvmLabels labels);
Recipe CriteoRecipe(std::string files, CriteoKeys keys);
Recipe TextLinesRecipe(std::string files);

// tfrecord_source.cc
using ParseRecord = std::function<absl::StatusOr<Nest>(absl::string_view record)>;
Recipe TfRecordRecipe(std::string files, ParseRecord parse);
Recipe ExampleRecipe(std::string files, std::vector<ExampleFeature> features);

// map.cc
using MapFn = std::function<absl::StatusOr<Nest>(const Nest&)>;
Recipe MapRecipe(Recipe source, MapFn fn, int64_t parallel_calls);
Recipe MapBatchesRecipe(Recipe source, MapFn fn, int64_t rows);

// transforms.cc. `source` is the recipe of the dataset the method is called on.
Recipe FilterRecipe(Recipe source, std::function<absl::StatusOr<bool>(const Nest&)> keep);
Recipe IgnoreErrorsRecipe(Recipe source, int64_t limit);
Recipe ShuffleRecipe(Recipe source, int64_t window, uint64_t seed);
Recipe RepeatRecipe(Recipe source, int64_t times);
Recipe ShardRecipe(Recipe source, int64_t num_shards, int64_t index);
Recipe HoldOutRecipe(Recipe source, int64_t num_shards, int64_t index);
Recipe TakeRecipe(Recipe source, int64_t n);
Recipe SkipRecipe(Recipe source, int64_t n);
Recipe BatchRecipe(Recipe source, int64_t size, bool drop_remainder);

// combine.cc
using ExpandFn = std::function<absl::StatusOr<Dataset>(const Nest&)>;
// `keys`: one for each source, or empty if elements are lists.
Recipe ZipRecipe(std::vector<Recipe> sources, std::vector<std::string> keys);
Recipe ConcatenateRecipe(std::vector<Recipe> sources);
Recipe FlatMapRecipe(Recipe source, ExpandFn fn);
Recipe InterleaveRecipe(Recipe source, ExpandFn fn, int64_t cycle_length, int64_t block_length);
Recipe UnbatchRecipe(Recipe source);
Recipe CacheRecipe(Recipe source);

// auto_shard.cc
Recipe AutoShardRecipe(Recipe source, AutoShardPolicy policy, int64_t num_workers, int64_t worker);

// rebatch.cc
Recipe RebatchRecipe(Recipe source, std::vector<int64_t> sizes, bool drop_remainder);
Recipe SplitEachRecipe(Recipe source, int64_t parts);

// prefetch.cc
Recipe PrefetchRecipe(Recipe source, int64_t elements);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_RECIPES_H_
