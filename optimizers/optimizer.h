// The optimizers: their options, the scalars that travel with a gradient, and the slots that a
// parameter needs. The arithmetic is in optimizers/apply.h.
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

// Optimizers run on the parameter servers, where the slots are ("<variable>/<optimizer>/<slot>").
// Variables are float32. Of a sparse gradient, duplicate rows are summed first, and only the rows
// that it names change.
//
// The arithmetic is that of tf_keras.optimizers.legacy, which TensorFlow uses with parameter
// servers. Decoupled weight decay follows AdamW of Keras 2; docs/reference/deviations.md lists the
// differences between the Keras families.
//
// Optimizers are plain values. CreateVariable and Trainer call Validate on them. A step calls it on
// an optimizer that was given to ApplyGradients.
//
// In the formulas below w is the parameter, g its gradient and lr the learning rate.

// Stochastic gradient descent: w -= lr g.
struct Sgd {
  LearningRate learning_rate;
};
// Gradient descent with momentum: m = momentum m - lr g; w += m. Nesterov: w += momentum m - lr g,
// with the new m (Sutskever et al., "On the importance of initialization and momentum in deep
// learning", 2013).
struct Momentum {
  LearningRate learning_rate;
  float momentum = 0.9f;  // [0, 1]
  bool nesterov = false;
};
// Adagrad: a += g^2; w -= lr g / (sqrt(a) + epsilon) (Duchi et al., "Adaptive subgradient methods
// for online learning and stochastic optimization", 2011).
struct Adagrad {
  LearningRate learning_rate;
  float initial_accumulator = 0.1f;  // >= 0
  float epsilon = 1e-7f;             // >= 0
};
// As Adagrad with one accumulator for each row instead of one for each element, so that large
// tables can afford it: a += mean of g^2 over the row; w -= lr g / (sqrt(a) + epsilon).
struct RowwiseAdagrad {
  LearningRate learning_rate;
  float initial_accumulator = 0.1f;  // >= 0
  float epsilon = 1e-7f;             // >= 0
};
// In this order:
//
//   t += 1
//   m += (1 - beta1)(g - m)
//   v += (1 - beta2)(g^2 - v)
//   w -= lr weight_decay w
//   w -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon)
//
// With amsgrad, vhat = max(vhat, v) replaces v in the last line. (Kingma and Ba, "Adam", 2015;
// Reddi et al., "On the convergence of Adam and beyond", 2018; Loshchilov and Hutter, "Decoupled
// weight decay regularization", 2019.)
//
// t counts the gradients that have been applied to *this row*. Keras counts steps of the optimizer
// instead, and decays the slots of rows that a sparse gradient does not name.
//
// So this is also PyTorch's SparseAdam and TensorFlow Addons' LazyAdam: a sparse gradient changes
// m, v and w of the rows that it names, and of no others. m and v are the same numbers as theirs.
// They take t from the optimizer's step, so the result is the same for a row that every gradient
// has named. Of a row that is named for the first time at a late step they do not correct the bias.
struct Adam {
  LearningRate learning_rate;
  float beta1 = 0.9f;      // [0, 1)
  float beta2 = 0.999f;    // [0, 1)
  float epsilon = 1e-7f;   // >= 0
  float weight_decay = 0;  // >= 0; decoupled: AdamW
  bool amsgrad = false;
};
// Tieleman and Hinton, "Lecture 6.5 - RMSProp", 2012; centered: Graves, "Generating sequences with
// recurrent neural networks", 2013. In this order:
//
//   r += (1 - rho)(g^2 - r)
//   d = r                                           not centered
//   a += (1 - rho)(g - a), d = max(r - a^2, 0)      centered
//   w -= lr g / (sqrt(d) + epsilon)                 without momentum
//   b = momentum b + lr g / sqrt(d + epsilon)       with momentum
//   w -= b
//
// Where rounding makes r - a^2 negative, TensorFlow gives NaN.
struct RmsProp {
  LearningRate learning_rate;
  float rho = 0.9f;       // [0, 1]
  float momentum = 0;     // [0, 1]
  float epsilon = 1e-7f;  // >= 0
  bool centered = false;  // divide by an estimate of the variance, not of the second moment
};
// McMahan et al., "Ad click prediction: a view from the trenches", 2013. l1 makes many weights of a
// linear model exactly 0. With p = learning_rate_power, in this order:
//
//   G = g + 2 l2_shrinkage w
//   n' = n + g^2
//   z += G - (n'^-p - n^-p) / lr w
//   w = (clip(z, -l1, l1) - z) / (n'^-p / lr + 2 l2 + beta / lr)
struct Ftrl {
  LearningRate learning_rate;         // > 0 at every step
  float l1 = 0;                       // >= 0
  float l2 = 0;                       // >= 0
  float learning_rate_power = -0.5f;  // <= 0
  float initial_accumulator = 0.1f;   // >= 0
  float beta = 0;                     // >= 0
  float l2_shrinkage = 0;             // >= 0
};
// Ftrl with a group lasso on each row, so that the whole rows of useless ids become exactly 0
// (sparse group lasso: Yuan and Lin, "Model selection and estimation in regression with grouped
// variables", 2006; with FTRL: Yue et al., "Adaptive optimizers with sparse group lasso for neural
// networks in CTR prediction", 2021). n' and z are those of Ftrl. Then, for each row:
//
//   s = z - clip(z, -l1, l1)
//   w = -max(0, 1 - l21 sqrt(width) / ||s||) s / (n'^-p / lr + 2 l2 + beta / lr)
//
// ||s|| is the Euclidean norm over the row, and `width` its number of elements (for rank 0 and 1:
// 1, so the group lasso is another l1). A row is 0 exactly where the minimum of Ftrl's objective
// plus the penalty l21 sqrt(width) ||w|| has a row of 0. Where it is not 0, w is that minimum if n'
// is the same in the whole row, and otherwise close to it. With l21 0 this is Ftrl.
struct GroupFtrl {
  LearningRate learning_rate;         // > 0 at every step
  float l21 = 0;                      // >= 0; the group lasso
  float l1 = 0;                       // >= 0
  float l2 = 0;                       // >= 0
  float learning_rate_power = -0.5f;  // <= 0
  float initial_accumulator = 0.1f;   // >= 0
  float beta = 0;                     // >= 0
  float l2_shrinkage = 0;             // >= 0
};
// Any of the optimizers above.
using Optimizer =
    std::variant<Sgd, Momentum, Adagrad, RowwiseAdagrad, Adam, RmsProp, Ftrl, GroupFtrl>;

