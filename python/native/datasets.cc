#include "python/native/datasets.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/dataset.h"
#include "data/text_keys.h"
#include "python/native/call_python.h"
#include "python/native/errors.h"
#include "python/native/modules.h"
#include "python/native/values.h"

namespace divvy::python {
namespace {

using py::arg;

// As CallPython, for functions of the program that make data.
template <typename Result, typename Fn>
absl::StatusOr<Result> Guarded(Fn&& fn) {
  return CallPython<Result>("a function of the program's data", std::forward<Fn>(fn));
}

// ---- an object with __len__ and __getitem__ -----------------------------------------------------

class RecordsIterator : public DatasetIterator {
 public:
  explicit RecordsIterator(std::string key) : key_(std::move(key)) {}

  absl::StatusOr<std::optional<Nest>> Next() override {
    return Guarded<std::optional<Nest>>([&]() -> std::optional<Nest> {
      if (position_ >= Length()) return std::nullopt;
      const py::object item = Module("_datasets").attr("item")(key_, position_);
      Nest element = NestOf(item, absl::StrCat("record ", position_, " of ", key_));
      ++position_;
      return element;
    });
  }
  absl::Status Seek(int64_t position) override {
    if (position < 0) return absl::InvalidArgumentError("a negative position");
    position_ = position;
    return absl::OkStatus();
  }
  std::optional<int64_t> size() override {
    const absl::StatusOr<int64_t> length = Guarded<int64_t>([&] { return Length(); });
    return length.ok() ? std::optional(*length) : std::nullopt;
  }

 private:
  // REQUIRES: the GIL is held.
  int64_t Length() {
    if (!length_) length_ = Module("_datasets").attr("length")(key_).cast<int64_t>();
    return *length_;
  }

  const std::string key_;
  int64_t position_ = 0;
  std::optional<int64_t> length_;
};

class RecordsRecipe : public DatasetRecipe {
 public:
  explicit RecordsRecipe(std::string key) : key_(std::move(key)) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment&) const override {
    return std::make_unique<RecordsIterator>(key_);
  }

 private:
  const std::string key_;
};

// ---- a generator function -----------------------------------------------------------------------

// Begins the generator again to move back, and reads forward to a position. An exception ends a
// generator of Python: what would have followed is lost. So IgnoreErrors cannot skip such an
// element, and the error stays until the generator begins again.
class GeneratorIterator : public DatasetIterator {
 public:
  GeneratorIterator(std::string key, int worker, int num_workers)
      : key_(std::move(key)), worker_(worker), num_workers_(num_workers) {}
  ~GeneratorIterator() override { Close(); }

  absl::StatusOr<std::optional<Nest>> Next() override {
    if (!broken_.ok()) return broken_;
    bool advanced = false;
    auto element = Guarded<std::optional<Nest>>([&]() -> std::optional<Nest> {
      const std::optional<py::object> item = NextItem();
      advanced = true;
      if (!item) return std::nullopt;
      return NestOf(*item, absl::StrCat("element ", position_ - 1, " of ", key_));
    });
    if (!advanced) Break(element.status());
    return element;
  }
  absl::Status Seek(int64_t position) override {
    if (position < 0) return absl::InvalidArgumentError("a negative position");
    if (position < position_) Close();
    if (position == position_) return absl::OkStatus();
    if (!broken_.ok()) return broken_;
    const absl::Status moved = Guarded<bool>([&] {
                                 while (position_ < position && NextItem()) {
                                 }
                                 return true;
                               }).status();
    if (!moved.ok()) Break(moved);
    return moved;
  }
  std::optional<int64_t> size() override {
    return ended_ ? std::optional(position_) : std::nullopt;
  }

 private:
  // REQUIRES: the GIL is held.
  std::optional<py::object> NextItem() {
    if (!token_)
      token_ = Module("_datasets").attr("begin")(key_, worker_, num_workers_).cast<int64_t>();
    const py::tuple item = Module("_datasets").attr("advance")(*token_);
    if (item.empty()) {
      ended_ = true;
      return std::nullopt;
    }
    ++position_;
    return py::object(item[0]);
  }
  void Break(const absl::Status& raised) {
    broken_ = absl::FailedPreconditionError(
        absl::StrCat("the generator of ", key_, " raised after ", position_,
                     " elements, which ended it, so ignore_errors cannot skip to the next: catch "
                     "the exception in the generator, or use divvy.records. It was: ",
                     raised.message()));
  }
  void Close() {
    broken_ = absl::OkStatus();
    position_ = 0;
    ended_ = false;
    if (!token_) return;
    (void)Guarded<bool>([&] {
      Module("_datasets").attr("close")(*token_);
      return true;
    });
    token_.reset();
  }

