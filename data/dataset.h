// Recipes for streams of examples, the iterators that carry them out, and dataset functions known
// by name in every process.
//
//   absl::StatusOr<Dataset> Digits(const InputContext& input, bool training) {
//     Dataset digits = Dataset::Csv("digits.csv.gz", {{"image", DType::kFloat32, 0, /*width=*/64},
//     {"label", DType::kInt64}}); digits = training ? digits.HoldOut(5, 0).Shuffle(2000,
//     input.seed) : digits.Shard(5, 0); return digits.Batch(32);
//   }
//   const DataSource kDigits("digits", Digits);     // kDigits(true) is what a coordinator is given
#ifndef DIVVY_DATA_DATASET_H_
#define DIVVY_DATA_DATASET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "data/input_context.h"
#include "data/parse_example.h"
#include "data/tensor_spec.h"
#include "tensor/argument.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy {

class Clock;
class Executor;
class FileSystem;

// One or more adjacent fields of each line. A column is a scalar if width is 1, else a tensor
// [width]. Text in a number's place is DataLoss, with its file and line.
//
//   {"price"}   {"pixels", DType::kUInt8, 0, /*width=*/784}   {"city", DType::kString,
//   /*hash_buckets=*/10'000}   {"item", DType::kInt64, 0, 1, /*below=*/500}
struct CsvColumn {
  std::string name;  // its key in the elements; each once
  DType dtype = DType::kFloat32;
  // > 0: any text (dtype kString says so best), hashed to an int64 below it
  int64_t hash_buckets = 0;
  // > 1: so many fields; where a header names columns, its name stands over the first of them
  int64_t width = 1;
  // > 0: integers in [0, below), the rows of a table; any other is DataLoss, with its file and line
  int64_t below = 0;
  // What becomes of nan and inf in a column of floating numbers: DataLoss, with file and line, or
  // an element like others, for a Map or Filter that knows what they stand for. One that reaches a
  // loss makes every parameter that it touches NaN.
  enum class NotFinite { kRefused, kTaken } not_finite = NotFinite::kRefused;
};

// What Dataset::Libsvm makes of a label. SigmoidCrossEntropy wants 0 and 1; many files of the
// libsvm collection have -1 and +1, some 1 and 2.
enum class LibsvmLabels {
  kAsWritten,
  // -1 and 0 become 0, +1 stays 1; any other label is DataLoss, with its file and line
  kBinary,
  // 1 becomes 0, 2 becomes 1; any other likewise
  kOneTwo,
};

// Through what iterators reach the world. All must outlive the iterators, and the executor its own
// tasks.
struct DataEnvironment {
  // null: FileSystem::Real()
  FileSystem* files = nullptr;
  // For Prefetch, which without one reads when asked, and Map with several calls.
  Executor* executor = nullptr;
  // null: Clock::Real(). An element that is long in coming is told of in the log, every 10 s
  const Clock* clock = nullptr;
};

// A pass over a dataset. One thread at a time. Next and Seek block: they read files and call
// functions of the user.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;

  // The element at the position, which then moves on by one; nullopt: the end (again and again).
  // After an error the position is unspecified until a Seek; a Seek past the bad element goes on
  // behind it where elements can be told apart without it.
  virtual absl::StatusOr<std::optional<Nest>> Next() = 0;

  // Moves to element `position` of this dataset, forward or back: Next then gives what a fresh
  // iterator gives after so many calls. Past the end is no error, Next says so. Cheap (the cost of
  // one element, or of one window for Shuffle) but for Filter, IgnoreErrors and Generator, which
  // read forward, from the start to go back; text is read forward once. InvalidArgument: a negative
  // position.
  virtual absl::Status Seek(int64_t position) = 0;

  // The number of elements, where it can be known without reading elements (Idx opens its files, so
  // this may block), or once an end has been met. nullopt: not known, endless, or an error that
  // Next will tell.
  virtual std::optional<int64_t> size() = 0;
};

