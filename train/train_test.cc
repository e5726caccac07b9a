#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/sim_executor.h"
#include "formats/event_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/map_reader.h"
#include "strategy/testing/test_strategy.h"
#include "strategy/trainer_support.h"
#include "train/callbacks.h"
#include "train/configuration.h"
#include "train/model.h"
#include "train/sequential.h"
#include "train/tensor_board.h"
#include "train/trainer.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::Pointwise;
using ::testing::StartsWith;

Tensor Floats(Shape shape, std::vector<float> values) {
  return *Tensor::Copy<float>(shape, values);
}

std::vector<float> FloatsOf(const absl::StatusOr<Tensor>& value) {
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return {};
  const absl::Span<const float> values = *value->values<float>();
  return {values.begin(), values.end()};
}

// ---- layers -------------------------------------------------------------------------------------

TEST(DenseTest, MultipliesAddsAndActivates) {
  const std::vector<std::pair<Activation, std::vector<float>>> cases = {
      {Activation::kNone, {3.5f, -1.5f}},
      {Activation::kRelu, {3.5f, 0}},
      {Activation::kSigmoid, {0.97068775f, 0.18242552f}},
      {Activation::kTanh, {0.9981779f, -0.90514827f}},
      {Activation::kGelu, {3.4991858f, -0.10021081f}}};
  MapReader reader(
      {{"layer/kernel", Floats({2, 2}, {1, 0, 1, -1})}, {"layer/bias", Floats({2}, {0.5f, 0.5f})}});
  for (const auto& [activation, expected] : cases) {
    const Dense layer("layer", 2, 2, activation);
    GradientTape tape(reader);
    EXPECT_THAT(FloatsOf(layer(tape, Floats({1, 2}, {1, 2})).Value()),
                Pointwise(FloatNear(1e-6), expected));
  }
}

TEST(DenseTest, NamesItsVariablesAsKerasDoes) {
  const Dense layer("layer", 3, 2);
  ASSERT_EQ(2u, layer.variables.size());
  EXPECT_EQ("layer/kernel", layer.variables[0].name);
  EXPECT_EQ((Shape{3, 2}), layer.variables[0].shape);
  EXPECT_EQ("layer/bias", layer.variables[1].name);
  EXPECT_EQ((Shape{2}), layer.variables[1].shape);
}

TEST(DenseTest, TakesAnOptimizerInitializersAndAPenaltyAndMlpGivesThemToEachLayer) {
  LayerOptions options;
  options.optimizer = Sgd{0.5};
  options.kernel = Constant{2};
  options.bias = Ones();
  options.l2 = 0.25;
  for (const Layer& layer :
       {Layer(Dense("d", 3, 2, Activation::kNone, options)), Layer(Mlp("m", {3, 4, 2}, options)),
        Layer(Conv("c", 1, 2, 3, 1, Activation::kRelu, options))}) {
    ASSERT_EQ(layer.variables.size(), 2 * layer.penalties.size());
    for (size_t i = 0; i < layer.variables.size(); i += 2) {
      EXPECT_EQ(layer.penalties[i / 2].variable, layer.variables[i].name);
      EXPECT_EQ(layer.penalties[i / 2].l2, 0.25);
      EXPECT_TRUE(std::holds_alternative<Constant>(layer.variables[i].initializer));
      EXPECT_TRUE(std::holds_alternative<Constant>(layer.variables[i + 1].initializer));
      for (const size_t at : {i, i + 1})
        EXPECT_TRUE(layer.variables[at].optimizer &&
                    std::holds_alternative<Sgd>(*layer.variables[at].optimizer));
    }
  }
}

TEST(DenseTest, SaysInWhichLayerAnErrorArose) {
  MapReader reader({{"layer/kernel", Floats({2, 1}, {1, 1})}, {"layer/bias", Floats({1}, {0})}});
  GradientTape tape(reader);
  const absl::Status status = Dense("layer", 2, 1)(tape, Floats({1, 3}, {1, 2, 3})).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("layer layer: MatMul"), HasSubstr("[1, 3] x [2, 1]")));
}

TEST(MlpTest, ReadsAllItsLayersInOneRoundTrip) {
  MapReader reader({{"mlp/0/kernel", Floats({1, 2}, {1, -1})},
                    {"mlp/0/bias", Floats({2}, {0, 0})},
                    {"mlp/1/kernel", Floats({2, 1}, {2, 5})},
                    {"mlp/1/bias", Floats({1}, {-10})}});
  GradientTape tape(reader);
  const Mlp mlp("mlp", {1, 2, 1});
  // ReLU between the layers, none after the last one
  EXPECT_THAT(FloatsOf(mlp(tape, Floats({2, 1}, {3, -3})).Value()), ElementsAre(-4, 5));
  EXPECT_EQ(1u, reader.calls().size());
  EXPECT_EQ(4u, mlp.variables.size());
}

