#include "worker/core/step_transaction.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "worker/core/ps_answer.h"
#include "worker/core/read_set.h"
#include "worker/core/staged_values.h"
#include "worker/core/testing/fake_parameter_servers.h"

namespace divvy {
namespace {

using Values = std::vector<float>;
Tensor Matrix(int64_t rows, int64_t width, const Values& values) {
  return *Tensor::Copy<float>(Shape{rows, width}, values);
}
Tensor Ids(const std::vector<int64_t>& ids) {
  return Tensor::Vector<int64_t>(absl::MakeConstSpan(ids));
}
Values Flat(const Tensor& tensor) {
  return Values(tensor.values<float>()->begin(), tensor.values<float>()->end());
}
StagedWrite Write(std::string variable, WriteOp op, Tensor value) {
  return {std::move(variable), op, std::move(value), std::nullopt, std::nullopt};
}
StagedWrite WriteRows(std::string variable, WriteOp op, Tensor ids, Tensor rows) {
  return {std::move(variable), op, std::move(rows), std::move(ids), std::nullopt};
}

// ---- JudgePsAnswer ------------------------------------------------------------------------------

TEST(JudgePsAnswerTest, TellsWhatToDoAboutEachReason) {
  const auto judge = [](Reason reason) { return JudgePsAnswer(MakeError(reason, "x")); };
  EXPECT_EQ(JudgePsAnswer(absl::OkStatus()), PsAnswer::kDone);
  EXPECT_EQ(judge(Reason::kNotReady), PsAnswer::kSendAgain);
  EXPECT_EQ(judge(Reason::kNotAttached), PsAnswer::kSendAgain);
  EXPECT_EQ(judge(Reason::kWrongIncarnation), PsAnswer::kSendAgain);
  EXPECT_EQ(judge(Reason::kSessionFenced), PsAnswer::kSessionOver);
  EXPECT_EQ(judge(Reason::kStepClosed), PsAnswer::kSessionOver);
  EXPECT_EQ(judge(Reason::kStaleEpoch), PsAnswer::kSessionOver);
  EXPECT_EQ(judge(Reason::kUnknownShard), PsAnswer::kRefused);
  EXPECT_EQ(judge(Reason::kBadCommit), PsAnswer::kRefused);
  EXPECT_EQ(judge(Reason::kInvalid), PsAnswer::kRefused);
}

TEST(JudgePsAnswerTest, AFaultOfTheWayIsNeverFinalWhateverItsCode) {
  EXPECT_EQ(JudgePsAnswer(absl::UnavailableError("reset")), PsAnswer::kSendAgain);
  EXPECT_EQ(JudgePsAnswer(absl::DeadlineExceededError("slow")), PsAnswer::kSendAgain);
  EXPECT_EQ(JudgePsAnswer(absl::InternalError("transport")), PsAnswer::kSendAgain);
}

// ---- ReadSets -----------------------------------------------------------------------------------

TEST(ReadSetsTest, PredictsWhatWasReadTheLastTimeAndDropsWhatWasNot) {
  ReadSets sets;
  EXPECT_TRUE(sets.Predict("train", 1).empty());
  sets.Learn("train", 1, {"b", "a"});
  EXPECT_EQ(sets.Predict("train", 1), std::vector<std::string>({"a", "b"}));
  EXPECT_TRUE(sets.Predict("evaluate", 1).empty());
  sets.Learn("train", 1, {"b"});
  EXPECT_EQ(sets.Predict("train", 1), std::vector<std::string>({"b"}));
}

TEST(ReadSetsTest, AnotherLayoutIsLearntAnew) {
  ReadSets sets;
  sets.Learn("train", 1, {"a"});
  EXPECT_TRUE(sets.Predict("train", 2).empty());
}

TEST(ReadSetsTest, WhatWasAssignedOnceIsNotPredictedAheadUnderThatLayoutByAnyFunction) {
  ReadSets sets;
  sets.Learn("train", 1, {"a", "b"}, {"a"});
  sets.Learn("train", 1, {"a", "b"});
  sets.Learn("other", 1, {"a"});
  EXPECT_EQ(sets.PredictAhead("train", 1), std::vector<std::string>({"b"}));
  EXPECT_TRUE(sets.PredictAhead("other", 1).empty());
  EXPECT_EQ(sets.Predict("train", 1), std::vector<std::string>({"a", "b"}));
  sets.Learn("train", 2, {"a"});
  EXPECT_EQ(sets.PredictAhead("train", 2), std::vector<std::string>({"a"}));
}

// ---- AfterWrites --------------------------------------------------------------------------------

TEST(AfterWritesTest, TheBaseItselfIsNeverChanged) {
  const Tensor base = Matrix(2, 1, {1, 2});
  EXPECT_EQ(Flat(*AfterWrites({"v", std::nullopt}, base,
                              {Write("v", WriteOp::kAdd, Matrix(2, 1, {10, 20}))})),
            Values({11, 22}));
  EXPECT_EQ(Flat(base), Values({1, 2}));
}

TEST(AfterWritesTest, ArithmeticOnBoolIsRefusedAndAssignIsNot) {
  const Tensor base = Tensor::Vector<bool>({true, false});
  const Tensor value = Tensor::Vector<bool>({false, false});
  EXPECT_EQ(
      AfterWrites({"v", std::nullopt}, base, {Write("v", WriteOp::kAdd, value)}).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(BitwiseEqual(
      *AfterWrites({"v", std::nullopt}, base, {Write("v", WriteOp::kAssign, value)}), value));
}

TEST(AfterWritesTest, IntegersWrapAndDivideByZeroToZeroAsOnAPs) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  const Tensor base = *Tensor::Copy<int32_t>(Shape{3, 1}, std::vector<int32_t>({7, least, least}));
  const StagedWrite divide =
      WriteRows("v", WriteOp::kScatterDiv, Ids({0, 1}),
                *Tensor::Copy<int32_t>(Shape{2, 1}, std::vector<int32_t>({0, -1})));
  const StagedWrite subtract =
      WriteRows("v", WriteOp::kScatterSub, Ids({2}),
                *Tensor::Copy<int32_t>(Shape{1, 1}, std::vector<int32_t>({1})));
  const Tensor result = *AfterWrites({"v", std::nullopt}, base, {divide, subtract});
  EXPECT_EQ(result.data_as<int32_t>()[0], 0);
  EXPECT_EQ(result.data_as<int32_t>()[1], least);
  EXPECT_EQ(result.data_as<int32_t>()[2], std::numeric_limits<int32_t>::max());
}

TEST(AfterWritesTest, HalvesAreComputedInFloat) {
  const Tensor one = Tensor::Scalar(Half::FromFloat(1.5f));
  EXPECT_EQ(AfterWrites({"v", std::nullopt}, one, {Write("v", WriteOp::kAdd, one)})
                ->data_as<Half>()
                ->ToFloat(),
            3.0f);
}

TEST(AfterWritesTest, ACountingScalarIsSeen) {
  const Tensor one = Tensor::Scalar<int64_t>(1);
  const std::vector<StagedWrite> twice = {Write("v", WriteOp::kAdd, one),
                                          Write("v", WriteOp::kAdd, one)};
  EXPECT_EQ(
      *AfterWrites({"v", std::nullopt}, Tensor::Scalar<int64_t>(40), twice)->scalar<int64_t>(), 42);
}

// The trivial model: apply every write to the whole array, then pick the requested rows.
TEST(AfterWritesTest, ReadingRowsAfterWritesIsReadingThemFromTheWrittenWhole) {
  const std::vector<WriteOp> sparse = {WriteOp::kScatterUpdate, WriteOp::kScatterAdd,
                                       WriteOp::kScatterSub,    WriteOp::kScatterMul,
                                       WriteOp::kScatterMin,    WriteOp::kScatterMax};
  const std::vector<WriteOp> dense = {WriteOp::kAssign, WriteOp::kAdd, WriteOp::kSub};
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const int64_t rows = 1 + random.Below(5), width = 1 + random.Below(2);
    const auto any_rows = [&](int64_t n) {
      Values values;
      for (int64_t i = 0; i < n * width; ++i)
        values.push_back(static_cast<float>(random.Below(7)) - 3);
      return Matrix(n, width, values);
    };
    const auto any_ids = [&] {
      std::vector<int64_t> ids;
      for (int n = random.Below(5); n > 0; --n) ids.push_back(random.Below(rows));
      return Ids(ids);
    };
    const Tensor base = any_rows(rows);
    std::vector<StagedWrite> writes;
    for (int n = random.Below(5); n > 0; --n) {
      if (random.Chance(0.3)) {
        writes.push_back(Write("v", dense[random.Below(dense.size())], any_rows(rows)));
      } else {
        const Tensor ids = any_ids();
        writes.push_back(
            WriteRows("v", sparse[random.Below(sparse.size())], ids, any_rows(ids.shape().dim(0))));
      }
    }
    Values whole = Flat(base);
    for (const StagedWrite& write : writes) {
      const Values values = Flat(write.value);
      for (size_t i = 0; i < values.size(); ++i) {
        float& old =
            whole[write.ids ? write.ids->data_as<int64_t>()[i / width] * width + i % width : i];
        switch (write.op) {
          case WriteOp::kAdd:
          case WriteOp::kScatterAdd: old += values[i]; break;
          case WriteOp::kSub:
          case WriteOp::kScatterSub: old -= values[i]; break;
          case WriteOp::kScatterMul: old *= values[i]; break;
          case WriteOp::kScatterMin: old = std::min(old, values[i]); break;
          case WriteOp::kScatterMax: old = std::max(old, values[i]); break;
          default: old = values[i];
        }
      }
    }
    ASSERT_EQ(Flat(*AfterWrites({"v", std::nullopt}, base, writes)), whole);
    const Tensor asked = any_ids();
    Values expected, base_rows;
    const absl::Span<const int64_t> asked_ids = *asked.values<int64_t>();
    for (const int64_t id : asked_ids) {
      expected.insert(expected.end(), whole.begin() + id * width, whole.begin() + (id + 1) * width);
      base_rows.insert(base_rows.end(), base.data_as<float>() + id * width,
                       base.data_as<float>() + (id + 1) * width);
    }
    ASSERT_EQ(
        Flat(*AfterWrites({"v", asked}, Matrix(asked.shape().dim(0), width, base_rows), writes)),
        expected);
  }
}

// ---- WorkerTransaction --------------------------------------------------------------------------

class WorkerTransactionTest : public ::testing::Test {
 protected:
  WorkerTransactionTest() : ps_(executor_, 2) {
    layout_ = Layout::Empty()
                  ->With(MakeVariable(1, "w", 4, 1, {0, 1}, Sgd{0.1}))
                  ->With(MakeVariable(2, "b", 2, 1, {1}, Sgd{0.1}));
    ps_.Make(*layout_);
    ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {1, 2}));
    ps_[1].Set({VariableId(1), 0, 1}, Matrix(2, 1, {3, 4}));
    links_ = std::make_shared<SessionLinks>();
    links_->fence.session = SessionId(7);
    for (const PsAddress& ps : ps_.view())
      links_->ps[ps.index] = {ps_.client(ps.index), ps.incarnation};
    Make();
  }

  void Make(bool read_only = false, bool check_numerics = false) {
    WorkerTransaction::Options options{
        links_,         layout_, read_only,
        check_numerics, 1,       [this](const absl::Status&) { ++sessions_over_; }};
    options.at_once_bytes = at_once_bytes_;
    transaction_ =
        std::make_shared<WorkerTransaction>(std::move(options), executor_, executor_.clock());
  }

  // The place of a Pull's answer.
  using Answer = std::shared_ptr<std::optional<absl::StatusOr<std::vector<Tensor>>>>;
  Answer Begin(std::vector<VariableRead> reads) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<std::vector<Tensor>>>>();
    transaction_->Pull(std::move(reads), [answer](absl::StatusOr<std::vector<Tensor>> values) {
      ASSERT_FALSE(answer->has_value()) << "answered twice";
      *answer = std::move(values);
    });
    return answer;
  }
  absl::StatusOr<std::vector<Tensor>> Pull(std::vector<VariableRead> reads) {
    const Answer answer = Begin(std::move(reads));
    executor_.RunFor(absl::Minutes(1));
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer");
    return **answer;
  }
  Values PullOne(std::string variable, std::optional<Tensor> ids = {}) {
    const auto values = Pull({{std::move(variable), std::move(ids)}});
    return values.ok() ? Flat((*values)[0]) : Values{-999};
  }
  size_t pulls() { return ps_[0].pulls().size() + ps_[1].pulls().size(); }

  int64_t at_once_bytes_ = 1 << 20;
  SimExecutor executor_{1};
  FakeParameterServers ps_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<SessionLinks> links_;
  std::shared_ptr<WorkerTransaction> transaction_;
  int sessions_over_ = 0;
};

