// Trainer on a whole cluster in this process: its metrics are exact however the work is divided,
// and callbacks see them while it runs.
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/testing/captured_log.h"
#include "divvy.h"
#include "formats/event_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/embedded.h"

namespace divvy {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

// ---- a model whose metrics show which records they saw ----

const Dense kLogit("logit", 3, 1);

ModelOutput Classify(GradientTape& tape, const Nest& batch) {
  const Var logits = Reshape(kLogit(tape, batch["x"]), {-1});
  return {SigmoidCrossEntropy(logits, batch["label"]),
          {{"accuracy", Accuracy(logits, batch["label"])},
           {"auc", Auc(logits, batch["label"])},
           {"rmse", Rmse(Sigmoid(logits), batch["label"])},
           {"square", MeanOf(batch["square"])}},
          // For data with ids and without labels.
          {{"probability", Sigmoid(logits)}, {"id", batch["id"]}}};
}
const Model kClassifier("training_test/classifier", {kLogit}, Classify);

ModelOutput Diverge(GradientTape& tape, const Nest& batch) {
  return {Log(Reshape(kLogit(tape, batch["x"]), {-1}) * 0.0f - 1.0f)};
}
const Model kDiverging("training_test/diverging", {kLogit}, Diverge);

const Dense kOther("other", 3, 1);
ModelOutput BeSilent(GradientTape& tape, const Nest& batch) {
  return {Reshape(kOther(tape, batch["x"]), {-1})};
}
const Model kSilent("training_test/silent", {kOther}, BeSilent);

// `n` records with labels by a planted rule and with the square of their number, in batches of 7.
absl::StatusOr<Dataset> Records(const InputContext& input, int64_t n) {
  Random random(41);
  std::vector<float> x(3 * n), labels(n);
  std::vector<int64_t> squares(n);
  for (float& value : x) value = static_cast<float>(random.Uniform() * 2 - 1);
  for (int64_t i = 0; i < n; ++i) {
    labels[i] = x[3 * i] + 0.5f * x[3 * i + 1] > 0.2f * x[3 * i + 2] ? 1.0f : 0.0f;
    squares[i] = i * i;
  }
  ASSIGN_OR_RETURN(Tensor rows, Tensor::Copy<float>({n, 3}, x));
  return Dataset::FromTensorSlices({{"x", rows},
                                    {"label", Tensor::Vector<float>(labels)},
                                    {"square", Tensor::Vector<int64_t>(squares)}})
      .Shuffle(1000, input.seed)
      .Batch(7);
}
const DataSource kRecords("training_test/records", Records);

// The column of record `id` in data without labels, which is in the order of the ids.
float XOf(int64_t id, int64_t column) {
  return static_cast<float>((id * 7 + column * 3) % 11) / 11;
}
Dataset UnlabelledRecords(int64_t n) {
  std::vector<float> x(3 * n);
  std::vector<int64_t> ids(n);
  for (int64_t i = 0; i < n; ++i) {
    ids[i] = i;
    for (int64_t column = 0; column < 3; ++column) x[3 * i + column] = XOf(i, column);
  }
  return Dataset::FromTensorSlices({{"x", Nest(*Tensor::Copy<float>({n, 3}, x))},
                                    {"id", Nest(Tensor::Vector<int64_t>(ids))}})
      .Batch(7);
}
absl::StatusOr<Dataset> Unlabelled(const InputContext&, int64_t n) { return UnlabelledRecords(n); }
const DataSource kUnlabelled("training_test/unlabelled", Unlabelled);
const DataSource kNotLeased("training_test/not_leased", Unlabelled,
                            InputOptions{AutoShardPolicy::kOff});

// The same, but the number of records is not known before one of the workers has come to the end,
// as with files.
absl::StatusOr<Dataset> OfUnknownSize(const InputContext&, int64_t n) {
  return UnlabelledRecords(n).Filter([](const Nest&) { return true; });
}
const DataSource kOfUnknownSize("training_test/of_unknown_size", OfUnknownSize);

double MeanSquare(int64_t n) { return static_cast<double>((n - 1) * (2 * n - 1)) / 6; }

class TrainingTest : public ::testing::Test {
 protected:
  void Start(int ps, int workers, int replicas) {
    EmbeddedSetup setup;
    setup.options.num_ps = ps;
    setup.options.num_workers = workers;
    setup.options.replicas_per_worker = replicas;
    setup.coordinator.report.emplace();
    setup.coordinator.report->report_every = absl::Milliseconds(10);
    setup.coordinator.report->write = [this](absl::string_view text) {
      MutexLock lock(mu_);
      text_.append(text.data(), text.size());
    };
    setup.coordinator.report->tensorboard_dir = tensorboard_dir_;
    setup.coordinator.report->configuration = {{"--note", "a|b"}};
    setup.coordinator.report->histograms_every = absl::Seconds(1);
    auto cluster = EmbeddedCluster::Start(setup);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    trainer_.reset();
    cluster_ = *std::move(cluster);
    trainer_ = std::make_unique<Trainer>(coordinator(), kClassifier, RmsProp{0.01});
  }
  Coordinator& coordinator() { return cluster_->coordinator(); }