TEST(ConvTest, KeepsHeightAndWidthAndStridesOverThem) {
  // Each window is summed: 3 x 3, zeros around the image.
  MapReader reader({{"conv/kernel", Floats({3, 3, 1, 1}, std::vector<float>(9, 1))},
                    {"conv/bias", Floats({1}, {-30})}});
  const Tensor image = Floats({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  GradientTape tape(reader);
  const Var kept = Conv("conv", 1, 1, 3, 1, Activation::kNone)(tape, image);
  EXPECT_EQ((Shape{1, 3, 3, 1}), kept.shape()) << kept.status();
  EXPECT_THAT(FloatsOf(kept.Value()), ElementsAre(-18, -9, -14, -3, 15, 3, -6, 9, -2));
  const Var halved = Conv("conv", 1, 1, 3, /*stride=*/2)(tape, image);
  EXPECT_EQ((Shape{1, 2, 2, 1}), halved.shape());
  EXPECT_THAT(FloatsOf(halved.Value()), ElementsAre(0, 0, 0, 0));  // ReLU is the default
}

TEST(ConvTest, NamesItsVariablesAsKerasDoesAndSaysWhereAnErrorArose) {
  const Conv layer("conv", 3, 8, 5);
  ASSERT_EQ(2u, layer.variables.size());
  EXPECT_EQ("conv/kernel", layer.variables[0].name);
  EXPECT_EQ((Shape{5, 5, 3, 8}), layer.variables[0].shape);
  EXPECT_EQ("conv/bias", layer.variables[1].name);
  EXPECT_EQ((Shape{8}), layer.variables[1].shape);
  MapReader reader(
      {{"conv/kernel", Floats({1, 1, 2, 1}, {1, 1})}, {"conv/bias", Floats({1}, {0})}});
  GradientTape tape(reader);
  const absl::Status status = Conv("conv", 2, 1, 1)(tape, Floats({1, 1, 1, 3}, {1, 2, 3})).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer conv: Conv2D"));
}

TEST(SequentialTest, WidthsFollowFromTheInput) {
  const Sequential network(
      "net", {28, 28, 1},
      {Sequential::Conv(32, 3), Sequential::MaxPool(2), Sequential::Conv(8, 5, /*stride=*/2),
       Sequential::Flatten(), Sequential::Dropout(0.5f), Sequential::Dense(10)});
  ASSERT_TRUE(network.status().ok()) << network.status();
  EXPECT_EQ(network.output(), (Shape{10}));
  std::vector<std::string> variables;
  for (const VariableSpec& variable : network.variables)
    variables.push_back(variable.name + " " + variable.shape.ToString());
  EXPECT_THAT(variables, ElementsAre("net/0/kernel [3, 3, 1, 32]", "net/0/bias [32]",
                                     "net/2/kernel [5, 5, 32, 8]", "net/2/bias [8]",
                                     "net/5/kernel [392, 10]", "net/5/bias [10]"));
}

TEST(SequentialTest, AppliesItsStagesInOrderAndReadsInOneRoundTrip) {
  MapReader reader({{"net/2/kernel", Floats({2, 1}, {1, 10})},
                    {"net/2/bias", Floats({1}, {0.5f})},
                    {"net/4/kernel", Floats({1, 1}, {2})},
                    {"net/4/bias", Floats({1}, {0})}});
  GradientTape tape(reader);
  LayerOptions options;
  options.l2 = 0.25;
  const Sequential network("net", {2, 4, 1},
                           {Sequential::MaxPool(2), Sequential::Flatten(),
                            Sequential::Dense(1, Activation::kNone, options),
                            Sequential::Apply([](const Var& x) { return -x; }),
                            Sequential::Dense(1, Activation::kRelu)});
  // Two examples. The largest of each window: (1, 2) and (-1, -3).
  const Var y = network(tape, Floats({2, 2, 4, 1}, {1, 0, 2, 0, 0, 0, 0, 0,  //
                                                    -1, -5, -9, -3, -7, -8, -4, -6}));
  EXPECT_THAT(FloatsOf(y.Value()), ElementsAre(0, 2 * (31 - 0.5f)));
  EXPECT_EQ(1u, reader.calls().size());
  ASSERT_EQ(network.penalties.size(), 1u);
  EXPECT_EQ(network.penalties[0].variable, "net/2/kernel");
}

TEST(SequentialTest, AStageThatDoesNotFitIsNamedWithItsInput) {
  MapReader reader(std::map<std::string, Tensor>{});
  const auto message = [&](const Shape& input, std::vector<Sequential::Stage> stages) {
    const Sequential network("net", input, std::move(stages));
    EXPECT_FALSE(network.status().ok());
    EXPECT_TRUE(network.variables.empty());
    GradientTape tape(reader);
    EXPECT_EQ(network(tape, Floats({1, 1}, {1})).status(), network.status());
    return std::string(network.status().message());
  };
  EXPECT_EQ(
      message({28, 28, 1}, {Sequential::MaxPool(2), Sequential::Dense(10)}),
      "layer net: stage 1: wants an input of shape [inputs] (put Sequential::Flatten() before "
      "a Dense), and gets [14, 14, 1]");
  EXPECT_EQ(message({4}, {Sequential::Conv(1, 3)}),
            "layer net: stage 0: wants an input of shape [height, width, channels], and gets [4]");
  EXPECT_EQ(message({2, 2, 1}, {Sequential::MaxPool(3)}),
            "layer net: stage 0: a window of 3 and a stride of 3 do not fit an input of shape "
            "[2, 2, 1]");
  EXPECT_EQ(message({4}, {Sequential::Dense(0)}),
            "layer net: stage 0: outputs is 0, wanted at least 1");
  EXPECT_EQ(message({-1}, {Sequential::Dense(1)}),
            "layer net: the input's shape [-1] is not fully known: give each dimension of one "
            "example");
  const Sequential fits("net", {4}, {Sequential::Dense(1)});
  GradientTape tape(reader);
  EXPECT_EQ(fits(tape, Floats({2, 3}, {1, 2, 3, 4, 5, 6})).status().message(),
            "layer net: wants examples of shape [4], and gets a batch of shape [2, 3]");
}

TEST(EmbeddingTest, LooksUpRowsAndBags) {
  const Embedding table("items", 3, 2, Sgd{0.1});
  EXPECT_EQ((Shape{3, 2}), table.variables.at(0).shape);
  EXPECT_TRUE(table.variables[0].optimizer.has_value());
  MapReader reader({{"items", Floats({3, 2}, {1, 2, 3, 4, 5, 6})}});
  GradientTape tape(reader);
  EXPECT_THAT(FloatsOf(table(tape, Tensor::Vector<int64_t>({2, 0})).Value()),
              ElementsAre(5, 6, 1, 2));
  const SparseIds lists{Tensor::Vector<int64_t>({0, 2}), Tensor::Vector<int64_t>({0, 2, 2}),
                        std::nullopt};
  EXPECT_THAT(FloatsOf(table.Bag(tape, lists).Value()), ElementsAre(3, 4, 0, 0));
}

// ---- a model's steps ----------------------------------------------------------------------------

// Linear regression with a table of offsets: prediction = x . kernel + bias + offsets[group].
const Dense kLinear("linear", 2, 1);
const Embedding kOffsets("offsets", 4, 1, std::nullopt, Zeros());

ModelOutput Regress(GradientTape& tape, const Nest& batch) {
  const Var offsets = kOffsets(tape, batch["group"]);
  const Var predictions = Reshape(kLinear(tape, batch["x"]) + offsets, {-1});
  return {SquaredError(predictions, batch["y"]), {{"rmse", Rmse(predictions, batch["y"])}}};
}
const Model kRegression("regression", {kLinear, kOffsets}, Regress);

ModelOutput Reduced(GradientTape& tape, const Nest& batch) {
  return {ReduceMean(kLinear(tape, batch["x"]))};
}
const Model kReduced("reduced", {kLinear}, Reduced);

ModelOutput BadMetric(GradientTape& tape, const Nest& batch) {
  return {Reshape(kLinear(tape, batch["x"]), {-1}),
          {{"broken", absl::InvalidArgumentError("my own reason")}}};
}
const Model kBadMetric("bad_metric", {kLinear}, BadMetric);

Nest Batch(std::vector<float> x, std::vector<int64_t> group, std::vector<float> y) {
  const int64_t n = static_cast<int64_t>(y.size());
  return {{"x", Nest(Floats({n, 2}, x))},
          {"group", Nest(Tensor::Vector<int64_t>(group))},
          {"y", Nest(Tensor::Vector<float>(y))}};
}
Nest ThreeExamples() { return Batch({1, 2, 3, 4, -1, 1}, {0, 2, 2}, {1, -1, 2}); }

// Serves steps from a list of batches.
class ListEnvironment : public StepEnvironment {
 public:
  ListEnvironment(Strategy& strategy, std::deque<PerReplica<Nest>> batches)
      : strategy_(strategy), batches_(std::move(batches)) {}
  Strategy& strategy() override { return strategy_; }
  int worker_index() const override { return 0; }
  absl::StatusOr<std::optional<PerReplica<Nest>>> Next(PerWorkerHandle) override {
    if (batches_.empty()) return std::optional<PerReplica<Nest>>();
    std::optional<PerReplica<Nest>> batch = batches_.front();
    batches_.pop_front();
    return batch;
  }
  bool cancelled() const override { return false; }
  bool at_end() const { return batches_.empty(); }

 private:
  Strategy& strategy_;
  std::deque<PerReplica<Nest>> batches_;
};

// Runs one step of a model on variables that start at fixed values, with plain SGD of rate 1.
class StepTest : public ::testing::Test {
 protected:
  void Make(int replicas) {
    strategy_ = std::make_unique<TestStrategy>(replicas);
    for (VariableSpec spec : kRegression.variables()) {
      spec.optimizer = Sgd{1.0};
      if (spec.name == "linear/kernel") spec.initializer = Floats({2, 1}, {0.5f, -0.5f});
      ASSERT_TRUE((*strategy_)->CreateVariable(spec).ok());
    }
    strategy_->store().BeginStep(0);
    reads_ = strategy_->store().num_reads();
  }
  template <typename... Args>
  absl::StatusOr<Metrics> Run(absl::string_view step, std::vector<Nest> batches,
                              const Args&... args) {
    ListEnvironment environment(**strategy_, {PerReplica<Nest>(std::move(batches))});
    Nest::List list{NestCodec<Iterator>::Encode(Iterator(PerWorkerHandle{1})),
                    NestCodec<Args>::Encode(args)...};
    ASSIGN_OR_RETURN(const Nest result,
                     RunStep(*StepRegistry::Find(step), environment, Nest(std::move(list))));
    return NestCodec<Metrics>::Decode(result);
  }
  absl::StatusOr<Metrics> Train(std::vector<Nest> batches, std::optional<double> clip_norm = {}) {
    return Run("regression/train", std::move(batches), std::string("regression"), clip_norm);
  }
  std::vector<float> Value(const std::string& name) {
    return FloatsOf(strategy_->store().Value(name));
  }
  int64_t reads() const { return strategy_->store().num_reads() - reads_; }

  std::unique_ptr<TestStrategy> strategy_;
  int64_t reads_ = 0;
};

// Computed by hand: predictions -0.5, -0.5, -1; errors -1.5, 0.5, -3; d loss = 2/3 of the errors.
TEST_F(StepTest, TrainsOnTheMeanOfTheLosses) {
  Make(1);
  const auto metrics = Train({ThreeExamples()});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(Value("linear/kernel"),
              Pointwise(FloatNear(1e-5), {0.5f - 2.0f / 3 * 3, -0.5f - 2.0f / 3 * -4}));
  EXPECT_THAT(Value("linear/bias"), Pointwise(FloatNear(1e-5), {8.0f / 3}));
  EXPECT_THAT(Value("offsets"), Pointwise(FloatNear(1e-5), {1.0f, 0.0f, 5.0f / 3, 0.0f}));
  EXPECT_THAT(metrics->at("loss").value(), DoubleNear(11.5 / 3, 1e-6));
  EXPECT_THAT(metrics->at("rmse").value(), DoubleNear(std::sqrt(11.5 / 3), 1e-6));
  EXPECT_EQ(3, metrics->at("loss").count());
}

TEST_F(StepTest, AllVariablesAndLookupsLeaveInOneRead) {
  Make(1);
  EXPECT_TRUE(Train({ThreeExamples()}).ok());
  EXPECT_EQ(1, reads());
}

TEST_F(StepTest, ExamplesWeighTheSameHoweverTheyAreSpread) {
  Make(1);
  ASSERT_TRUE(Train({ThreeExamples()}).ok());
  const std::vector<float> kernel = Value("linear/kernel"), offsets = Value("offsets");
  Make(3);
  const auto metrics =
      Train({Batch({1, 2, 3, 4}, {0, 2}, {1, -1}), Batch({}, {}, {}), Batch({-1, 1}, {2}, {2})});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(Value("linear/kernel"), Pointwise(FloatNear(1e-5), kernel));
  EXPECT_THAT(Value("offsets"), Pointwise(FloatNear(1e-5), offsets));
  EXPECT_EQ(3, metrics->at("loss").count());
  EXPECT_THAT(metrics->at("loss").value(), DoubleNear(11.5 / 3, 1e-6));
}

LayerOptions WithL2(double l2) {
  LayerOptions options;
  options.l2 = l2;
  return options;
}
const Dense kPenalized("linear", 2, 1, Activation::kNone, WithL2(0.25));
ModelOutput RegressPenalized(GradientTape& tape, const Nest& batch) {
  const Var predictions =
      Reshape(kPenalized(tape, batch["x"]) + kOffsets(tape, batch["group"]), {-1});
  return {SquaredError(predictions, batch["y"])};
}
const Model kPenalizedRegression("penalized", {kPenalized, kOffsets}, RegressPenalized);
const Dense kRewarded("linear", 2, 1, Activation::kNone, WithL2(-1));
const Model kRewardedRegression("rewarded", {kRewarded, kOffsets}, RegressPenalized);

// kernel (0.5, -0.5): the penalty is 0.25 * 0.5, and its gradient 0.5 * kernel. Both count once,
// however the examples are spread over replicas.
TEST_F(StepTest, APenaltyIsAddedOnceToTheLossAndToTheGradient) {
  for (const int replicas : {1, 3}) {
    SCOPED_TRACE(replicas);
    const std::vector<Nest> batches =
        replicas == 1 ? std::vector<Nest>{ThreeExamples()}
                      : std::vector<Nest>{Batch({1, 2, 3, 4}, {0, 2}, {1, -1}), Batch({}, {}, {}),
                                          Batch({-1, 1}, {2}, {2})};
    Make(replicas);
    const auto metrics =
        Run("penalized/train", batches, std::string("penalized"), std::optional<double>());
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_THAT(Value("linear/kernel"),
                Pointwise(FloatNear(1e-5), {0.5f - 2.0f - 0.25f, -0.5f + 8.0f / 3 + 0.25f}));
    EXPECT_THAT(Value("linear/bias"), Pointwise(FloatNear(1e-5), {8.0f / 3}));
    EXPECT_THAT(metrics->at("loss").value(), DoubleNear(11.5 / 3 + 0.125, 1e-6));
    EXPECT_EQ(metrics->at("loss").count(), 3);
  }
}

TEST_F(StepTest, APenaltyCountsInEvaluationTooAndNotInAStepWithoutExamples) {
  Make(2);
  ASSERT_TRUE(Run("penalized/train", {Batch({}, {}, {}), Batch({}, {}, {})},
                  std::string("penalized"), std::optional<double>())
                  .ok());
  EXPECT_THAT(Value("linear/kernel"), ElementsAre(0.5f, -0.5f));
  strategy_->store().BeginStep(0, MapVariableStore::Kind::kReadOnly);
  const auto metrics =
      Run("penalized/evaluate", {ThreeExamples(), Batch({}, {}, {})}, std::string("penalized"));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(metrics->at("loss").value(), DoubleNear(11.5 / 3 + 0.125, 1e-6));
}

TEST_F(StepTest, ANegativePenaltyIsRefused) {
  Make(1);
  const absl::Status status =
      Run("rewarded/train", {ThreeExamples()}, std::string("rewarded"), std::optional<double>())
          .status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()), HasSubstr("the l2 of linear/kernel is -1"));
}

