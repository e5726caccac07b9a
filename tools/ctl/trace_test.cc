#include "tools/ctl/trace.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/admin_service.h"
#include "rpc/credentials.h"
#include "rpc/server.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMs = 1'000'000;

v1::TracedStep Step(int64_t number, uint32_t attempt = 1) {
  v1::TracedStep step;
  step.set_step(static_cast<uint64_t>(number) + 100);
  step.set_attempt(attempt);
  step.set_ordinal(number - 1);
  step.set_function("train");
  step.set_outcome(v1::Report::OK);
  step.set_total_ns(10 * kMs);
  v1::StepTrace& parts = *step.mutable_parts();
  parts.set_computed_ns(8 * kMs);
  parts.set_reported_ns(10 * kMs);
  v1::StepTrace::Call& pull = *parts.add_calls();
  pull.set_since_ns(0);
  pull.set_took_ns(4 * kMs);
  pull.set_served_ns(2 * kMs);
  pull.set_retries(1);
  return step;
}

v1::GetTracesReply Traces() {
  v1::GetTracesReply traces;
  traces.set_job_id(0xabc);
  for (const int64_t number : {64, 128, 192}) *traces.add_last() = Step(number);
  for (const int64_t number : {77, 128}) *traces.add_slowest() = Step(number);
  *traces.add_slowest() = Step(77, 2);
  return traces;
}

std::vector<std::string> Chosen(const TraceChoice& choice) {
  std::vector<std::string> chosen;
  const auto steps = ChooseSteps(v1::CHIEF, Traces(), choice);
  EXPECT_TRUE(steps.ok()) << steps.status();
  if (!steps.ok()) return {};
  for (const v1::TracedStep& step : *steps)
    chosen.push_back(absl::StrCat(step.ordinal() + 1, "/", step.attempt()));
  return chosen;
}

TEST(TraceTest, TheLastStepIsChosenOrTheSlowestOnesOrAStepWithItsAttempts) {
  EXPECT_THAT(Chosen({}), ElementsAre("192/1"));
  TraceChoice slowest;
  slowest.slowest = 2;
  EXPECT_THAT(Chosen(slowest), ElementsAre("77/1", "128/1"));
  slowest.slowest = 1000;
  EXPECT_THAT(Chosen(slowest), ElementsAre("77/1", "128/1", "77/2"));
  TraceChoice last;
  last.last = 2;
  EXPECT_THAT(Chosen(last), ElementsAre("192/1", "128/1"));
  TraceChoice one;
  one.step = 128;
  EXPECT_THAT(Chosen(one), ElementsAre("128/1"));
  one.step = 77;
  EXPECT_THAT(Chosen(one), ElementsAre("77/1", "77/2"));
}

TEST(TraceTest, AStepThatWasNotTracedIsRefusedWithTheNearestOnes) {
  TraceChoice one;
  one.step = 130;
  const absl::Status status = ChooseSteps(v1::CHIEF, Traces(), one).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("training step 130 is not among the steps"));
  EXPECT_THAT(status.message(), HasSubstr("the nearest are 64, 77, 128, 192"));
}

TEST(TraceTest, WithoutStepsTheErrorSaysWhatToDo) {
  EXPECT_THAT(ChooseSteps(v1::CHIEF, {}, {}).status().message(),
              HasSubstr("no step has been traced yet"));
  v1::GetTracesReply of_ps;
  of_ps.add_last_calls();
  for (const absl::Status& status :
       {ChooseSteps(v1::JOB_NONE, of_ps, {}).status(), ChooseSteps(v1::PS, {}, {}).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("give the coordinator's address"));
  }
}