  const std::string key_;
  const int worker_, num_workers_;
  std::optional<int64_t> token_;  // of the generator in divvy._datasets
  int64_t position_ = 0;
  bool ended_ = false;
  absl::Status broken_;  // what each further element is, once the generator has raised
};

class GeneratorRecipe : public DatasetRecipe {
 public:
  GeneratorRecipe(std::string key, int worker, int num_workers)
      : key_(std::move(key)), worker_(worker), num_workers_(num_workers) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment&) const override {
    return std::make_unique<GeneratorIterator>(key_, worker_, num_workers_);
  }

 private:
  const std::string key_;
  const int worker_, num_workers_;
};

// ---- functions of the program -------------------------------------------------------------------

absl::StatusOr<Nest> Mapped(const std::string& function, const Nest& element) {
  return Guarded<Nest>([&] {
    const py::object mapped = Module("_datasets").attr("call")(function, ObjectOf(element));
    return NestOf(mapped, absl::StrCat("the result of ", function));
  });
}

absl::StatusOr<bool> Kept(const std::string& function, const Nest& element) {
  return Guarded<bool>([&] {
    return py::bool_(Module("_datasets").attr("call")(function, ObjectOf(element))).cast<bool>();
  });
}

// ---- columns ------------------------------------------------------------------------------------

template <typename T>
T Get(const py::dict& dict, const char* key, T otherwise) {
  return dict.contains(key) && !dict[key].is_none() ? dict[key].cast<T>() : otherwise;
}

DType TypeOfColumn(const py::dict& column) {
  const auto name = column["dtype"].cast<std::string>();
  return name == "string" ? DType::kString : DTypeOfObject(py::str(name));
}

CsvColumn CsvColumnOf(const py::dict& given) {
  CsvColumn column{given["name"].cast<std::string>(), TypeOfColumn(given)};
  column.hash_buckets = Get<int64_t>(given, "hash_buckets", 0);
  column.width = Get<int64_t>(given, "width", 1);
  column.below = Get<int64_t>(given, "below", 0);
  if (Get(given, "allow_nonfinite", false)) column.not_finite = CsvColumn::NotFinite::kTaken;
  if (given.contains("if_empty") && !given["if_empty"].is_none())
    column.if_empty = given["if_empty"].cast<double>();
  if (given.contains("salt") && !given["salt"].is_none()) {
    column.keys = TextKeys::Hashed(given["salt"].cast<std::string>(), column.hash_buckets);
    column.hash_buckets = 0;
  }
  return column;
}

ExampleFeature ExampleFeatureOf(const py::dict& given) {
  ExampleFeature feature{given["name"].cast<std::string>(), TypeOfColumn(given)};
  feature.shape = Shape(absl::MakeConstSpan(Get(given, "shape", std::vector<int64_t>())));
  if (given.contains("salt") && !given["salt"].is_none()) {
    feature.keys =
        TextKeys::Hashed(given["salt"].cast<std::string>(), Get<int64_t>(given, "hash_buckets", 0));
  }
  return feature;
}

template <typename Column>
std::vector<Column> ColumnsOf(const py::list& given, Column (*make)(const py::dict&)) {
  std::vector<Column> columns;
  for (const py::handle column : given) columns.push_back(make(column.cast<py::dict>()));
  return columns;
}

LibsvmLabels LabelsOf(const std::string& name) {
  if (name == "as_written") return LibsvmLabels::kAsWritten;
  if (name == "binary") return LibsvmLabels::kBinary;
  if (name == "one_two") return LibsvmLabels::kOneTwo;
  throw py::value_error(
      absl::StrCat("labels is \"", name, "\": wanted as_written, binary or one_two"));
}

// ---- iteration in this process ------------------------------------------------------------------

// A pass over a dataset in this process.
class Pass {
 public:
  explicit Pass(const Dataset& dataset) : iterator_(dataset.Iterate()) {}
  py::object Next() {
    const std::optional<Nest> element = ValueOf(WithoutGil([&] { return iterator_->Next(); }));
    if (!element) throw py::stop_iteration();
    return ObjectOf(*element);
  }
  std::optional<int64_t> size() {
    return WithoutGil([&] { return iterator_->size(); });
  }
  // Its iterators may call Python while they end, so they end without the GIL.
  ~Pass() {
    const py::gil_scoped_release release;
    iterator_.reset();
  }
  Pass(Pass&&) = default;

 private:
  std::unique_ptr<DatasetIterator> iterator_;
};

// ---- the data sources ---------------------------------------------------------------------------