TEST_F(StepTest, AStepWithoutExamplesChangesNothing) {
  Make(2);
  const auto metrics = Train({Batch({}, {}, {}), Batch({}, {}, {})});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(Value("linear/kernel"), ElementsAre(0.5f, -0.5f));
  EXPECT_EQ(0, metrics->at("loss").count());
}

TEST_F(StepTest, ClipsTheGradientOfTheWholeStep) {
  // Without clipping: kernel (2, -8/3), bias -8/3, offsets by row (-1, 1/3, -2).
  const double norm = std::sqrt(4 + 64.0 / 9 + 64.0 / 9 + 1 + 1.0 / 9 + 4);
  for (int replicas : {1, 2}) {
    Make(replicas);
    const std::vector<Nest> batches =
        replicas == 1
            ? std::vector<Nest>{ThreeExamples()}
            : std::vector<Nest>{Batch({1, 2, 3, 4}, {0, 2}, {1, -1}), Batch({-1, 1}, {2}, {2})};
    ASSERT_TRUE(Train(batches, 0.1).ok());
    EXPECT_THAT(Value("linear/bias"),
                Pointwise(FloatNear(1e-6), {static_cast<float>(8.0 / 3 * 0.1 / norm)}))
        << replicas;
  }
}

TEST_F(StepTest, ClippingRefusesWhatIsNotFinite) {
  for (int replicas : {1, 2}) {
    Make(replicas);
    std::vector<Nest> batches(replicas, Batch({1, 2}, {0}, {NAN}));
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, Train(batches, 1.0).status().code());
  }
}

TEST_F(StepTest, EvaluationMeasuresAndChangesNothing) {
  Make(2);
  strategy_->store().BeginStep(0, MapVariableStore::Kind::kReadOnly);
  const auto metrics =
      Run("regression/evaluate", {ThreeExamples(), Batch({}, {}, {})}, std::string("regression"));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(metrics->at("loss").value(), DoubleNear(11.5 / 3, 1e-6));
  EXPECT_EQ(StepKind::kReadOnly, kRegression.evaluate_step().kind());
}

TEST_F(StepTest, RefusesLossesThatAreReducedAndSaysHow) {
  Make(1);
  const absl::Status status =
      Run("reduced/train", {ThreeExamples()}, std::string("reduced"), std::optional<double>())
          .status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("reduced"), HasSubstr("[batch]")));
}

// A layer that forward uses but that is missing from the Model's list, so its variables are never
// created.
const Dense kForgotten("forgotten", 1, 1);
ModelOutput UsesForgotten(GradientTape& tape, const Nest& batch) {
  return {Reshape(kForgotten(tape, kLinear(tape, batch["x"])), {-1})};
}
const Model kForgetful("forgetful", {kLinear}, UsesForgotten);

TEST_F(StepTest, ALayerThatTheModelWasNotGivenIsNamedAndNoOther) {
  Make(1);
  const absl::Status status =
      Run("forgetful/train", {ThreeExamples()}, std::string("forgetful"), std::optional<double>())
          .status();
  EXPECT_EQ(absl::StatusCode::kNotFound, status.code());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no variable \"forgotten/"),
                    HasSubstr("is its layer among those of Model \"forgetful\"?"),
                    ::testing::Not(HasSubstr("layer linear:"))));
}