// A hostile task chooses its numbers.
TEST(TraceTest, TheLargestNumbersOverflowNothing) {
  v1::GetTracesReply traces;
  v1::TracedStep& step = *traces.add_last();
  step = Step(1);
  step.set_ordinal(std::numeric_limits<int64_t>::max());
  step.mutable_parts()->mutable_calls(0)->set_retries(std::numeric_limits<uint32_t>::max());
  step.mutable_parts()->set_left_out(std::numeric_limits<uint32_t>::max());
  *traces.add_last() = Step(1);
  traces.mutable_last(1)->set_ordinal(std::numeric_limits<int64_t>::min());
  TraceChoice one;
  one.step = 7;
  EXPECT_THAT(ChooseSteps(v1::CHIEF, traces, one).status().message(),
              HasSubstr("the nearest are 9223372036854775808, 9223372036854775809"));
  const std::string lines = TraceLines(1, step, absl::UnixEpoch());
  EXPECT_THAT(lines, HasSubstr("training step 9223372036854775808"));
  EXPECT_THAT(lines, HasSubstr("sent 4294967296 times"));
  EXPECT_THAT(lines, HasSubstr("4294967295 shorter pulls and commits are not shown"));
}

TEST(TraceTest, AStepIsShownWithABarForEachPart) {
  const std::string lines = TraceLines(0xabc, Step(128), absl::UnixEpoch() + absl::Seconds(9));
  EXPECT_THAT(lines, StartsWith("train, training step 128, worker 0: 10.0 ms, ok, 9 s ago\n"
                                "  traceparent 00-0000000000000abc00000000000000e4-"
                                "0000000000000001-01, entry 228\n"));
  EXPECT_THAT(lines, HasSubstr("  worker 0   compute      8.00 ms "
                               "|================================        |\n"));
  EXPECT_THAT(lines,
              HasSubstr("  ps 0       pull         4.00 ms "
                        "|================                        | at the ps 2.00 ms, sent 2 "
                        "times\n"));
}

TEST(TraceTest, TheTimeThatRanksAStepStandsFirst) {
  v1::TracedStep step = Step(128);
  step.set_queued_ns(2 * kMs);
  EXPECT_THAT(TraceLines(0xabc, step, absl::UnixEpoch()),
              StartsWith("train, training step 128, worker 0: 10.0 ms after 2.00 ms in the queue, "
                         "ok, just now\n"));
}

TEST(TraceTest, TheNameOfAFunctionCommandsNoTerminal) {
  v1::TracedStep step = Step(1);
  step.set_function("\x1b[2J\nps 0");
  const std::string lines = TraceLines(1, step, absl::UnixEpoch());
  EXPECT_EQ(lines.find('\x1b'), lines.npos);
  EXPECT_THAT(lines, StartsWith("\\x1b[2J\\x0aps 0"));
}

TEST(TraceTest, ACoordinatorIsAskedOverItsConnection) {
  AdminService admin([] { return v1::TaskStatus(); }, std::nullopt, nullptr, Traces);
  ServerOptions options;
  options.address = "127.0.0.1:0";
  auto server = Server::Start(options, {&admin}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  TraceOptions asked;
  asked.address = absl::StrCat("127.0.0.1:", (*server)->port());
  asked.credentials = MakeChannelCredentials(std::nullopt, "");
  asked.timeout = absl::Seconds(10);
  asked.choice.slowest = 2;
  EXPECT_THAT(*TraceText(asked), AllOf(HasSubstr("training step 77"), HasSubstr("step 128")));
  asked.format = TraceFormat::kJson;
  EXPECT_THAT(*TraceText(asked), StartsWith("{\"step\":\"177\""));
  asked.format = TraceFormat::kChrome;
  EXPECT_THAT(*TraceText(asked), StartsWith("{\"traceEvents\":["));
}

// A parameter server that nobody has called yet has neither steps nor calls to tell of.
TEST(TraceTest, AnIdleParameterServerIsToldFromAnIdleCoordinator) {
  for (const v1::Job job : {v1::PS, v1::CHIEF}) {
    AdminService admin(
        [job] {
          v1::TaskStatus status;
          status.set_job(job);
          return status;
        },
        std::nullopt, nullptr, [] { return v1::GetTracesReply(); });
    ServerOptions options;
    options.address = "127.0.0.1:0";
    auto server = Server::Start(options, {&admin}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    TraceOptions asked;
    asked.address = absl::StrCat("127.0.0.1:", (*server)->port());
    asked.credentials = MakeChannelCredentials(std::nullopt, "");
    asked.timeout = absl::Seconds(10);
    EXPECT_THAT(TraceText(asked).status().message(),
                HasSubstr(job == v1::PS ? "the task is a parameter server" : "no step has been"));
  }
}

}  // namespace
}  // namespace divvy
