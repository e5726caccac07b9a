// Datasets: recipes for streams of examples, the iterators that execute them, and dataset functions
// that every process knows by name.
//
//   absl::StatusOr<Dataset> Digits(const InputContext& input, bool training) {
//     Dataset digits = Dataset::Csv("digits.csv.gz", {{"image", DType::kFloat32, 0, /*width=*/64},
//                                                     {"label", DType::kInt64}});
//     digits = training ? digits.HoldOut(5, 0).Shuffle(2000, input.seed) : digits.Shard(5, 0);
//     return digits.Batch(32);
//   }
//   const DataSource kDigits("digits", Digits);  // a coordinator gets kDigits(true)
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
#include "data/data_environment.h"
#include "data/input_context.h"
#include "data/parse_example.h"
#include "data/tensor_spec.h"
#include "data/text_keys.h"
#include "tensor/argument.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy {

// A column of a CSV file: one or more adjacent fields of each line. It becomes a scalar if width is
// 1, else a tensor [width]. Text where a number is expected is DataLoss, with file and line.
//
//   {"price"}
//   {"pixels", DType::kUInt8, 0, /*width=*/784}
//   {"city", DType::kString, /*hash_buckets=*/10'000}
//   CsvColumn::Text("job", TextKeys::Hashed("job"))
//   {"item", DType::kInt64, 0, 1, /*below=*/500}
struct CsvColumn {
  // A column of text that becomes int64 keys: hashes with a salt, or ids of a vocabulary.
  static CsvColumn Text(std::string name, TextKeys keys, int64_t width = 1) {
    CsvColumn column{std::move(name), DType::kString, 0, width};
    column.keys = std::move(keys);
    return column;
  }

  // Its key in the elements; unique.
  std::string name;
  // kString without hash_buckets and `keys`: the field as it is, a text (Nest::text), or a list of
  // texts if width is above 1. For Vocabulary::MostFrequent, or for a Map (TextsToKeys), since
  // Batch stacks no texts.
  DType dtype = DType::kFloat32;
  // > 0: the field is any text, which is hashed to an int64 below this number, without a salt. Set
  // dtype to kString to make that clear.
  int64_t hash_buckets = 0;
  // > 1: the number of fields. If the file has a header, `name` is the header of the first field.
  int64_t width = 1;
  // > 0: integers in [0, below), such as row numbers of a table. Any other value is DataLoss, with
  // file and line.
  int64_t below = 0;
  // How nan and inf are treated in a floating-point column: kRefused returns DataLoss, with file
  // and line; kTaken passes them on, for a Map or Filter that handles them. If one reaches a loss,
  // every parameter that it affects becomes NaN.
  enum class NotFinite { kRefused, kTaken } not_finite = NotFinite::kRefused;
  // The number that an empty field stands for, as record_defaults of tf.data. Absent: an empty
  // field is DataLoss, with file and line. Not for text, where an empty field is a text like any
  // other. InvalidArgument: `dtype` cannot hold the number, or it is not below `below`.
  std::optional<double> if_empty = {};
  // Makes an int64 of the field, which is any text. Text() sets it. DataLoss, with file and line: a
  // token that a vocabulary without ids for unknown tokens does not have.
  std::optional<TextKeys> keys = {};
};

// Which hashes Dataset::CriteoTsv makes of the categories.
enum class CriteoKeys {
  // A text has the same hash in all columns.
  kByText,
  // A text has another hash in each column, for one table that all columns share. The salts are
  // "C1" to "C26".
  kByColumn,
};

// How Dataset::Libsvm converts labels. SigmoidCrossEntropy needs 0 and 1; many files of the libsvm
// collection have -1 and +1, some have 1 and 2.
enum class LibsvmLabels {
  kAsWritten,
  // -1 and 0 become 0, +1 stays 1. Any other label is DataLoss, with file and line.
  kBinary,
  // 1 becomes 0, 2 becomes 1. Any other label is DataLoss, with file and line.
  kOneTwo,
};

