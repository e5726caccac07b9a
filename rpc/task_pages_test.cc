#include "rpc/task_pages.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::TaskStatus Ps() {
  v1::TaskStatus status;
  status.set_job(v1::PS);
  status.set_index(3);
  status.set_build("1.2.3 abc");
  status.set_state("loading");
  status.set_epoch(7);
  v1::TaskStatus::Wait& wait = *status.add_waits();
  wait.set_text("<script>\"x\" & 'y'");
  wait.set_since_ns(2'500'000'000);
  status.mutable_ps()->set_memory_bytes(int64_t{5} << 30);
  status.mutable_ps()->set_applied_seq(42);
  status.mutable_ps()->set_commits(6);
  for (const int64_t rows : {7, 8}) {
    v1::TablePartStats& stats = *status.mutable_ps()->add_tables()->mutable_stats();
    stats.set_rows(rows);
    stats.set_refused(rows * 10);
  }
  return status;
}

v1::TaskStatus Chief() {
  v1::TaskStatus status;
  status.set_job(v1::CHIEF);
  status.mutable_coordinator()->set_finished_steps(100);
  status.mutable_coordinator()->set_durable_steps(60);
  status.mutable_coordinator()->set_queued(4);
  return status;
}

// What Prometheus' reader asks of a line that is no comment: a name with optional labels, and a
// number. Each name has its help and its type before.
TEST(TaskPagesTest, MetricsAreInPrometheusFormat) {
  for (const v1::TaskStatus& status : {Ps(), Chief(), v1::TaskStatus()}) {
    std::string described;
    const std::string text = MetricsOf(status, true);
    ASSERT_TRUE(absl::EndsWith(text, "\n"));
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
      if (line[0] == '#') {
        ASSERT_GE(words.size(), 4u) << line;
        described = std::string(words[2]);
        if (words[1] == "TYPE" && absl::EndsWith(described, "_total")) {
          EXPECT_EQ(words[3], "counter") << line;
        }
        continue;
      }
      EXPECT_EQ(line.substr(0, line.find_first_of("{ ")), described);
    }
  }
}

TEST(TaskPagesTest, MetricsTellTheStatus) {
  EXPECT_THAT(
      MetricsOf(Ps(), false),
      AllOf(HasSubstr("divvy_shards_bytes 5368709120\n"),
            HasSubstr("divvy_push_applied_total 42\n"), HasSubstr("divvy_ready 0\n"),
            HasSubstr("divvy_table_rows 15\n"), HasSubstr("divvy_table_refused_total 150\n"),
            HasSubstr("divvy_push_pending 6\n"), HasSubstr("divvy_waiting_seconds 2.5\n"),
            HasSubstr("divvy_epoch 7\n"), HasSubstr("version=\"1.2.3\"} 1\n")));
  EXPECT_THAT(MetricsOf(Chief(), true),
              AllOf(HasSubstr("divvy_undurable_steps 40\n"), HasSubstr("divvy_ready 1\n"),
                    HasSubstr("divvy_steps_total{kind=\"training\"} 100\n"),
                    HasSubstr("divvy_steps{state=\"queued\"} 4\n")));
}

TEST(TaskPagesTest, MetricsTellTheProcess) {
  const std::string text = MetricsOf(Ps(), true);
  for (const char* name : {"process_start_time_seconds", "process_resident_memory_bytes",
                           "process_virtual_memory_bytes", "process_virtual_memory_max_bytes",
                           "process_threads", "process_open_fds", "process_max_fds"}) {
    const size_t at = text.find(absl::StrCat("\n", name, " "));
    ASSERT_NE(at, text.npos) << name;
    EXPECT_GT(std::atof(text.c_str() + at + 2 + std::string(name).size()), 0) << name;
  }
}

// It may be 0 in a process that has just begun.
TEST(TaskPagesTest, MetricsTellTheCpuTime) {
  EXPECT_THAT(MetricsOf(Ps(), true), HasSubstr("\nprocess_cpu_seconds_total "));
}

TEST(TaskPagesTest, TheDataIsJson) {
  const auto json = nlohmann::json::parse(JsonOf(Ps()));
  EXPECT_EQ(json["job"], "PS");
  EXPECT_EQ(json["index"], 3);
  EXPECT_EQ(json["ps"]["applied_seq"], "42") << "64 bits are text in protobuf's JSON";
  EXPECT_EQ(json["ps"]["shards"], 0) << "zeros are written";
}

TEST(TaskPagesTest, EachPathHasItsPage) {
  TaskPages pages({[] { return Ps(); }});
  EXPECT_EQ(pages.Page("/healthz").status, 200);
  const HttpPage waits = pages.Page("/readyz");
  EXPECT_EQ(waits.status, 503);
  EXPECT_THAT(waits.body, AllOf(HasSubstr("not serving: loading\n"), HasSubstr("waits for ")));
  pages.SetServing(true);
  EXPECT_EQ(pages.Page("/readyz").status, 200);
  EXPECT_THAT(pages.Page("/metrics").content_type, HasSubstr("version=0.0.4"));
  EXPECT_THAT(pages.Page("/statusz").content_type, HasSubstr("text/html"));
  EXPECT_EQ(pages.Page("/statusz.json").content_type, "application/json");
  const HttpPage none = pages.Page("/nothing");
  EXPECT_EQ(none.status, 404);
  EXPECT_THAT(none.body, HasSubstr("/metrics"));
}

