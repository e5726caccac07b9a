#include "optimizers/optimizer.h"

#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

using SlotKind = SlotSpec::Kind;

std::vector<SlotSpec> Slots(const Sgd&) { return {}; }
std::vector<SlotSpec> Slots(const Momentum&) { return {{"momentum"}}; }
std::vector<SlotSpec> Slots(const Adagrad& adagrad) {
  return {{"accumulator", SlotKind::kValues, adagrad.initial_accumulator}};
}
std::vector<SlotSpec> Slots(const RowwiseAdagrad& adagrad) {
  return {{"accumulator", SlotKind::kRowValues, adagrad.initial_accumulator}};
}

std::vector<SlotSpec> Slots(const Adam& adam) {
  std::vector<SlotSpec> slots = {{"m"}, {"v"}, {"t", SlotKind::kRowCounts}};
  if (adam.amsgrad) slots.push_back({"vhat"});
  return slots;
}

std::vector<SlotSpec> Slots(const RmsProp& rms_prop) {
  std::vector<SlotSpec> slots = {{"rms"}};
  if (rms_prop.momentum > 0) slots.push_back({"momentum"});
  if (rms_prop.centered) slots.push_back({"mg"});
  return slots;
}

std::vector<SlotSpec> Slots(const Ftrl& ftrl) {
  return {{"accumulator", SlotKind::kValues, ftrl.initial_accumulator}, {"linear"}};
}
std::vector<SlotSpec> Slots(const GroupFtrl& ftrl) {
  return {{"accumulator", SlotKind::kValues, ftrl.initial_accumulator}, {"linear"}};
}

// The slots of the step's optimizer, without their initial values.
std::vector<SlotSpec> SlotsOfStep(const OptimizerStep& step) {
  switch (step.kind) {
    case OptimizerKind::kSgd: return Slots(Sgd{});
    case OptimizerKind::kMomentum: return Slots(Momentum{});
    case OptimizerKind::kAdagrad: return Slots(Adagrad{});
    case OptimizerKind::kRowwiseAdagrad: return Slots(RowwiseAdagrad{});
    case OptimizerKind::kAdam: {
      Adam adam{};
      adam.amsgrad = step.amsgrad;
      return Slots(adam);
    }
    case OptimizerKind::kRmsProp: {
      RmsProp rms_prop{};
      rms_prop.momentum = step.momentum;
      rms_prop.centered = step.centered;
      return Slots(rms_prop);
    }
    case OptimizerKind::kFtrl: return Slots(Ftrl{});
    case OptimizerKind::kGroupFtrl: return Slots(GroupFtrl{});
  }
  return {};
}

// The options of each optimizer as the scalars that travel, without learning rate and initial
// slots.
OptimizerStep Scalars(const Sgd&) { return {}; }

OptimizerStep Scalars(const Momentum& momentum) {
  OptimizerStep step;
  step.momentum = momentum.momentum;
  step.nesterov = momentum.nesterov;
  return step;
}

OptimizerStep Scalars(const Adagrad& adagrad) {
  OptimizerStep step;
  step.epsilon = adagrad.epsilon;
  return step;
}

OptimizerStep Scalars(const RowwiseAdagrad& adagrad) {
  OptimizerStep step;
  step.epsilon = adagrad.epsilon;
  return step;
}

OptimizerStep Scalars(const Adam& adam) {
  OptimizerStep step;
  step.beta1 = adam.beta1;
  step.beta2 = adam.beta2;
  step.epsilon = adam.epsilon;
  step.weight_decay = adam.weight_decay;
  step.amsgrad = adam.amsgrad;
  return step;
}

OptimizerStep Scalars(const RmsProp& rms_prop) {
  OptimizerStep step;
  step.rho = rms_prop.rho;
  step.momentum = rms_prop.momentum;
  step.epsilon = rms_prop.epsilon;
  step.centered = rms_prop.centered;
  return step;
}

template <typename AnyFtrl>
OptimizerStep FtrlScalars(const AnyFtrl& ftrl) {
  OptimizerStep step;
  step.l1 = ftrl.l1;
  step.l2 = ftrl.l2;
  step.learning_rate_power = ftrl.learning_rate_power;
  step.beta = ftrl.beta;
  step.l2_shrinkage = ftrl.l2_shrinkage;
  return step;
}

OptimizerStep Scalars(const Ftrl& ftrl) { return FtrlScalars(ftrl); }

OptimizerStep Scalars(const GroupFtrl& ftrl) {
  OptimizerStep step = FtrlScalars(ftrl);
  step.l21 = ftrl.l21;
  return step;
}

OptimizerStep ScalarsOf(const Optimizer& optimizer) {
  OptimizerStep step = std::visit([](const auto& options) { return Scalars(options); }, optimizer);
  step.kind = KindOf(optimizer);
  return step;
}

// Checks the ranges of scalars. status() is the first violation, in one sentence.
class RangeCheck {
 public:
  explicit RangeCheck(absl::string_view optimizer) : optimizer_(optimizer) {}
  RangeCheck& NotNegative(absl::string_view field, float value) {
    return Check(field, value, value >= 0, "at least 0");
  }
  RangeCheck& NotPositive(absl::string_view field, float value) {
    return Check(field, value, value <= 0, "at most 0");
  }
  RangeCheck& Fraction(absl::string_view field, float value) {
    return Check(field, value, value >= 0 && value < 1, "in [0, 1)");
  }
  RangeCheck& UpToOne(absl::string_view field, float value) {
    return Check(field, value, value >= 0 && value <= 1, "in [0, 1]");
  }
  absl::Status status() const { return status_; }