// One pass over a dataset. Not thread-safe: use it from one thread at a time. Next and Seek block:
// they read files and call functions of the program.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;

  // Returns the element at the current position and advances by one. nullopt: the end; later calls
  // return nullopt again. After an error the position is unspecified until a Seek. To continue,
  // seek past the bad element. That works if the dataset can find the next element without reading
  // the bad one.
  virtual absl::StatusOr<std::optional<Nest>> Next() = 0;

  // Moves to element `position`, forward or back. Next then returns what a fresh iterator returns
  // after that many calls. A position past the end is no error; Next returns nullopt there. The
  // cost is that of one element, or of one window for Shuffle. Exceptions: Filter, IgnoreErrors and
  // Generator read forward to the position, and start at element 0 to move back. Files of records
  // are read forward to a position only once. InvalidArgument: a negative position.
  virtual absl::Status Seek(int64_t position) = 0;

  // The number of elements, if it can be known without reading elements, or after the end has been
  // reached. May block: Idx opens its files. nullopt: unknown, endless, or an error that Next will
  // return.
  virtual std::optional<int64_t> size() = 0;
};

// How a kind of dataset is made. Derive from it for kinds that Dataset lacks. Immutable;
// thread-safe.
class DatasetRecipe {
 public:
  virtual ~DatasetRecipe() = default;
  // Begins a pass. Reads no element; all errors come from the iterator's Next. A dataset that is
  // sharded by files lists its files here, so the call may block.
  virtual std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const = 0;
  // The default is the spec of the first element, with the varying dimensions of SparseIds as -1.
  virtual absl::StatusOr<std::map<std::string, TensorSpec>> ElementSpec(
      const DataEnvironment& environment) const;
};

// A recipe for a stream of Nests. Building a recipe opens nothing; Iterate does. Copyable,
// immutable, thread-safe. A method with the name of a tf.data.Dataset method does the same, unless
// its comment says otherwise.
//
//   Dataset clicks = Dataset::TfRecord("clicks-*", Parse).Filter(HasLabel);
//   clicks = clicks.Shuffle(10'000, input.seed).Map(Features, /*parallel_calls=*/4);
//   clicks = clicks.Batch(256).Prefetch(2);
//   std::unique_ptr<DatasetIterator> pass = clicks.Iterate();
//   ASSIGN_OR_RETURN(std::optional<Nest> batch, pass->Next());  // nullopt: the end
//
// All errors are returned by the iterator's Next, including those of arguments such as Batch(0) or
// Shard(2, 2):
//   InvalidArgument  bad arguments
//   DataLoss         bad bytes, with file and line or offset
//   NotFound         missing files
//   Unknown          an exception from a function of the program
//   others           the file system's, or those of a function of the program
//
// Map and Filter functions must be thread-safe, since several passes may run at once.
//
// Files of records are given as a name, a glob (wildcards in the last part of the path) or "name@N"
// (name-00000-of-0000N and so on), and are read in name order. Any file may be compressed with gzip
// or zlib; the first bytes decide, not the name. A file is held in memory while it is read.
//
// Elements of readers of files and of FromTensorSlices travel as rows of columns: up to Batch an
// element has no tensors of its own, unless Next, Map or a Filter function wants it.
class Dataset {
 public:
  explicit Dataset(std::shared_ptr<const DatasetRecipe> recipe) : recipe_(std::move(recipe)) {}

