#include "wire/optimizer.h"

#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "wire/decode.h"

namespace divvy::wire {
namespace {

constexpr EnumTable<OptimizerKind, v1::OptimizerKind, 7> kKinds = {{
    {OptimizerKind::kSgd, v1::SGD},
    {OptimizerKind::kMomentum, v1::MOMENTUM},
    {OptimizerKind::kAdagrad, v1::ADAGRAD},
    {OptimizerKind::kRowwiseAdagrad, v1::ROWWISE_ADAGRAD},
    {OptimizerKind::kAdam, v1::ADAM},
    {OptimizerKind::kRmsProp, v1::RMS_PROP},
    {OptimizerKind::kFtrl, v1::FTRL},
}};

// ---- learning rates ---------------------------------------------------------------------------------------------------------------------------------

template <typename Decay>
void SetDecay(const Decay& decay, v1::LearningRate::Decay& out) {
  out.set_initial(decay.initial);
  out.set_decay_steps(decay.decay_steps);
  out.set_rate(decay.rate);
  out.set_staircase(decay.staircase);
}

struct SetLearningRate {
  v1::LearningRate& out;
  void operator()(double rate) { out.set_constant(rate); }
  void operator()(const ExponentialDecay& decay) { SetDecay(decay, *out.mutable_exponential()); }
  void operator()(const InverseTimeDecay& decay) { SetDecay(decay, *out.mutable_inverse_time()); }
  void operator()(const PolynomialDecay& decay) {
    v1::LearningRate::Polynomial& to = *out.mutable_polynomial();
    to.set_initial(decay.initial);
    to.set_decay_steps(decay.decay_steps);
    to.set_final_rate(decay.final_rate);
    to.set_power(decay.power);
  }
  void operator()(const CosineDecay& decay) {
    v1::LearningRate::Cosine& to = *out.mutable_cosine();
    to.set_initial(decay.initial);
    to.set_decay_steps(decay.decay_steps);
    to.set_final_fraction(decay.final_fraction);
    to.set_warmup_steps(decay.warmup_steps);
    if (decay.warmup_target) to.set_warmup_target(*decay.warmup_target);
  }
  void operator()(const PiecewiseConstant& pieces) {
    v1::LearningRate::Piecewise& to = *out.mutable_piecewise();
    to.mutable_boundaries()->Assign(pieces.boundaries.begin(), pieces.boundaries.end());
    to.mutable_values()->Assign(pieces.values.begin(), pieces.values.end());
  }
};

CosineDecay Cosine(const v1::LearningRate::Cosine& from) {
  CosineDecay decay{from.initial(), from.decay_steps(), from.final_fraction(), from.warmup_steps()};
  if (from.has_warmup_target()) decay.warmup_target = from.warmup_target();
  return decay;
}

PiecewiseConstant Piecewise(const v1::LearningRate::Piecewise& from) {
  return {{from.boundaries().begin(), from.boundaries().end()}, {from.values().begin(), from.values().end()}};
}

absl::StatusOr<LearningRate> AnyLearningRate(const v1::LearningRate& rate) {
  const auto decay = [](auto law, const v1::LearningRate::Decay& from) {
    law = {from.initial(), from.decay_steps(), from.rate(), from.staircase()};
    return LearningRate(law);
  };
  switch (rate.kind_case()) {
    case v1::LearningRate::kConstant: return LearningRate(rate.constant());
    case v1::LearningRate::kExponential: return decay(ExponentialDecay(), rate.exponential());
    case v1::LearningRate::kInverseTime: return decay(InverseTimeDecay(), rate.inverse_time());
    case v1::LearningRate::kPolynomial: {
      const v1::LearningRate::Polynomial& from = rate.polynomial();
      return LearningRate(PolynomialDecay{from.initial(), from.decay_steps(), from.final_rate(), from.power()});
    }
    case v1::LearningRate::kCosine: return LearningRate(Cosine(rate.cosine()));
    case v1::LearningRate::kPiecewise: return LearningRate(Piecewise(rate.piecewise()));
    case v1::LearningRate::KIND_NOT_SET: break;
  }
  return Invalid("", "has no kind, or one of a newer protocol");
}

// ---- optimizers -------------------------------------------------------------------------------------------------------------------------------------

struct SetOptions {
  v1::Optimizer& out;
  void operator()(const Sgd&) {}
  void operator()(const Momentum& momentum) {
    out.set_momentum(momentum.momentum);
    out.set_nesterov(momentum.nesterov);
  }
  void operator()(const Adagrad& adagrad) {
    out.set_initial_accumulator(adagrad.initial_accumulator);
    out.set_epsilon(adagrad.epsilon);
  }
  void operator()(const RowwiseAdagrad& adagrad) {
    out.set_initial_accumulator(adagrad.initial_accumulator);
    out.set_epsilon(adagrad.epsilon);
  }
  void operator()(const Adam& adam) {
    out.set_beta1(adam.beta1);
    out.set_beta2(adam.beta2);
    out.set_epsilon(adam.epsilon);
    out.set_weight_decay(adam.weight_decay);
    out.set_amsgrad(adam.amsgrad);
  }
  void operator()(const RmsProp& rms_prop) {
    out.set_rho(rms_prop.rho);
    out.set_momentum(rms_prop.momentum);
    out.set_epsilon(rms_prop.epsilon);
    out.set_centered(rms_prop.centered);
  }
  void operator()(const Ftrl& ftrl) {
    out.set_l1(ftrl.l1);
    out.set_l2(ftrl.l2);
    out.set_learning_rate_power(ftrl.learning_rate_power);
    out.set_initial_accumulator(ftrl.initial_accumulator);
    out.set_beta(ftrl.beta);
    out.set_l2_shrinkage(ftrl.l2_shrinkage);
  }
};

Ftrl FtrlOf(const v1::Optimizer& from, LearningRate rate) {
  return {std::move(rate), from.l1(), from.l2(), from.learning_rate_power(), from.initial_accumulator(), from.beta(), from.l2_shrinkage()};
}

Optimizer OfKind(OptimizerKind kind, const v1::Optimizer& from, LearningRate rate) {
  switch (kind) {
    case OptimizerKind::kSgd: break;
    case OptimizerKind::kMomentum: return Momentum{std::move(rate), from.momentum(), from.nesterov()};
    case OptimizerKind::kAdagrad: return Adagrad{std::move(rate), from.initial_accumulator(), from.epsilon()};
    case OptimizerKind::kRowwiseAdagrad: return RowwiseAdagrad{std::move(rate), from.initial_accumulator(), from.epsilon()};
    case OptimizerKind::kAdam: return Adam{std::move(rate), from.beta1(), from.beta2(), from.epsilon(), from.weight_decay(), from.amsgrad()};
    case OptimizerKind::kRmsProp: return RmsProp{std::move(rate), from.rho(), from.momentum(), from.epsilon(), from.centered()};
    case OptimizerKind::kFtrl: return FtrlOf(from, std::move(rate));
  }
  return Sgd{std::move(rate)};
}

}  // namespace

v1::LearningRate ToProto(const LearningRate& rate) {
  v1::LearningRate out;
  std::visit(SetLearningRate{out}, rate);
  return out;
}

absl::StatusOr<LearningRate> FromProto(const v1::LearningRate& rate) {
  ASSIGN_OR_RETURN(LearningRate out, AnyLearningRate(rate));
  RETURN_IF_ERROR(AsInvalid(Validate(out)));
  return out;
}

v1::Optimizer ToProto(const Optimizer& optimizer) {
  v1::Optimizer out;
  out.set_kind(kKinds.ToWire(KindOf(optimizer)));
  *out.mutable_learning_rate() = std::visit([](const auto& options) { return ToProto(options.learning_rate); }, optimizer);
  std::visit(SetOptions{out}, optimizer);
  return out;
}

absl::StatusOr<Optimizer> FromProto(const v1::Optimizer& optimizer) {
  ASSIGN_OR_RETURN(const OptimizerKind kind, In("kind", kKinds.ToDomain(optimizer.kind())));
  DIVVY_WIRE_READ(LearningRate rate, optimizer, learning_rate);
  Optimizer out = OfKind(kind, optimizer, std::move(rate));
  RETURN_IF_ERROR(AsInvalid(Validate(out)));
  return out;
}

v1::OptimizerStep ToProto(const OptimizerStep& step) {
  v1::OptimizerStep out;
  out.set_kind(kKinds.ToWire(step.kind));
  out.set_learning_rate(step.learning_rate);
  out.set_momentum(step.momentum);
  out.set_nesterov(step.nesterov);
  out.set_epsilon(step.epsilon);
  out.set_beta1(step.beta1);
  out.set_beta2(step.beta2);
  out.set_weight_decay(step.weight_decay);
  out.set_amsgrad(step.amsgrad);
  out.set_rho(step.rho);
  out.set_centered(step.centered);
  out.set_l1(step.l1);
  out.set_l2(step.l2);
  out.set_learning_rate_power(step.learning_rate_power);
  out.set_beta(step.beta);
  out.set_l2_shrinkage(step.l2_shrinkage);
  return out;
}

absl::StatusOr<OptimizerStep> FromProto(const v1::OptimizerStep& step) {
  OptimizerStep out;
  ASSIGN_OR_RETURN(out.kind, In("kind", kKinds.ToDomain(step.kind())));
  out.learning_rate = step.learning_rate();
  out.momentum = step.momentum();
  out.nesterov = step.nesterov();
  out.epsilon = step.epsilon();
  out.beta1 = step.beta1();
  out.beta2 = step.beta2();
  out.weight_decay = step.weight_decay();
  out.amsgrad = step.amsgrad();
  out.rho = step.rho();
  out.centered = step.centered();
  out.l1 = step.l1();
  out.l2 = step.l2();
  out.learning_rate_power = step.learning_rate_power();
  out.beta = step.beta();
  out.l2_shrinkage = step.l2_shrinkage();
  RETURN_IF_ERROR(AsInvalid(Validate(out)));
  return out;
}

}  // namespace divvy::wire