TEST_F(StepTest, AMetricsErrorIsTheStepsWithItsName) {
  Make(1);
  const absl::Status status =
      Run("bad_metric/evaluate", {ThreeExamples()}, std::string("bad_metric")).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("broken"), HasSubstr("my own reason")));
}

TEST_F(StepTest, AnUnknownModelIsNotFound) {
  Make(1);
  EXPECT_EQ(absl::StatusCode::kNotFound,
            Run("regression/evaluate", {ThreeExamples()}, std::string("nobody")).status().code());
}

TEST_F(StepTest, TheEndOfTheDataIsOutOfRange) {
  Make(1);
  ListEnvironment environment(**strategy_, {});
  const Nest args(
      Nest::List{NestCodec<Iterator>::Encode(Iterator(PerWorkerHandle{1})), Nest("regression")});
  EXPECT_EQ(absl::StatusCode::kOutOfRange,
            RunStep(*StepRegistry::Find("regression/evaluate"), environment, args).status().code());
}

TEST_F(StepTest, OfAModelThatIsNotThereSaysWhatMayHaveBecomeOfIt) {
  ListEnvironment environment(**strategy_, {});
  const Nest args(
      Nest::List{NestCodec<Iterator>::Encode(Iterator(PerWorkerHandle{1})), Nest("regresion")});
  const absl::Status unknown =
      RunStep(*StepRegistry::Find("regression/evaluate"), environment, args).status();
  EXPECT_EQ(absl::StatusCode::kNotFound, unknown.code());
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr("no model \"regresion\""), HasSubstr("alwayslink")));
}

TEST(ModelTest, ListsTheVariablesOfItsLayers) {
  std::vector<std::string> names;
  for (const VariableSpec& spec : kRegression.variables()) names.push_back(spec.name);
  EXPECT_THAT(names, ElementsAre("linear/kernel", "linear/bias", "offsets"));
}

TEST(ModelTest, TwoOfOneNameAreRefusedAtStart) {
  EXPECT_EQ(absl::OkStatus(), StepRegistry::Validate());
  const Model twin("regression", {kLinear}, Regress);
  EXPECT_THAT(std::string(StepRegistry::Validate().message()),
              AllOf(HasSubstr("regression/train"), HasSubstr("regression/evaluate"),
                    HasSubstr("regression/predict")));
}

// ---- the trainer --------------------------------------------------------------------------------

// Runs steps one after another on this thread, over the batches that belong to the data source's
// name. The report interval is one step.
class InlineCoordinator : public Coordinator, public internal::TrainerSupport {
 public:
  Strategy& strategy() override { return *strategy_; }
  absl::Status Join(absl::Duration) override { return absl::OkStatus(); }
  absl::StatusOr<bool> Done() override { return true; }
  int64_t epoch() const override { return epoch_; }
  int64_t step() const override { return step_; }
  absl::StatusOr<int64_t> RestoreLatest(absl::Duration timeout) override {
    ++restores_;
    timeouts_.push_back(timeout);
    return step_;
  }
  // As if the program had trained `steps` steps without a Trainer.
  void Trained(int64_t steps) { step_ += steps; }
  // As if RestoreLatest would find a checkpoint with these numbers.
  void Saved(int64_t epochs, int64_t steps) {
    epoch_ = restored_epochs_ = epochs, step_ = restored_steps_ = steps;
  }
  absl::StatusOr<int64_t> RestoreUnlessBegun(absl::Duration timeout) override {
    return RestoreLatest(timeout);
  }
  int64_t TakeRestoredEpochs(int64_t at_most) override { return Take(restored_epochs_, at_most); }
  int64_t TakeRestoredSteps(int64_t at_most) override { return Take(restored_steps_, at_most); }
  void SetProgramState(std::string) override {}
  std::string program_state() const override { return ""; }
  int64_t durable_steps() const override { return 0; }
  absl::StatusOr<std::string> SaveCheckpoint(absl::Duration) override {
    return absl::FailedPreconditionError("no checkpoints here");
  }
  absl::Status Export(absl::string_view path, const ExportOptions&) override {
    if (!exports_) return absl::FailedPreconditionError("no checkpoints here");
    exported_.push_back(absl::StrCat(path, " at ", step_));
    return absl::OkStatus();
  }
  absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(const BoundDataSource&) override {
    return absl::UnimplementedError("not in this fake");
  }
  void SetLearningRateScale(double scale) override { scales_.push_back(scale); }
  absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) override {
    reports_.push_back(absl::StrCat(run, " at ", step, ", ", metrics.size(), " metrics"));
    return absl::OkStatus();
  }
  void SetGoal(int64_t epochs) override { goal_ = epochs; }
  std::string event_directory() const override { return event_directory_; }

  std::map<std::string, std::vector<Nest>> data_;
  std::deque<Metrics> script_;  // the results of evaluating "scripted"
  std::vector<std::string> passes_;
  std::vector<std::string> reports_;
  std::vector<double> scales_;
  std::vector<std::string> exported_;
  bool exports_ = true;
  int64_t goal_ = 0;
  int restores_ = 0;
  std::vector<absl::Duration> timeouts_;  // of RestoreLatest and of loops
  // The loop with this number, from 0, ends with DeadlineExceeded.
  std::optional<size_t> late_loop_;
  std::string event_directory_;
  bool reports_in_time_ = true;  // false: loops end before their first report
  TestStrategy strategy_{1};

 protected:
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(absl::string_view,
                                                                             StepKind,
                                                                             Nest) override {
    return absl::UnimplementedError("not in this fake");
  }
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStepOnce(
      absl::string_view, int64_t, absl::string_view, StepKind, Nest) override {
    return absl::UnimplementedError("not in this fake");
  }
  internal::TrainerSupport& trainer_support() override { return *this; }
  absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) override {
    timeouts_.push_back(loop.options.timeout);
    if (late_loop_ && (*late_loop_)-- == 0) {
      late_loop_.reset();
      return absl::DeadlineExceededError("in the middle of the loop");
    }
    if (loop.data.name() == "scripted") {
      Metrics next = script_.front();
      script_.pop_front();
      return next;
    }
    passes_.push_back(absl::StrCat(loop.step, " over ", loop.data.name()));
    Metrics merged;
    do {
      RETURN_IF_ERROR(OnePass(loop, merged));
    } while (!stopped_ && loop.last_step && step_ < *loop.last_step);
    epoch_ += loop.kind == StepKind::kTraining && !loop.last_step && !stopped_ ? 1 : 0;
    return merged;
  }

 private:
  absl::Status OnePass(const internal::StepLoop& loop, Metrics& merged) {
    std::deque<PerReplica<Nest>> batches;
    for (const Nest& batch : data_[std::string(loop.data.name())])
      batches.push_back(PerReplica<Nest>({batch}));
    ListEnvironment environment(*strategy_, std::move(batches));
    stopped_ = false;
    Nest::List args{NestCodec<Iterator>::Encode(Iterator(PerWorkerHandle{1}))};
    args.insert(args.end(), loop.args.begin(), loop.args.end());
    while (!stopped_ && !environment.at_end() && (!loop.last_step || step_ < *loop.last_step)) {
      const bool trains = loop.kind == StepKind::kTraining;
      strategy_.store().BeginStep(
          step_, trains ? MapVariableStore::Kind::kTraining : MapVariableStore::Kind::kReadOnly);
      ASSIGN_OR_RETURN(const Nest result,
                       RunStep(*StepRegistry::Find(loop.step), environment, Nest(args)));
      ASSIGN_OR_RETURN(const Metrics metrics, NestCodec<Metrics>::Decode(result));
      RETURN_IF_ERROR(Merge(metrics, merged));
      step_ += trains ? 1 : 0;
      stopped_ = reports_in_time_ && loop.options.observer && !loop.options.observer(metrics);
    }
    return absl::OkStatus();
  }

  static int64_t Take(int64_t& left, int64_t at_most) {
    const int64_t taken = std::min(left, at_most);
    left -= taken;
    return taken;
  }

  int64_t epoch_ = 0, restored_epochs_ = 0;
  int64_t step_ = 0, restored_steps_ = 0;
  bool stopped_ = false;
};