  // Element i is row i of every leaf. SparseIds are sliced into SparseIds of one row.
  // InvalidArgument: leaves without rows, or with different numbers of rows.
  static Dataset FromTensorSlices(Nest rows);
  // Reads a pair of IDX files: element i is {"image": row i of `images`, "label": row i of
  // `labels`}, for MNIST {uint8 [h, w], uint8 []}. The dtype is that of the file (int16 becomes
  // int32). The names are used literally, without globs. DataLoss: the numbers of labels and images
  // differ.
  static Dataset Idx(std::string images, std::string labels);
  // Reads libsvm files: {"features": SparseIds of one row with weights, ids as in the file,
  // "label": float32 []}. A "qid:" is ignored. DataLoss, with file and line: nan or inf, or, if
  // `below` is above 0, an id outside [0, below). `below` is the number of rows of the ids' table;
  // most files count ids from 1, so it is one more than the number of features.
  static Dataset Libsvm(std::string files, int64_t below = 0,
                        LibsvmLabels labels = LibsvmLabels::kAsWritten);
  // Reads CSV files: {name: scalar or [width]}. If the first line of a file has all names, columns
  // are found by name and other fields are ignored. Otherwise they are found by position. Blanks
  // around a number or a name do not count; text is taken as it is.
  static Dataset Csv(std::string files, std::vector<CsvColumn> columns, char separator = ',');
  // Reads the Criteo display ads and terabyte logs: lines of label, 13 counts and 26 categories,
  // separated by tabs. Elements are {"label": float32 [], 0 or 1; "dense": float32 [13]; "sparse":
  // int64 [26]}. "dense" has the counts as written, and 0 for a missing one; nan and inf are
  // refused. "sparse" has a hash of each category, 63 of the 64 bits of TextKey, an integer of at
  // least 0. Reduce it below the number of rows of its table with Map. If the first line of a file
  // has no tab, fields are separated by commas, as in samples of these logs; if that line begins
  // with "label", it is a header and is skipped.
  static Dataset CriteoTsv(std::string files, CriteoKeys keys = CriteoKeys::kByText);
  // Reads TFRecord files; each element is the result of `parse` for a record. The record's memory
  // is valid during the call only. DataLoss: a checksum that does not match, or a record that is
  // cut off. These errors, and those of `parse`, include the record's number in its file, counted
  // from 1, and the byte where it begins.
  static Dataset TfRecord(std::string files,
                          std::function<absl::StatusOr<Nest>(absl::string_view record)> parse);
  // Reads TFRecord files of Examples: as above with ParseExample of `features`, in less time if
  // each has a fixed number of numbers.
  //
  //   Dataset::TfRecord("clicks-*", {{"label"}, {"ids", DType::kInt64, {8}}})
  static Dataset TfRecord(std::string files, std::vector<ExampleFeature> features);
  // Reads files of text: each element is a line without its end, a text (Nest::text). Blank lines
  // are elements, too. Batch stacks no texts, so make keys of them with Map first.
  //
  //   Dataset::TextLines("speech*").Map(TextsToKeys({{"", words, Tokenizer::Words()}})).Batch(64)
  static Dataset TextLines(std::string files);
  // Element i is the list of the elements i of all datasets; of ZipDict a dict of them. Ends with
  // the shortest. InvalidArgument: no dataset.
  static Dataset Zip(std::vector<Dataset> datasets);
  static Dataset ZipDict(std::map<std::string, Dataset> datasets);
  // element(i) for i in [0, size). With size -1 it continues until `element` returns nullopt, or
  // forever. REQUIRES: `element` depends on the index only. InvalidArgument: nullopt before the
  // given size.
  static Dataset Generator(
      std::function<absl::StatusOr<std::optional<Nest>>(int64_t index)> element, int64_t size);

