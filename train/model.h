// Layers and models: a small part of Keras.
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
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "strategy/metrics.h"
#include "strategy/step.h"
#include "tensor/nest.h"
#include "variables/dynamic_table.h"
#include "variables/variable_spec.h"

namespace divvy {

// The function that a layer applies to its result, element by element (ops/ops.h).
enum class Activation { kNone, kRelu, kSigmoid, kTanh, kGelu };

// A layer is a small value: it names its variables and applies them. Define it `const` at namespace
// scope. Thread-safe. If the input has a wrong shape or dtype, the result is a failed Var, whose
// message begins with the layer's name. To write your own layer, derive from Layer and read its
// variables by their names:
//
//   struct Scale : Layer {
//     explicit Scale(std::string name) { variables = {{std::move(name), Shape{}, Ones()}}; }
//     Var operator()(GradientTape& tape, const Var& x) const {
//       return x * tape.Read(variables[0].name);
//     }
//   };
//
// Names, shapes and options are checked when the variables are created, not here.
struct Layer {
  enum class Access {
    // A Model prefetches all of these variables at a step's start.
    kWhole,
    // Tables: only rows are looked up, and the whole variable is never read.
    kByRows,
  };
  std::vector<VariableSpec> variables;
  Access access = Access::kWhole;
  // Keras' kernel_regularizer=L2(l2). A Model adds l2 times the sum of the variable's squares to
  // the loss, once for each step, in training and in evaluation. REQUIRES: a floating-point
  // variable that is read whole, and l2 >= 0; otherwise the steps fail with InvalidArgument.
  struct Penalty {
    std::string variable;
    double l2;
  };
  std::vector<Penalty> penalties = {};
  // Not OK: the layer cannot be used. A Trainer returns it before it creates a variable.
  absl::Status problem = {};
};

// The options of a layer with a kernel and a bias. Set the fields by name in C++20, else one by
// one.
struct LayerOptions {
  // The optimizer of the layer's variables. None: the Trainer's.
  std::optional<Optimizer> optimizer = {};
  Initializer kernel = GlorotUniform();
  Initializer bias = Zeros();
  // A penalty on the kernel (Layer::Penalty).
  double l2 = 0;
};

// Computes activation(x kernel + bias), x [batch, inputs] -> [batch, outputs], as Keras' Dense.
// Variables: "<name>/kernel" [inputs, outputs] (Glorot uniform) and "<name>/bias" [outputs]
// (zeros).
struct Dense : Layer {
  Dense(std::string name, int64_t inputs, int64_t outputs,
        Activation activation = Activation::kNone, const LayerOptions& options = {});
  Var operator()(GradientTape& tape, const Var& x) const;

 private:
  std::string name_;
  Activation activation_;
};

// Dense layers "<name>/0", "<name>/1", ..., with kRelu between them and no activation after the
// last. REQUIRES: at least two widths.
struct Mlp : Layer {
  // `widths`: the number of inputs, then of each layer's outputs: {784, 512, 10}. `options` apply
  // to each layer.
  Mlp(std::string name, std::initializer_list<int64_t> widths, const LayerOptions& options = {});
  Var operator()(GradientTape& tape, const Var& x) const;

 private:
  std::vector<Dense> layers_;
  std::vector<std::string> names_;
};

// Computes activation(convolution + bias), x [n, h, w, in_channels] -> [n, ceil(h / stride), ceil(w
// / stride), out_channels], as Keras' Conv2D with padding="same". The window is kernel x kernel;
// zero padding keeps height and width at stride 1. Variables: "<name>/kernel" [kernel, kernel,
// in_channels, out_channels] (Glorot uniform) and "<name>/bias" [out_channels] (zeros).
struct Conv : Layer {
  Conv(std::string name, int64_t in_channels, int64_t out_channels, int kernel, int stride = 1,
       Activation activation = Activation::kRelu, const LayerOptions& options = {});
  Var operator()(GradientTape& tape, const Var& x) const;

