#include <pybind11/stl.h>

#include "absl/strings/str_cat.h"
#include "initializers/initializer.h"
#include "partitioners/partitioner.h"
#include "python/native/errors.h"
#include "python/native/options.h"
#include "python/native/values.h"
#include "variables/dynamic_table.h"
#include "variables/variable_spec.h"

namespace divvy::python {
namespace {

using py::arg;

// A Tensor that Python holds, as the initial value of a variable.
struct InitialValue {
  Tensor value;
};
using AnyInitializer = std::variant<Constant, RandomUniform, RandomNormal, TruncatedNormal,
                                    VarianceScaling, Identity, Orthogonal, InitialValue>;

Initializer InitializerOf(const AnyInitializer& given) {
  return std::visit(
      [](const auto& one) -> Initializer {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, InitialValue>) {
          return one.value;
        } else {
          return one;
        }
      },
      given);
}

VariableAggregation AggregationOf(const std::string& name) {
  if (name == "none") return VariableAggregation::kNone;
  if (name == "sum") return VariableAggregation::kSum;
  if (name == "mean") return VariableAggregation::kMean;
  if (name == "only_first_replica") return VariableAggregation::kOnlyFirstReplica;
  throw py::value_error(
      absl::StrCat("aggregation is \"", name, "\": wanted none, sum, mean or only_first_replica"));
}

WireFormat WireOf(const std::string& name) {
  if (name == "exact") return WireFormat::kExact;
  if (name == "bfloat16") return WireFormat::kBFloat16;
  if (name == "bfloat16_random") return WireFormat::kBFloat16Random;
  throw py::value_error(
      absl::StrCat("wire is \"", name, "\": wanted exact, bfloat16 or bfloat16_random"));
}

TableOptions::Absent AbsentOf(const std::string& name) {
  if (name == "initial_value") return TableOptions::Absent::kInitialValue;
  if (name == "zeros") return TableOptions::Absent::kZeros;
  throw py::value_error(absl::StrCat("absent is \"", name, "\": wanted initial_value or zeros"));
}

TableOptions::Full FullOf(const std::string& name) {
  if (name == "refuse") return TableOptions::Full::kRefuse;
  if (name == "fail") return TableOptions::Full::kFail;
  throw py::value_error(absl::StrCat("full is \"", name, "\": wanted refuse or fail"));
}

VariableSpec MakeSpec(std::string name, const std::vector<int64_t>& shape, const py::object& dtype,
                      const AnyInitializer& initializer, std::optional<Optimizer> optimizer,
                      const std::string& aggregation, const std::string& wire, int64_t shards) {
  VariableSpec spec;
  spec.name = std::move(name);
  spec.shape = Shape(absl::MakeConstSpan(shape));
  spec.dtype = DTypeOfObject(dtype);
  spec.initializer = InitializerOf(initializer);
  spec.optimizer = std::move(optimizer);
  spec.aggregation = AggregationOf(aggregation);
  spec.wire = WireOf(wire);
  if (shards > 0) spec.partitioner = FixedShardsPartitioner{shards};
  Check(Validate(spec));
  return spec;
}

VariableSpec MakeTableSpec(std::string name, int64_t width, const py::object& dtype,
                           const AnyInitializer& initializer, std::optional<Optimizer> optimizer,
                           const Admission& admission, const Eviction& eviction,
                           const std::string& absent, int64_t max_rows, const std::string& full) {
  DynamicTableOptions options;
  options.width = width;
  options.dtype = DTypeOfObject(dtype);
  options.initializer = InitializerOf(initializer);
  options.optimizer = std::move(optimizer);
  options.admission = admission;
  options.eviction = eviction;
  options.absent = AbsentOf(absent);
  options.max_rows = max_rows;
  options.full = FullOf(full);
  const DynamicTable table(std::move(name), options);
  Check(Validate(table));
  return table;
}

void DefineTableRules(py::module_& module) {
  py::class_<AdmitAlways>(module, "AdmitAlways").def(py::init([] { return AdmitAlways(); }));
  py::class_<AdmitAfter>(module, "AdmitAfter").def(py::init([](int64_t steps, int64_t bytes) {
    return AdmitAfter{steps, bytes};
  }));
  py::class_<AdmitWithProbability>(module, "AdmitWithProbability")
      .def(py::init([](double probability) { return AdmitWithProbability{probability}; }));
  py::class_<EvictNever>(module, "EvictNever").def(py::init([] { return EvictNever(); }));
  py::class_<EvictUnusedFor>(module, "EvictUnusedFor").def(py::init([](double seconds) {
    return EvictUnusedFor{absl::Seconds(seconds)};
  }));
  py::class_<EvictBelowNorm>(module, "EvictBelowNorm").def(py::init([](float norm) {
    return EvictBelowNorm{norm};
  }));
  py::class_<EvictLeastUsed>(module, "EvictLeastUsed").def(py::init([] {
    return EvictLeastUsed();
  }));
  py::class_<EvictLeastRecent>(module, "EvictLeastRecent").def(py::init([] {
    return EvictLeastRecent();
  }));
}

}  // namespace