// How a kind of dataset is made; for kinds beyond those below. Immutable, thread-safe.
class DatasetRecipe {
 public:
  virtual ~DatasetRecipe() = default;
  virtual std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const = 0;
  // By default the spec of the first element, with SparseIds known to vary.
  virtual absl::StatusOr<std::map<std::string, TensorSpec>> ElementSpec(
      const DataEnvironment& environment) const;
};

// A recipe for a stream of Nests; nothing is opened until it is iterated. Copyable, immutable,
// thread-safe. Errors, also those of arguments (Batch(0), Shard(2, 2)), come out of the iterator's
// Next: InvalidArgument for arguments, DataLoss for bad bytes (with file and line or offset),
// NotFound for files; the file system's own. Map and Filter functions must be thread-safe: passes
// may run at the same time. What a function of the program throws is Unknown.
//
// What is called as a method of tf.data.Dataset does what that does, where nothing else is said;
// FromTensors is its from_tensor_slices.
//
//   Dataset clicks = Dataset::TfRecord("clicks-*", Parse).Filter(HasLabel).Shuffle(10'000,
//   input.seed); clicks = clicks.Map(Features, /*parallel_calls=*/4).Batch(256).Prefetch(2);
//   std::unique_ptr<DatasetIterator> pass = clicks.Iterate();
//   ASSIGN_OR_RETURN(std::optional<Nest> batch, pass->Next());      // nullopt: the end
//
// Files of records are names, globs (wildcards in the last part of a path) or "name@N"
// (name-00000-of-0000N and so on), read in the order of their names. Files of any format may be
// gzip or zlib: told by their first bytes, not their names. A file is held in memory while it is
// read.
class Dataset {
 public:
  explicit Dataset(std::shared_ptr<const DatasetRecipe> recipe) : recipe_(std::move(recipe)) {}

  // Row i of every leaf is element i. SparseIds are sliced into SparseIds of one row.
  // InvalidArgument: leaves that differ in rows, or have none.
  static Dataset FromTensors(Nest rows);
  // {"image": uint8 [h, w], "label": uint8 []}; in general row i of each array, in the type of its
  // file (int16 becomes int32). DataLoss: not as many labels as images. The names are taken as they
  // are.
  static Dataset Idx(std::string images, std::string labels);
  // {"features": SparseIds of one row with weights, ids as written, "label": float32 []}. A "qid:"
  // is read and dropped. DataLoss, with file and line: nan or inf; and, where `below` is above 0,
  // an id outside [0, below), the rows of its table (ids count from 1 in most files: so one more
  // than there are features).
  static Dataset Libsvm(std::string files, int64_t below = 0,
                        LibsvmLabels labels = LibsvmLabels::kAsWritten);
  // {name: scalar or [width]}. By name if the first line of a file has all names, and then other
  // fields are ignored; else by position.
  static Dataset Csv(std::string files, std::vector<CsvColumn> columns, char separator = ',');
  // Lines of label, 13 counts and 26 categories, parted by tabs (the Criteo display ads and
  // terabyte logs): {"label": float32 [], 0 or 1, "dense": float32 [13], the counts as written (nan
  // and inf are refused), 0 where there is none, "sparse": int64 [26]}. A category is hashed
  // (HashText, as in Csv) to any number from 0 on: Map it below the rows of its table. Parted by
  // commas, as samples of these logs are passed around, where a file's first line has no tab; if
  // that begins with "label" it is a header, and passed over.
  static Dataset CriteoTsv(std::string files);
  // What `parse` makes of each record. The record's memory is lent for the call. DataLoss, with the
  // number of the record in its file, counted from 1, and the byte where it begins: a checksum that
  // does not fit, or a record that is cut off; so say errors of `parse` too.
  static Dataset TfRecord(std::string files,
                          std::function<absl::StatusOr<Nest>(absl::string_view record)> parse);
  // element(i) for i in [0, size); size -1: until it gives nullopt, or for ever. REQUIRES: a
  // function of the index alone. InvalidArgument: nullopt before a given size.
  static Dataset Generator(
      std::function<absl::StatusOr<std::optional<Nest>>(int64_t index)> element, int64_t size);

