// Layers and models: Keras' part, small.
#ifndef DIVVY_TRAIN_MODEL_H_
#define DIVVY_TRAIN_MODEL_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/variable_spec.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "strategy/metrics.h"
#include "strategy/step.h"
#include "tensor/nest.h"

namespace divvy {

// What a layer does with its result, element by element (ops/ops.h).
enum class Activation { kNone, kRelu, kSigmoid, kTanh, kGelu };

// Layers are small values: they name their variables and apply them. Declare them `const` at
// namespace scope. Thread-safe. An input that does not fit gives a failed Var whose message begins
// with the layer's name. A layer of one's own derives from this and reads its variables by their
// names:
//
//   struct Scale : Layer {
//     explicit Scale(std::string name) { variables = {{std::move(name), Shape{}, Ones()}}; }
//     Var operator()(GradientTape& tape, const Var& x) const { return x *
//     tape.Read(variables[0].name); }
//   };
//
// Names, shapes and options are checked when the variables are created, not here.
struct Layer {
  enum class Access {
    kWhole,   // a Model asks for all of them at a step's start
    kByRows,  // tables: looked up, never read whole
  };
  std::vector<VariableSpec> variables;
  Access access = Access::kWhole;
  // Keras' kernel_regularizer=L2(l2): a Model adds l2 times the sum of the variable's squares to
  // the loss, once for each step, in training and in evaluation. REQUIRES: a floating variable that
  // is read whole, l2 >= 0, else the steps are InvalidArgument.
  struct Penalty {
    std::string variable;
    double l2;
  };
  std::vector<Penalty> penalties = {};
};

// Of a layer with a kernel and a bias. By name in C++20, else field by field.
struct LayerOptions {
  std::optional<Optimizer> optimizer = {};  // of its variables; none: the Trainer's
  Initializer kernel = GlorotUniform();
  Initializer bias = Zeros();
  double l2 = 0;  // a penalty on the kernel (Layer::Penalty)
};

// activation(x kernel + bias), x [batch, inputs] -> [batch, outputs]. Variables "<name>/kernel"
// [inputs, outputs] (Glorot uniform) and "<name>/bias" [outputs] (zeros), as Keras' Dense.
struct Dense : Layer {
  Dense(std::string name, int64_t inputs, int64_t outputs,
        Activation activation = Activation::kNone, const LayerOptions& options = {});
  Var operator()(GradientTape& tape, const Var& x) const;

 private:
  std::string name_;
  Activation activation_;
};

// Dense layers "<name>/0", "<name>/1", ...: kRelu between them, none after the last. REQUIRES: at
// least two widths.
struct Mlp : Layer {
  // {784, 512, 10}; the options of each layer
  Mlp(std::string name, std::initializer_list<int64_t> widths, const LayerOptions& options = {});
  Var operator()(GradientTape& tape, const Var& x) const;

 private:
  std::vector<Dense> layers_;
  std::vector<std::string> names_;
};

// activation(convolution + bias), x [n, h, w, in_channels] -> [n, ceil(h / stride), ceil(w /
// stride), out_channels]: a window of kernel x kernel, padded with zeros so that stride 1 keeps
// height and width. Variables "<name>/kernel" [kernel, kernel, in_channels, out_channels] (Glorot
// uniform) and "<name>/bias" [out_channels] (zeros), as Keras' Conv2D with padding="same".
struct Conv : Layer {
  Conv(std::string name, int64_t in_channels, int64_t out_channels, int kernel, int stride = 1,
       Activation activation = Activation::kRelu, const LayerOptions& options = {});
  Var operator()(GradientTape& tape, const Var& x) const;

 private:
  std::string name_;
  int stride_;
  Activation activation_;
};

// A table "<name>" [rows, width], cut over the parameter servers by the strategy. Only the rows
// asked for travel, and the gradient names only them, so a step costs what its batch names. Called
// several times on a tape, its lookups still leave in one message. An id outside [0, rows) fails
// the step with InvalidArgument; LookupOptions::safe, for Bag, drops those below 0.
//
//   const Embedding kItems("items", 10'000'000, 64, RowwiseAdagrad{0.05});
//   Var item = kItems(tape, batch["item"]);                    // [batch] -> [batch, 64]
//   Var history = kItems.Bag(tape, batch["history"]);          // SparseIds -> [batch, 64]
struct Embedding : Layer {
  Embedding(std::string name, int64_t rows, int64_t width, std::optional<Optimizer> optimizer = {},
            Initializer initializer = RandomUniform{});
  // ids of any shape -> ids.shape + [width].
  Var operator()(GradientTape& tape, const Var& ids, const LookupOptions& options = {}) const;
  // Lists of ids, each combined -> [batch, width].
  Var Bag(GradientTape& tape, const Nest& sparse_ids, Combiner combiner = Combiner::kMean,
          const LookupOptions& options = {}) const;