  std::string text() {
    MutexLock lock(mu_);
    return text_;
  }

  std::string tensorboard_dir_;
  Mutex mu_;
  std::string text_ DIVVY_GUARDED_BY(mu_);  // what a user's terminal shows
  std::unique_ptr<EmbeddedCluster> cluster_;
  std::unique_ptr<Trainer> trainer_;
};

// 100 records are 14 batches of 7 and one of 2; with 2 replicas the last step has an empty batch.
TEST_F(TrainingTest, ValidationCountsEachRecordOnceHoweverManyWorkersAndReplicasThereAre) {
  std::map<std::string, double> alone;
  for (const auto& [workers, replicas] : {std::pair(1, 1), std::pair(2, 2), std::pair(3, 4)}) {
    Start(2, workers, replicas);
    const auto values = trainer_->Evaluate(kRecords(100));
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at("square"), MeanSquare(100))
        << workers << " workers of " << replicas << " replicas";
    if (alone.empty()) alone = *values;
    for (const auto& [name, value] : alone)
      EXPECT_THAT(values->at(name), DoubleNear(value, 1e-9))
          << name << " with " << workers << " workers";
    const auto metrics =
        coordinator().RunEpoch(kClassifier.evaluate_step(), kRecords(100), kClassifier.name());
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    for (const auto& [name, metric] : *metrics) EXPECT_EQ(metric.count(), 100) << name;
  }
}

TEST_F(TrainingTest, MetricsCountAStepOnceHoweverOftenItWasTried) {
  Start(2, 2, 2);
  ThreadPoolExecutor threads(1);
  threads.PostBlocking("kills", [this] { cluster_->KillWorker(1); });
  FitOptions options;
  options.validation = kRecords(100);
  const auto values = trainer_->Fit(kRecords(5000), options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at("square"), MeanSquare(5000));
  EXPECT_EQ(values->at("validation/square"), MeanSquare(100));
}

// Compares with the model's outputs for these ids, computed by hand.
void ExpectPredictions(Coordinator& coordinator, int64_t n, const Outputs& outputs) {
  const auto kernel = *coordinator.strategy().FindVariable("logit/kernel")->Read(),
             bias = *coordinator.strategy().FindVariable("logit/bias")->Read();
  const Tensor ids = outputs.at("id"), probabilities = outputs.at("probability");
  ASSERT_EQ(ids.shape(), Shape{n});
  ASSERT_EQ(probabilities.shape(), Shape{n});
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ((*ids.values<int64_t>())[i], i) << "each once, in the order of the data";
    float logit = (*bias.values<float>())[0];
    for (int64_t column = 0; column < 3; ++column)
      logit += (*kernel.values<float>())[column] * XOf(i, column);
    ASSERT_NEAR((*probabilities.values<float>())[i], 1 / (1 + std::exp(-logit)), 1e-5) << i;
  }
}

TEST_F(TrainingTest, PredictionsOfDataWithoutLabelsComeInOrderWhateverTheWorkers) {
  for (const auto& [workers, replicas] : {std::pair(1, 1), std::pair(2, 1), std::pair(3, 2)}) {
    SCOPED_TRACE(absl::StrCat(workers, " workers of ", replicas));
    Start(2, workers, replicas);
    ASSERT_TRUE(trainer_->Fit(kRecords(700)).ok());
    for (const int64_t n : {0, 5, 1000}) {
      const auto outputs = trainer_->Predict(kUnlabelled(n));
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      if (n > 0) ExpectPredictions(coordinator(), n, *outputs);
      EXPECT_EQ(outputs->empty(), n == 0);
    }
    EXPECT_EQ(coordinator().step(), replicas == 1 ? 100 : 50) << "prediction is no training step";
  }
}

