#include "rpc/trace_page.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;

v1::TracedStep Step(const std::string& function) {
  v1::TracedStep step;
  step.set_step(0x21);
  step.set_attempt(1);
  step.set_ordinal(130);
  step.set_function(function);
  step.set_worker(3);
  step.set_outcome(v1::Report::OK);
  step.set_queued_ns(2 * kMs);
  step.set_total_ns(40 * kMs);
  step.mutable_parts()->set_computed_ns(20 * kMs);
  step.mutable_parts()->set_reported_ns(30 * kMs);
  step.mutable_parts()->set_left_out(3);
  return step;
}

std::string PageOf(v1::Job job, const v1::GetTracesReply& traces) {
  return TracePage(job, 1, traces, absl::UnixEpoch() + absl::Seconds(65));
}

TEST(TracePageTest, AStepHasAPictureAndTheIdsThatOtherRolesKnow) {
  v1::GetTracesReply traces;
  traces.set_job_id(0xabc);
  *traces.add_slowest() = Step("train");
  EXPECT_THAT(PageOf(v1::WORKER, traces),
              AllOf(HasSubstr("<h1>worker 1: where the time of steps went</h1>"),
                    HasSubstr("<h3>train, training step 131, worker 3: 40.0 ms, ok</h3><p>after "
                              "2.00 ms in the queue; 1 min 5 s ago; traceparent "
                              "00-0000000000000abc0000000000000021-0000000000000001-01; entry 33; "
                              "3 shorter pulls and commits are not shown</p>"),
                    HasSubstr("<rect class=\"compute\"")));
}

TEST(TracePageTest, ACallOfAParameterServerHasTheTraceIdOfItsStep) {
  v1::GetTracesReply traces;
  traces.set_job_id(0xabc);
  v1::ServedCall& call = *traces.add_last_calls();
  call.set_commit(true);
  call.set_step(0x21);
  call.set_took_ns(1'500);
  EXPECT_THAT(PageOf(v1::PS, traces),
              AllOf(HasSubstr("<td>commit</td><td>1.50 us</td>"),
                    HasSubstr("<td>33</td><td>0000000000000abc0000000000000021</td>")));
}

// A name and a refusal quote what others chose.
TEST(TracePageTest, NoMarkupOfOthersIsPartOfThePage) {
  const std::string evil = "</p><script>alert('x')</script>";
  v1::GetTracesReply steps;
  *steps.add_last() = Step(evil);
  v1::GetTracesReply calls;
  calls.add_last_calls()->set_refusal(evil);
  for (const std::string& page : {PageOf(v1::CHIEF, steps), PageOf(v1::PS, calls)})
    EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")),
                            HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;")));
}

TEST(TracePageTest, ATaskWithoutTimesSaysSoAsItsRoleIs) {
  EXPECT_THAT(PageOf(v1::CHIEF, {}), AllOf(HasSubstr("The slowest steps"), HasSubstr("none yet")));
  EXPECT_THAT(PageOf(v1::PS, {}), AllOf(HasSubstr("no pull or commit has been answered yet"),
                                        Not(HasSubstr("The slowest steps"))));
}

TEST(TracePageTest, NoMoreThanSixteenOfAKindAreShown) {
  v1::GetTracesReply traces;
  for (int i = 0; i < 64; ++i) *traces.add_last() = Step("train");
  const std::string page = PageOf(v1::CHIEF, traces);
  int steps = 0;
  for (size_t at = page.find("<h3>"); at != page.npos; at = page.find("<h3>", at + 1)) ++steps;
  EXPECT_EQ(steps, 16);
}

}  // namespace
}  // namespace divvy