 private:
  std::string name_;
};

// What a model makes of a batch. A metric's error is the step's, with the metric's name.
//
//   ModelOutput Forward(GradientTape& tape, const Nest& batch) {
//     const Var logits = kMlp(tape, batch["image"]);
//     return {SoftmaxCrossEntropy(logits, batch["label"]), {{"accuracy", Accuracy(logits,
//     batch["label"])}}, {{"probabilities", Softmax(logits)}}};
//   }
//   const Model kDigitsModel("digits", {kMlp}, Forward);
struct ModelOutput {
  // [batch] (or [batch, 1]): the trainer takes the mean over all examples of the worker's step
  Var losses;
  // "loss" is the mean of the losses and comes by itself
  std::map<std::string, absl::StatusOr<Metric>> metrics = {};
  // What Trainer::Predict gives, [batch, ...] each. It looks at nothing else: losses and metrics of
  // a batch without labels may be failed, and training does not look at these.
  std::map<std::string, Var> outputs = {};
};

// A model, known by name in every process; it brings its own steps, "<name>/train",
// "<name>/evaluate" and "<name>/predict". Define it `const` at namespace scope, after its layers.
// All its variables and lookups of a step leave in one pull if the function looks up before it
// computes; those that are read whole are asked for before it is called. Thread-safe: `forward` is
// called by several replicas at once. Two models of one name are refused at start, as steps are.
//
// `layers`: all that `forward` uses: a Trainer creates the variables of these and no others.
// `forward` depends on the tape and the batch alone: a step may be run again. In an evaluation or
// prediction step the tape is in inference mode, so Dropout does nothing.
//
// A training step takes a batch for each replica, adds up the gradients of all losses, divides by
// the number of examples of the whole step (so partial and empty batches weigh right; TensorFlow's
// default would let them weigh like full ones), clips if told to, and has each variable's own
// optimizer apply them. Metrics: "loss" and those of `forward`, merged over the replicas. Its
// errors: InvalidArgument for losses of another shape; a metric's own, with its name; those of the
// tape and of ApplyGradients.
//
// A handle: copies are the same model.
class Model {
 public:
  using Forward = ModelOutput(GradientTape& tape, const Nest& batch);
  // The steps' arguments: where the batches come from, the model's name (a step is a plain
  // function, and serves all models) and the norm to clip to.
  using TrainStep = Step<Metrics(Iterator, std::string, std::optional<double>)>;
  using EvaluateStep = Step<Metrics(Iterator, std::string)>;
  // For Trainer::Predict: of elements {"at": int64 [1], "batch": ...} it gives a list of {"at",
  // "outputs"}, one for each replica.
  using PredictStep = Step<Nest(Iterator, std::string)>;

  Model(std::string name, std::vector<Layer> layers, Forward* forward);

  const std::string& name() const;
  std::vector<VariableSpec> variables() const;  // of all layers, in their order
  const TrainStep& train_step() const { return train_step_; }
  const EvaluateStep& evaluate_step() const { return evaluate_step_; }
  const PredictStep& predict_step() const { return predict_step_; }

 private:
  struct Definition;
  struct Registry;
  static absl::StatusOr<Metrics> RunTrainStep(WorkerContext& worker, Iterator batches,
                                              std::string model, std::optional<double> clip_norm);
  static absl::StatusOr<Metrics> RunEvaluateStep(WorkerContext& worker, Iterator batches,
                                                 std::string model);
  static absl::StatusOr<Nest> RunPredictStep(WorkerContext& worker, Iterator batches,
                                             std::string model);

  std::shared_ptr<const Definition> definition_;
  TrainStep train_step_;
  EvaluateStep evaluate_step_;
  PredictStep predict_step_;
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_MODEL_H_