// A worker comes to the end, while the chunks of the others still have positions before it.
TEST_F(TrainingTest, PredictionsAreCompleteThoughOneWorkerFindsTheEndBeforeTheOthersDo) {
  for (const auto& [workers, replicas] : {std::pair(2, 1), std::pair(4, 1), std::pair(3, 2)}) {
    SCOPED_TRACE(absl::StrCat(workers, " workers of ", replicas));
    Start(2, workers, replicas);
    ASSERT_TRUE(trainer_->Fit(kRecords(70)).ok());
    for (const int64_t n : {0, 700, 1400, 2800, 5600}) {
      const auto outputs = trainer_->Predict(kOfUnknownSize(n));
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      if (n > 0) ExpectPredictions(coordinator(), n, *outputs);
    }
  }
}

TEST_F(TrainingTest, PredictionsAreGivenOnceThoughAWorkerDies) {
  Start(2, 2, 1);
  std::vector<Outputs> parts;
  int64_t rows = 0;
  const absl::Status status =
      trainer_->Predict(kUnlabelled(7000), [&](int64_t first, const Outputs& outputs) {
        EXPECT_EQ(first, rows);
        rows += outputs.at("id").shape().rows();
        if (parts.size() == 20) cluster_->KillWorker(1);
        parts.push_back(outputs);
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
  const auto joined = internal::JoinOutputs(parts);
  ASSERT_TRUE(joined.ok()) << joined.status();
  ExpectPredictions(coordinator(), 7000, *joined);
}

TEST_F(TrainingTest, APredictionThatTimesOutIsMadeFromTheBeginningByTheNextCall) {
  Start(1, 2, 1);
  int calls = 0;
  const auto take = [&calls](int64_t, const Outputs&) {
    ++calls;
    return absl::OkStatus();
  };
  EXPECT_EQ(trainer_->Evaluate(kRecords(100), absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(trainer_->Evaluate(kRecords(100)).ok());
  EXPECT_EQ(trainer_->Predict(kUnlabelled(1000), take, absl::ZeroDuration()).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(calls, 1000 / 7) << "it took all of the outputs";
  const auto outputs = trainer_->Predict(kUnlabelled(1000), absl::Hours(1));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectPredictions(coordinator(), 1000, *outputs);
}

TEST_F(TrainingTest, APredictionThatCannotBeMadeSaysWhyAndTheNextOneCan) {
  Start(1, 2, 1);
  int calls = 0;
  const auto refuse = [&](int64_t, const Outputs&) {
    return ++calls == 3 ? absl::DataLossError("the disk of the caller") : absl::OkStatus();
  };
  EXPECT_EQ(trainer_->Predict(kUnlabelled(1000), refuse),
            absl::DataLossError("the disk of the caller"));
  EXPECT_EQ(calls, 3);
  const absl::Status not_leased = trainer_->Predict(kNotLeased(100)).status();
  EXPECT_EQ(not_leased.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(not_leased.message()), HasSubstr("kLease"));
  const absl::Status nothing =
      Trainer(coordinator(), kSilent, Sgd{1.0}).Predict(kUnlabelled(100)).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(nothing.message()), HasSubstr("ModelOutput::outputs"));
  const absl::Status failed = trainer_->Predict(kRecords(100)).status();  // has no "id"
  EXPECT_THAT(std::string(failed.message()), HasSubstr("output \"id\""));
  const auto outputs = trainer_->Predict(kUnlabelled(100));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectPredictions(coordinator(), 100, *outputs);
}

TEST(OutputsTest, AreJoinedByRowsWhereTheyFit) {
  const Tensor two = *Tensor::Copy<float>({1, 2}, {1, 2}),
               four = *Tensor::Copy<float>({2, 2}, {3, 4, 5, 6});
  const auto joined = internal::JoinOutputs({{{"y", two}}, {{"y", four}}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(BitwiseEqual(joined->at("y"), *Tensor::Copy<float>({3, 2}, {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(
      internal::JoinOutputs({{{"y", two}}, {{"y", Tensor::Vector<float>({1})}}}).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(internal::JoinOutputs({{{"y", two}}, {{"z", two}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(internal::JoinOutputs({{{"y", two}}, {{"y", two}, {"z", two}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(internal::JoinOutputs({})->empty());
}

TEST_F(TrainingTest, EachEpochHasALineAndTheLastOneCountsWhatWasTrained) {
  Start(1, 2, 1);
  FitOptions options;
  options.epochs = 2;
  ASSERT_TRUE(trainer_->Fit(kRecords(700), options).ok());
  ASSERT_TRUE(trainer_->Evaluate(kRecords(70)).ok());
  cluster_->reporter()->Summarize(0);
  for (const std::string epoch : {"epoch 1/2  step 100  ", "epoch 2/2  step 200  "})
    EXPECT_THAT(text(), HasSubstr(epoch));
  EXPECT_THAT(text(), HasSubstr("  train: loss "));
  EXPECT_THAT(text(), HasSubstr("200 training steps, 1,400 examples seen in "));
}

TEST_F(TrainingTest, NothingIsSaidOfExamplesWhereNoStepWasTrained) {
  Start(1, 1, 1);
  cluster_->reporter()->Summarize(0);
  EXPECT_EQ(text(), "");
}

TEST_F(TrainingTest, ALossThatIsNotFiniteIsToldOnceWithTheFlagThatFindsIt) {
  CapturedLog log;
  Start(1, 2, 1);
  FitOptions options;
  options.epochs = 3;
  options.validation = kRecords(70);
  EXPECT_TRUE(Trainer(coordinator(), kDiverging, Sgd{1.0}).Fit(kRecords(700), options).ok());
  EXPECT_EQ(log.Count("--check_numerics"), 1);
}

TEST_F(TrainingTest, EveryOptimizerLearnsThePlantedRuleWithItsSlotsOnSeveralServers) {
  const Adam amsgrad{0.05, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true};
  const RmsProp centered{0.01, 0.9f, 0.5f, 1e-7f, /*centered=*/true};
  for (const Optimizer& optimizer :
       {Optimizer(Sgd{1.0}), Optimizer(Momentum{0.2}), Optimizer(Adagrad{0.5}),
        Optimizer(RowwiseAdagrad{0.5}), Optimizer(amsgrad), Optimizer(centered),
        Optimizer(Ftrl{0.5}), Optimizer(GroupFtrl{0.5, /*l21=*/1e-3f})}) {
    Start(3, 2, 1);
    FitOptions options;
    options.epochs = 3;
    options.validation = kRecords(200);
    const auto values = Trainer(coordinator(), kClassifier, optimizer).Fit(kRecords(2000), options);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_GT(values->at("validation/accuracy"), 0.9) << OptimizerName(optimizer);
    EXPECT_GT(values->at("validation/auc"), 0.97) << OptimizerName(optimizer);
  }
}

TEST_F(TrainingTest, TheLearningRateScaleIsAFactorOfEveryStepFromThenOn) {
  std::vector<float> biases;
  for (const double scale : {1.0, 0.5, 0.0}) {
    Start(1, 1, 1);
    trainer_ = std::make_unique<Trainer>(coordinator(), kClassifier, Sgd{1.0});
    coordinator().SetLearningRateScale(scale);
    ASSERT_TRUE(trainer_->Fit(kRecords(7)).ok());  // one step
    biases.push_back(
        (*coordinator().strategy().FindVariable("logit/bias")->Read()->values<float>())[0]);
  }
  EXPECT_NE(biases[0], 0);
  EXPECT_FLOAT_EQ(biases[1], biases[0] / 2);
  EXPECT_EQ(biases[2], 0);
}

struct StopsAtTheFirstReport : Callback {
  absl::Status OnReport(TrainingRun& run) override {
    ++reports;
    steps = run.step();
    run.Stop("seen enough");
    return absl::OkStatus();
  }
  absl::Status OnEpochEnd(TrainingRun&) override {
    ++ends;
    return absl::OkStatus();
  }
  int reports = 0, ends = 0;
  int64_t steps = 0;
};

TEST_F(TrainingTest, ACallbackMayEndAnEpochInItsMiddleAndTheNextFitIsWhole) {
  Start(1, 2, 1);
  const auto stops = std::make_shared<StopsAtTheFirstReport>();
  FitOptions options;
  options.callbacks = {stops};
  const auto values = trainer_->Fit(kRecords(700'000), options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(stops->reports, 1);
  EXPECT_EQ(stops->ends, 0);
  EXPECT_LT(coordinator().step(), 100'000);
  EXPECT_LE(stops->steps, coordinator().step());
  EXPECT_EQ(coordinator().epoch(), 0);
  const int64_t before = coordinator().step();
  const auto whole = trainer_->Fit(kRecords(70));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->at("square"), MeanSquare(70));
  EXPECT_EQ(coordinator().step(), before + 10);
  EXPECT_EQ(coordinator().epoch(), 1);
}

// ---- event files of the job ----

// All events of a run.
std::vector<Event> EventsOf(const std::string& directory, const std::string& run) {
  std::vector<Event> events;
  const std::string folder = absl::StrCat(directory, "/", run);
  for (const std::string& name :
       FileSystem::Real().ListDirectory(folder).value_or(std::vector<std::string>())) {
    const EventFile file =
        ReadEventFile(FileSystem::Real().ReadFile(absl::StrCat(folder, "/", name)).value()).value();
    events.insert(events.end(), file.events.begin(), file.events.end());
  }
  return events;
}

// The values of a tag, by step.
std::vector<std::pair<int64_t, EventData>> SeriesOf(const std::vector<Event>& events,
                                                    const std::string& tag) {
  std::vector<std::pair<int64_t, EventData>> series;
  for (const Event& event : events) {
    for (const EventValue& value : event.values) {
      if (value.tag == tag) series.emplace_back(event.step, value.data);
    }
  }
  return series;
}

TEST_F(TrainingTest, EventFilesTellOfTrainingAndOfWhatIsReported) {
  tensorboard_dir_ = absl::StrCat(::testing::TempDir(), "/tensorboard");
  Start(2, 2, 1);
  FitOptions options;
  options.validation = kRecords(100);
  const auto values = trainer_->Fit(kRecords(5000), options);
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_TRUE(cluster_->coordinator().Finish(absl::OkStatus()).ok());
  cluster_->reporter()->Summarize(0);
  const std::vector<Event> train = EventsOf(tensorboard_dir_, "train"),
                           validation = EventsOf(tensorboard_dir_, "validation");
  // The last step of the epoch: 5000 records in batches of 7.
  EXPECT_EQ(SeriesOf(train, "loss").back().first, 715);
  EXPECT_EQ(SeriesOf(train, "accuracy").size(), SeriesOf(train, "examples_per_second").size());
  EXPECT_THAT(std::get<std::string>(SeriesOf(train, "configuration").at(0).second),
              HasSubstr("| --note | a\\|b |\n| parameter servers | 2 |\n| workers | 2 |"));
  EXPECT_THAT(std::get<std::string>(SeriesOf(train, "variables").at(0).second),
              HasSubstr("logit/kernel  float32 [3, 1]"));
  const auto buckets_of = [&](const std::string& tag) {
    std::vector<HistogramBucket> buckets;
    for (const auto& [step, data] : SeriesOf(train, tag)) {
      const auto& point = std::get<std::vector<HistogramBucket>>(data);
      buckets.insert(buckets.end(), point.begin(), point.end());
    }
    return buckets;
  };
  EXPECT_EQ(SeriesOf(train, "weights/logit/kernel").at(0).first, 0);
  EXPECT_EQ(SeriesOf(train, "weights/logit/kernel").back().first, 715) << "the trained weights";
  double elements = 0;
  for (size_t i = 0; i < 30; ++i) elements += buckets_of("weights/logit/kernel").at(i).count;
  EXPECT_EQ(elements, 3);
  EXPECT_FALSE(buckets_of("gradients/logit/kernel").empty());
  double steps = 0;
  for (const HistogramBucket& bucket : buckets_of("staleness")) steps += bucket.count;
  EXPECT_EQ(steps, 715);
  for (const std::string run : {"worker/0", "worker/1"}) {
    const std::vector<Event> worker = EventsOf(tensorboard_dir_, run);
    EXPECT_FALSE(SeriesOf(worker, "steps_per_second").empty()) << run;
    EXPECT_FALSE(SeriesOf(worker, "step_seconds").empty()) << run;
  }
  // The mean that was reported; the means of the single steps are not points.
  ASSERT_EQ(SeriesOf(validation, "loss").size(), 1u);
  EXPECT_EQ(std::get<float>(SeriesOf(validation, "loss")[0].second),
            static_cast<float>(values->at("validation/loss")));
}

TEST_F(TrainingTest, OptionsOutOfTheirRangeAreRefusedAllAtOnce) {
  EmbeddedSetup setup;
  setup.options.num_ps = 0;
  setup.blas_threads = -1;
  const absl::Status refused = EmbeddedCluster::Start(setup).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "num_ps is 0, wanted at least 1; --blas_threads is -1, wanted at least 0");
}

TEST_F(TrainingTest, EventFilesAreNotDrawnTwiceInOneDirectory) {
  tensorboard_dir_ = absl::StrCat(::testing::TempDir(), "/twice");
  Start(1, 1, 1);
  FitOptions options;
  options.callbacks = {std::make_shared<TensorBoard>(tensorboard_dir_)};
  EXPECT_EQ(trainer_->Fit(kRecords(700), options).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TrainingTest, EventFilesThatCannotBeWrittenDoNotStopTraining) {
  tensorboard_dir_ = "/dev/null/tensorboard";
  Start(1, 1, 1);
  const auto values = trainer_->Fit(kRecords(700));
  ASSERT_TRUE(values.ok()) << values.status();
  cluster_->reporter()->Summarize(0);
}

}  // namespace
}  // namespace divvy