const BoundDataSource kData("data", Nest());
const BoundDataSource kNothing("nothing", Nest());
const BoundDataSource kScripted("scripted", Nest());

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() { coordinator_.data_["data"] = {ThreeExamples(), ThreeExamples()}; }
  InlineCoordinator coordinator_;
  Trainer trainer_{coordinator_, kRegression, Sgd{0.02}};
};

// The epoch and the step at the end of each epoch.
class EpochEnds : public Callback {
 public:
  absl::Status OnEpochEnd(TrainingRun& run) override {
    ends_.push_back({run.epoch(), run.step()});
    return absl::OkStatus();
  }
  std::vector<std::pair<int, int64_t>> ends_;
};

TEST_F(TrainerTest, FitTrainsValidatesAndReports) {
  FitOptions options;
  options.epochs = 2;
  options.validation = kData;
  const auto values = trainer_.Fit(kData, options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(coordinator_.passes_,
              ElementsAre("regression/train over data", "regression/evaluate over data",
                          "regression/train over data", "regression/evaluate over data"));
  EXPECT_THAT(coordinator_.reports_,
              ElementsAre("validation at 2, 2 metrics", "validation at 4, 2 metrics"));
  EXPECT_EQ(2, coordinator_.goal_);
  EXPECT_EQ(4u, values->size());
  EXPECT_LT(values->at("validation/loss"), values->at("loss"));
}

TEST_F(TrainerTest, FitCalledAgainGoesOn) {
  FitOptions options;
  options.epochs = 20;
  const auto first = trainer_.Fit(kData, options), second = trainer_.Fit(kData, options);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_LT(second->at("loss"), first->at("loss"));
  EXPECT_EQ(40, coordinator_.epoch());
}

TEST_F(TrainerTest, AFitThatTimesOutKeepsCompleteEpochsAndIsCalledAgainForTheRest) {
  FitOptions options;
  options.epochs = 3;
  options.validation = kData;
  options.timeout = absl::Hours(1);
  const auto ends = std::make_shared<EpochEnds>();
  options.callbacks = {ends};
  coordinator_.late_loop_ = 2;  // the second epoch's
  EXPECT_EQ(trainer_.Fit(kData, options).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(coordinator_.epoch(), 1);
  options.epochs = 2;
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_EQ(coordinator_.epoch(), 3);
  EXPECT_THAT(ends->ends_, ElementsAre(Pair(1, 2), Pair(2, 4), Pair(3, 6)));
}

TEST_F(TrainerTest, EachCallOfAFitGetsTheTimeThatIsLeft) {
  FitOptions options;
  options.epochs = 2;
  options.validation = kData;
  options.timeout = absl::Hours(1);
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  ASSERT_EQ(coordinator_.timeouts_.size(), 5u) << "the restore, and two loops for each epoch";
  absl::Duration most = options.timeout;
  for (const absl::Duration timeout : coordinator_.timeouts_) {
    EXPECT_LE(timeout, std::exchange(most, timeout));
    EXPECT_GT(timeout, absl::ZeroDuration());
  }
  coordinator_.timeouts_.clear();
  ASSERT_TRUE(trainer_.Evaluate(kData, absl::Minutes(1)).ok());
  ASSERT_TRUE(trainer_.Evaluate(kData).ok());
  ASSERT_EQ(coordinator_.timeouts_.size(), 2u);
  EXPECT_LE(coordinator_.timeouts_[0], absl::Minutes(1));
  EXPECT_EQ(coordinator_.timeouts_[1], absl::InfiniteDuration());
}

TEST_F(TrainerTest, StepsPerEpochCountsSteps) {
  FitOptions options;
  options.epochs = 2;
  options.steps_per_epoch = 3;
  EXPECT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_EQ(6, coordinator_.step());
}

TEST_F(TrainerTest, AProgramThatRunsAgainLeavesOutTheEpochsThatItsCheckpointHolds) {
  coordinator_.Saved(/*epochs=*/3, /*steps=*/6);
  FitOptions options;
  options.epochs = 2;
  options.validation = kData;
  const auto values = trainer_.Fit(kData, options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(coordinator_.passes_, ElementsAre("regression/evaluate over data"))
      << "both epochs were done, so Fit only validates";
  EXPECT_EQ(values->count("validation/loss"), 1u);
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_THAT(coordinator_.passes_,
              ElementsAre("regression/evaluate over data", "regression/train over data",
                          "regression/evaluate over data"));
  EXPECT_EQ(coordinator_.epoch(), 4) << "one epoch of the second Fit was done";
  EXPECT_EQ(coordinator_.goal_, 1);
  EXPECT_EQ(coordinator_.restores_, 1);
}

TEST_F(TrainerTest, CountedStepsGoOnInTheMiddleOfAnEpoch) {
  coordinator_.Saved(/*epochs=*/0, /*steps=*/5);
  FitOptions options;
  options.epochs = 3;
  options.steps_per_epoch = 4;
  const auto ends = std::make_shared<EpochEnds>();
  options.callbacks = {ends};
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_THAT(ends->ends_, ElementsAre(Pair(2, 8), Pair(3, 12)));
}

TEST_F(TrainerTest, EvaluateChangesNothing) {
  const auto before = trainer_.Evaluate(kData), after = trainer_.Evaluate(kData);
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  EXPECT_EQ(*before, *after);
  EXPECT_EQ(0, coordinator_.step());
}

TEST_F(TrainerTest, NamesEveryOptionThatMakesNoSense) {
  FitOptions options;
  options.epochs = 0;
  options.steps_per_epoch = 0;
  options.clip_norm = -1;
  const absl::Status status = trainer_.Fit(kData, options).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("epochs is 0"), HasSubstr("steps_per_epoch is 0"),
                    HasSubstr("clip_norm is -1")));
  EXPECT_THAT(coordinator_.passes_, IsEmpty());
}

TEST_F(TrainerTest, AnOptimizerThatMakesNoSenseIsRefusedAlsoWhereNoVariableTakesIt) {
  Trainer trainer(coordinator_, kRegression, Sgd{PiecewiseConstant{}});
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, trainer.Fit(kData, FitOptions()).status().code());
}

TEST_F(TrainerTest, ANullCallbackIsRefused) {
  FitOptions options;
  options.callbacks = {nullptr};
  const absl::Status status = trainer_.Fit(kData, options).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()), HasSubstr("a callback is null"));
}

// Records its calls, and stops or fails at a given call.
struct Recorder : Callback {
  absl::Status OnFitBegin(TrainingRun& run) override { return Saw("begin", run); }
  absl::Status OnReport(TrainingRun& run) override { return Saw("report", run); }
  absl::Status OnEpochEnd(TrainingRun& run) override { return Saw("end", run); }
  absl::Status Saw(const std::string& event, TrainingRun& run) {
    seen.push_back(absl::StrCat(event, " ", run.epoch(), "/", run.step(), ", ",
                                run.metrics().size(), " metrics"));
    if (event == stop_at) run.Stop("told to");
    return event == fail_at ? absl::DataLossError("the callback's own") : absl::OkStatus();
  }
  std::vector<std::string> seen;
  std::string stop_at, fail_at;
};

TEST_F(TrainerTest, CallbacksSeeTheBeginningEachReportAndTheEndOfEachEpoch) {
  const auto recorder = std::make_shared<Recorder>();
  FitOptions options;
  options.epochs = 2;
  options.validation = kData;
  options.callbacks = {recorder};
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_THAT(recorder->seen,
              ElementsAre("begin 0/0, 0 metrics", "report 0/1, 2 metrics", "report 0/2, 2 metrics",
                          "end 1/2, 4 metrics", "report 1/3, 4 metrics", "report 1/4, 4 metrics",
                          "end 2/4, 4 metrics"));
  recorder->seen.clear();
  options.epochs = 1;
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_EQ("begin 2/4, 0 metrics", recorder->seen.front());
  EXPECT_EQ("end 3/6, 4 metrics", recorder->seen.back());
}