  // Calls `fn` for up to `parallel_calls` elements at once, on the environment's executor; without
  // one, or with 1, where the element is asked for. The order is kept. Reads ahead by as many.
  Dataset Map(std::function<absl::StatusOr<Nest>(const Nest&)> fn,
              int64_t parallel_calls = 1) const;
  Dataset Filter(std::function<absl::StatusOr<bool>(const Nest&)> keep) const;
  // Passes over up to `limit` elements of a pass that are DataLoss or InvalidArgument (bad lines
  // and records, errors of `parse` and Map), the first of them with a word each in the log, and
  // their number at the end. The one after that is the error, as are all of other codes; a file
  // that cannot be decompressed is one at each try. Stands best right behind what it is for. Read
  // forward, as Filter; each iterator counts what it reads.
  Dataset IgnoreErrors(int64_t limit) const;
  // Permutes within windows of so many elements, by a permutation that depends on seed and window
  // number alone. Unlike tf.data's sliding buffer, any position can be sought. Holds a window in
  // memory.
  Dataset Shuffle(int64_t window, uint64_t seed) const;
  // -1: for ever. A pass without elements ends it
  Dataset Repeat(int64_t times = -1) const;
  // elements index, index + num_shards, ...
  Dataset Shard(int num_shards, int index) const;
  // All the others: train on HoldOut(5, 0), test on Shard(5, 0).
  Dataset HoldOut(int num_shards, int index) const;
  // The first n.
  Dataset Take(int64_t n) const;
  // All but the first n.
  Dataset Skip(int64_t n) const;
  // Stacks tensors along a new axis 0; SparseIds of one row become one CSR batch. The last batch
  // may be smaller, unless it is dropped. InvalidArgument: elements that differ in structure, dtype
  // or shape, or with leaves that have no rows (texts).
  Dataset Batch(int64_t size, bool drop_remainder = false) const;
  // reads so many ahead, on the environment's executor
  Dataset Prefetch(int64_t elements) const;

  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment = {}) const;
  // By path, "features/ids"; a lone tensor has the path "". Opens the data for one element. -1
  // where the recipe knows that a dimension varies: rows of a batch that is not cut evenly, ids of
  // SparseIds. OutOfRange: no element is there to look at.
  absl::StatusOr<std::map<std::string, TensorSpec>> ElementSpec(
      const DataEnvironment& environment = {}) const;

  const std::shared_ptr<const DatasetRecipe>& recipe() const { return recipe_; }

 private:
  std::shared_ptr<const DatasetRecipe> recipe_;
};

// How a pass is dealt out to workers.
enum class AutoShardPolicy {
  // Every worker opens the same sequence; the coordinator gives each position to one step, once:
  // each element is visited exactly once per pass, whatever dies and whoever joins. REQUIRES: a
  // function of its arguments and context alone. Filter and Generator are read forward, not sought.
  kLease,
  // Every worker sees everything (TensorFlow under parameter servers).
  kOff,
  // kFile if there are at least as many files as workers, else kData
  kAuto,
  // worker i of W reads files i, i + W, ... in the order of their names. InvalidArgument: fewer
  // files than workers, or data of no files
  kFile,
  // worker i of W takes every W-th record of the sources, below batching, shuffling, mapping and
  // repeating, but above what chooses (Filter, Take, Skip, Shard, HoldOut). REQUIRES: what is below
  // such a choice is the same on every worker, not shuffled by the context's seed
  kData,
  // TensorFlow's "where I say": InvalidArgument, for Dataset::Shard says it
  kHint,
};
// With kAuto, kFile and kData the worker's part is taken of what the function returns, so the
// function shards nothing by itself. A worker that comes back during a pass reads its part from the
// beginning. A pass does not wait for a worker that is away: what is left of its part is not read,
// and a warning in the log says so.