absl::StatusOr<Dataset> Open(const InputContext& context, const Nest& args) {
  return Guarded<Dataset>([&] {
    py::dict about;
    about["num_input_pipelines"] = context.num_input_pipelines;
    about["input_pipeline_id"] = context.input_pipeline_id;
    about["worker_index"] = context.worker_index;
    about["num_workers"] = context.num_workers;
    about["seed"] = context.seed;
    return Module("_datasets").attr("open")(ObjectOf(args[size_t{0}]), about).cast<Dataset>();
  });
}

void RegisterSources() {
  const std::pair<const char*, AutoShardPolicy> sources[] = {
      {"lease", AutoShardPolicy::kLease}, {"off", AutoShardPolicy::kOff},
      {"auto", AutoShardPolicy::kAuto},   {"file", AutoShardPolicy::kFile},
      {"data", AutoShardPolicy::kData},
  };
  for (const auto& [name, policy] : sources) {
    InputOptions options;
    options.policy = policy;
    DataSourceRegistry::Add({absl::StrCat("python/", name), 1, "recipe", options, &Open});
  }
}

void DefineSourcesOfData(py::class_<Dataset>& dataset) {
  dataset
      .def_static(
          "tensors",
          [](const py::object& rows) { return Dataset::FromTensorSlices(NestOf(rows, "tensors")); })
      .def_static(
          "csv",
          [](const std::string& files, const py::list& columns, const std::string& separator) {
            return Dataset::Csv(files, ColumnsOf(columns, &CsvColumnOf),
                                separator.empty() ? ',' : separator[0]);
          })
      .def_static("libsvm",
                  [](const std::string& files, int64_t below, const std::string& labels) {
                    return Dataset::Libsvm(files, below, LabelsOf(labels));
                  })
      .def_static("criteo",
                  [](const std::string& files, bool by_column) {
                    return Dataset::CriteoTsv(
                        files, by_column ? CriteoKeys::kByColumn : CriteoKeys::kByText);
                  })
      .def_static("tfrecord",
                  [](const std::string& files, const py::list& features) {
                    return Dataset::TfRecord(files, ColumnsOf(features, &ExampleFeatureOf));
                  })
      .def_static("idx", [](const std::string& images,
                            const std::string& labels) { return Dataset::Idx(images, labels); })
      .def_static("text_lines", [](const std::string& files) { return Dataset::TextLines(files); })
      .def_static(
          "records",
          [](const std::string& key) { return Dataset(std::make_shared<RecordsRecipe>(key)); })
      .def_static("generator",
                  [](const std::string& key, int worker, int num_workers) {
                    return Dataset(std::make_shared<GeneratorRecipe>(key, worker, num_workers));
                  })
      .def_static("zip", [](const std::vector<Dataset>& all) { return Dataset::Zip(all); })
      .def_static("zip_dict",
                  [](const std::map<std::string, Dataset>& all) { return Dataset::ZipDict(all); });
}

}  // namespace

void DefineDatasets(py::module_& module) {
  RegisterSources();
  py::class_<Dataset> dataset(module, "Dataset");
  DefineSourcesOfData(dataset);
  dataset
      .def("map",
           [](const Dataset& self, const std::string& function, int64_t parallel_calls) {
             return self.Map([function](const Nest& one) { return Mapped(function, one); },
                             parallel_calls);
           })
      .def("map_batches",
           [](const Dataset& self, const std::string& function, int64_t rows) {
             return self.MapBatches([function](const Nest& rows) { return Mapped(function, rows); },
                                    rows);
           })
      .def("filter",
           [](const Dataset& self, const std::string& function) {
             return self.Filter([function](const Nest& one) { return Kept(function, one); });
           })
      .def("ignore_errors", &Dataset::IgnoreErrors)
      .def("shuffle", &Dataset::Shuffle)
      .def("repeat", &Dataset::Repeat)
      .def("shard", &Dataset::Shard)
      .def("hold_out", &Dataset::HoldOut)
      .def("take", &Dataset::Take)
      .def("skip", &Dataset::Skip)
      .def("batch", &Dataset::Batch)
      .def("concatenate", &Dataset::Concatenate)
      .def("unbatch", &Dataset::Unbatch)
      .def("cache", &Dataset::Cache)
      .def("prefetch", &Dataset::Prefetch)
      .def("iterate", [](const Dataset& self) { return Pass(self); });
  py::class_<Pass>(module, "Pass")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Pass::Next)
      .def_property_readonly("size", &Pass::size);
  module.def("text_key",
             [](const std::string& text, const std::string& salt) { return TextKey(text, salt); });
}

}  // namespace divvy::python