TEST_F(TrainerTest, StopEndsFitWhenAllCallbacksOfTheEpochsEndWereCalled) {
  const auto stops = std::make_shared<Recorder>(), other = std::make_shared<Recorder>();
  stops->stop_at = "end";
  FitOptions options;
  options.epochs = 5;
  options.callbacks = {stops, other};
  const auto values = trainer_.Fit(kData, options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(2u, values->size());
  EXPECT_EQ(1, coordinator_.epoch());
  EXPECT_EQ("end 1/2, 2 metrics", other->seen.back());
}

TEST_F(TrainerTest, StopInTheMiddleOfAnEpochLeavesTheRestAndTheValidation) {
  const auto stops = std::make_shared<Recorder>();
  stops->stop_at = "report";
  FitOptions options;
  options.validation = kData;
  options.callbacks = {stops};
  const auto values = trainer_.Fit(kData, options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(stops->seen, ElementsAre("begin 0/0, 0 metrics", "report 0/1, 2 metrics"));
  EXPECT_THAT(coordinator_.passes_, ElementsAre("regression/train over data"));
  EXPECT_EQ(0, coordinator_.epoch());
}

TEST_F(TrainerTest, StopAtTheBeginningTrainsNothing) {
  const auto stops = std::make_shared<Recorder>();
  stops->stop_at = "begin";
  FitOptions options;
  options.callbacks = {stops};
  const auto values = trainer_.Fit(kData, options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, IsEmpty());
  EXPECT_EQ(0, coordinator_.step());
}

TEST_F(TrainerTest, AnErrorOfACallbackIsThatOfFit) {
  for (const std::string event : {"begin", "report", "end"}) {
    const auto fails = std::make_shared<Recorder>();
    fails->fail_at = event;
    FitOptions options;
    options.callbacks = {fails};
    EXPECT_EQ(absl::DataLossError("the callback's own"), trainer_.Fit(kData, options).status())
        << event;
    EXPECT_THAT(fails->seen.back(), HasSubstr(event));
  }
}

TEST_F(TrainerTest, EarlyStoppingWaitsForItsPatience) {
  FitOptions options;
  options.epochs = 100;
  // The loss falls more and more slowly, and finally by less than min_delta in an epoch.
  options.callbacks = {std::make_shared<EarlyStopping>("loss", /*patience=*/2, /*min_delta=*/0.5)};
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  const int64_t epochs = coordinator_.epoch();
  EXPECT_GT(epochs, 2);
  EXPECT_LT(epochs, 100);
  // A second Fit starts without the state of the first.
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_EQ(epochs + 3, coordinator_.epoch());  // the first epoch, and two of patience
}

TEST_F(TrainerTest, EarlyStoppingNamesTheMetricsThatThereAre) {
  FitOptions options;
  options.callbacks = {std::make_shared<EarlyStopping>("validation/loss", 1)};
  const absl::Status status = trainer_.Fit(kData, options).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("no metric \"validation/loss\""),
                                                   HasSubstr("the metrics are: loss, rmse")));
}

TEST_F(TrainerTest, EarlyStoppingRefusesOptionsThatMakeNoSense) {
  FitOptions options;
  options.callbacks = {std::make_shared<EarlyStopping>("loss", -1, NAN)};
  const absl::Status status = trainer_.Fit(kData, options).status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("patience is -1"), HasSubstr("min_delta is nan")));
}

// EpochsOf: the number of epochs that a Fit trains if its validations return `values` in turn.
class EarlyStoppingTest : public TrainerTest {
 protected:
  int64_t EpochsOf(const std::string& metric, const std::vector<double>& values, int patience,
                   double min_delta = 0, EarlyStopping::Mode mode = EarlyStopping::Mode::kAuto) {
    coordinator_.script_.clear();
    for (const double value : values)
      coordinator_.script_.push_back(
          {{metric, Metric::Mean(value, 1)}, {"loss", Metric::Mean(1, 1)}});
    FitOptions options;
    options.epochs = static_cast<int>(values.size());
    options.validation = kScripted;
    options.callbacks = {
        std::make_shared<EarlyStopping>("validation/" + metric, patience, min_delta, mode)};
    const int64_t before = coordinator_.epoch();
    EXPECT_TRUE(trainer_.Fit(kData, options).ok());
    return coordinator_.epoch() - before;
  }
};

TEST_F(EarlyStoppingTest, LossesAndErrorsFallAndOtherMetricsRise) {
  for (const std::string falls :
       {"loss", "rmse", "squared_error", "mae", "mse", "perplexity", "nll", "cross_entropy"}) {
    EXPECT_EQ(4, EpochsOf(falls, {4, 3, 2, 1}, 1)) << falls;
    EXPECT_EQ(2, EpochsOf(falls, {1, 2, 3, 4}, 1)) << falls;
  }
  for (const std::string rises : {"accuracy", "recall@10", "auc", "top5_accuracy"}) {
    EXPECT_EQ(4, EpochsOf(rises, {1, 2, 3, 4}, 1)) << rises;
    EXPECT_EQ(2, EpochsOf(rises, {4, 3, 2, 1}, 1)) << rises;
  }
}

TEST_F(EarlyStoppingTest, AModeSaysWhatANameDoesNot) {
  EXPECT_EQ(4, EpochsOf("regret", {4, 3, 2, 1}, 1, 0, EarlyStopping::Mode::kMin));
  EXPECT_EQ(2, EpochsOf("regret", {4, 3, 2, 1}, 1, 0, EarlyStopping::Mode::kMax));
  EXPECT_EQ(4, EpochsOf("loss", {1, 2, 3, 4}, 1, 0, EarlyStopping::Mode::kMax))
      << "the mode overrides the name";
}

TEST_F(EarlyStoppingTest, ANameThatSaysNothingIsRefusedBeforeAnythingIsTrained) {
  for (const std::string metric :
       {"validation/regret", "validation/accuracy_loss", "lossless", "loss/ratio"}) {
    FitOptions options;
    options.callbacks = {std::make_shared<EarlyStopping>(metric, 1)};
    const absl::Status status = trainer_.Fit(kData, options).status();
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(metric), HasSubstr("MetricMode::kMin or MetricMode::kMax")));
  }
  EXPECT_THAT(coordinator_.passes_, IsEmpty());
}

TEST_F(EarlyStoppingTest, PatienceCountsEpochsInARowSinceTheBest) {
  EXPECT_EQ(6, EpochsOf("accuracy", {1, 0, 2, 1, 1, 2}, 3)) << "an equal value is no improvement";
  EXPECT_EQ(5, EpochsOf("accuracy", {1, 0, 2, 1, 1, 2}, 2));
  EXPECT_EQ(2, EpochsOf("accuracy", {1, 0, 2, 1, 1, 2}, 0));
}

TEST_F(EarlyStoppingTest, LessThanMinDeltaIsNoImprovement) {
  EXPECT_EQ(3, EpochsOf("loss", {4, 3.75, 3.5, 3.25}, 2, /*min_delta=*/0.5));
  EXPECT_EQ(4, EpochsOf("loss", {4, 3.25, 2.5, 1.75}, 1, /*min_delta=*/0.5));
}

TEST_F(EarlyStoppingTest, NaNIsNoImprovement) {
  EXPECT_EQ(4, EpochsOf("accuracy", {NAN, NAN, 1, 2}, 3));
  EXPECT_EQ(2, EpochsOf("accuracy", {NAN, NAN, 1, 2}, 1));
}

// ---- callbacks that read an epoch's metrics

class CallbacksTest : public TrainerTest {
 protected:
  // Runs a Fit whose validations return these values of "loss", in turn.
  absl::Status Fit(std::shared_ptr<Callback> callback, const std::vector<double>& values) {
    coordinator_.script_.clear();
    for (const double value : values)
      coordinator_.script_.push_back({{"loss", Metric::Mean(value, 1)}});
    FitOptions options;
    options.epochs = static_cast<int>(values.size());
    options.validation = kScripted;
    options.callbacks = {std::move(callback)};
    return trainer_.Fit(kData, options).status();
  }
  // Runs a Fit with a new Trainer, as in a restarted program that has completed some epochs.
  absl::Status FitAfterRestart(std::shared_ptr<Callback> callback, int epochs, double value) {
    InlineCoordinator restarted;
    restarted.data_ = coordinator_.data_;
    restarted.Saved(epochs, 2 * epochs);
    restarted.script_.push_back({{"loss", Metric::Mean(value, 1)}});
    FitOptions options;
    options.epochs = epochs + 1;
    options.validation = kScripted;
    options.callbacks = {std::move(callback)};
    const absl::Status status =
        Trainer(restarted, kRegression, Sgd{0.02}).Fit(kData, options).status();
    exported_after_restart_ = restarted.exported_;
    scales_after_restart_ = restarted.scales_;
    return status;
  }

