// A network of layers, one after another. Their widths follow from the shape of the network's
// input.
#ifndef DIVVY_TRAIN_SEQUENTIAL_H_
#define DIVVY_TRAIN_SEQUENTIAL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "tensor/shape.h"
#include "train/model.h"

namespace divvy {

// Applies its stages in their order, as Keras' Sequential does. Each stage learns the shape of its
// input from the stage before it, so only the first shape is given. Define it `const` at namespace
// scope, and list it in the layers of a Model. Thread-safe.
//
//   const Sequential kNetwork("network", {28, 28, 1},
//                             {Sequential::Conv(32, 3), Sequential::MaxPool(2),
//                              Sequential::Flatten(), Sequential::Dropout(0.5f),
//                              Sequential::Dense(10)});
//
//   const Var logits = kNetwork(tape, batch["image"]);  // [batch, 28, 28, 1] -> [batch, 10]
//
// Stage i has the variables "<name>/<i>/kernel" and "<name>/<i>/bias" if it is a Dense or a Conv;
// stages are counted from 0. All of them are read in one round trip.
//
// The constructor finds a stage whose input has the wrong shape. It cannot return an error. So the
// network then has no variables, and status() has the error. A Trainer returns that status before
// it creates a variable, and a call of the network returns a failed Var with it.
class Sequential : public Layer {
 public:
  // One stage, made by the functions below.
  class Stage;

  // activation(x kernel + bias), [inputs] -> [outputs]: train/model.h's Dense. The input must have
  // one dimension besides the batch's: put a Flatten before the Dense if it has more.
  static Stage Dense(int64_t outputs, Activation activation = Activation::kNone,
                     const LayerOptions& options = {});
  // [h, w, channels] -> [ceil(h / stride), ceil(w / stride), out_channels]: train/model.h's Conv.
  static Stage Conv(int64_t out_channels, int kernel, int stride = 1,
                    Activation activation = Activation::kRelu, const LayerOptions& options = {});
  // The largest of each window x window values, without padding; stride 0 means `window`.
  // [h, w, channels] -> [(h - window) / stride + 1, (w - window) / stride + 1, channels].
  static Stage MaxPool(int window, int stride = 0);
  // Any shape -> [its elements].
  static Stage Flatten();
  // ops.h's Dropout. It does nothing in evaluation and prediction.
  static Stage Dropout(float rate);
  // A function that keeps the tensor's shape: Apply(&Gelu). Several replicas call the function at
  // once.
  static Stage Apply(std::function<Var(const Var&)> function);

  // `input`: the shape of one example, without the batch's dimension.
  Sequential(std::string name, const Shape& input, std::vector<Stage> stages);

  // x [batch, input...] -> [batch, output...]. InvalidArgument, as a failed Var: status(), or x has
  // another shape.
  Var operator()(GradientTape& tape, const Var& x) const;

  // The shape of one example's result. Invalid if status() is not OK.
  const Shape& output() const { return shape_; }
  // InvalidArgument: a stage's input has the wrong shape, or a stage's arguments are out of range.
  // The message names the stage.
  const absl::Status& status() const { return problem; }

 private:
  using Function = std::function<Var(GradientTape&, const Var&)>;
  // A stage whose input shape is known.
  struct Placed {
    Shape output;
    Function function;
    Layer layer = {};
  };
  template <typename Made>
  static Placed Place(Made layer, const Shape& output);

  std::string name_;
  Shape input_, shape_;
  std::vector<Placed> stages_;
  std::vector<std::string> names_;  // of all variables
};

// One stage of a Sequential. A value, made by Sequential's functions.
class Sequential::Stage {
 private:
  friend class Sequential;
  using Make = std::function<absl::StatusOr<Placed>(const std::string& name, const Shape& input)>;
  explicit Stage(Make make) : make_(std::move(make)) {}
  Make make_;
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_SEQUENTIAL_H_