// Every value counts as large here, and the threads that copy values are held.
class LargeTransactionTest : public WorkerTransactionTest {
 protected:
  LargeTransactionTest() {
    at_once_bytes_ = 0;
    Make();
    executor_.HoldThreads();
  }
};

TEST_F(LargeTransactionTest, NobodyWaitsForWhatIsAssembled) {
  const Answer answer = Begin({{"w", std::nullopt}, {"b", Ids({1})}});
  ASSERT_TRUE(transaction_->waiting().has_value());
  executor_.RunFor(absl::Seconds(1));
  EXPECT_FALSE(answer->has_value());
  EXPECT_FALSE(transaction_->waiting().has_value()) << "every ps has answered";
  EXPECT_TRUE(transaction_->Stage({Write("w", WriteOp::kAdd, Matrix(4, 1, {1, 1, 1, 1}))}).ok());
  executor_.ReleaseThreads();
  executor_.RunFor(absl::Seconds(1));
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_EQ(Flat((***answer)[0]), Values({1, 2, 3, 4})) << "the value at the time of the pull";
}

TEST_F(LargeTransactionTest, TheStepsOwnWritesAreAddedWithoutTheLock) {
  executor_.ReleaseThreads();
  ASSERT_TRUE(
      transaction_->Stage({Write("w", WriteOp::kAdd, Matrix(4, 1, {10, 10, 10, 10}))}).ok());
  EXPECT_EQ(PullOne("w"), Values({11, 12, 13, 14}));
  EXPECT_EQ(PullOne("w", Ids({3, 0})), Values({14, 11}));
}

