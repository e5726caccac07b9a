#include "python/native/variables.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/not_finite.h"
#include "ops/unique_ids.h"
#include "python/native/errors.h"
#include "python/native/job.h"
#include "python/native/step_scope.h"
#include "python/native/values.h"

namespace divvy::python {
namespace {

using py::arg;

// The variable, for the step or the program of this thread.
Variable Find(const VariableSpec& spec) {
  Strategy* const strategy = ValueOf(StrategyHere(absl::StrCat("variable \"", spec.name, "\"")));
  return ValueOf(strategy->FindVariable(spec.name));
}

std::string Quoted(const VariableSpec& spec) { return absl::StrCat("\"", spec.name, "\""); }

void CheckNoTable(const VariableSpec& spec, const char* call) {
  if (spec.table)
    Raise(absl::InvalidArgumentError(
        absl::StrCat(Quoted(spec), " is a table, which has no ", call, " as a whole")));
}

// NumPy alone has no bfloat16, and reads such a variable as float32.
Tensor AsBFloat16(const Tensor& floats) {
  Tensor rounded = ValueOf(Tensor::Uninitialized(DType::kBFloat16, floats.shape()));
  const float* const from = floats.data_as<float>();
  auto* const to = rounded.fresh_data<BFloat16>();
  for (int64_t i = 0; i < floats.shape().num_elements(); ++i) to[i] = BFloat16::FromFloat(from[i]);
  return rounded;
}

// A value for `spec`, with the dtype of the variable and, if `shape` is given, of this shape.
Tensor ValueFor(const VariableSpec& spec, const py::object& given, const char* call,
                const std::optional<Shape>& shape, Passing passing) {
  const std::string what = absl::StrCat(Quoted(spec), ".", call, ": the value");
  Tensor value = TensorOf(given, spec.dtype, what, passing);
  if (spec.dtype == DType::kBFloat16 && value.dtype() == DType::kFloat32) value = AsBFloat16(value);
  if (value.dtype() != spec.dtype) {
    throw py::type_error(absl::StrCat(what, " is ", DTypeName(value.dtype()),
                                      ", and the variable is ", DTypeName(spec.dtype),
                                      ": convert it, by .astype(\"", DTypeName(spec.dtype), "\")"));
  }
  if (shape && value.shape() != *shape) {
    throw py::value_error(absl::StrCat(what, " has shape ", value.shape().ToString(), ", wanted ",
                                       shape->ToString(), " (nothing is broadcast)"));
  }
  return value;
}

Tensor IdsOf(const py::object& given, const std::string& what) {
  Tensor ids = TensorOf(given, DType::kInt64, what);
  if (ids.dtype() == DType::kInt64) return ids;
  if (ids.dtype() != DType::kInt32)
    throw py::type_error(
        absl::StrCat(what, " are ", DTypeName(ids.dtype()), ", wanted int64 or int32"));
  Tensor wide = ValueOf(Tensor::Uninitialized(DType::kInt64, ids.shape()));
  std::copy_n(ids.data_as<int32_t>(), ids.shape().num_elements(), wide.fresh_data<int64_t>());
  return wide;
}

// ---- reads --------------------------------------------------------------------------------------

// The row of each id, from the rows of the unique ones.
absl::StatusOr<Tensor> Expanded(const Tensor& rows, const internal::UniqueIds& unique) {
  const int64_t n = unique.num_ids();
  DIVVY_ASSIGN_OR_RETURN(const Tensor places, unique.PlacesOn(Device()));
  DIVVY_ASSIGN_OR_RETURN(Tensor all, Tensor::Uninitialized(rows.dtype(), rows.shape().WithRows(n)));
  const size_t row_bytes =
      static_cast<size_t>(rows.shape().row_elements() * DTypeSize(rows.dtype()));
  const char* const from = static_cast<const char*>(rows.data());
  const auto* const place = places.data_as<int64_t>();
  char* to = all.fresh_data<char>();
  for (int64_t i = 0; i < n; ++i, to += row_bytes)
    std::memcpy(to, from + static_cast<size_t>(place[i]) * row_bytes, row_bytes);
  return all;
}

absl::StatusOr<Tensor> RowsHere(const VariableSpec& spec, const Tensor& ids) {
  StepScope* const step = StepScope::Current();
  if (step == nullptr) {
    DIVVY_ASSIGN_OR_RETURN(Strategy* const strategy, StrategyHere(spec.name));
    DIVVY_ASSIGN_OR_RETURN(const Variable variable, strategy->FindVariable(spec.name));
    return variable.Rows(ids);
  }
  DIVVY_ASSIGN_OR_RETURN(Tensor flat, ids.Reshape({-1}));
  const std::shared_ptr<const internal::UniqueIds> unique = internal::UniqueOf(flat);
  ReadRequest request;
  request.name = spec.name;
  request.ids = unique != nullptr ? unique->unique() : flat;
  DIVVY_RETURN_IF_ERROR(step->replica().Read(absl::MakeSpan(&request, 1)));
  Tensor rows = request.value;
  if (unique != nullptr) {
    DIVVY_ASSIGN_OR_RETURN(rows, Expanded(request.value, *unique));
  }
  return rows.Reshape(spec.shape.WithRowsOf(ids.shape().dims()));
}

py::array Lookup(const VariableSpec& spec, const py::object& given) {
  const Tensor ids = IdsOf(given, absl::StrCat(Quoted(spec), ".lookup: the ids"));
  if (ids.shape().num_elements() == 0) {
    const DType dtype = spec.table ? DType::kFloat32 : spec.dtype;
    return ArrayOf(ValueOf(Tensor::Zeros(dtype, spec.shape.WithRowsOf(ids.shape().dims()))));
  }
  return ArrayOf(ValueOf(WithoutGil([&] { return RowsHere(spec, ids); })));
}

absl::StatusOr<std::vector<Tensor>> ReadHere(const std::vector<VariableSpec>& specs) {
  if (StepScope* const step = StepScope::Current()) {
    std::vector<ReadRequest> requests(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) requests[i].name = specs[i].name;
    DIVVY_RETURN_IF_ERROR(step->replica().Read(absl::MakeSpan(requests)));
    std::vector<Tensor> values;
    for (ReadRequest& request : requests) values.push_back(std::move(request.value));
    return values;
  }
  std::vector<Tensor> values;
  for (const VariableSpec& spec : specs) {
    DIVVY_ASSIGN_OR_RETURN(Strategy* const strategy,
                           StrategyHere(absl::StrCat("variable \"", spec.name, "\"")));
    DIVVY_ASSIGN_OR_RETURN(const Variable variable, strategy->FindVariable(spec.name));
    DIVVY_ASSIGN_OR_RETURN(Tensor value, variable.Read());
    values.push_back(std::move(value));
  }
  return values;
}

py::list ReadAll(const std::vector<VariableSpec>& specs) {
  for (const VariableSpec& spec : specs) CheckNoTable(spec, "read");
  py::list arrays;
  for (const Tensor& value : ValueOf(WithoutGil([&] { return ReadHere(specs); })))
    arrays.append(ArrayOf(value));
  return arrays;
}

// ---- writes -------------------------------------------------------------------------------------

// Gradients are staged when the function has returned, so a write after a gradient would come
// before it. C++ refuses such a write, too.
void CheckNoGradient(const VariableSpec& spec, const std::string& call) {
  StepScope* const step = StepScope::Current();
  if (step == nullptr || !step->gradients().Has(spec.name)) return;
  Raise(absl::FailedPreconditionError(absl::StrCat(
      call, " to variable ", Quoted(spec),
      " after its gradient in the same step: write to it before apply_gradient, or in another "
      "step")));
}

using WholeWrite = absl::Status (Variable::*)(const Tensor&) const;

void Write(const VariableSpec& spec, const py::object& value, const char* call, WholeWrite write) {
  CheckNoTable(spec, call);
  CheckNoGradient(spec, call);
  const Variable variable = Find(spec);
  const Tensor tensor = ValueFor(spec, value, call, spec.shape, Passing::kCopied);
  Check(WithoutGil([&] { return (variable.*write)(tensor); }));
}

const std::pair<const char*, Variable::Scatter> kScatters[] = {
    {"update", Variable::Scatter::kUpdate}, {"add", Variable::Scatter::kAdd},
    {"sub", Variable::Scatter::kSub},       {"mul", Variable::Scatter::kMul},
    {"div", Variable::Scatter::kDiv},       {"min", Variable::Scatter::kMin},
    {"max", Variable::Scatter::kMax},
};

Variable::Scatter ScatterOf(const std::string& op) {
  for (const auto& [name, scatter] : kScatters) {
    if (op == name) return scatter;
  }
  throw py::value_error(
      absl::StrCat("op is \"", op, "\": wanted update, add, sub, mul, div, min or max"));
}

// Rows for `ids` [n], in the form that writes take.
IndexedSlices RowsFor(const VariableSpec& spec, const py::object& ids, const py::object& rows,
                      const char* call, Passing passing) {
  VariableSpec as_float = spec;
  if (spec.table) as_float.dtype = DType::kFloat32;  // programs write float32
  const Tensor some = IdsOf(ids, absl::StrCat(Quoted(spec), ".", call, ": the ids"));
  if (spec.shape.rank() == 0)
    Raise(absl::InvalidArgumentError(absl::StrCat(Quoted(spec), " is a scalar, and has no rows")));
  const Tensor values =
      ValueFor(as_float, rows, call, spec.shape.WithRowsOf(some.shape().dims()), passing);
  IndexedSlices slices;
  slices.ids = ValueOf(some.Reshape({some.shape().num_elements()}));
  slices.rows = ValueOf(values.Reshape(spec.shape.WithRows(some.shape().num_elements())));
  slices.num_rows = spec.table ? IndexedSlices::kAnyId : spec.shape.rows();
  return slices;
}

void Scatter(const VariableSpec& spec, const std::string& op, const py::object& ids,
             const py::object& rows) {
  CheckNoGradient(spec, absl::StrCat("scatter(\"", op, "\")"));
  const Variable variable = Find(spec);
  const Variable::Scatter scatter = ScatterOf(op);
  const IndexedSlices slices = RowsFor(spec, ids, rows, "scatter", Passing::kCopied);
  Check(WithoutGil([&] { return variable.ScatterRows(scatter, slices); }));
}

// ---- gradients ----------------------------------------------------------------------------------

StepScope& StepForGradient(const VariableSpec& spec) {
  StepScope* const step = StepScope::Current();
  if (step == nullptr)
    Raise(absl::FailedPreconditionError(absl::StrCat(
        "apply_gradient of ", Quoted(spec),
        ": gradients belong to steps; call it in a function that @divvy.step registers")));
  if (step->read_only())
    Raise(absl::FailedPreconditionError(absl::StrCat(
        "apply_gradient of ", Quoted(spec), ": step \"", step->name(), "\" is read-only")));
  if (!spec.optimizer)
    Raise(absl::InvalidArgumentError(absl::StrCat(
        Quoted(spec), " has no optimizer to apply a gradient: declare it with optimizer=...")));
  return *step;
}

void CheckFinite(const VariableSpec& spec, const Tensor& gradient) {
  const int64_t bad = FirstNotFinite(gradient);
  if (bad < 0) return;
  Raise(absl::InvalidArgumentError(absl::StrCat(
      "the gradient of ", Quoted(spec), " has ", gradient.data_as<float>()[bad], " at element ",
      bad,
      ", which would spoil the shared variable: lower the learning rate, clip the gradient or mend "
      "the data. (allow_nonfinite=True applies it as it is.)")));
}

void ApplyGradient(const VariableSpec& spec, const py::object& gradient, bool allow_nonfinite,
                   bool borrow) {
  StepScope& step = StepForGradient(spec);
  CheckNoTable(spec, "gradient");
  const Tensor value = ValueFor(spec, gradient, "apply_gradient", spec.shape,
                                borrow ? Passing::kBorrowed : Passing::kCopied);
  if (!allow_nonfinite) CheckFinite(spec, value);
  Check(step.gradients().AddWhole(spec.name, value));
}

void ApplyRowGradients(const VariableSpec& spec, const py::object& ids, const py::object& gradient,
                       bool allow_nonfinite, bool borrow) {
  StepScope& step = StepForGradient(spec);
  const IndexedSlices slices = RowsFor(spec, ids, gradient, "apply_gradient",
                                       borrow ? Passing::kBorrowed : Passing::kCopied);
  if (slices.ids.shape().num_elements() == 0) return;
  if (!allow_nonfinite) CheckFinite(spec, slices.rows);
  Check(step.gradients().AddRows(spec.name, slices));
}

// ---- tables -------------------------------------------------------------------------------------

py::list FindKeys(const VariableSpec& spec, const py::object& keys) {
  const Variable variable = Find(spec);
  const Tensor ids = IdsOf(keys, absl::StrCat(Quoted(spec), ".find: the keys"));
  const absl::Span<const int64_t> some(ids.data_as<int64_t>(),
                                       static_cast<size_t>(ids.shape().num_elements()));
  py::list found;
  for (const TableRow& row : ValueOf(WithoutGil([&] { return variable.Find(some); }))) {
    py::dict one;
    one["key"] = row.key;
    one["exists"] = row.exists;
    one["count"] = row.count;
    one["last_minute"] = row.last_minute;
    one["values"] = ArrayOf(Tensor::Vector<float>(absl::MakeConstSpan(row.values)));
    found.append(one);
  }
  return found;
}

py::dict DictOf(const TablePartStats& part) {
  py::dict stats;
  stats["rows"] = part.rows;
  stats["waiting"] = part.waiting;
  stats["bytes"] = part.bytes;
  stats["admitted"] = part.admitted;
  stats["refused"] = part.refused;
  stats["evicted"] = part.evicted;
  return stats;
}

py::dict Stats(const VariableSpec& spec) {
  const Variable variable = Find(spec);
  const TableStats all = ValueOf(WithoutGil([&] { return variable.Stats(); }));
  py::dict stats = DictOf(all);
  py::dict servers;
  for (const auto& [ps, part] : all.servers) servers[py::int_(ps)] = DictOf(part);
  stats["servers"] = servers;
  return stats;
}

void Create(const VariableSpec& spec) {
  Strategy* const strategy = ValueOf(StrategyHere(absl::StrCat("variable ", Quoted(spec))));
  Check(WithoutGil([&] { return strategy->CreateVariable(spec); }).status());
}

}  // namespace

void DefineVariables(py::module_& module) {
  module.def("create", &Create);
  module.def("read_all", &ReadAll);
  module.def("lookup", &Lookup);
  module.def(
      "own_ids",
      [](const VariableSpec& spec, const py::object& ids) {
        return ArrayOf(IdsOf(ids, absl::StrCat(Quoted(spec), ".lookup: the ids")));
      },
      "The ids as int64. If lookup and apply_row_gradients get them, duplicates are found once.");
  module.def("assign", [](const VariableSpec& spec, const py::object& value) {
    Write(spec, value, "assign", &Variable::Assign);
  });
  module.def("assign_add", [](const VariableSpec& spec, const py::object& value) {
    Write(spec, value, "assign_add", &Variable::AssignAdd);
  });
  module.def("assign_sub", [](const VariableSpec& spec, const py::object& value) {
    Write(spec, value, "assign_sub", &Variable::AssignSub);
  });
  module.def("scatter", &Scatter);
  module.def("apply_gradient", &ApplyGradient);
  module.def("apply_row_gradients", &ApplyRowGradients);
  module.def("find_keys", &FindKeys);
  module.def("table_stats", &Stats);
  module.def("in_program", &InProgram);
}

}  // namespace divvy::python