 private:
  RangeCheck& Check(absl::string_view field, float value, bool holds, absl::string_view range) {
    if (std::isfinite(value) && holds) return *this;
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(optimizer_, ": ", field, " is ", value, "; give a finite number ", range)));
    return *this;
  }
  absl::string_view optimizer_;
  absl::Status status_;
};

absl::Status CheckScalars(const OptimizerStep& step) {
  RangeCheck check(OptimizerName(step.kind));
  switch (step.kind) {
    case OptimizerKind::kSgd: return absl::OkStatus();
    case OptimizerKind::kMomentum: return check.UpToOne("momentum", step.momentum).status();
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kRowwiseAdagrad: return check.NotNegative("epsilon", step.epsilon).status();
    case OptimizerKind::kAdam:
      check.Fraction("beta1", step.beta1).Fraction("beta2", step.beta2);
      return check.NotNegative("epsilon", step.epsilon)
          .NotNegative("weight_decay", step.weight_decay)
          .status();
    case OptimizerKind::kRmsProp:
      return check.UpToOne("rho", step.rho)
          .UpToOne("momentum", step.momentum)
          .NotNegative("epsilon", step.epsilon)
          .status();
    case OptimizerKind::kFtrl:
    case OptimizerKind::kGroupFtrl:
      check.NotNegative("l21", step.l21)
          .NotNegative("l1", step.l1)
          .NotNegative("l2", step.l2)
          .NotPositive("learning_rate_power", step.learning_rate_power);
      return check.NotNegative("beta", step.beta)
          .NotNegative("l2_shrinkage", step.l2_shrinkage)
          .status();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown optimizer kind ",
                                                 static_cast<int>(step.kind),
                                                 "; this server is older than its caller"));
}

}  // namespace

OptimizerKind KindOf(const Optimizer& optimizer) {
  return static_cast<OptimizerKind>(optimizer.index());
}

absl::string_view OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd: return "Sgd";
    case OptimizerKind::kMomentum: return "Momentum";
    case OptimizerKind::kAdagrad: return "Adagrad";
    case OptimizerKind::kRowwiseAdagrad: return "RowwiseAdagrad";
    case OptimizerKind::kAdam: return "Adam";
    case OptimizerKind::kRmsProp: return "RmsProp";
    case OptimizerKind::kFtrl: return "Ftrl";
    case OptimizerKind::kGroupFtrl: return "GroupFtrl";
  }
  return "unknown optimizer";
}

absl::Status Validate(const Optimizer& optimizer) {
  const LearningRate& rate = std::visit(
      [](const auto& options) -> const LearningRate& { return options.learning_rate; }, optimizer);
  if (const absl::Status status = Validate(rate); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(OptimizerName(optimizer), ": ", status.message()));
  }
  RangeCheck initial(OptimizerName(optimizer));
  for (const SlotSpec& slot : SlotsOf(optimizer))
    initial.NotNegative("initial_accumulator", slot.initial_value);
  RETURN_IF_ERROR(initial.status());
  // An impossible rate is reported here, and not only when the first gradient is applied.
  return Validate(StepOf(optimizer, 0));
}

Shape SlotSpec::ShapeFor(const Shape& parameter) const {
  if (kind == Kind::kValues || parameter.rank() == 0) return parameter;
  return Shape{parameter.dim(0)};
}

std::vector<SlotSpec> SlotsOf(const Optimizer& optimizer) {
  return std::visit([](const auto& options) { return Slots(options); }, optimizer);
}

std::vector<SlotKind> SlotKindsOf(const OptimizerStep& step) {
  std::vector<SlotKind> kinds;
  for (const SlotSpec& slot : SlotsOfStep(step)) kinds.push_back(slot.kind);
  return kinds;
}

bool operator==(const OptimizerStep& a, const OptimizerStep& b) {
  const auto tied = [](const OptimizerStep& s) {
    return std::tie(s.kind, s.learning_rate, s.momentum, s.nesterov, s.epsilon, s.beta1, s.beta2,
                    s.weight_decay, s.amsgrad, s.rho, s.centered, s.l1, s.l2, s.learning_rate_power,
                    s.beta, s.l2_shrinkage, s.l21);
  };
  return tied(a) == tied(b);
}

OptimizerStep StepOf(const Optimizer& optimizer, int64_t ordinal, double learning_rate_scale) {
  const LearningRate& rate = std::visit(
      [](const auto& options) -> const LearningRate& { return options.learning_rate; }, optimizer);
  OptimizerStep step = ScalarsOf(optimizer);
  step.learning_rate = static_cast<float>(LearningRateAt(rate, ordinal) * learning_rate_scale);
  return step;
}

absl::Status Validate(const OptimizerStep& step) {
  RETURN_IF_ERROR(CheckScalars(step));
  if (!std::isfinite(step.learning_rate)) {
    return absl::InvalidArgumentError(absl::StrCat(OptimizerName(step.kind),
                                                   ": the learning rate is ", step.learning_rate,
                                                   "; give a finite number"));
  }
  const bool divides_by_rate =
      step.kind == OptimizerKind::kFtrl || step.kind == OptimizerKind::kGroupFtrl;
  if (divides_by_rate && step.learning_rate <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(OptimizerName(step.kind),
                                                   ": the learning rate is ", step.learning_rate,
                                                   "; give one above 0"));
  }
  return absl::OkStatus();
}

}  // namespace divvy