  // Replaces each element by fn(element). Up to `parallel_calls` calls run at once, on the
  // environment's executor. Without an executor, or with 1, the thread that asks for the element
  // calls `fn`. The order is kept. Up to `parallel_calls` elements are prefetched.
  Dataset Map(std::function<absl::StatusOr<Nest>(const Nest&)> fn,
              int64_t parallel_calls = 1) const;
  // Replaces many elements at once: `fn` gets up to `rows` consecutive elements as one batch, as
  // Batch stacks them, and returns as many rows, which become the elements. Takes less time than
  // Map where `fn` does little with each element. REQUIRES: each row of the result depends on its
  // own row only, since which elements are together may differ from call to call. An error of `fn`
  // is that of the first element of its batch. InvalidArgument: rows that cannot be stacked, or
  // another number of rows than `fn` was given.
  //
  //   ratings.MapBatches([](const Nest& batch) -> absl::StatusOr<Nest> {...}).Shuffle(10'000, seed)
  Dataset MapBatches(std::function<absl::StatusOr<Nest>(const Nest& batch)> fn,
                     int64_t rows = 1024) const;
  // The elements of fn(first element), then those of fn(second element), and so on. REQUIRES: `fn`
  // returns an equal dataset whenever it is called with the same element. A seek reads forward
  // through the datasets, or asks for their sizes if they are known; to move back it starts at
  // element 0. An error of `fn` counts as one element.
  //
  //   names.FlatMap([](const Nest& name) -> absl::StatusOr<Dataset> {
  //     ASSIGN_OR_RETURN(std::string file, name.text());
  //     return Dataset::TextLines(file);
  //   });
  Dataset FlatMap(std::function<absl::StatusOr<Dataset>(const Nest&)> fn) const;
  // As FlatMap, but takes turns: `block_length` elements of each of up to `cycle_length` datasets.
  // A dataset that has ended is replaced by the next one when its turn comes again, as with
  // tf.data's deterministic interleave. A seek reads forward.
  Dataset Interleave(std::function<absl::StatusOr<Dataset>(const Nest&)> fn, int64_t cycle_length,
                     int64_t block_length = 1) const;
  // Keeps the elements for which `keep` returns true.
  Dataset Filter(std::function<absl::StatusOr<bool>(const Nest&)> keep) const;
  // Skips up to `limit` elements of a pass that are DataLoss or InvalidArgument: bad lines and
  // records, errors of `parse` and of Map. The log has a line for each of the first 10 bad
  // elements, and their number at the end of the pass. One more bad element than `limit` is an
  // error, and so is every error with another code. A file that cannot be decompressed exceeds any
  // limit, because each read of it fails again. Call IgnoreErrors directly on the dataset whose
  // errors it should skip. A seek reads forward, as for Filter. Each iterator counts its own bad
  // elements.
  Dataset IgnoreErrors(int64_t limit) const;
  // Permutes the elements within windows of `window` elements. The permutation depends on the seed
  // and the window's number only. Unlike with tf.data's sliding buffer, any position can be sought.
  // Holds one window in memory.
  Dataset Shuffle(int64_t window, uint64_t seed) const;
  // Repeats the data `times` times; -1: forever. A pass without elements ends it.
  Dataset Repeat(int64_t times = -1) const;
  // Elements index, index + num_shards, ...
  Dataset Shard(int num_shards, int index) const;
  // The elements that Shard leaves out: train on HoldOut(5, 0), test on Shard(5, 0).
  Dataset HoldOut(int num_shards, int index) const;
  // The first n elements.
  Dataset Take(int64_t n) const;
  // All but the first n elements.
  Dataset Skip(int64_t n) const;
  // Combines `size` elements into one batch. Tensors are stacked along a new axis 0; SparseIds of
  // one row become one CSR batch. The last batch may be smaller; drop_remainder drops it then.
  // InvalidArgument: elements that differ in structure, dtype or shape, or leaves that cannot be
  // stacked (texts).
  Dataset Batch(int64_t size, bool drop_remainder = false) const;
  // The elements of this dataset, then those of `next`.
  Dataset Concatenate(const Dataset& next) const;
  // The inverse of Batch: each row of each element is an element. InvalidArgument: leaves without
  // rows, or with different numbers of rows. A seek reads forward through the batches that have not
  // been read before.
  Dataset Unbatch() const;
  // Keeps the elements that an iterator has read, in memory. So Repeat reads and computes them only
  // once. Keeps runs of 1024 elements, so an iterator that seeks keeps only what is near to where
  // it reads.
  Dataset Cache() const;
  // Prefetches up to `elements` elements on the environment's executor. Without an executor it does
  // nothing.
  Dataset Prefetch(int64_t elements) const;

  // Begins a pass, as DatasetRecipe::Iterate.
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment = {}) const;
  // The dtype and shape of each leaf by its path, such as "features/ids"; a single tensor has the
  // path "". Opens the data and may read one element; blocks. A dimension that is known to vary is
  // -1: the rows of batches that are not all of one size, or the ids of SparseIds. OutOfRange: the
  // dataset is empty.
  absl::StatusOr<std::map<std::string, TensorSpec>> ElementSpec(
      const DataEnvironment& environment = {}) const;

  const std::shared_ptr<const DatasetRecipe>& recipe() const { return recipe_; }

 private:
  std::shared_ptr<const DatasetRecipe> recipe_;
};

