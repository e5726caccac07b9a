#include "tests/conformance/optimizer_judge.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/duplicates.h"
#include "optimizers/apply.h"
#include "optimizers/optimizer.h"
#include "partitioners/div.h"

namespace divvy::conformance {
namespace {

// ---- schedules ----------------------------------------------------------------------------------

std::optional<LearningRate> MakeSchedule(const std::string& name, const Json& args) {
  const auto number = [&args](const char* key) { return args.at(key).get<double>(); };
  if (name == "PiecewiseConstantDecay") {
    return PiecewiseConstant{args.at("boundaries").get<std::vector<int64_t>>(),
                             args.at("values").get<std::vector<double>>()};
  }
  const double initial = number("initial_learning_rate");
  const int64_t decay_steps = args.at("decay_steps").get<int64_t>();
  if (name == "ExponentialDecay")
    return ExponentialDecay{initial, decay_steps, number("decay_rate"),
                            args.value("staircase", false)};
  if (name == "InverseTimeDecay")
    return InverseTimeDecay{initial, decay_steps, number("decay_rate"),
                            args.value("staircase", false)};
  if (name == "PolynomialDecay" && !args.value("cycle", false)) {
    return PolynomialDecay{initial, decay_steps, args.value("end_learning_rate", 1e-4),
                           args.value("power", 1.0)};
  }
  if (name == "CosineDecay") {
    CosineDecay decay{initial, decay_steps, args.value("alpha", 0.0)};
    // Keras warms up only if a target is given.
    if (args.contains("warmup_target") && !args.at("warmup_target").is_null()) {
      decay.warmup_target = number("warmup_target");
      decay.warmup_steps = args.value("warmup_steps", int64_t{0});
    }
    return decay;
  }
  return std::nullopt;
}

// ---- optimizers ---------------------------------------------------------------------------------

float Number(const Json& args, const char* key, float otherwise) {
  return args.contains(key) ? args.at(key).get<float>() : otherwise;
}

Optimizer MakeAdam(const Json& args, double rate) {
  const Adam defaults{rate};
  return Adam{rate,
              Number(args, "beta_1", defaults.beta1),
              Number(args, "beta_2", defaults.beta2),
              Number(args, "epsilon", defaults.epsilon),
              Number(args, "weight_decay", 0),
              args.value("amsgrad", false)};
}

Optimizer MakeRmsProp(const Json& args, double rate) {
  const RmsProp defaults{rate};
  return RmsProp{rate, Number(args, "rho", defaults.rho), Number(args, "momentum", 0),
                 Number(args, "epsilon", defaults.epsilon), args.value("centered", false)};
}

Optimizer MakeFtrl(const Json& args, double rate) {
  const Ftrl defaults{rate};
  return Ftrl{rate,
              Number(args, "l1_regularization_strength", 0),
              Number(args, "l2_regularization_strength", 0),
              Number(args, "learning_rate_power", defaults.learning_rate_power),
              Number(args, "initial_accumulator_value", defaults.initial_accumulator),
              Number(args, "beta", 0),
              Number(args, "l2_shrinkage_regularization_strength", 0)};
}

// nullopt: Divvy does not have this optimizer.
std::optional<Optimizer> MakeOptimizer(const std::string& name, const Json& args) {
  const double rate = args.at("learning_rate").get<double>();
  if (name == "SGD" && Number(args, "momentum", 0) == 0) return Sgd{rate};
  if (name == "SGD")
    return Momentum{rate, Number(args, "momentum", 0), args.value("nesterov", false)};
  if (name == "Adagrad") {
    const Adagrad defaults{rate};
    return Adagrad{rate, Number(args, "initial_accumulator_value", defaults.initial_accumulator),
                   Number(args, "epsilon", defaults.epsilon)};
  }
  if (name == "Adam" || name == "AdamW") return MakeAdam(args, rate);
  if (name == "RMSprop") return MakeRmsProp(args, rate);
  if (name == "Ftrl") return MakeFtrl(args, rate);
  return std::nullopt;
}

// A float32 variable and its slots, cut into shards as on parameter servers.
class ShardedParameter {
 public:
  ShardedParameter(const Optimizer& optimizer, const Tensor& initial, DivSplit split)
      : shape_(initial.shape()),
        width_(shape_.row_elements()),
        split_(split),
        values_(initial.data_as<float>(), initial.data_as<float>() + shape_.num_elements()) {
    for (const SlotSpec& slot : SlotsOf(optimizer)) {
      slots_.push_back({slot.name, {}, {}});
      if (slot.kind == SlotSpec::Kind::kValues)
        slots_.back().values.assign(values_.size(), slot.initial_value);
      if (slot.kind == SlotSpec::Kind::kRowValues)
        slots_.back().values.assign(split_.rows(), slot.initial_value);
      if (slot.kind == SlotSpec::Kind::kRowCounts) slots_.back().counts.assign(split_.rows(), 0);
    }
  }

