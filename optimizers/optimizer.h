// The optimizers: what a program names, what travels with a gradient, and which slots a parameter
// needs. The arithmetic is in optimizers/apply.h.
#ifndef DIVVY_OPTIMIZERS_OPTIMIZER_H_
#define DIVVY_OPTIMIZERS_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "optimizers/learning_rate.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy {

// Applied on the parameter servers, where the slots live ("<variable>/<optimizer>/<slot>"). Sparse
// gradients: duplicates are summed first, only the rows named are touched. Variables are float32.
// Arithmetic: tf_keras.optimizers.legacy, the ones TensorFlow uses under parameter servers;
// decoupled weight decay as AdamW of Keras 2 (which differs from other families of Keras, and how:
// docs/deviations.md). Plain values. Validate looks at their fields: CreateVariable and Trainer ask
// it, and who gives one to ApplyGradients does. Formulas, with w the parameter, g its gradient and
// lr the learning rate:

// w -= lr g.
struct Sgd {
  LearningRate learning_rate;
};
// m = momentum m - lr g; w += m. Nesterov: w += momentum m - lr g, with the new m (Sutskever et
// al., "On the importance of initialization and momentum in deep learning", 2013).
struct Momentum {
  LearningRate learning_rate;
  float momentum = 0.9f;  // [0, 1]
  bool nesterov = false;
};
// a += g^2; w -= lr g / (sqrt(a) + epsilon) (Duchi et al., "Adaptive subgradient methods for online
// learning and stochastic optimization", 2011).
struct Adagrad {
  LearningRate learning_rate;
  float initial_accumulator = 0.1f;  // >= 0
  float epsilon = 1e-7f;             // >= 0
};
// a += mean of g^2 over the row; w -= lr g / (sqrt(a) + epsilon). One number a row instead of one
// for each element: what large tables can afford.
struct RowwiseAdagrad {
  LearningRate learning_rate;
  float initial_accumulator = 0.1f;  // >= 0
  float epsilon = 1e-7f;             // >= 0
};
// t += 1; m += (1 - beta1)(g - m); v += (1 - beta2)(g^2 - v); w -= lr weight_decay w; w -= lr
// sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon). AMSGrad: vhat = max(vhat, v) takes the
// place of v in the last term. (Kingma and Ba, "Adam", 2015; Reddi et al., "On the convergence of
// Adam and beyond", 2018; Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.)
// t counts the gradients that *this row* has absorbed (Keras counts steps of the optimizer, and
// decays the slots of rows that a sparse gradient does not name).
struct Adam {
  LearningRate learning_rate;
  float beta1 = 0.9f;      // [0, 1)
  float beta2 = 0.999f;    // [0, 1)
  float epsilon = 1e-7f;   // >= 0
  float weight_decay = 0;  // >= 0; decoupled: AdamW
  bool amsgrad = false;
};
// Tieleman and Hinton, "Lecture 6.5 - RMSProp", 2012; centered: Graves, "Generating sequences with
// recurrent neural networks", 2013. r += (1 - rho)(g^2 - r); d = r, or centered: a += (1 - rho)(g -
// a), d = r - a^2, not below 0 (where rounding takes TensorFlow's there, it gives NaN). Without
// momentum: w -= lr g / (sqrt(d) + epsilon). With it: b = momentum b + lr g / sqrt(d + epsilon), w
// -= b.
struct RmsProp {
  LearningRate learning_rate;
  float rho = 0.9f;       // [0, 1]
  float momentum = 0;     // [0, 1]
  float epsilon = 1e-7f;  // >= 0
  bool centered = false;  // divide by an estimate of the variance rather than of the second moment
};
// McMahan et al., "Ad click prediction: a view from the trenches", 2013; many weights of a linear
// model become 0 by l1. G = g + 2 l2_shrinkage w; n' = n + g^2; z += G - (n'^-p - n^-p) / lr w; w =
// (clip(z, -l1, l1) - z) / (n'^-p / lr + 2 l2 + beta / lr), p = learning_rate_power.
struct Ftrl {
  LearningRate learning_rate;         // > 0 at every step
  float l1 = 0;                       // >= 0
  float l2 = 0;                       // >= 0
  float learning_rate_power = -0.5f;  // <= 0
  float initial_accumulator = 0.1f;   // >= 0
  float beta = 0;                     // >= 0
  float l2_shrinkage = 0;             // >= 0
};
using Optimizer = std::variant<Sgd, Momentum, Adagrad, RowwiseAdagrad, Adam, RmsProp, Ftrl>;

