// Steps, their results, and how they are passed to a coordinator.
#include "strategy/step.h"

#include <cmath>
#include <deque>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/ops.h"
#include "protocol/error.h"
#include "strategy/coordinator.h"
#include "strategy/metrics.h"
#include "strategy/program.h"
#include "strategy/testing/test_strategy.h"
#include "strategy/trainer_support.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

Tensor Floats(Shape shape, std::vector<float> values) {
  return *Tensor::Copy<float>(shape, values);
}
Tensor Floats(std::vector<float> values) { return Tensor::Vector<float>(values); }
Tensor Ints(std::vector<int64_t> values) { return Tensor::Vector<int64_t>(values); }

// ---- metrics ------------------------------------------------------------------------------------

TEST(MetricTest, AMeanMergesByCountAndIsZeroOfNothing) {
  Metric mean = Metric::Mean(10, 4);
  EXPECT_TRUE(mean.Merge(Metric::Mean(2, 2)).ok());
  EXPECT_EQ(mean.value(), 2);
  EXPECT_EQ(mean.count(), 6);
  EXPECT_EQ(Metric::Mean(0, 0).value(), 0);
}

TEST(MetricTest, KindsDoNotMix) {
  Metric mean = Metric::Mean(1, 1);
  const absl::Status status = mean.Merge(*Rmse(Floats({1}), Floats({2})));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  Metrics into{{"a", Metric::Mean(1, 1)}, {"b", Metric::Mean(1, 1)}};
  EXPECT_THAT(
      Merge({{"a", Metric::Mean(1, 1)}, {"b", *Rmse(Floats({1}), Floats({2}))}}, into).message(),
      HasSubstr("metric \"b\""));
  EXPECT_EQ(into.at("a").count(), 1);  // no partial merge
}

TEST(MetricTest, MergingTakesOverNewNames) {
  Metrics into{{"a", Metric::Mean(1, 1)}};
  ASSERT_TRUE(Merge({{"a", Metric::Mean(3, 1)}, {"b", Metric::Mean(5, 1)}}, into).ok());
  EXPECT_EQ(into.at("a").value(), 2);
  EXPECT_EQ(into.at("b").value(), 5);
}

TEST(MetricTest, CollectGivesTheFirstErrorWithItsName) {
  const auto good = Collect({{"a", Metric::Mean(1, 2)}});
  EXPECT_EQ(good->at("a").value(), 0.5);
  const auto bad = Collect({{"a", Metric::Mean(1, 2)}, {"b", absl::InternalError("why")}});
  EXPECT_EQ(bad.status(), absl::InternalError("metric \"b\": why"));
}