void DefineInitializers(py::module_& module) {
  py::class_<Constant>(module, "Constant").def(py::init([](float value) {
    return Constant{value};
  }));
  py::class_<RandomUniform>(module, "RandomUniform")
      .def(py::init([](float low, float high, uint64_t seed) {
        return RandomUniform{low, high, seed};
      }));
  py::class_<RandomNormal>(module, "RandomNormal")
      .def(py::init([](float mean, float stddev, uint64_t seed) {
        return RandomNormal{mean, stddev, seed};
      }));
  py::class_<TruncatedNormal>(module, "TruncatedNormal")
      .def(py::init([](float mean, float stddev, uint64_t seed) {
        return TruncatedNormal{mean, stddev, seed};
      }));
  py::class_<VarianceScaling>(module, "VarianceScaling");
  module.def("GlorotUniform", &GlorotUniform);
  module.def("GlorotNormal", &GlorotNormal);
  module.def("HeUniform", &HeUniform);
  module.def("HeNormal", &HeNormal);
  module.def("LecunUniform", &LecunUniform);
  module.def("LecunNormal", &LecunNormal);
  py::class_<Identity>(module, "Identity").def(py::init([](float gain) { return Identity{gain}; }));
  py::class_<Orthogonal>(module, "Orthogonal").def(py::init([](float gain, uint64_t seed) {
    return Orthogonal{gain, seed};
  }));
  py::class_<InitialValue>(module, "InitialValue")
      .def(py::init([](const py::object& value, const py::object& dtype) {
        return InitialValue{TensorOf(value, DTypeOfObject(dtype), "the initial value")};
      }));
}

void DefineSpecs(py::module_& module) {
  DefineTableRules(module);
  py::class_<VariableSpec>(module, "VariableSpec")
      .def_property_readonly("name", [](const VariableSpec& spec) { return spec.name; })
      .def_property_readonly(
          "dtype", [](const VariableSpec& spec) { return std::string(DTypeName(spec.dtype)); })
      .def_property_readonly("shape", [](const VariableSpec& spec) {
        const auto dims = spec.shape.dims();
        return py::tuple(py::cast(std::vector<int64_t>(dims.begin(), dims.end())));
      });
  module.def("variable_spec", &MakeSpec, arg("name"), arg("shape"), arg("dtype"),
             arg("initializer"), arg("optimizer"), arg("aggregation"), arg("wire"), arg("shards"));
  module.def("table_spec", &MakeTableSpec, arg("name"), arg("width"), arg("dtype"),
             arg("initializer"), arg("optimizer"), arg("admission"), arg("eviction"), arg("absent"),
             arg("max_rows"), arg("full"));
}

}  // namespace divvy::python