// Of a DataSource: how its data are dealt out, where a step finds them, and how far workers read
// ahead.
struct InputOptions {
  AutoShardPolicy policy = AutoShardPolicy::kLease;
  // A batch comes to where its replica computes, but for sparse ids; false: all of it stays on the
  // CPU.
  bool fetch_to_device = true;
  // elements that a worker reads ahead, for each replica; changes no result
  int64_t prefetch_per_replica = 2;
};

// A DataSource with its arguments: a value, which travels as its name and arguments. What a
// coordinator or a trainer is given, as often as wanted: each pass calls the function anew.
class BoundDataSource {
 public:
  BoundDataSource(std::string name, Nest args) : name_(std::move(name)), args_(std::move(args)) {}
  absl::string_view name() const { return name_; }
  const Nest& args() const { return args_; }  // a list

 private:
  std::string name_;
  Nest args_;
};

// What is known of a dataset function in this process. Made by DataSource's constructor.
struct RegisteredDataSource {
  std::string name;
  // besides the InputContext
  int num_args = 0;
  // Of its argument types; equal in processes built from the same source by the same compiler. To
  // compare, not to read.
  std::string signature;
  InputOptions options;
  std::function<absl::StatusOr<Dataset>(const InputContext&, const Nest& args)> open;
};

// The dataset functions of this process. Thread-safe. Filled before `main` by the constructors of
// DataSource; lives forever.
class DataSourceRegistry {
 public:
  // Never fails: a double name is kept for Validate.
  static void Add(RegisteredDataSource source);
  // NotFound: lists the sources there are. The pointer is valid forever; of a double name the
  // first.
  static absl::StatusOr<const RegisteredDataSource*> Get(absl::string_view name);
  // In name order, each once.
  static std::vector<std::string> Names();
  static absl::StatusOr<InputOptions> Options(absl::string_view name);  // NotFound, as Get
  // Calls the function, on this thread, and takes this worker's part of its data where the source's
  // policy says so. Of `context` the pipelines are set here. NotFound, as Get; InvalidArgument:
  // arguments of another number or type, or data sharded over the workers by the function and by
  // the policy; the function's own error. Each says which source it was.
  static absl::StatusOr<Dataset> Open(const BoundDataSource& source, const InputContext& context);
  // To be asked at start. InvalidArgument: every name that is empty or was given to two functions,
  // and every kHint, all at once.
  static absl::Status Validate();
};

// A dataset function: code does not travel, its name and arguments do. Define it `const` at
// namespace scope, once. Build the whole pipeline inside; it is called on each worker for each
// pass. The elements are batches for ONE replica; a step takes one for each.
template <typename... Args>
class DataSource {
 public:
  // `function`: StatusOr<Dataset>(const InputContext&, Args...).
  template <typename F>
  DataSource(absl::string_view name, F function, InputOptions options = {}) : name_(name) {
    DataSourceRegistry::Add(
        {name_, static_cast<int>(sizeof...(Args)), typeid(std::tuple<Args...>).name(), options,
         [function](const InputContext& context, const Nest& args) -> absl::StatusOr<Dataset> {
           DIVVY_ASSIGN_OR_RETURN(auto decoded, NestCodec<std::tuple<Args...>>::Decode(args));
           return std::apply(
               [&](auto&... values) { return function(context, std::move(values)...); }, decoded);
         }});
  }

  // What a coordinator or trainer is given: kClicks("2026-11-*"). An argument that might be cut on
  // its way to the function's type does not compile, as in Schedule.
  BoundDataSource operator()(const internal::Parameter<Args>&... args) const {
    return BoundDataSource(name_, Nest(Nest::List{NestCodec<Args>::Encode(args)...}));
  }
  absl::string_view name() const { return name_; }

 private:
  std::string name_;
};

template <typename... Args>
DataSource(absl::string_view, absl::StatusOr<Dataset> (*)(const InputContext&, Args...))
    -> DataSource<std::decay_t<Args>...>;
template <typename... Args>
DataSource(absl::string_view, absl::StatusOr<Dataset> (*)(const InputContext&, Args...),
           InputOptions) -> DataSource<std::decay_t<Args>...>;

}  // namespace divvy

#endif  // DIVVY_DATA_DATASET_H_
