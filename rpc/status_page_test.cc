#include "rpc/status_page.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMarkup[] = "<script>\"x\" & 'y'";
constexpr char kEscaped[] = "&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;";

v1::TaskStatus Ps() {
  v1::TaskStatus status;
  status.set_job(v1::PS);
  status.set_index(3);
  status.set_state("loading");
  v1::TaskStatus::Wait& wait = *status.add_waits();
  wait.set_text(kMarkup);
  wait.set_since_ns(2'500'000'000);
  status.mutable_ps()->set_memory_bytes(int64_t{5} << 30);
  status.mutable_ps()->set_memory_limit_bytes(int64_t{8} << 30);
  return status;
}

TEST(StatusPageTest, ShowsATask) {
  PageContext context;
  context.serving = false;
  EXPECT_THAT(HtmlOf(Ps(), context), AllOf(HasSubstr("<h1>ps 3: loading, not serving</h1>"),
                                           HasSubstr("y&#39; (2.5 s)"), HasSubstr("5 GiB of 8 GiB"),
                                           HasSubstr("<th>memory bytes</th><td>5368709120</td>")));
}

// Names of variables, states, errors and lines of the log may hold anything.
TEST(StatusPageTest, HasNoMarkupFromOutside) {
  v1::TaskStatus chief;
  chief.set_job(v1::CHIEF);
  chief.set_state(kMarkup);
  chief.set_build(kMarkup);
  v1::TaskStatus& task = *chief.mutable_coordinator()->add_tasks() = Ps();
  task.set_state(kMarkup);
  chief.mutable_coordinator()->set_last_checkpoint(kMarkup);
  chief.mutable_coordinator()->add_tables()->set_name(kMarkup);
  v1::TaskStatus::Finding& finding = *chief.add_findings();
  finding.set_job(v1::PS);
  finding.set_index(3);
  finding.set_text(kMarkup);
  PageContext context;
  context.warnings = {{absl::UnixEpoch(), Severity::kError, kMarkup}};
  context.pictures = {{kMarkup, {{absl::Seconds(1), 1}, {absl::Seconds(2), 2}}}};
  const std::string page = HtmlOf(chief, context);
  EXPECT_THAT(page, AllOf(HasSubstr(kEscaped), Not(HasSubstr("<script"))));
}

TEST(StatusPageTest, OfACoordinatorHasARowForEachTask) {
  v1::TaskStatus chief;
  chief.set_job(v1::CHIEF);
  chief.set_state("running");
  v1::CoordinatorStatus& job = *chief.mutable_coordinator();
  job.set_steps_per_second(12.5);
  job.set_loss(0.25);
  job.mutable_checkpoints()->set_made(7);
  job.mutable_checkpoints()->set_last_success_ns(100'000'000'000);
  job.mutable_checkpoints()->set_last_bytes(3 << 20);
  *job.add_tasks() = Ps();
  v1::TaskStatus& worker = *job.add_tasks();
  worker.set_job(v1::WORKER);
  worker.set_index(1);
  worker.set_state("running");
  worker.set_state_ns(65'000'000'000);
  worker.mutable_worker()->set_step_p50_ns(2'000'000);
  worker.mutable_worker()->set_step_p99_ns(30'000'000);
  v1::TaskStatus::Finding& finding = *chief.add_findings();
  finding.set_job(v1::WORKER);
  finding.set_index(1);
  finding.set_text("straggler");
  PageContext context;
  context.now = absl::FromUnixSeconds(160);
  EXPECT_THAT(HtmlOf(chief, context),
              AllOf(HasSubstr("<td>ps 3</td><td>loading</td>"),
                    HasSubstr("<td>worker 1</td><td>running</td><td>1 min 5 s</td>"),
                    HasSubstr("<td>2.00 ms / 30.0 ms</td><td>straggler</td>"), HasSubstr("12.5/s"),
                    HasSubstr("<th>loss</th><td>0.25</td>"),
                    HasSubstr("7 made, 0 failed; the last one 1 min 0 s ago, 3 MiB in")));
}

TEST(StatusPageTest, AShortWaitIsNotShownAtTheTop) {
  v1::TaskStatus chief;
  chief.set_job(v1::CHIEF);
  chief.mutable_coordinator()->mutable_work()->set_text("restore 45 % of 2.6 GiB");
  const auto wait_for = [&chief](const char* what, absl::Duration since) {
    v1::TaskStatus::Wait& wait = *chief.add_waits();
    wait.set_text(what);
    wait.set_since_ns(absl::ToInt64Nanoseconds(since));
  };
  wait_for("ps 1", absl::Seconds(1));
  wait_for("ps 2", absl::Milliseconds(999));
  EXPECT_THAT(
      HtmlOf(chief, PageContext()),
      AllOf(HasSubstr("<p class=\"wait\">waits for ps 1 (1.0 s)</p>"), Not(HasSubstr("ps 2 (")),
            HasSubstr("<th>long work</th><td>restore 45 % of 2.6 GiB</td>")));
}

TEST(StatusPageTest, APictureIsALine) {
  PageContext context;
  context.pictures = {{"steps/s", {{absl::Seconds(5), 0}, {absl::Seconds(10), 4}}},
                      {"too few", {{absl::Seconds(5), 0}}}};
  EXPECT_THAT(HtmlOf(Ps(), context), AllOf(HasSubstr("steps/s: 4, at most 4"),
                                           HasSubstr("<polyline points=\"0.0,48.0 240.0,0.0 \"/>"),
                                           Not(HasSubstr("too few"))));
}

TEST(StatusPageTest, APictureSkipsPointsThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PageContext context;
  context.pictures = {{"loss",
                       {{absl::Seconds(5), std::nan("")},
                        {absl::Seconds(10), 0},
                        {absl::Seconds(15), kInfinity},
                        {absl::Seconds(20), 4},
                        {absl::Seconds(25), -kInfinity}}},
                      {"one is left", {{absl::Seconds(5), 1}, {absl::Seconds(10), std::nan("")}}}};
  EXPECT_THAT(HtmlOf(Ps(), context), AllOf(HasSubstr("loss: 4, at most 4"),
                                           HasSubstr("<polyline points=\"0.0,48.0 240.0,0.0 \"/>"),
                                           Not(HasSubstr("one is left"))));
}

TEST(StatusPageTest, TheNewestWarningIsFirst) {
  PageContext context;
  context.warnings = {{absl::UnixEpoch(), Severity::kWarning, "older"},
                      {absl::UnixEpoch(), Severity::kError, "newer"}};
  const std::string page = HtmlOf(Ps(), context);
  EXPECT_LT(page.find("error: newer"), page.find("older"));
}

}  // namespace
}  // namespace divvy