// What a task has kept may quote names that others chose.
TEST(TaskPagesTest, TracesAreAPageOfPicturesAndData) {
  v1::GetTracesReply traces;
  traces.set_job_id(7);
  v1::TracedStep& step = *traces.add_last();
  step.set_step(5);
  step.set_attempt(1);
  step.set_ordinal(41);
  step.set_function("<script>train");
  step.set_outcome(v1::Report::OK);
  step.set_total_ns(10'000'000);
  step.mutable_parts()->set_computed_ns(4'000'000);
  step.mutable_parts()->set_committed_ns(4'000'000);
  step.mutable_parts()->set_reported_ns(10'000'000);
  v1::StepTrace::Call& commit = *step.mutable_parts()->add_calls();
  commit.set_commit(true);
  commit.set_since_ns(4'000'000);
  commit.set_took_ns(6'000'000);
  commit.set_served_ns(1'000'000);
  TaskPages::Sources sources;
  sources.status = Chief;
  sources.traces = [&traces] { return traces; };
  const TaskPages pages(sources);
  const HttpPage page = pages.Page("/tracez");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.content_type, HasSubstr("text/html"));
  EXPECT_THAT(page.body,
              AllOf(HasSubstr("&lt;script&gt;train, training step 42, worker 0: 10.0 ms, ok"),
                    HasSubstr("<rect class=\"compute\" x=\"80.0\" y=\"2\" width=\"288.0\""),
                    HasSubstr("<title>commit: 6.00 ms, at the ps 1.00 ms</title>"),
                    Not(HasSubstr("<script"))));
  EXPECT_EQ(nlohmann::json::parse(pages.Page("/tracez.json").body)["last"][0]["traceparent"],
            "00-00000000000000070000000000000005-0000000000000001-01");
  // A task that has kept nothing.
  sources.traces = nullptr;
  EXPECT_THAT(TaskPages(sources).Page("/tracez").body, HasSubstr("none yet"));
}

TEST(TaskPagesTest, PullsAndCommitsAreATableOfAParameterServer) {
  v1::GetTracesReply traces;
  v1::ServedCall& call = *traces.add_last_calls();
  call.set_commit(true);
  call.set_step(5);
  call.set_took_ns(3'000'000);
  call.set_refusal("<b>no");
  TaskPages::Sources sources;
  sources.status = Ps;
  sources.traces = [&traces] { return traces; };
  EXPECT_THAT(TaskPages(sources).Page("/tracez").body,
              AllOf(HasSubstr("<td>commit</td><td>3.00 ms</td>"), HasSubstr("&lt;b&gt;no"),
                    HasSubstr("<h1>ps 3: ")));
}

TEST(TaskPagesTest, MetricsTellTheDevices) {
  v1::TaskStatus status;
  status.set_job(v1::WORKER);
  v1::WorkerStatus::Device& gpu = *status.mutable_worker()->add_devices();
  gpu.set_device("GPU:0");
  EXPECT_THAT(MetricsOf(status, true), Not(HasSubstr("divvy_device_memory")));
  gpu.set_memory_limit_bytes(1000);
  gpu.set_memory_bytes(10);
  EXPECT_THAT(MetricsOf(status, true),
              AllOf(HasSubstr("divvy_device_memory_bytes{device=\"GPU:0\"} 10\n"),
                    HasSubstr("divvy_device_memory_limit_bytes{device=\"GPU:0\"} 1000\n")));
}

TEST(TaskPagesTest, WhatIsNotThereHasNoMetric) {
  EXPECT_THAT(MetricsOf(Ps(), true), Not(HasSubstr("divvy_memory_limit_bytes ")));
  EXPECT_THAT(MetricsOf(Ps(), true), Not(HasSubstr("divvy_certificate_expiry")));
  EXPECT_THAT(MetricsOf(Ps(), true, absl::FromUnixSeconds(7)),
              HasSubstr("divvy_certificate_expiry_timestamp_seconds 7\n"));
  v1::TaskStatus chief = Chief();
  EXPECT_THAT(MetricsOf(chief, true), AllOf(Not(HasSubstr("divvy_loss ")),
                                            Not(HasSubstr("divvy_checkpoint_last_success"))));
  chief.mutable_coordinator()->set_loss(0.5);
  chief.mutable_coordinator()->mutable_checkpoints()->set_last_success_ns(2'500'000'000);
  EXPECT_THAT(MetricsOf(chief, true),
              AllOf(HasSubstr("divvy_loss 0.5\n"),
                    HasSubstr("divvy_checkpoint_last_success_timestamp_seconds 2.5\n")));
}

TEST(TaskPagesTest, MetricsOfTheTaskAreServedBesideThoseOfItsStatus) {
  MetricsRegistry registry;
  registry.GetCounter("divvy_own_total", "Its own.").Add(3);
  const TaskPages pages({[] { return Ps(); }, &registry});
  EXPECT_THAT(pages.Page("/metrics").body,
              AllOf(HasSubstr("divvy_own_total 3\n"), HasSubstr("divvy_epoch 7\n")));
}

}  // namespace
}  // namespace divvy