  InMemoryFileSystem files_;
  std::vector<std::string> exported_after_restart_;
  std::vector<double> scales_after_restart_;
};

TEST_F(CallbacksTest, LearningRateByEpochSetsTheFactorOfEachEpochAfterARestartToo) {
  const auto halve =
      std::make_shared<LearningRateByEpoch>([](int epoch) { return std::pow(0.5, epoch); });
  ASSERT_TRUE(Fit(halve, {1, 1}).ok());
  EXPECT_THAT(coordinator_.scales_, ElementsAre(1, 0.5, 0.25));
  ASSERT_TRUE(FitAfterRestart(halve, 3, 1).ok());
  EXPECT_THAT(scales_after_restart_, ElementsAre(0.125, 0.0625));
  const absl::Status refused =
      Fit(std::make_shared<LearningRateByEpoch>([](int) { return -1.0; }), {1});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("must be finite and at least 0"));
}

TEST_F(CallbacksTest, ReduceOnPlateauScalesTheRateDownWhileNothingImproves) {
  PlateauOptions options;
  options.factor = 0.5;
  options.patience = 2;
  options.min_scale = 0.2;
  ASSERT_TRUE(Fit(std::make_shared<ReduceLrOnPlateau>("validation/loss", options),
                  {4, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2})
                  .ok());
  EXPECT_THAT(coordinator_.scales_, ElementsAre(1, 0.5, 0.25, 0.2));
  options.factor = 2;
  options.patience = 0;
  const absl::Status refused =
      Fit(std::make_shared<ReduceLrOnPlateau>("validation/loss", options), {1});
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("factor is 2"), HasSubstr("patience is 0")));
}

TEST_F(CallbacksTest, StopOnNanEndsTheFitAtTheFirstValueThatIsNoNumber) {
  const int64_t before = coordinator_.epoch();
  EXPECT_TRUE(Fit(std::make_shared<TerminateOnNan>("validation/loss"), {1, INFINITY, 1, 1}).ok());
  EXPECT_EQ(coordinator_.epoch() - before, 2);
  const absl::Status unknown = Fit(std::make_shared<TerminateOnNan>("lss"), {1});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("the metrics are: loss"));
}