// The kind of an optimizer, in the order of the alternatives of Optimizer.
enum class OptimizerKind : uint8_t {
  kSgd,
  kMomentum,
  kAdagrad,
  kRowwiseAdagrad,
  kAdam,
  kRmsProp,
  kFtrl,
  kGroupFtrl
};
// The kind of this optimizer.
OptimizerKind KindOf(const Optimizer& optimizer);
// The optimizer's part of a slot's name: "Sgd", "Momentum", "Adagrad", "RowwiseAdagrad", "Adam",
// "RmsProp", "Ftrl" or "GroupFtrl". Valid forever.
absl::string_view OptimizerName(OptimizerKind kind);
inline absl::string_view OptimizerName(const Optimizer& optimizer) {
  return OptimizerName(KindOf(optimizer));
}

// InvalidArgument: a field is out of its range; the message names the optimizer, the field and the
// range. Otherwise the error of the learning rate. Pure.
absl::Status Validate(const Optimizer& optimizer);

// One slot of a parameter: a second tensor, which is cut and placed as the parameter is.
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
  // The shape of the slot for a parameter of this shape, as Kind says. dtype() is its element type.
  Shape ShapeFor(const Shape& parameter) const;
  friend bool operator==(const SlotSpec& a, const SlotSpec& b) {
    return a.name == b.name && a.kind == b.kind && a.initial_value == b.initial_value;
  }
  friend bool operator!=(const SlotSpec& a, const SlotSpec& b) { return !(a == b); }
};

// The slots of an optimizer, in the order in which the functions of optimizers/apply.h take them:
//
//   Sgd                        none
//   Momentum                   momentum
//   Adagrad, RowwiseAdagrad    accumulator
//   Adam                       m, v, t; vhat with amsgrad
//   RmsProp                    rms; momentum if momentum > 0; mg if centered
//   Ftrl, GroupFtrl            accumulator, linear
std::vector<SlotSpec> SlotsOf(const Optimizer& optimizer);

// The optimizer's scalars at one step, which travel with a gradient. With this and the slots a
// parameter server can apply the gradient; it needs no schedule. A plain value; fields that `kind`
// does not use are 0.
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
  float l1 = 0, l2 = 0, learning_rate_power = 0, beta = 0, l2_shrinkage = 0;  // Ftrl, GroupFtrl
  float l21 = 0;                                                              // GroupFtrl
};
bool operator==(const OptimizerStep& a, const OptimizerStep& b);
inline bool operator!=(const OptimizerStep& a, const OptimizerStep& b) { return !(a == b); }

// The scalars of step `ordinal` (counted from 0). Its learning rate is that of the schedule times
// `learning_rate_scale`. Pure. REQUIRES: Validate(optimizer) is OK.
OptimizerStep StepOf(const Optimizer& optimizer, int64_t ordinal, double learning_rate_scale = 1);

// The kinds of the slots that this step's optimizer has, in the order of SlotsOf. A step does not
// carry the slots' initial values.
std::vector<SlotSpec::Kind> SlotKindsOf(const OptimizerStep& step);

// InvalidArgument: `kind` is unknown or a scalar is out of its range, as for Validate(Optimizer). A
// parameter server calls it before it applies a step from the network.
absl::Status Validate(const OptimizerStep& step);

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_OPTIMIZER_H_