 private:
  std::string name_;
  int stride_;
  Activation activation_;
};

// A table "<name>" [rows, width], which the strategy cuts into shards over the parameter servers. A
// step sends and receives only the rows in its batch, so its cost does not depend on the size of
// the table. Several lookups on one tape are sent together. An id outside [0, rows) fails the
// step with InvalidArgument; for Bag, LookupOptions::safe drops negative ids instead.
//
//   const Embedding kItems("items", 10'000'000, 64, RowwiseAdagrad{0.05});
//   Var item = kItems(tape, batch["item"]);            // [batch] -> [batch, 64]
//   Var history = kItems.Bag(tape, batch["history"]);  // SparseIds -> [batch, 64]
struct Embedding : Layer {
  Embedding(std::string name, int64_t rows, int64_t width, std::optional<Optimizer> optimizer = {},
            Initializer initializer = RandomUniform{});
  // The rows of a dynamic table: any id is a key.
  explicit Embedding(const DynamicTable& table);
  // Looks up rows: ids of any shape -> ids.shape + [width].
  Var operator()(GradientTape& tape, const Var& ids, const LookupOptions& options = {}) const;
  // Combines the rows of each list of ids: SparseIds -> [batch, width].
  Var Bag(GradientTape& tape, const Nest& sparse_ids, Combiner combiner = Combiner::kMean,
          const LookupOptions& options = {}) const;

 private:
  std::string name_;
};

// The result of a model for one batch. An error of a metric fails the step; its message has the
// metric's name.
//
//   ModelOutput Forward(GradientTape& tape, const Nest& batch) {
//     const Var logits = kMlp(tape, batch["image"]);
//     return {SoftmaxCrossEntropy(logits, batch["label"]),
//             {{"accuracy", Accuracy(logits, batch["label"])}},
//             {{"probabilities", Softmax(logits)}}};
//   }
//   const Model kDigitsModel("digits", {kMlp}, Forward);
struct ModelOutput {
  // The loss of each example, [batch] or [batch, 1]. The trainer takes the mean over all examples
  // of the worker's step.
  Var losses;
  // Further metrics. "loss", the mean of the losses, is added automatically.
  std::map<std::string, absl::StatusOr<Metric>> metrics = {};
  // The results of Trainer::Predict, each [batch, ...]. Prediction ignores losses and metrics, so
  // these may be errors for a batch without labels. Training and evaluation ignore outputs.
  std::map<std::string, Var> outputs = {};
};

// A model, known by its name in every process. It registers its own steps: "<name>/train",
// "<name>/evaluate" and "<name>/predict". Define it `const` at namespace scope, after its layers.
// Two models with one name are refused at start, as steps are. Thread-safe: several replicas call
// `forward` at once. A handle: copies refer to the same model.
//
// `layers` must list every layer that `forward` uses, because a Trainer creates the variables of
// these layers only. `forward` may depend on the tape and the batch only, since a step may be run
// again. In evaluation and prediction steps the tape is in inference mode, so Dropout does nothing.
// A step reads all its variables and lookups in one pull if `forward` makes its lookups before it
// computes; variables that are read whole are requested before `forward` is called.
//
// A training step
// 1. takes a batch for each replica;
// 2. adds up the gradients of all losses and divides them by the number of examples of the whole
//    step, so that partial and empty batches are weighted correctly (TensorFlow's default would
//    weight them like full ones);
// 3. clips the gradients if FitOptions::clip_norm is set;
// 4. applies them with each variable's own optimizer;
// 5. returns "loss" and the metrics of `forward`, merged over the replicas.
// Errors: InvalidArgument for losses of another shape; a metric's own error, with its name; those
// of the tape and of ApplyGradients.
class Model {
 public:
  using Forward = ModelOutput(GradientTape& tape, const Nest& batch);
  // The steps' arguments: the iterator of the batches, the model's name (a step is a plain function
  // that serves all models), and the norm to clip to.
  using TrainStep = Step<Metrics(Iterator, std::string, std::optional<double>)>;
  using EvaluateStep = Step<Metrics(Iterator, std::string)>;
  // For Trainer::Predict. The step takes elements {"at": int64 [1], "batch": ...} and returns a
  // list of {"at", "outputs"}, one for each replica.
  using PredictStep = Step<Nest(Iterator, std::string)>;

  Model(std::string name, std::vector<Layer> layers, Forward* forward);

  const std::string& name() const;
  // The first problem of a layer.
  absl::Status status() const;
  // The variables of all layers, in the layers' order.
  std::vector<VariableSpec> variables() const;
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