enum class OptimizerKind : uint8_t {
  kSgd,
  kMomentum,
  kAdagrad,
  kRowwiseAdagrad,
  kAdam,
  kRmsProp,
  kFtrl
};
OptimizerKind KindOf(const Optimizer& optimizer);
// The part of a slot's name in the middle: "Sgd", "Momentum", "Adagrad", "RowwiseAdagrad", "Adam",
// "RmsProp", "Ftrl".
absl::string_view OptimizerName(OptimizerKind kind);
inline absl::string_view OptimizerName(const Optimizer& optimizer) {
  return OptimizerName(KindOf(optimizer));
}

// InvalidArgument, naming the optimizer, the field and its range; or the learning rate's own error.
absl::Status Validate(const Optimizer& optimizer);

// One slot of a parameter: a second tensor that is cut and placed as the parameter is.
struct SlotSpec {
  enum class Kind : uint8_t {
    kValues,     // float32, the parameter's shape
    kRowCounts,  // int32, one for each row ([rows]; rank 0: one)
    kRowValues   // float32, one for each row
  };
  std::string name;  // "m"
  Kind kind = Kind::kValues;
  float initial_value = 0;  // of every element

  DType dtype() const { return kind == Kind::kRowCounts ? DType::kInt32 : DType::kFloat32; }
  Shape ShapeFor(const Shape& parameter) const;
  friend bool operator==(const SlotSpec& a, const SlotSpec& b) {
    return a.name == b.name && a.kind == b.kind && a.initial_value == b.initial_value;
  }
  friend bool operator!=(const SlotSpec& a, const SlotSpec& b) { return !(a == b); }
};

// The slots of an optimizer, in the order in which its kernel takes them: Momentum {momentum},
// Adagrad and RowwiseAdagrad {accumulator}, Adam {m, v, t} and vhat with amsgrad, RmsProp {rms},
// then momentum with momentum above 0, then mg if centered, Ftrl {accumulator, linear}, Sgd none.
std::vector<SlotSpec> SlotsOf(const Optimizer& optimizer);

// What travels with a gradient: the optimizer's scalars at one step. A plain value; fields that
// `kind` does not use are 0. A parameter server needs this and the slots, no schedule.
struct OptimizerStep {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0;
  float momentum = 0;                            // Momentum, RmsProp
  bool nesterov = false;                         // Momentum
  float epsilon = 0;                             // Adagrad, RowwiseAdagrad, Adam, RmsProp
  float beta1 = 0, beta2 = 0, weight_decay = 0;  // Adam
  bool amsgrad = false;
  float rho = 0;  // RmsProp
  bool centered = false;
  float l1 = 0, l2 = 0, learning_rate_power = 0, beta = 0, l2_shrinkage = 0;  // Ftrl
};
bool operator==(const OptimizerStep& a, const OptimizerStep& b);
inline bool operator!=(const OptimizerStep& a, const OptimizerStep& b) { return !(a == b); }

// The scalars of the step with number `ordinal` (from 0), its learning rate times `scale`.
// REQUIRES: Validate(optimizer) is OK.
OptimizerStep StepOf(const Optimizer& optimizer, int64_t ordinal, double learning_rate_scale = 1);

// Which slots the step moves: the kinds of those that SlotsOf names for its optimizer. Initial
// values are not told by a step.
std::vector<SlotSpec::Kind> SlotKindsOf(const OptimizerStep& step);

// What a parameter server checks before it applies: InvalidArgument for an unknown kind or a scalar
// out of its range, as Validate(Optimizer) names them.
absl::Status Validate(const OptimizerStep& step);

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_OPTIMIZER_H_