TEST_F(CallbacksTest, StopOnNanEndsAnEpochInItsMiddle) {
  coordinator_.data_["data"] = std::vector<Nest>(9, ThreeExamples());
  // The loss overflows within a few steps.
  Trainer wild(coordinator_, kRegression, Sgd{1e12});
  FitOptions options;
  options.callbacks = {std::make_shared<TerminateOnNan>()};
  const auto values = wild.Fit(kData, options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_FALSE(std::isfinite(values->at("loss")));
  EXPECT_LT(coordinator_.step(), 9);
}

TEST_F(CallbacksTest, SaveBestExportsEachEpochThatIsTheBestSoFar) {
  const auto save = std::make_shared<SaveBest>("/best", "validation/loss", MetricMode::kAuto,
                                               ExportOptions(), files_);
  ASSERT_TRUE(Fit(save, {3, 4, 2, 2, NAN}).ok());
  EXPECT_THAT(coordinator_.exported_, ElementsAre("/best at 2", "/best at 6"));
  EXPECT_EQ(files_.ReadFile("/best.best").value(), "2 validation/loss at step 6\n");
  ASSERT_TRUE(Fit(save, {3}).ok());
  EXPECT_EQ(coordinator_.exported_.size(), 2u)
      << "a second Fit continues from the best value of the first";
}

TEST_F(CallbacksTest, SaveBestGoesOnFromItsFigureInAJobThatGoesOnAndNotInANewOne) {
  const auto save = [&] {
    return std::make_shared<SaveBest>("/best", "validation/loss", MetricMode::kAuto,
                                      ExportOptions(), files_);
  };
  ASSERT_TRUE(files_.ReplaceFile("/best.best", "2 validation/loss at step 6\n").ok());
  ASSERT_TRUE(FitAfterRestart(save(), 3, 2.5).ok());
  EXPECT_THAT(exported_after_restart_, IsEmpty());
  ASSERT_TRUE(FitAfterRestart(save(), 3, 1.5).ok());
  EXPECT_THAT(exported_after_restart_, ElementsAre("/best at 8"));
  ASSERT_TRUE(Fit(save(), {7}).ok());
  EXPECT_THAT(coordinator_.exported_, ElementsAre("/best at 2"))
      << "another training starts without a best value";
}

TEST_F(CallbacksTest, SaveBestTakesNoFigureOfAnEarlierJobAfterAWarmUp) {
  coordinator_.Trained(5);
  ASSERT_TRUE(files_.ReplaceFile("/best.best", "2 validation/loss at step 6\n").ok());
  ASSERT_TRUE(Fit(std::make_shared<SaveBest>("/best", "validation/loss", MetricMode::kAuto,
                                             ExportOptions(), files_),
                  {7})
                  .ok());
  EXPECT_EQ(coordinator_.exported_.size(), 1u);
}

TEST_F(CallbacksTest, SaveBestBeginsAnewBesideAFigureOfAnotherMetric) {
  for (const char* const figure : {"2 validation/loss of mine at step 6\n", "best\n", ""}) {
    ASSERT_TRUE(files_.ReplaceFile("/best.best", figure).ok());
    ASSERT_TRUE(
        FitAfterRestart(std::make_shared<SaveBest>("/best", "validation/loss", MetricMode::kAuto,
                                                   ExportOptions(), files_),
                        3, 2.5)
            .ok());
    EXPECT_THAT(exported_after_restart_, ElementsAre("/best at 8")) << figure;
  }
}

TEST_F(CallbacksTest, SaveBestEndsTheFitWhereNothingCanBeExported) {
  coordinator_.exports_ = false;
  EXPECT_EQ(Fit(std::make_shared<SaveBest>("/best", "validation/loss", MetricMode::kAuto,
                                           ExportOptions(), files_),
                {1, 2})
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CallbacksTest, CsvLogHasALineForEachEpoch) {
  ASSERT_TRUE(files_.CreateDirectory("/logs").ok());
  ASSERT_TRUE(files_.ReplaceFile("/logs/run.csv", "epoch,step,loss\n1,2,0.5\n").ok());
  const auto log = std::make_shared<CsvLogger>("/logs/run.csv", files_);
  ASSERT_TRUE(Fit(log, {3, 0.1}).ok());
  std::vector<std::string> lines =
      absl::StrSplit(files_.ReadFile("/logs/run.csv").value(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "epoch,step,loss,rmse,validation/loss");
  EXPECT_THAT(lines[1], AllOf(StartsWith("1,2,"), EndsWith(",3")));
  EXPECT_THAT(lines[2], AllOf(StartsWith("2,4,"), EndsWith(",0.1")));
  ASSERT_TRUE(Fit(log, {5}).ok()) << "a second Fit appends its lines";
  lines = absl::StrSplit(files_.ReadFile("/logs/run.csv").value(), '\n', absl::SkipEmpty());
  EXPECT_THAT(lines.back(), StartsWith("3,6,"));
  EXPECT_EQ(lines.size(), 4u);
}

TEST_F(CallbacksTest, CsvLogKeepsTheLinesThatAJobHasBehindItAndNoOthers) {
  ASSERT_TRUE(
      files_.ReplaceFile("/run.csv", "epoch,step,loss\n1,2,0.5\n2,4,0.25\n3,6,0.125\n").ok());
  ASSERT_TRUE(FitAfterRestart(std::make_shared<CsvLogger>("/run.csv", files_), 2, 1).ok());
  const std::vector<std::string> lines =
      absl::StrSplit(files_.ReadFile("/run.csv").value(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "1,2,0.5,,");
  EXPECT_EQ(lines[2], "2,4,0.25,,");
  EXPECT_THAT(lines[3], StartsWith("3,6,"));
  ASSERT_TRUE(files_.ReplaceFile("/run.csv", "milk\nbread\n").ok());
  const absl::Status refused =
      FitAfterRestart(std::make_shared<CsvLogger>("/run.csv", files_), 2, 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files_.ReadFile("/run.csv").value(), "milk\nbread\n") << "the file is unchanged";
  EXPECT_FALSE(Fit(std::make_shared<CsvLogger>("/run.csv", files_), {1}).ok());
  EXPECT_EQ(files_.ReadFile("/run.csv").value(), "milk\nbread\n")
      << "unchanged also for a Trainer without epochs";
}

TEST_F(TrainerTest, AModelMayBeATemporary) {
  Trainer trainer(coordinator_, Model(kRegression), Sgd{0.02});
  EXPECT_TRUE(trainer.Fit(kData).ok());
}

TEST_F(TrainerTest, ADataSourceWithoutExamplesIsAnError) {
  FitOptions options;
  options.validation = kNothing;
  for (const absl::Status& status :
       {trainer_.Fit(kNothing).status(), trainer_.Evaluate(kNothing).status(),
        trainer_.Fit(kData, options).status()}) {
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"nothing\" gave no examples"));
  }
}

TEST_F(TrainerTest, ASecondTrainerOfTheModelFindsTheNamesTaken) {
  ASSERT_TRUE(trainer_.Evaluate(kData).ok());
  EXPECT_EQ(absl::StatusCode::kAlreadyExists,
            Trainer(coordinator_, kRegression, Sgd{1.0}).Fit(kData).status().code());
}

TEST_F(TrainerTest, ClipNormReachesTheStep) {
  FitOptions options;
  options.clip_norm = 1e-6;
  ASSERT_TRUE(trainer_.Evaluate(kData).ok());
  const std::vector<float> before = FloatsOf(coordinator_.strategy_.store().Value("linear/bias"));
  ASSERT_TRUE(trainer_.Fit(kData, options).ok());
  EXPECT_THAT(FloatsOf(coordinator_.strategy_.store().Value("linear/bias")),
              Pointwise(FloatNear(1e-6), before));
}

// ---- TensorBoard --------------------------------------------------------------------------------

class TensorBoardTest : public TrainerTest {
 protected:
  TensorBoardTest() {
    options_.epochs = 2;
    options_.validation = kData;
    options_.callbacks = {std::make_shared<TensorBoard>("/logs", files_, clock_)};
  }

  // The events of a run that have a value of this tag.
  std::vector<Event> Points(const std::string& run, const std::string& tag) {
    std::vector<Event> points;
    for (const std::string& name :
         files_.ListDirectory(absl::StrCat("/logs/", run)).value_or(std::vector<std::string>())) {
      const EventFile file =
          ReadEventFile(files_.ReadFile(absl::StrCat("/logs/", run, "/", name)).value()).value();
      for (const Event& event : file.events) {
        for (const EventValue& value : event.values) {
          if (value.tag == tag)
            points.push_back({event.wall_time, event.step, {value}, "", "", false});
        }
      }
    }
    return points;
  }

  std::vector<int64_t> Steps(const std::string& run, const std::string& tag) {
    std::vector<int64_t> steps;
    for (const Event& event : Points(run, tag)) steps.push_back(event.step);
    return steps;
  }

  InMemoryFileSystem files_;
  SimClock clock_;
  FitOptions options_;
};

TEST_F(TensorBoardTest, DrawsEachReportAndEachValidationUnderTheSameNames) {
  const auto values = trainer_.Fit(kData, options_);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(Steps("train", "loss"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Steps("validation", "loss"), ElementsAre(2, 4));
  EXPECT_THAT(Steps("train", "validation/loss"), IsEmpty());
  EXPECT_EQ(std::get<float>(Points("validation", "loss").back().values[0].data),
            static_cast<float>(values->at("validation/loss")));
}

TEST_F(TensorBoardTest, RefusesTheDirectoryThatTheChiefWritesToByItself) {
  for (const char* directory : {"/logs", "/logs/"}) {
    coordinator_.event_directory_ = directory;
    const absl::Status refused = trainer_.Fit(kData, options_).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(refused.message(),
              "TensorBoard: with --tensorboard_dir the coordinator already writes to /logs, so "
              "every point would appear twice: leave out the flag or the callback, "
              "or give them two directories");
  }
  EXPECT_THAT(Steps("train", "loss"), IsEmpty());
  coordinator_.event_directory_ = "/logs/others";
  EXPECT_TRUE(trainer_.Fit(kData, options_).ok());
}

TEST_F(TensorBoardTest, TellsTheConfiguration) {
  ASSERT_TRUE(trainer_.Fit(kData, options_).ok());
  const std::vector<Event> points = Points("train", "configuration");
  ASSERT_EQ(points.size(), 1u);
  const std::string table = std::get<std::string>(points[0].values[0].data);
  for (const char* line :
       {"| model | regression: ", "| optimizer | Sgd: learning_rate 0.02 at step 0 |",
        "| epochs | 2 |", "| data | data |"}) {
    EXPECT_THAT(table, HasSubstr(line));
  }
}

TEST_F(TensorBoardTest, AnEpochThatEndsBeforeItsFirstReportIsAPoint) {
  coordinator_.reports_in_time_ = false;
  ASSERT_TRUE(trainer_.Fit(kData, options_).ok());
  EXPECT_THAT(Steps("train", "loss"), ElementsAre(2, 4));
}

TEST_F(TensorBoardTest, AFitThatWasStoppedInTheMiddleOfAnEpochTakesNoPointFromTheNext) {
  class StopAtReport : public Callback {
   public:
    absl::Status OnReport(TrainingRun& run) override {
      run.Stop("enough");
      return absl::OkStatus();
    }
  };
  options_.epochs = 1;
  options_.callbacks.push_back(std::make_shared<StopAtReport>());
  ASSERT_TRUE(trainer_.Fit(kData, options_).ok());
  const std::vector<int64_t> before = Steps("train", "loss");
  options_.callbacks.pop_back();
  coordinator_.reports_in_time_ = false;
  ASSERT_TRUE(trainer_.Fit(kData, options_).ok());
  EXPECT_EQ(Steps("train", "loss").size(), before.size() + 1);
}

TEST_F(TensorBoardTest, WhereNothingCanBeWrittenFitDoesNotBegin) {
  files_.FailNext(FileOperation::kCreateDirectory, "/logs",
                  absl::PermissionDeniedError("not yours"));
  EXPECT_EQ(trainer_.Fit(kData, options_).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(0, coordinator_.step());
}

TEST_F(TensorBoardTest, TrainingGoesOnWhenTheDiskIsFull) {
  ASSERT_TRUE(trainer_.Fit(kData, options_).ok());
  files_.FailNext(FileOperation::kAppend, "/logs/validation",
                  absl::ResourceExhaustedError("the disk is full"));
  EXPECT_TRUE(trainer_.Fit(kData, options_).ok());
  EXPECT_THAT(Steps("validation", "loss"), ElementsAre(2, 4, 8));
}

TEST(DescribeOptimizerTest, NamesWhatIsNotZero) {
  EXPECT_EQ(DescribeOptimizer(Sgd{0.5}), "Sgd: learning_rate 0.5 at step 0");
  EXPECT_EQ(DescribeOptimizer(Adam{ExponentialDecay{0.25, 10, 0.5}}),
            "Adam: learning_rate 0.25 at step 0, beta1 0.9, beta2 0.999, epsilon 1e-07");
  EXPECT_EQ(DescribeOptimizer(Momentum{0.5, 0.75f, true}),
            "Momentum: learning_rate 0.5 at step 0, momentum 0.75, nesterov");
}

TEST_F(TrainerTest, TheConfigurationTellsWhatWasGiven) {
  FitOptions options;
  options.clip_norm = 2;
  options.steps_per_epoch = 3;
  const auto texts = DescribeFit(coordinator_.strategy(), kRegression, Sgd{0.5}, kData, options);
  EXPECT_EQ(texts.at("clip norm"), "2");
  EXPECT_EQ(texts.at("steps per epoch"), "3");
  EXPECT_EQ(texts.count("validation"), 0u);
}

}  // namespace
}  // namespace divvy