  void ApplyDense(const OptimizerStep& step, const Tensor& gradient) {
    const absl::Span<const float> all(gradient.data_as<float>(), gradient.shape().num_elements());
    for (int64_t shard = 0; shard < split_.num_shards(); ++shard) {
      divvy::ApplyDense(step, BlockOf(shard),
                        all.subspan(split_.offset(shard) * width_, split_.size(shard) * width_));
    }
  }

  void ApplySparse(const OptimizerStep& step, const IndexedSlices& gradient) {
    const RowGroups groups = GroupById({gradient.ids.data_as<int64_t>(),
                                        static_cast<size_t>(gradient.ids.shape().num_elements())});
    std::vector<float> sums(groups.ids.size() * width_);
    SumGroups(groups, gradient.rows.data_as<float>(), width_, sums.data());
    size_t begin = 0;
    for (int64_t shard = 0; shard < split_.num_shards(); ++shard) {
      const size_t end =
          std::lower_bound(groups.ids.begin(), groups.ids.end(), split_.offset(shard + 1)) -
          groups.ids.begin();
      divvy::ApplySparse(step, BlockOf(shard),
                         absl::MakeConstSpan(groups.ids).subspan(begin, end - begin),
                         absl::MakeConstSpan(sums).subspan(begin * width_, (end - begin) * width_),
                         split_.offset(shard));
      begin = end;
    }
  }

  // The tensors by name: "w" and the float slots.
  std::map<std::string, absl::StatusOr<Tensor>> State() const {
    std::map<std::string, absl::StatusOr<Tensor>> state;
    state.emplace("w", Tensor::Copy<float>(shape_, values_));
    for (const Slot& slot : slots_) {
      if (!slot.values.empty()) state.emplace(slot.name, Tensor::Copy<float>(shape_, slot.values));
    }
    return state;
  }

 private:
  struct Slot {
    std::string name;
    std::vector<float> values;
    std::vector<int32_t> counts;
  };

  ParameterBlock BlockOf(int64_t shard) {
    const int64_t first = split_.offset(shard), rows = split_.size(shard);
    ParameterBlock block;
    block.width = width_;
    block.values = absl::MakeSpan(values_).subspan(first * width_, rows * width_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].values.empty())
        block.slots[i].values =
            absl::MakeSpan(slots_[i].values).subspan(first * width_, rows * width_);
      if (!slots_[i].counts.empty())
        block.slots[i].counts = absl::MakeSpan(slots_[i].counts).subspan(first, rows);
    }
    return block;
  }

  Shape shape_;
  int64_t width_;
  DivSplit split_;
  std::vector<float> values_;
  std::vector<Slot> slots_;
};

struct StateAtSteps {
  std::vector<std::map<std::string, absl::StatusOr<Tensor>>> steps;
};

absl::StatusOr<StateAtSteps> RunSteps(const Optimizer& optimizer, const Json& test_case,
                                      int64_t shards) {
  ASSIGN_OR_RETURN(const Tensor initial, TensorFrom(test_case.at("initial")));
  if (initial.dtype() != DType::kFloat32)
    return absl::UnimplementedError("optimizers work on float32 variables");
  const int64_t rows = initial.shape().rows();
  ASSIGN_OR_RETURN(const DivSplit split, DivSplit::Create(rows, shards));
  ShardedParameter parameter(optimizer, initial, split);
  StateAtSteps result;
  for (const Json& gradient : test_case.at("steps_gradients")) {
    const OptimizerStep step = StepOf(optimizer, static_cast<int64_t>(result.steps.size()));
    RETURN_IF_ERROR(Validate(step));
    if (gradient.contains("ids")) {
      ASSIGN_OR_RETURN(const IndexedSlices slices, SlicesFrom(gradient, rows));
      parameter.ApplySparse(step, slices);
    } else {
      ASSIGN_OR_RETURN(const Tensor dense, TensorFrom(gradient));
      parameter.ApplyDense(step, dense);
    }
    result.steps.push_back(parameter.State());
  }
  return result;
}

