#include "tests/conformance/operation_judge.h"

#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/testing/map_reader.h"
#include "ops/testing/place.h"
#include "tests/conformance/sharded_variable.h"

namespace divvy::conformance {
namespace {

// ---- operations ---------------------------------------------------------------------------------

constexpr Tolerance kOperation{1e-5, 1e-6};

// Copies a value from the test's device to the host.
absl::StatusOr<Tensor> Here(const absl::StatusOr<Tensor>& value) {
  return value.ok() ? value->To(Device{}) : value;
}

// The inputs of a case, by name. The tape watches floating ones.
struct Inputs {
  GradientTape& tape;
  std::map<std::string, Var> vars;
  const Json& attrs;
  Var operator[](const std::string& name) const { return vars.at(name); }
};
using Operation = std::function<Var(const Inputs&)>;

Operation Unary(Var (*function)(const Var&)) {
  return [function](const Inputs& in) { return function(in["x"]); };
}
Operation Binary(Var (*function)(const Var&, const Var&)) {
  return [function](const Inputs& in) { return function(in["a"], in["b"]); };
}
Operation Loss(Var (*function)(const Var&, const Var&)) {
  return [function](const Inputs& in) { return function(in["logits"], in["labels"]); };
}

Transpose TransposeFrom(const Json& attr) {
  return attr.get<bool>() ? Transpose::kYes : Transpose::kNo;
}

template <typename Whole, typename Along>
Operation Reduction(Whole whole, Along along) {
  return [=](const Inputs& in) {
    return in.attrs.at("axis").is_null() ? whole(in["x"])
                                         : along(in["x"], in.attrs.at("axis").get<int>());
  };
}

Padding PaddingFrom(const Json& attrs) {
  return attrs.at("padding") == "SAME" ? Padding::kSame : Padding::kValid;
}

Var PermuteAs(const Var& x, const std::vector<int>& axes) {
  switch (axes.size()) {
    case 1: return Permute(x, {axes[0]});
    case 2: return Permute(x, {axes[0], axes[1]});
    case 3: return Permute(x, {axes[0], axes[1], axes[2]});
    default: return Permute(x, {axes.at(0), axes.at(1), axes.at(2), axes.at(3)});
  }
}

Var ReduceMaxOfAll(const Var& x) { return ReduceMax(Reshape(x, {-1}), 0); }

// Factorisation machines, made of several operations.
Var FmInteraction(const Inputs& in) {
  const Var e = in["embeddings"];
  return ReduceSum(Square(ReduceSum(e, 1)) - ReduceSum(Square(e), 1), 1) * 0.5f;
}

Var Perceptron(const Inputs& in) {
  const Var hidden = Relu(MatMul(in["x"], in["w1"]) + in["b1"]);
  const Var logits = MatMul(Tanh(MatMul(hidden, in["w2"]) + in["b2"]), in["w3"]) + in["b3"];
  return ReduceMean(SoftmaxCrossEntropy(logits, in["labels"]));
}

const std::map<std::string, Operation>& Operations() {
  static const auto& operations = *new std::map<std::string, Operation>{
      {"softmax_cross_entropy_sparse", Loss(SoftmaxCrossEntropy)},
      {"softmax_cross_entropy", Loss(SoftmaxCrossEntropy)},
      {"sigmoid_cross_entropy", Loss(SigmoidCrossEntropy)},
      {"squared_error",
       [](const Inputs& in) { return SquaredError(in["predictions"], in["labels"]); }},
      {"relu", Unary(Relu)},
      {"tanh", Unary(Tanh)},
      {"sigmoid", Unary(Sigmoid)},
      {"softmax", Unary(Softmax)},
      {"gelu", Unary(Gelu)},
      {"softplus", Unary(Softplus)},
      {"l2_normalize", Unary(L2Normalize)},
      {"exp", Unary(Exp)},
      {"log", Unary(Log)},
      {"sqrt", Unary(Sqrt)},
      {"square", Unary(Square)},
      {"negative", Unary([](const Var& x) { return -x; })},
      {"add", Binary([](const Var& a, const Var& b) { return a + b; })},
      {"subtract", Binary([](const Var& a, const Var& b) { return a - b; })},
      {"multiply", Binary([](const Var& a, const Var& b) { return a * b; })},
      {"divide", Binary([](const Var& a, const Var& b) { return a / b; })},
      {"maximum", Binary(Maximum)},
      {"bias_add", [](const Inputs& in) { return in["x"] + in["bias"]; }},
      {"matmul",
       [](const Inputs& in) {
         return MatMul(in["a"], in["b"], TransposeFrom(in.attrs.at("transpose_a")),
                       TransposeFrom(in.attrs.at("transpose_b")));
       }},
      {"reshape",
       [](const Inputs& in) { return Reshape(in["x"], ShapeFrom(in.attrs.at("shape"))); }},
      {"concat",
       [](const Inputs& in) {
         return Concat({in["a"], in["b"]}, in.attrs.at("axis").get<int>());
       }},
      {"reduce_sum", Reduction([](const Var& x) { return ReduceSum(x); },
                               [](const Var& x, int axis) { return ReduceSum(x, axis); })},
      {"reduce_mean", Reduction([](const Var& x) { return ReduceMean(x); },
                                [](const Var& x, int axis) { return ReduceMean(x, axis); })},
      {"reduce_max",
       Reduction(ReduceMaxOfAll, [](const Var& x, int axis) { return ReduceMax(x, axis); })},
      {"slice",
       [](const Inputs& in) {
         return Slice(in["x"], in.attrs.at("axis").get<int>(), in.attrs.at("begin").get<int64_t>(),
                      in.attrs.at("end").get<int64_t>());
       }},
      {"permute",
       [](const Inputs& in) {
         return PermuteAs(in["x"], in.attrs.at("axes").get<std::vector<int>>());
       }},
      {"segment_sum",
       [](const Inputs& in) {
         return SegmentSum(in["rows"], Here(in["row_splits"].Value()).value_or(Tensor()));
       }},
      {"conv2d",
       [](const Inputs& in) {
         return Conv2D(in["x"], in["filters"], in.attrs.at("stride").get<int>(),
                       PaddingFrom(in.attrs));
       }},
      {"max_pool",
       [](const Inputs& in) {
         return MaxPool2D(in["x"], in.attrs.at("window").get<int>(),
                          in.attrs.at("stride").get<int>(), PaddingFrom(in.attrs));
       }},
      {"layer_norm",
       [](const Inputs& in) {
         return LayerNorm(in["x"], in["gamma"], in["beta"], in.attrs.at("epsilon").get<float>());
       }},
      {"dot_interaction", [](const Inputs& in) { return DotInteraction(in["embeddings"]); }},
      {"gather", [](const Inputs& in) { return in.tape.Lookup("table", in["ids"]); }},
      {"fm_interaction", FmInteraction},
      {"mlp_mean_softmax_cross_entropy", Perceptron},
  };
  return operations;
}

std::string GradientDifference(const std::string& input, const Gradients& gradients,
                               const Json& wanted) {
  const std::string what = absl::StrCat("gradient of ", input);
  const auto found = gradients.entries().find(input);
  if (found == gradients.entries().end()) return absl::StrCat(what, " is missing");
  const auto* slices = std::get_if<IndexedSlices>(&found->second);
  if (slices == nullptr)
    return Difference(what, Here(std::get<Tensor>(found->second)), wanted, kOperation);
  // The ids have TensorFlow's integer type of the case.
  const absl::StatusOr<Tensor> ids = TensorFrom(wanted.at("ids"));
  const absl::StatusOr<Tensor> wide = ids.ok() ? Here(Cast(*ids, DType::kInt64).Value()) : ids;
  if (!wide.ok()) return wide.status().ToString();
  if (!BitwiseEqual(*wide, slices->ids))
    return absl::StrCat(what, " has other ids, or in another order");
  return Difference(absl::StrCat(what, ", rows"), Here(slices->rows), wanted.at("rows"),
                    kOperation);
}

std::string OutputDifference(const Var& output, const Json& wanted) {
  // A GPU reports errors of the computation when its result is read.
  const absl::StatusOr<Tensor> here = Here(output.Value());
  if (IsFailure(wanted)) return FailureDifference(here.status(), wanted);
  return Difference("output", here, wanted.at("output"), kOperation);
}

// A gather's table goes into `read`. Other inputs are watched or constant.
absl::StatusOr<Inputs> InputsOf(const Json& test_case, GradientTape& tape, MapReader& read) {
  Inputs inputs{tape, {}, test_case.at("attrs")};
  const bool looks_up = test_case.at("op") == "gather";
  for (const auto& [name, json] : test_case.at("inputs").items()) {
    ASSIGN_OR_RETURN(const Tensor value, TensorFrom(json));
    if (looks_up && name == "table") {
      read.Set(name, value);
    } else {
      inputs.vars.emplace(
          name, IsFloating(value.dtype()) ? tape.Watch(name, There(value)) : Var(There(value)));
    }
  }
  return inputs;
}

absl::StatusOr<std::string> OperationDifference(const Operation& operation, const Json& test_case) {
  MapReader reader({}, *TestDevice());
  GradientTape tape(reader);
  ASSIGN_OR_RETURN(const Inputs inputs, InputsOf(test_case, tape, reader));
  const Json& wanted = Wanted(test_case);
  const Var output = operation(inputs);
  if (std::string difference = OutputDifference(output, wanted);
      !difference.empty() || IsFailure(wanted))
    return difference;
  ASSIGN_OR_RETURN(const Tensor upstream, TensorFrom(test_case.at("upstream")));
  ASSIGN_OR_RETURN(const Gradients gradients,
                   tape.Gradient(ReduceSum(output * Var(There(upstream)))));
  for (const auto& [input, gradient] : wanted.at("gradients").items()) {
    if (std::string difference = GradientDifference(input, gradients, gradient);
        !difference.empty())
      return difference;
  }
  return std::string();
}

// ---- lookups ------------------------------------------------------------------------------------

constexpr Tolerance kLookup{1e-6, 1e-6};

template <typename T>
std::optional<T> OptionalFrom(const Json& test_case, const char* name) {
  const auto found = test_case.find(name);
  if (found == test_case.end() || found->is_null()) return std::nullopt;
  return found->get<T>();
}

Nest ListsFrom(const Json& test_case) {
  std::vector<int64_t> ids, row_splits = {0};
  for (const Json& row : test_case.at("rows_of_ids")) {
    for (const Json& id : row) ids.push_back(id.get<int64_t>());
    row_splits.push_back(static_cast<int64_t>(ids.size()));
  }
  SparseIds lists{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(row_splits), std::nullopt};
  if (const auto weights = OptionalFrom<std::vector<float>>(test_case, "weights"))
    lists.weights = Tensor::Vector<float>(*weights);
  return lists;
}

std::optional<Combiner> CombinerFrom(const Json& test_case) {
  const std::map<std::string, Combiner> combiners = {
      {"sum", Combiner::kSum}, {"mean", Combiner::kMean}, {"sqrtn", Combiner::kSqrtN}};
  // "mean" is TensorFlow's default.
  const auto found =
      combiners.find(OptionalFrom<std::string>(test_case, "combiner").value_or("mean"));
  return found == combiners.end() ? std::nullopt : std::optional<Combiner>(found->second);
}

// nullopt: Divvy does not have this kind of lookup.
absl::StatusOr<std::optional<Var>> LookUp(const Json& test_case, GradientTape& tape) {
  const std::string op = test_case.at("op").get<std::string>();
  LookupOptions options;
  options.max_norm = OptionalFrom<float>(test_case, "max_norm");
  if (op == "lookup") {
    ASSIGN_OR_RETURN(const Tensor ids, TensorFrom(test_case.at("ids")));
    return tape.Lookup("table", ids, options);
  }
  options.safe = op == "safe_lookup_sparse";
  options.default_id = OptionalFrom<int64_t>(test_case, "default_id");
  const std::optional<Combiner> combiner =
      op == "lookup_sparse" || options.safe ? CombinerFrom(test_case) : std::nullopt;
  if (!combiner) return std::optional<Var>();
  return tape.LookupSparse("table", ListsFrom(test_case), *combiner, options);
}

}  // namespace

Verdict JudgeOperation(const Json& test_case) {
  const std::string op = test_case.at("op").get<std::string>();
  const auto operation = Operations().find(op);
  if (operation == Operations().end())
    return NotCovered(absl::StrCat("Divvy has no operation for ", op));
  const absl::StatusOr<std::string> difference = OperationDifference(operation->second, test_case);
  return difference.ok() ? PassedUnless(*difference) : Failed(difference.status().ToString());
}

Verdict JudgeLookup(const Json& test_case) {
  const absl::StatusOr<Tensor> table = TensorFrom(test_case.at("table"));
  if (!table.ok()) return Failed(table.status().ToString());
  ShardedReader reader(ShardedVariable("table", *table, test_case.at("shards")), *TestDevice());
  GradientTape tape(reader);
  const absl::StatusOr<std::optional<Var>> rows = LookUp(test_case, tape);
  if (!rows.ok()) return Failed(rows.status().ToString());
  if (!rows->has_value())
    return NotCovered(
        absl::StrCat("Divvy has no lookup for ", test_case.at("op").get<std::string>()));
  const absl::StatusOr<Tensor> there = (*rows)->Value(), here = Here(there);
  if (there.ok() && there->device() != *TestDevice())
    return Failed(absl::StrCat("the rows are on ", there->device().ToString()));
  const Json& wanted = Wanted(test_case);
  return PassedUnless(IsFailure(wanted) ? FailureDifference(here.status(), wanted)
                                        : Difference("rows", here, wanted, kLookup));
}

}  // namespace divvy::conformance