TEST(MetricTest, MeanOfTakesAnyNumbers) {
  EXPECT_EQ(MeanOf(Floats({2, 2}, {1, 2, 3, 6}))->value(), 3);
  EXPECT_EQ(MeanOf(Ints({1, 2}))->value(), 1.5);
  EXPECT_EQ(MeanOf(Floats({0}, {}))->count(), 0);
  EXPECT_EQ(MeanOf(Var(Nest("text"))).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AccuracyTest, OfClassesTakesNumbersOrProbabilitiesAndTheFirstOfEquals) {
  const Tensor logits = Floats({3, 3}, {1, 5, 2, 7, 7, 0, 0, 1, 9});
  EXPECT_EQ(Accuracy(logits, Ints({1, 0, 0}))->value(), 2.0 / 3);
  EXPECT_EQ(Accuracy(logits, Tensor::Vector<uint8_t>({1, 1, 2}))->value(), 2.0 / 3);
  EXPECT_EQ(Accuracy(logits, Floats({3, 3}, {0, 1, 0, 1, 0, 0, 1, 0, 0}))->value(), 2.0 / 3);
}

TEST(AccuracyTest, OfOneLogitHasItsThresholdAtZero) {
  EXPECT_EQ(Accuracy(Floats({-1, 0, 0.1f, 3}), Floats({0, 0, 1, 0}))->value(), 0.75);
  EXPECT_EQ(Accuracy(Floats({2, 1}, {-1, 1}), Ints({0, 1}))->value(), 1);
}

TEST(AccuracyTest, RefusesShapesThatDoNotFit) {
  for (const auto& [logits, labels] :
       std::vector<std::pair<Tensor, Tensor>>{{Floats({2, 3}, std::vector<float>(6)), Ints({1})},
                                              {Floats({1, 2}), Floats({1})},
                                              {Floats({1, 2, 1}, {1, 2}), Floats({1})},
                                              {Tensor::Scalar(1.0f), Tensor::Scalar(1.0f)}}) {
    EXPECT_EQ(Accuracy(logits, labels).status().code(), absl::StatusCode::kInvalidArgument)
        << logits.ToString();
  }
}

TEST(AccuracyTest, RefusesLabelsThatItsLogitsCannotMean) {
  const auto words = [](const absl::StatusOr<Metric>& metric) {
    return std::string(metric.status().message());
  };
  for (const float wrong : {-1.0f, 2.0f, NAN}) {
    EXPECT_THAT(
        words(Accuracy(Floats({-1, 1}), Floats({0, wrong}))),
        HasSubstr(absl::StrCat("Accuracy: label ", wrong, " of example 1 is outside [0, 1]")));
    EXPECT_THAT(words(Auc(Floats({-1, 1}), Floats({0, wrong}))),
                HasSubstr(absl::StrCat("Auc: label ", wrong, " of example 1 is outside [0, 1]")));
  }
  const Tensor logits = Floats({2, 3}, {1, 5, 2, 7, 7, 0});
  for (const float wrong : {-1.0f, 3.0f, 0.5f}) {
    EXPECT_THAT(
        words(Accuracy(logits, Floats({0, wrong}))),
        HasSubstr(absl::StrCat("label ", wrong, " of example 1 is not an integer in [0, 3)")));
  }
  EXPECT_THAT(words(Accuracy(logits, Floats({2, 3}, {0, 1, 0, 0, 0, -1}))),
              HasSubstr("label -1 of example 1 is outside [0, 1]"));
}

TEST(AucTest, CountsThePairsInOrderAndTiesHalf) {
  EXPECT_EQ(Auc(Floats({-2, -1, 1, 2}), Floats({0, 0, 1, 1}))->value(), 1);
  EXPECT_EQ(Auc(Floats({-2, -1, 1, 2}), Floats({1, 1, 0, 0}))->value(), 0);
  EXPECT_EQ(Auc(Floats({-1, 0, 1, 2}), Floats({0, 1, 0, 1}))->value(), 0.75);
  EXPECT_EQ(Auc(Floats({1, 1}), Floats({0, 1}))->value(), 0.5);
  EXPECT_EQ(Auc(Floats({1, 2}), Floats({1, 1}))->value(), 0);  // one class: undefined
}

TEST(AucTest, MergesExactlyAndTakesInfiniteLogitsButNoNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  Metric auc = *Auc(Floats({-infinity, infinity}), Floats({0, 1}));
  ASSERT_TRUE(auc.Merge(*Auc(Floats({-1, 1}), Floats({1, 0}))).ok());
  EXPECT_EQ(auc.value(), 0.75);
  EXPECT_EQ(auc.count(), 4);
  EXPECT_EQ(Auc(Floats({NAN}), Floats({1})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Auc(Floats({1, 2}), Floats({1})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RmseTest, IsTheRootOfTheMergedMean) {
  Metric rmse = *Rmse(Floats({1, 2}), Floats({1, 4}));  // squares 0, 4
  ASSERT_TRUE(rmse.Merge(*Rmse(Floats({0, 0}), Floats({0, 0}))).ok());
  EXPECT_EQ(rmse.value(), 1);
  EXPECT_EQ(Rmse(Floats({1, 2}), Floats({1})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RecallTest, FindsTheDiagonalAmongTheFirstK) {
  const Tensor scores = Floats({2, 3}, {1, 2, 3, 0, 5, 4});
  EXPECT_EQ(RecallAt(1, scores)->value(), 0.5);
  EXPECT_EQ(RecallAt(2, scores)->value(), 0.5);
  EXPECT_EQ(RecallAt(3, scores)->value(), 1);
  EXPECT_EQ(RecallAt(1, Floats({1, 2}, {NAN, NAN}))->value(), 0);
  EXPECT_EQ(RecallAt(0, scores).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RecallAt(1, Floats({2, 1}, {1, 2})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MetricsTest, TravelAsANestAndAreMergedByReduce) {
  const Metrics r0{{"loss", Metric::Mean(6, 2)}, {"auc", *Auc(Floats({-1, 1}), Floats({0, 1}))}};
  const Metrics r1{{"loss", Metric::Mean(2, 2)}, {"auc", *Auc(Floats({1, -1}), Floats({0, 1}))}};
  const auto back = NestCodec<Metrics>::Decode(NestCodec<Metrics>::Encode(r0));
  EXPECT_EQ(back->at("loss").value(), 3);
  EXPECT_EQ(back->at("auc").value(), 1);
  TestStrategy strategy(2);
  const auto merged = strategy->Reduce(ReduceOp::kSum, PerReplica<Metrics>({r0, r1}), kNoAxis);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->at("loss").value(), 2);
  EXPECT_EQ(merged->at("auc").value(), 0.5);
}

TEST(MetricsTest, OfAnAucOnlyTheBucketsThatAreNotEmptyTravel) {
  const Metric auc = *Auc(Floats({-2, -1, 1, 1}), Floats({0, 1, 1, 1}));
  const Nest nest = NestCodec<Metric>::Encode(auc);
  EXPECT_LT(nest.size_bytes(), 200);
  const auto back = NestCodec<Metric>::Decode(nest);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->value(), auc.value());
  EXPECT_EQ(back->count(), 4);
  EXPECT_EQ(
      NestCodec<Metric>::Decode(NestCodec<Metric>::Encode(*Auc(Floats({}), Floats({}))))->count(),
      0);
}

TEST(MetricsTest, DecodeRefusesWhatEncodeCannotMake) {
  const Nest sums(Tensor::Vector<double>({1, 2}));
  const auto buckets = [](std::vector<int64_t> ids, std::vector<double> counts, int64_t num_rows) {
    return Nest{{"kind", "auc"},
                {"sums", Nest(IndexedSlices{Tensor::Vector<int64_t>(ids),
                                            Tensor::Vector<double>(counts), num_rows})}};
  };
  EXPECT_TRUE(NestCodec<Metric>::Decode(buckets({8191}, {1}, 8192)).ok());
  EXPECT_EQ(NestCodec<Metric>::Decode(buckets({8192}, {1}, 8192)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NestCodec<Metric>::Decode(buckets({1}, {1}, int64_t{1} << 60)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NestCodec<Metric>::Decode(buckets({1}, {1, 2}, 8192)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NestCodec<Metric>::Decode(Nest{{"kind", "median"}, {"sums", sums}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NestCodec<Metric>::Decode(Nest{{"kind", "auc"}, {"sums", sums}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(
      NestCodec<Metric>::Decode(Nest{{"kind", "mean"}, {"sums", Nest(Floats({1, 2}))}}).ok());
  EXPECT_FALSE(NestCodec<Metric>::Decode(Nest{{"kind", "mean"}}).ok());
}

// ---- steps --------------------------------------------------------------------------------------

absl::StatusOr<int64_t> AddStep(WorkerContext& worker, int64_t a, std::string text) {
  EXPECT_TRUE(InCrossReplicaContext());
  EXPECT_EQ(&Strategy::Current(), &worker.strategy());
  return a + static_cast<int64_t>(text.size()) + worker.step() + worker.worker_index();
}
const Step kAdd("add", AddStep);

absl::Status CountStep(WorkerContext& worker, Iterator batches, const std::vector<float>& scales) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  worker.Local<int>("batches", [] { return std::make_unique<int>(0); }) +=
      batch.size() * static_cast<int>(scales.size());
  return absl::OkStatus();
}
const Step kCount("count", CountStep, StepKind::kReadOnly);

absl::Status ThrowStep(WorkerContext&) { throw std::runtime_error("boom"); }
const Step kThrow("throw", ThrowStep);

absl::StatusOr<Metrics> EpochStep(WorkerContext&, Iterator, double) {
  return Metrics{{"loss", Metric::Mean(1, 1)}};
}
const Step kEpoch("epoch", EpochStep);
const Step kEvaluate("evaluate", EpochStep, StepKind::kReadOnly);

static_assert(std::is_same_v<std::decay_t<decltype(kAdd)>, Step<int64_t(int64_t, std::string)>>);
static_assert(std::is_same_v<std::decay_t<decltype(kThrow)>, Step<void()>>);

// Returns `batches` in order, for any iterator.
class FakeEnvironment : public StepEnvironment {
 public:
  explicit FakeEnvironment(int replicas = 1) : strategy_(replicas) {}
  Strategy& strategy() override { return *strategy_; }
  int worker_index() const override { return 1; }
  absl::StatusOr<std::optional<PerReplica<Nest>>> Next(PerWorkerHandle handle) override {
    last_handle = handle.id;
    if (batches.empty()) return std::optional<PerReplica<Nest>>();
    std::optional<PerReplica<Nest>> next(std::move(batches.front()));
    batches.pop_front();
    return next;
  }
  bool cancelled() const override { return false; }

  std::deque<PerReplica<Nest>> batches;
  uint64_t last_handle = 0;

 private:
  TestStrategy strategy_;
};

Nest Args(std::vector<Nest> args) { return Nest(std::move(args)); }

absl::StatusOr<Nest> RunNamed(absl::string_view name, StepEnvironment& environment,
                              const Nest& args) {
  ASSIGN_OR_RETURN(const RegisteredStep* step, StepRegistry::Get(name));
  return RunStep(*step, environment, args);
}

TEST(StepTest, RunsByNameInTheStrategysScopeWithItsArgumentsDecoded) {
  FakeEnvironment environment;
  const auto result = RunNamed("add", environment, Args({Nest(int64_t{30}), Nest("four")}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*NestCodec<int64_t>::Decode(*result), 30 + 4 + 7 + 1);
  EXPECT_FALSE(InCrossReplicaContext());
}

TEST(StepTest, RefusesArgumentsThatAreNotItsOwn) {
  FakeEnvironment environment;
  EXPECT_THAT(RunNamed("add", environment, Args({Nest(int64_t{30})})).status().message(),
              HasSubstr("step \"add\" takes 2 arguments"));
  EXPECT_EQ(RunNamed("add", environment, Args({Nest("four"), Nest("four")})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunNamed("add", environment, Nest("no list")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(StepTest, ThatThrowsIsUnknownWithItsWords) {
  FakeEnvironment environment;
  const absl::Status status = RunNamed("throw", environment, Args({})).status();
  EXPECT_EQ(status, absl::UnknownError("step \"throw\" threw: boom"));
  EXPECT_FALSE(InCrossReplicaContext());
}

TEST(StepTest, TakesElementsUntilTheEndWhichIsOutOfRange) {
  FakeEnvironment environment;
  environment.batches.push_back(PerReplica<Nest>({Nest(Floats({1}))}));
  const Nest args = Args({NestCodec<Iterator>::Encode(Iterator(PerWorkerHandle{5})),
                          NestCodec<std::vector<float>>::Encode({1, 2})});
  EXPECT_TRUE(RunNamed("count", environment, args).ok());
  EXPECT_EQ(environment.last_handle, 5);
  const absl::Status end = RunNamed("count", environment, args).status();
  EXPECT_EQ(end.code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(IsEndOfData(end));
  WorkerContext worker(environment);
  EXPECT_EQ(worker.Local<int>("batches", [] { return std::make_unique<int>(-1); }), 2);
  EXPECT_FALSE((*worker.NextOrEnd(Iterator(PerWorkerHandle{5}))).has_value());
}

TEST(StepTest, IsRefusedWhereAnotherStrategyIsCurrent) {
  FakeEnvironment environment;
  TestStrategy other(1);
  auto scope = other->Scope();
  EXPECT_EQ(RunNamed("add", environment, Args({Nest(int64_t{1}), Nest("x")})).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Each replica's function; the second argument is the same for all.
absl::StatusOr<Metrics> CountRows(ReplicaContext& replica, const Nest& batch, int64_t weight) {
  ASSIGN_OR_RETURN(const Tensor x, batch["x"].tensor());
  if (x.shape().rows() == 3) return absl::DataLossError("three rows");
  const double rows = static_cast<double>(x.shape().rows() * weight);
  return Metrics{{"rows", Metric::Mean(rows, 1)},
                 {"replica", Metric::Mean(replica.replica_id_in_sync_group(), 1)}};
}

TEST(WorkerContextTest, RunAndMergeIsNextRunAndReduce) {
  FakeEnvironment environment(2);
  const auto rows = [](int64_t n) {
    return Nest{{"x", Nest(*Tensor::Zeros(DType::kFloat32, {n}))}};
  };
  environment.batches = {PerReplica<Nest>({rows(2), rows(4)}),
                         PerReplica<Nest>({rows(3), rows(4)})};
  const StrategyScope scope = environment.strategy().Scope();
  WorkerContext worker(environment);
  const Iterator batches(PerWorkerHandle{7});
  const auto merged = worker.RunAndMerge(batches, CountRows, int64_t{10});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(environment.last_handle, 7);
  EXPECT_EQ(merged->at("rows").value(), 30) << "the mean of 20 and 40";
  EXPECT_EQ(merged->at("replica").value(), 0.5);
  EXPECT_EQ(worker.RunAndMerge(batches, CountRows, int64_t{1}).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(IsEndOfData(worker.RunAndMerge(batches, CountRows, int64_t{1}).status()));
}

TEST(StepRegistryTest, KnowsNamesKindsAndSignatures) {
  const RegisteredStep* add = StepRegistry::Find("add");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add->num_args, 2);
  EXPECT_EQ(add->kind, StepKind::kTraining);
  EXPECT_EQ(StepRegistry::Find("count")->kind, StepKind::kReadOnly);
  EXPECT_NE(add->signature, StepRegistry::Find("count")->signature);
  EXPECT_EQ(StepRegistry::Find("epoch")->signature, StepRegistry::Find("evaluate")->signature);
  const absl::Status unknown = StepRegistry::Get("ad").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("it has \"add\", \"count\""));
  EXPECT_THAT(unknown.message(), HasSubstr("alwayslink"));
  EXPECT_EQ(StepRegistry::All().front()->name, "add");
}

TEST(StepRegistryTest, KeepsDoubleAndEmptyNamesForTheStartAndReportsAllAtOnce) {
  EXPECT_TRUE(StepRegistry::Validate().ok());
  const Step again("add", ThrowStep), third("throw", ThrowStep), nameless("", ThrowStep);
  const absl::Status status = StepRegistry::Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("\"add\""));
  EXPECT_THAT(status.message(), HasSubstr("\"throw\""));
  EXPECT_THAT(status.message(), HasSubstr("empty"));
  EXPECT_EQ(StepRegistry::Find("add")->num_args, 2);  // the first one stays
}

TEST(EmptyBatchTest, HasNoExamplesButTheSameStructure) {
  const SparseIds ids{Ints({1, 2, 3}), Ints({0, 2, 3}), Floats({1, 1, 1})};
  const auto empty = EmptyBatchLike(Nest{{"x", Floats({2, 3}, std::vector<float>(6))},
                                         {"ids", Nest(ids)},
                                         {"list", Nest(Nest::List{Nest(Ints({1, 2}))})}});
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ((*empty)["x"].tensor()->shape(), Shape({0, 3}));
  const auto sparse = (*empty)["ids"].sparse_ids();
  EXPECT_TRUE(Validate(*sparse).ok());
  EXPECT_EQ(sparse->row_splits.shape(), Shape({1}));
  EXPECT_EQ((*empty)["list"][0].tensor()->shape(), Shape({0}));
  EXPECT_THAT(EmptyBatchLike(Nest(1.0f)).status().message(), HasSubstr(".Batch(n)"));
}

// ---- the coordinator's templates ----------------------------------------------------------------

class ReadyResult : public internal::RemoteResult {
 public:
  explicit ReadyResult(absl::StatusOr<Nest> value) : value_(std::move(value)) {}
  RemoteState state() const override {
    return value_.ok() ? RemoteState::kReady : RemoteState::kFailed;
  }
  absl::StatusOr<Nest> Fetch(absl::Duration) const override { return value_; }

 private:
  absl::StatusOr<Nest> value_;
};

// Runs each step at once, in this thread.
class ImmediateCoordinator : public Coordinator {
 public:
  Strategy& strategy() override { return environment_.strategy(); }
  absl::Status Join(absl::Duration) override { return absl::OkStatus(); }
  absl::StatusOr<bool> Done() override { return true; }
  int64_t epoch() const override { return 0; }
  int64_t step() const override { return 0; }
  absl::StatusOr<int64_t> RestoreLatest(absl::Duration) override { return 0; }
  void SetProgramState(std::string) override {}
  std::string program_state() const override { return ""; }
  int64_t durable_steps() const override { return 0; }
  absl::StatusOr<std::string> SaveCheckpoint(absl::Duration) override {
    return absl::FailedPreconditionError("no checkpoints here");
  }
  absl::Status Export(absl::string_view, const ExportOptions&) override {
    return absl::FailedPreconditionError("no checkpoints here");
  }
  absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(const BoundDataSource& source) override {
    return PerWorkerDataset(source, {&environment_.strategy(), [](Strategy*) {}},
                            [this] { return Iterator(PerWorkerHandle{++iterators_}); });
  }
  void SetLearningRateScale(double) override {}
  absl::Status Report(absl::string_view, int64_t, const Metrics&) override {
    return absl::OkStatus();
  }

  std::vector<internal::StepLoop> loops;

 protected:
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(absl::string_view name,
                                                                             StepKind,
                                                                             Nest args) override {
    return std::make_shared<const ReadyResult>(RunNamed(name, environment_, args));
  }
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStepOnce(
      absl::string_view, int64_t, absl::string_view, StepKind, Nest) override {
    return absl::UnimplementedError("not in this fake");
  }
  internal::TrainerSupport& trainer_support() override { return support_; }
  absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) override {
    loops.push_back(loop);
    return Metrics();
  }

 private:
  // This test does not train.
  class NoSupport : public internal::TrainerSupport {
   public:
    absl::StatusOr<int64_t> RestoreUnlessBegun(absl::Duration) override { return 0; }
    int64_t TakeRestoredEpochs(int64_t) override { return 0; }
    int64_t TakeRestoredSteps(int64_t) override { return 0; }
    void SetGoal(int64_t) override {}
    std::string event_directory() const override { return ""; }
  };
  NoSupport support_;
  FakeEnvironment environment_;
  uint64_t iterators_ = 0;
};

TEST(CoordinatorTest, ScheduleEncodesAndFetchDecodes) {
  ImmediateCoordinator coordinator;
  const auto sum = coordinator.Schedule(kAdd, 5, "abc");
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->state(), RemoteValue<int64_t>::State::kReady);
  EXPECT_EQ(*sum->Fetch(), 5 + 3 + 7 + 1);
  const auto thrown = coordinator.Schedule(kThrow);
  EXPECT_EQ(thrown->state(), RemoteState::kFailed);
  EXPECT_EQ(thrown->Fetch().code(), absl::StatusCode::kUnknown);
  const auto all = FetchAll<int64_t>({*sum, *sum});
  EXPECT_EQ(all->size(), 2);
  EXPECT_EQ(FetchAll<void>({*thrown}).code(), absl::StatusCode::kUnknown);
}

// Becomes ready after `after`, and records the timeouts of Fetch.
class LateResult : public internal::RemoteResult {
 public:
  explicit LateResult(absl::Duration after) : after_(after) {}
  RemoteState state() const override { return RemoteState::kNotReady; }
  absl::StatusOr<Nest> Fetch(absl::Duration timeout) const override {
    timeout_ = timeout;
    MutexLock lock(mu_);
    never_.WaitFor(mu_, after_, [] { return false; });
    return Nest();
  }
  absl::Duration timeout() const { return timeout_; }

 private:
  const absl::Duration after_;
  mutable absl::Duration timeout_;
  mutable Mutex mu_;
  mutable CondVar never_;
};

TEST(FetchAllTest, TheTimeoutIsThatOfAllValuesTogether) {
  const auto first = std::make_shared<LateResult>(absl::Milliseconds(5)),
             second = std::make_shared<LateResult>(absl::ZeroDuration());
  EXPECT_TRUE(
      FetchAll<void>({RemoteValue<void>(first), RemoteValue<void>(second)}, absl::Hours(1)).ok());
  EXPECT_LE(first->timeout(), absl::Hours(1));
  EXPECT_LE(second->timeout(), absl::Hours(1) - absl::Milliseconds(5));
  EXPECT_TRUE(FetchAll<void>({RemoteValue<void>(first)}).ok());
  EXPECT_EQ(first->timeout(), absl::InfiniteDuration());
}

template <typename T, typename = void>
struct ShowsTheTrainersCalls : std::false_type {};
template <typename T>
struct ShowsTheTrainersCalls<T, std::void_t<decltype(&T::RestoreUnlessBegun)>> : std::true_type {};
template <typename T, typename = void>
struct ShowsItsSupport : std::false_type {};
template <typename T>
struct ShowsItsSupport<T, std::void_t<decltype(&T::trainer_support)>> : std::true_type {};

TEST(CoordinatorTest, WhatATrainerAsksForIsNoCallOfAProgram) {
  static_assert(!ShowsTheTrainersCalls<Coordinator>::value);
  static_assert(!ShowsItsSupport<Coordinator>::value);
  ImmediateCoordinator coordinator;
  EXPECT_EQ(internal::SupportOf(coordinator).event_directory(), "");
}

TEST(CoordinatorTest, IteratorsAreArguments) {
  ImmediateCoordinator coordinator;
  const auto dataset = coordinator.CreatePerWorkerDataset(BoundDataSource("numbers", Nest()));
  const Iterator first = dataset->MakeIterator(), second = dataset->MakeIterator();
  EXPECT_NE(first.id(), second.id());
  const auto result = coordinator.Schedule(kCount, second, std::vector<float>{1});
  EXPECT_TRUE(IsEndOfData(result->Fetch()));
}

TEST(CoordinatorTest, LoopsCarryTheArgumentsAfterTheIterator) {
  ImmediateCoordinator coordinator;
  const BoundDataSource data("numbers", Nest());
  ASSERT_TRUE(coordinator.RunEpoch(kEpoch, data, 0.5).ok());
  ASSERT_TRUE(coordinator.RunUntil(100, kEpoch, data, 0.5).ok());
  EXPECT_EQ(coordinator.loops[0].step, "epoch");
  EXPECT_FALSE(coordinator.loops[0].last_step.has_value());
  EXPECT_EQ(*NestCodec<double>::Decode(coordinator.loops[0].args[0]), 0.5);
  EXPECT_EQ(coordinator.loops[1].last_step, 100);
  EXPECT_EQ(coordinator.RunUntil(100, kEvaluate, data, 0.5).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Whether coordinator.Schedule(step, args...) compiles.
template <typename StepType, typename... Args>
auto Schedules(int)
    -> decltype(std::declval<Coordinator&>().Schedule(std::declval<const StepType&>(),
                                                      std::declval<Args>()...),
                std::true_type());
template <typename StepType, typename... Args>
std::false_type Schedules(long);

using AddType = Step<int64_t(int64_t, std::string)>;
// tests/api/refused_test.py checks that the compiler refuses conversions that would change a value,
// and checks its messages.
TEST(ArgumentTest, KeepsItsValueOrIsRefused) {
  using internal::KeepsItsValue;
  static_assert(KeepsItsValue<int64_t, int>::value);
  static_assert(KeepsItsValue<double, int>::value);
  static_assert(KeepsItsValue<double, float>::value);
  static_assert(KeepsItsValue<bool, bool>::value);
  static_assert(KeepsItsValue<int64_t, StepKind>::value, "an enum is its number");
  static_assert(KeepsItsValue<std::string, const char*>::value);
  static_assert(KeepsItsValue<std::optional<double>, std::nullopt_t>::value);
  static_assert(KeepsItsValue<std::pair<int64_t, double>, std::pair<int, float>>::value);
  static_assert(!KeepsItsValue<int64_t, double>::value);
  static_assert(!KeepsItsValue<int64_t, uint64_t>::value);
  static_assert(!KeepsItsValue<uint64_t, int>::value);
  static_assert(!KeepsItsValue<int32_t, int64_t>::value);
  static_assert(!KeepsItsValue<int64_t, bool>::value);
  static_assert(!KeepsItsValue<bool, int>::value);
  static_assert(!KeepsItsValue<bool, const char*>::value);
  static_assert(!KeepsItsValue<float, double>::value);
  static_assert(!KeepsItsValue<float, int>::value, "16,777,217 is no float");
  static_assert(!KeepsItsValue<double, int64_t>::value);
  static_assert(!KeepsItsValue<std::optional<int>, double>::value);
  static_assert(!KeepsItsValue<std::optional<int>, std::optional<double>>::value);
  static_assert(!KeepsItsValue<std::tuple<int64_t, bool>, std::tuple<int, int>>::value);
}

TEST(CoordinatorTest, AWrongArgumentDoesNotCompile) {
  static_assert(decltype(Schedules<AddType, int, const char*>(0))::value);
  static_assert(!decltype(Schedules<AddType, int>(0))::value, "an argument too few");
  static_assert(!decltype(Schedules<AddType, int, int*>(0))::value, "another type");
  static_assert(!decltype(Schedules<AddType, RemoteValue<int64_t>, std::string>(0))::value,
                "a RemoteValue: fetch it first");
  static_assert(!decltype(Schedules<absl::StatusOr<int> (*)(WorkerContext&), int>(0))::value,
                "a function that has no name in other processes");
}

TEST(IteratorTest, IsReleasedWithItsLastHandle) {
  bool closed = false;
  {
    const std::shared_ptr<const PerWorkerHandle> handle(new PerWorkerHandle{3},
                                                        [&](const PerWorkerHandle* gone) {
                                                          closed = true;
                                                          delete gone;
                                                        });
    const Iterator iterator(handle);
    const Iterator copy = iterator;
    EXPECT_EQ(copy.id(), 3);
    EXPECT_FALSE(closed);
  }
  EXPECT_TRUE(closed);
}

// ---- programs -----------------------------------------------------------------------------------

absl::Status Train(Coordinator&) { return absl::AlreadyExistsError("ran"); }

TEST(ProgramTest, IsFoundOnceAndOnlyOne) {
  EXPECT_THAT(FindProgram().status().message(), HasSubstr("DIVVY_PROGRAM"));
  const Program program(Train);
  ImmediateCoordinator coordinator;
  const auto found = FindProgram();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->train(coordinator), absl::AlreadyExistsError("ran"));
  const Program second(Train);
  EXPECT_THAT(FindProgram().status().message(), HasSubstr("there are 2 programs"));
}

TEST(StrategyOptionsTest, TheRunnersCutByMinSizeWithAsManyShardsAsParameterServers) {
  const StrategyOptions options = runner::ParameterServerStrategy(1024);
  EXPECT_TRUE(options.problem.ok());
  EXPECT_EQ(*options.partitioner(3)({1000, 8}, DType::kFloat32), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(*options.partitioner(3)({20, 8}, DType::kFloat32), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(*runner::ParameterServerStrategy().partitioner(2)({1000, 8}, DType::kFloat32),
            (std::vector<int64_t>{1, 1}));
}

TEST(StrategyOptionsTest, AMinimumBelowOneByteIsAProblemAtStart) {
  for (int64_t bad : {0, -5}) {
    const absl::Status problem = runner::ParameterServerStrategy(bad).problem;
    EXPECT_EQ(problem.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(problem.message(), HasSubstr("leave it out for the default"));
  }
}

}  // namespace
}  // namespace divvy