std::string BitsDifference(const StateAtSteps& a, const StateAtSteps& b) {
  for (size_t step = 0; step < a.steps.size(); ++step) {
    for (const auto& [name, value] : a.steps[step]) {
      if (!BitwiseEqual(*value, *b.steps[step].at(name)))
        return absl::StrCat("the bits of ", name, " differ after step ", step);
    }
  }
  return "";
}

bool IsAdam(const Optimizer& optimizer) { return std::holds_alternative<Adam>(optimizer); }

std::string StepsDifference(const StateAtSteps& got, const Json& wanted, double absolute) {
  if (wanted.size() != got.steps.size())
    return absl::StrCat(got.steps.size(), " steps, wanted ", wanted.size());
  for (size_t step = 0; step < got.steps.size(); ++step) {
    for (const auto& [name, value] : wanted[step].items()) {
      const auto found = got.steps[step].find(name);
      if (found == got.steps[step].end()) return absl::StrCat("there is no slot ", name);
      const Tolerance tolerance{1e-5, name == "linear" ? std::max(absolute, 2e-5) : absolute};
      if (std::string difference = Difference(absl::StrCat(name, " after step ", step, " "),
                                              found->second, value, tolerance);
          !difference.empty())
        return difference;
    }
  }
  return "";
}

}  // namespace

Verdict JudgeSchedule(const Json& test_case) {
  const std::optional<LearningRate> schedule =
      MakeSchedule(test_case.at("schedule").get<std::string>(), test_case.at("args"));
  if (!schedule.has_value()) return NotCovered("no such schedule");
  if (const absl::Status status = Validate(*schedule); !status.ok())
    return Failed(status.ToString());
  const Json& rates = Wanted(test_case).at("rates");
  const std::vector<int64_t> steps = test_case.at("steps").get<std::vector<int64_t>>();
  for (size_t i = 0; i < steps.size(); ++i) {
    const double got = LearningRateAt(*schedule, steps[i]), wanted = NumberFrom(rates.at(i));
    if (!Near(got, wanted, {1e-5, 1e-8}))
      return Failed(absl::StrCat("at step ", steps[i], " the rate is ", got, ", wanted ", wanted));
  }
  return Passed();
}

Verdict JudgeOptimizer(const Json& test_case) {
  const std::string name = test_case.at("optimizer").get<std::string>(),
                    family = test_case.at("family").get<std::string>();
  const std::optional<Optimizer> optimizer = MakeOptimizer(name, test_case.at("args"));
  if (!optimizer.has_value()) return NotCovered(absl::StrCat("Divvy has no ", name));
  const absl::StatusOr<StateAtSteps> whole = RunSteps(*optimizer, test_case, 1);
  if (!whole.ok()) return Failed(whole.status().ToString());
  for (const int64_t shards : {2, 3}) {
    const std::string difference =
        BitsDifference(*whole, RunSteps(*optimizer, test_case, shards).value());
    if (!difference.empty()) return Failed(absl::StrCat(difference, " in ", shards, " shards"));
  }
  const std::vector<std::string> same_in = test_case.value("same_in", std::vector<std::string>());
  const std::string own_family = name == "AdamW" ? "keras2" : "keras2_legacy";
  const bool own =
      family == own_family || std::count(same_in.begin(), same_in.end(), own_family) > 0;
  const double absolute = IsAdam(*optimizer) && family != "keras2_legacy" ? 2e-5 : 2e-6;
  const bool on_purpose = test_case.contains("divvy");
  std::string difference = StepsDifference(
      *whole, on_purpose ? test_case.at("divvy").at("steps") : test_case.at("expect"), absolute);
  if (!difference.empty() && !own)
    return Deviating(absl::StrCat(family, " computes differently: ", difference));
  return PassedUnless(std::move(difference));
}

}  // namespace divvy::conformance