// How a pass over the data is distributed over workers.
//
// Under kAuto, kFile and kData, Divvy takes the worker's part of the dataset that the function
// returns, so the function must not shard it over the workers. A worker that reconnects during a
// pass reads its part from the beginning. A pass does not wait for a worker that is unreachable:
// the rest of that worker's part is not read, and the log has a warning.
enum class AutoShardPolicy {
  // Every worker opens the same sequence, and the coordinator leases each position to one step.
  // Each element is visited exactly once per pass, whatever tasks are lost or join. REQUIRES: the
  // sequence depends only on the function's arguments and context. Filter and Generator are read
  // forward, not sought.
  kLease,
  // Every worker reads all data, as TensorFlow does under parameter servers.
  kOff,
  // kFile if there are at least as many files as workers, else kData.
  kAuto,
  // Worker i of W reads files i, i + W, ... in name order. InvalidArgument: fewer files than
  // workers, or data that is not read from files.
  kFile,
  // Worker i of W takes every W-th record of the sources. The cut is below batching, shuffling,
  // mapping and repeating, but above methods that select elements (Filter, Take, Skip, Shard,
  // HoldOut). REQUIRES: the dataset below such a selection is the same on every worker, so it must
  // not be shuffled by the context's seed.
  kData,
  // TensorFlow's HINT. Always InvalidArgument; use Dataset::Shard instead.
  kHint,
};

// The options of a DataSource: how its data is distributed, where batches are placed, and how many
// elements workers prefetch.
struct InputOptions {
  AutoShardPolicy policy = AutoShardPolicy::kLease;
  // True: a batch is copied to its replica's device, except sparse ids, which stay on the CPU.
  // False: the whole batch stays on the CPU.
  bool fetch_to_device = true;
  // The number of elements that a worker prefetches for each replica. It does not change results.
  int64_t prefetch_per_replica = 2;
};

// A DataSource with its arguments. A coordinator or trainer may use it any number of times; each
// pass calls the function again. A value type: only the name and the arguments are sent to workers.
class BoundDataSource {
 public:
  BoundDataSource(std::string name, Nest args) : name_(std::move(name)), args_(std::move(args)) {}
  absl::string_view name() const { return name_; }
  const Nest& args() const { return args_; }  // a list

 private:
  std::string name_;
  Nest args_;
};

// A dataset function that is registered in this process. DataSource's constructor makes it.
struct RegisteredDataSource {
  std::string name;
  // Not counting the InputContext.
  int num_args = 0;
  // Identifies the argument types. It is equal in processes that the same compiler built from the
  // same source. Compare it only; its text has no meaning.
  std::string signature;
  InputOptions options;
  std::function<absl::StatusOr<Dataset>(const InputContext&, const Nest& args)> open;
};

// The dataset functions of this process. Thread-safe. The constructors of DataSource fill it before
// `main`. It is never destroyed.
class DataSourceRegistry {
 public:
  // Never fails: Validate reports a duplicate name.
  static void Add(RegisteredDataSource source);
  // The source with this name; for a duplicate name, the first. The pointer is valid forever.
  // NotFound: no such source; the message lists the known ones.
  static absl::StatusOr<const RegisteredDataSource*> Get(absl::string_view name);
  // All names in order, each once.
  static std::vector<std::string> Names();
  // The source's options. NotFound: as Get.
  static absl::StatusOr<InputOptions> Options(absl::string_view name);
  // Calls the function on this thread. Under kAuto, kFile and kData, returns this worker's part of
  // the function's dataset. Open sets the pipelines of `context`, and passes its other fields to
  // the function unchanged. Blocks as long as the function does.
  //
  // NotFound: as Get. InvalidArgument: arguments of another number or type, kHint, or, under kAuto,
  // kFile and kData, a worker index outside [0, num_workers). Otherwise the function's own error.
  // Each error but NotFound names the source.
  static absl::StatusOr<Dataset> Open(const BoundDataSource& source, const InputContext& context);
  // Call it at start. InvalidArgument: lists every name that is empty or registered twice, and
  // every source with kHint.
  static absl::Status Validate();
};

// A dataset function, known by its name in every process: only its name and arguments are sent to
// workers. Define it `const` at namespace scope, once. Build the whole pipeline inside; each worker
// calls the function for each pass. The elements are batches for ONE replica; a step takes one for
// each replica.
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

  // Binds the arguments, for a coordinator or trainer: kClicks("2026-11-*"). As in Schedule, an
  // argument that could lose a value in conversion to the function's type does not compile.
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