TEST_F(LargeTransactionTest, ACancelAnswersWhatIsStillBeingAssembledOnce) {
  const Answer answer = Begin({{"w", std::nullopt}});
  executor_.RunFor(absl::Seconds(1));
  transaction_->Cancel();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kCancelled);
  executor_.ReleaseThreads();
  executor_.RunFor(absl::Seconds(1));
}

TEST_F(LargeTransactionTest, AReplyThatDoesNotFitFailsThePull) {
  executor_.ReleaseThreads();
  ps_[1].Set({VariableId(1), 0, 1}, Matrix(9, 1, Values(9, 1)));
  EXPECT_EQ(Pull({{"w", std::nullopt}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerTransactionTest, PutsWholeVariablesTogetherFromOneMessageToEachPs) {
  const auto values = Pull({{"w", std::nullopt}, {"b", std::nullopt}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(Flat((*values)[0]), Values({1, 2, 3, 4}));
  EXPECT_EQ((*values)[1].shape(), (Shape{2, 1}));
  EXPECT_EQ(ps_[0].pulls().size(), 1u);
  EXPECT_EQ(ps_[1].pulls().size(), 1u);
  EXPECT_EQ(ps_[1].pulls()[0].fence.session, SessionId(7));
  EXPECT_EQ(ps_[1].pulls()[0].fence.target, Incarnation(101));
}

TEST_F(WorkerTransactionTest, RowsComeInTheOrderAsked) {
  EXPECT_EQ(PullOne("w", Ids({3, 0, 3})), Values({4, 1, 4}));
}

TEST_F(WorkerTransactionTest, NoRowsAreAnsweredWithoutAMessage) {
  EXPECT_EQ(PullOne("w", Ids({})), Values());
  EXPECT_EQ(pulls(), 0u);
}

TEST_F(WorkerTransactionTest, AVariableReadWholeTravelsOnceAndHasOneValueForTheStep) {
  const Answer first = Begin({{"b", std::nullopt}}), second = Begin({{"b", std::nullopt}});
  executor_.RunUntilIdle();
  ps_[1].Set({VariableId(2), 0, 0}, Matrix(2, 1, {8, 9}));
  EXPECT_EQ(PullOne("b"), Values({0, 0}));
  EXPECT_EQ(Flat((**first)->at(0)), Values({0, 0}));
  EXPECT_EQ(Flat((**second)->at(0)), Values({0, 0}));
  EXPECT_EQ(pulls(), 1u);
}

TEST_F(WorkerTransactionTest, WhatWasPredictedIsThereWithoutAnotherMessage) {
  transaction_->Prefetch({"w", "no such variable"});
  executor_.RunUntilIdle();
  EXPECT_EQ(pulls(), 2u);
  EXPECT_EQ(PullOne("w"), Values({1, 2, 3, 4}));
  EXPECT_EQ(pulls(), 2u);
  EXPECT_EQ(transaction_->Finish().read_whole, std::set<std::string>({"w"}));
}

TEST_F(WorkerTransactionTest, WhatWasPulledAheadIsToldWhenItComesUnlessTheStepWaitsForIt) {
  std::vector<std::string> told;
  const auto take = [&told](const std::vector<WholeValue>& values) {
    for (const WholeValue& whole : values)
      told.push_back(whole.variable + std::to_string(static_cast<int>(Flat(whole.value)[0])));
  };
  transaction_->Prefetch({"w"}, /*ahead=*/true);
  executor_.RunUntilIdle();
  transaction_->TellAhead(take);
  EXPECT_EQ(told, std::vector<std::string>({"w1"})) << "w1 had arrived already";
  transaction_->Prefetch({"b"}, /*ahead=*/true);
  executor_.RunUntilIdle();
  EXPECT_EQ(told, std::vector<std::string>({"w1", "b0"}));

  Make();
  transaction_->Prefetch({"w"}, /*ahead=*/true);
  transaction_->TellAhead(take);
  EXPECT_EQ(PullOne("w"), Values({1, 2, 3, 4}));
  EXPECT_EQ(told.size(), 2u) << "a value that the step waits for is not reported";

  Make();
  transaction_->Prefetch({"w"}, /*ahead=*/true);
  transaction_->TellAhead(take);
  transaction_->Cancel();
  executor_.RunUntilIdle();
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(WorkerTransactionTest, WhatWasPredictedAndNotReadIsNotInTheRecord) {
  transaction_->Prefetch({"w"});
  executor_.RunUntilIdle();
  EXPECT_TRUE(transaction_->Finish().read_whole.empty());
}

TEST_F(WorkerTransactionTest, SeesItsOwnAssignsWithoutAMessageAndAddsAndScattersOverWhatIsThere) {
  ASSERT_TRUE(transaction_->Stage({Write("b", WriteOp::kAssign, Matrix(2, 1, {5, 6}))}).ok());
  EXPECT_EQ(PullOne("b"), Values({5, 6}));
  EXPECT_EQ(PullOne("b", Ids({1})), Values({6}));
  EXPECT_EQ(pulls(), 0u);
  ASSERT_TRUE(
      transaction_
          ->Stage({WriteRows("w", WriteOp::kScatterAdd, Ids({3, 3}), Matrix(2, 1, {10, 10}))})
          .ok());
  EXPECT_EQ(PullOne("w", Ids({3, 2})), Values({24, 3}));
  EXPECT_EQ(PullOne("w"), Values({1, 2, 3, 24}));
}

TEST_F(WorkerTransactionTest, APullSeesTheWritesStagedBeforeItNotThoseAfter) {
  const Answer before = Begin({{"b", std::nullopt}});
  ASSERT_TRUE(transaction_->Stage({Write("b", WriteOp::kAdd, Matrix(2, 1, {1, 1}))}).ok());
  executor_.RunUntilIdle();
  EXPECT_EQ(Flat((**before)->at(0)), Values({0, 0}));
  EXPECT_EQ(PullOne("b"), Values({1, 1}));
}

TEST_F(WorkerTransactionTest, ReadingAfterAGradientIsRefused) {
  ASSERT_TRUE(transaction_->Stage({Write("b", WriteOp::kGradient, Matrix(2, 1, {1, 1}))}).ok());
  const auto values = Pull({{"w", std::nullopt}, {"b", std::nullopt}});
  EXPECT_EQ(values.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(values.status().message(), "\"b\"")) << values.status();
  EXPECT_EQ(PullOne("w"), Values({1, 2, 3, 4}));
}

TEST_F(WorkerTransactionTest,
       ASecondGradientIsRefusedAlsoWithinOneCallAndNothingOfThatCallIsStaged) {
  const StagedWrite gradient = Write("b", WriteOp::kGradient, Matrix(2, 1, {1, 1}));
  EXPECT_EQ(transaction_->Stage({gradient, gradient}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(transaction_->Stage({gradient}).ok());
  EXPECT_EQ(transaction_->Stage({gradient}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(transaction_->Finish().writes.size(), 1u);
}

TEST_F(WorkerTransactionTest, WhatAPsCouldRefuseIsRefusedWhenStagedAllOrNothing) {
  const StagedWrite good = Write("b", WriteOp::kAssign, Matrix(2, 1, {5, 6}));
  EXPECT_EQ(transaction_->Stage({good, Write("bb", WriteOp::kAssign, Matrix(2, 1, {5, 6}))}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(transaction_->Stage({good, Write("b", WriteOp::kAssign, Matrix(1, 1, {5}))}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      transaction_->Stage({good, WriteRows("b", WriteOp::kScatterAdd, Ids({2}), Matrix(1, 1, {5}))})
          .code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(transaction_->Finish().writes.empty());
}

TEST_F(WorkerTransactionTest, AReadOnlyStepStagesNothing) {
  Make(/*read_only=*/true);
  EXPECT_EQ(transaction_->Stage({Write("b", WriteOp::kAssign, Matrix(2, 1, {5, 6}))}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PullOne("w"), Values({1, 2, 3, 4}));
}

TEST_F(WorkerTransactionTest, ValuesThatAreNotFiniteAreRefusedWhereNumericsAreChecked) {
  const StagedWrite bad =
      Write("b", WriteOp::kGradient, Matrix(2, 1, {1, std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_TRUE(transaction_->Stage({bad}).ok());
  Make(false, /*check_numerics=*/true);
  const absl::Status status = transaction_->Stage({bad});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "element 1 is nan")) << status;
}

TEST_F(WorkerTransactionTest, BadReadsAreRefusedAtOnce) {
  EXPECT_EQ(Pull({{"x", std::nullopt}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Pull({{"w", Ids({4})}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pulls(), 0u);
}

TEST_F(WorkerTransactionTest, ARefusalNamesItsPsAlsoWhereThePsDoesNot) {
  ps_[1].RefusePulls({MakeError(Reason::kInvalid, "so it says"),
                      MakeError(Reason::kInvalid, "ps 1: no such shard")});
  EXPECT_EQ(Pull({{"w", std::nullopt}}).status().message(), "ps 1 refused a pull: so it says");
  EXPECT_EQ(Pull({{"b", std::nullopt}}).status().message(), "ps 1: no such shard");
}

TEST_F(WorkerTransactionTest, APsThatCannotBeReachedIsWaitedForAndAskedAgain) {
  ps_[1].RefusePulls({absl::UnavailableError("connection refused"),
                      MakeError(Reason::kNotReady, "loading"),
                      MakeError(Reason::kWrongIncarnation, "new")});
  const Answer answer = Begin({{"w", std::nullopt}});
  executor_.RunFor(absl::Milliseconds(50));
  EXPECT_FALSE(answer->has_value());
  ASSERT_TRUE(transaction_->waiting().has_value());
  EXPECT_EQ(transaction_->waiting()->ps, 1);
  executor_.RunFor(absl::Seconds(5));
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(Flat((**answer)->at(0)), Values({1, 2, 3, 4}));
  EXPECT_EQ(ps_[0].pulls().size(), 1u) << "a ps that has answered is not asked again";
  EXPECT_EQ(ps_[1].pulls().size(), 4u);
  EXPECT_FALSE(transaction_->waiting().has_value());
}

TEST_F(WorkerTransactionTest, ARefusalThatCannotHappenReachesTheStepAndTheNextPullTriesAnew) {
  ps_[1].RefusePulls({MakeError(Reason::kUnknownShard, "no such shard")});
  EXPECT_EQ(Pull({{"w", std::nullopt}}).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(PullOne("w"), Values({1, 2, 3, 4}));
}

TEST_F(WorkerTransactionTest, AFencedSessionIsToldToTheCoreAndTheStepWaitsForItsVerdict) {
  ps_[0].RefusePulls({MakeError(Reason::kSessionFenced, "fenced")});
  const Answer answer = Begin({{"w", std::nullopt}});
  executor_.RunFor(absl::Minutes(1));
  EXPECT_EQ(sessions_over_, 1);
  EXPECT_FALSE(answer->has_value());
  transaction_->Cancel();
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kCancelled);
}

TEST_F(WorkerTransactionTest, ACancelAnswersWhatWaitsAndRefusesWhatComes) {
  ps_[0].Hold();
  const Answer answer = Begin({{"w", std::nullopt}});
  executor_.RunUntilIdle();
  EXPECT_FALSE(transaction_->cancelled());
  transaction_->Cancel();
  EXPECT_TRUE(transaction_->cancelled());
  EXPECT_EQ((*answer)->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Pull({{"b", std::nullopt}}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(transaction_->Stage({}).code(), absl::StatusCode::kCancelled);
  ps_[0].Release();
  executor_.RunUntilIdle();  // the late answer is dropped
}

TEST_F(WorkerTransactionTest, AfterTheEndEverythingIsRefused) {
  ps_[0].Hold();
  const Answer late = Begin({{"w", std::nullopt}});
  ASSERT_TRUE(transaction_->Stage({Write("b", WriteOp::kAssign, Matrix(2, 1, {5, 6}))}).ok());
  const StepRecord record = transaction_->Finish();
  EXPECT_EQ(record.writes.size(), 1u);
  EXPECT_EQ((*late)->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(transaction_->Stage({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Pull({{"b", std::nullopt}}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerTransactionTest, TheRecordHoldsTheVersionOfEachShardWhenFirstRead) {
  PullOne("w", Ids({3}));
  ps_[1].Set({VariableId(1), 0, 1}, Matrix(2, 1, {3, 4}));
  PullOne("w", Ids({3}));
  const StepRecord record = transaction_->Finish();
  ASSERT_EQ(record.pulled.size(), 1u);
  EXPECT_EQ(record.pulled.at(ShardKey{VariableId(1), 0, 1}), 2u)
      << "zeros, then the values of the fixture";
}

}  // namespace
}  // namespace divvy
