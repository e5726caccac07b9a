// The metrics that tasks serve: all names, well formed, and each is seen to move.
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/testing/pki.h"
#include "tests/e2e/counting_test.h"
#include "tests/e2e/loopback_client.h"
#include "tests/e2e/metric_names.h"
#include "tests/e2e/process_cluster.h"
#include "tests/e2e/prometheus_text.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDocs[] = "docs/operating/operations.md";

// ---- the text format ----------------------------------------------------------------------------

TEST(PrometheusTextTest, AWellFormedPageIsRead) {
  const auto page = ParsePrometheusText(
      "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"\\\"\\n\"} 1\na_total 2\n"
      "# HELP h Seconds.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 3\n"
      "h_sum 4.5\nh_count 3\n");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->at("a_total").samples[0].labels.at("x"), "\"\n");
  EXPECT_EQ(page->at("h").samples.size(), 4u);
}

TEST(PrometheusTextTest, WhatIsNotWellFormedIsRefused) {
  const std::string h = "# HELP h Seconds.\n# TYPE h histogram\n";
  const std::string a = "# HELP a A.\n# TYPE a gauge\n", b = "# HELP b B.\n# TYPE b gauge\n";
  const std::vector<std::pair<std::string, std::string>> pages = {
      {a + "a 1", "line feed"},
      {"a 1\n", "below its own HELP"},
      {"# TYPE a gauge\na 1\n", "TYPE follows HELP"},
      {a + "a 1\n" + b + "b 1\n" + a + "a 2\n", "stand together"},
      {a + "a 1\na 2\n", "twice"},
      {a + "a one\n", "no number"},
      {a + "a{x=1} 1\n", "a label"},
      {a, "has a value"},
      {"# HELP a A.\n# TYPE a counter\na 1\n", "_total"},
      {"# HELP a_total A.\n# TYPE a_total counter\na_total -1\n", "not negative"},
      {h + "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n", "+Inf"},
      {h + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n", "cumulative"},
      {h + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n", "equals _count"},
  };
  for (const auto& [page, rule] : pages)
    EXPECT_THAT(std::string(ParsePrometheusText(page).status().message()), HasSubstr(rule)) << page;
}

// ---- the names ----------------------------------------------------------------------------------

std::string TypeOf(const ServedMetric& metric) { return metric.type; }
std::set<std::string> RolesOf(const ServedMetric& metric) {
  return absl::StrSplit(metric.roles, ' ');
}

// The rows of the table of names in the documentation: name -> type and roles.
std::map<std::string, std::string> NamesInDocs() {
  const absl::StatusOr<std::string> text = FileSystem::Real().ReadFile(kDocs);
  EXPECT_TRUE(text.ok()) << text.status();
  std::map<std::string, std::string> rows;
  for (const absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    if (cells.size() < 4 || !absl::StartsWith(cells[0], "| `")) continue;
    const std::vector<absl::string_view> name = absl::StrSplit(cells[0], '`');
    const absl::string_view bare = name[1].substr(0, name[1].find('{'));
    if (absl::StartsWith(bare, "divvy_") || absl::StartsWith(bare, "process_") ||
        absl::StartsWith(bare, "grpc_")) {
      EXPECT_TRUE(rows.emplace(std::string(bare), absl::StrCat(cells[1], ", ", cells[2])).second)
          << "twice: " << bare;
    }
  }
  return rows;
}

TEST(MetricNamesTest, TheDocumentationHasTheNamesThatAreServed) {
  std::map<std::string, std::string> wanted;
  for (const ServedMetric& metric : kServedMetrics)
    wanted[metric.name] =
        absl::StrCat(metric.type, ", ", absl::StrReplaceAll(metric.roles, {{" ", ", "}}));
  EXPECT_EQ(NamesInDocs(), wanted);
}

// ---- clusters -----------------------------------------------------------------------------------

// The samples that tell whether a family moves: of histograms the numbers of observations.
std::vector<MetricSample> TellingSamples(const MetricFamily& family) {
  std::vector<MetricSample> samples;
  for (const MetricSample& sample : family.samples) {
    if (family.type != "histogram" || absl::EndsWith(sample.name, "_count"))
      samples.push_back(sample);
  }
  return samples;
}

class MetricsTest : public CountingTest {
 protected:
  // One series of one life of a task. Two tasks, or two lives, may differ without any change.
  struct Series {
    std::string task;
    pid_t life = 0;
    std::map<std::string, std::string> labels;
    friend bool operator<(const Series& a, const Series& b) {
      return std::tie(a.task, a.life, a.labels) < std::tie(b.task, b.life, b.labels);
    }
  };
  struct Range {
    double least = std::numeric_limits<double>::infinity(), most = -least;
  };
  // What has been seen of a name. The type is empty: nothing.
  struct Seen {
    std::string type;
    std::map<Series, Range> series;
    // The greatest sum over the series of one page.
    double most = 0;
  };

  // Reads the page of every task that runs, and keeps what it tells.
  void Scrape() {
    for (const TaskId task : cluster_->tasks()) {
      const std::optional<std::string> page = PageOf(task, "/metrics");
      if (!page) continue;
      const auto families = ParsePrometheusText(*page);
      ASSERT_TRUE(families.ok()) << ToString(task) << ": " << families.status();
      for (const auto& [name, family] : *families) {
        Seen& seen = seen_[std::string(RoleName(task.role))][name];
        seen.type = family.type;
        double sum = 0;
        for (const MetricSample& sample : TellingSamples(family)) {
          Range& range = seen.series[{ToString(task), LifeOf(task), sample.labels}];
          range.least = std::min(range.least, sample.value);
          range.most = std::max(range.most, sample.value);
          sum += sample.value;
        }
        seen.most = std::max(seen.most, sum);
      }
    }
  }
  // Scrapes until each of `names` of the role has been seen to change, or patience is over.
  void ScrapeUntilMoved(const std::string& role, const std::vector<std::string>& names) {
    const absl::Duration until = Clock::Real().Elapsed() + kPatience;
    std::vector<std::string> still = names;
    while (!still.empty() && Clock::Real().Elapsed() < until) {
      Scrape();
      cluster_->processes().RunFor(absl::Milliseconds(50));
      still.erase(std::remove_if(still.begin(), still.end(),
                                 [&](const std::string& name) { return Moved(role, name); }),
                  still.end());
    }
    EXPECT_TRUE(still.empty()) << role << ": " << absl::StrJoin(still, ", ") << " did not move";
  }
  // Whether one series has had two values. A time that only jitters has not moved.
  bool Moved(const std::string& role, const std::string& name) {
    const double least = absl::EndsWith(name, "_timestamp_seconds") ? 0.1 : 0;
    const std::map<Series, Range>& series = seen_[role][name].series;
    return std::any_of(series.begin(), series.end(), [&](const auto& each) {
      return each.second.most - each.second.least > least;
    });
  }
  double Most(const std::string& role, const std::string& name) { return seen_[role][name].most; }
  pid_t LifeOf(TaskId task) { return cluster_->processes().pid(ToString(task)); }
  std::vector<std::string> NamesOf(const std::string& role, MetricMoves moves) {
    std::vector<std::string> names;
    for (const ServedMetric& metric : kServedMetrics) {
      if (metric.moves == moves && RolesOf(metric).count(role) > 0) names.push_back(metric.name);
    }
    return names;
  }
  // Every name of the table is served, except those that need what the cluster lacks, and no other.
  void ExpectAllNames(const std::set<MetricMoves>& lacking) {
    for (const std::string role : {"chief", "ps", "worker"}) {
      std::map<std::string, std::string> wanted, served;
      for (const ServedMetric& metric : kServedMetrics) {
        if (lacking.count(metric.moves) == 0 && RolesOf(metric).count(role) > 0)
          wanted[metric.name] = TypeOf(metric);
      }
      for (const auto& [name, seen] : seen_[role]) {
        if (!seen.type.empty()) served[name] = seen.type;
      }
      EXPECT_EQ(served, wanted) << role;
    }
  }

  // The body of the answer. Nullopt: the task does not run, or is just ending.
  std::optional<std::string> PageOf(TaskId task, const std::string& path) {
    const std::string kPages = "its pages are at http://";
    if (!cluster_->running(task)) return std::nullopt;
    const std::string& output = cluster_->output(task);
    const size_t at = output.rfind(kPages);
    if (at == output.npos) return std::nullopt;
    const std::string rest = output.substr(at + kPages.size());
    const Descriptor socket = ConnectTo(rest.substr(0, rest.find('/')));
    // A task that is stopped does not answer.
    if (!socket || !Send(socket, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\n\r\n")))
      return std::nullopt;
    const std::string answer = Receive(socket, 16 << 20, absl::Seconds(2));
    if (!absl::StartsWith(answer, "HTTP/1.1 200")) return std::nullopt;
    const size_t head = answer.find("\r\n\r\n");
    return head == answer.npos ? std::nullopt : std::optional<std::string>(answer.substr(head + 4));
  }

  static std::vector<std::string> Flags(std::vector<std::string> more) {
    std::vector<std::string> flags = {"--http_address=127.0.0.1:0",
                                      "--report_every=200ms",
                                      "--checkpoint_every=500ms",
                                      "--local_path=off",
                                      "--memory_limit_bytes=1000000000",
                                      "--checkpoint_dir=" + OwnPath("checkpoints"),
                                      "--counters=4"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  std::map<std::string, std::map<std::string, Seen>> seen_;
};

// A worker is lost; answers to commits are lost; a ps is lost while a worker sleeps; a disk is
// full; all workers sleep. All of it happens to one cluster that trains over data.
TEST_F(MetricsTest, EachNameMovesInAClusterThatTrainsUnderFaults) {
  Make(2, 2, /*proxied=*/true, Flags({"--records=200", "--reads", "--elements=20000"}));
  // First the tasks that wait for the coordinator, so that they are seen empty.
  for (const TaskId task : {PsTask(0), PsTask(1), WorkerTask(0), WorkerTask(1)}) {
    Start(task);
    WaitFor(task, "its pages are at");
  }
  Scrape();
  Start(kChiefTask, {{"--state_dir=" + OwnPath("state")}, {}, ""});
  WaitFor(kChiefTask, "its pages are at");
  Scrape();
  WaitFor(kChiefTask, "counting");
  CountOn(1);
  ScrapeUntilMoved("chief", {"divvy_examples_total", "divvy_checkpoint_duration_seconds"});

  Kill(WorkerTask(0));
  ScrapeUntilMoved("chief", {"divvy_tasks_up"});
  Start(WorkerTask(0));
  ScrapeUntilMoved("chief", {"divvy_recoveries_total", "divvy_worker_sessions_fenced_total"});

  // Both commit, and neither hears of it until the connections are cut. Then they send again.
  // Between two steps there is no commit whose answer could be lost, so it may take several tries.
  for (int i = 0; i < 12 && !Moved("ps", "divvy_push_duplicate_total"); ++i) {
    cluster_->proxy(PsTask(0)).Swallow(FaultProxy::kFromTarget);
    cluster_->processes().RunFor(absl::Milliseconds(500));
    cluster_->proxy(PsTask(0)).Heal();
    for (int n = 0; n < 20; ++n) {
      Scrape();
      cluster_->processes().RunFor(absl::Milliseconds(50));
    }
  }
  EXPECT_TRUE(Moved("ps", "divvy_push_duplicate_total"));

  // A worker sleeps through a rewind.
  cluster_->Signal(WorkerTask(1), SIGSTOP);
  Kill(PsTask(1));
  Start(PsTask(1));
  CountOn(1);
  cluster_->Signal(WorkerTask(1), SIGCONT);
  for (int n = 0; n < 20; ++n) {
    Scrape();
    cluster_->processes().RunFor(absl::Milliseconds(50));
  }
  EXPECT_GE(Most("chief", "divvy_rewinds_total"), 1);
  EXPECT_GE(Most("chief", "divvy_recoveries_total"), 2);

  cluster_->LimitFiles(PsTask(0), 1000);
  ScrapeUntilMoved("chief", {"divvy_checkpoint_failures_total", "divvy_checkpoint_failing"});
  cluster_->LimitFiles(PsTask(0), ProcessCluster::kUnlimited);

  cluster_->Signal(WorkerTask(0), SIGSTOP);
  cluster_->Signal(WorkerTask(1), SIGSTOP);
  const absl::Duration until = Clock::Real().Elapsed() + kPatience;
  while (Most("chief", "divvy_oldest_step_seconds") < 1 && Clock::Real().Elapsed() < until) {
    Scrape();
    cluster_->processes().RunFor(absl::Milliseconds(100));
  }
  EXPECT_GE(Most("chief", "divvy_oldest_step_seconds"), 1);
  cluster_->Signal(WorkerTask(0), SIGCONT);
  cluster_->Signal(WorkerTask(1), SIGCONT);

  for (const std::string role : {"chief", "ps", "worker"})
    ScrapeUntilMoved(role, NamesOf(role, MetricMoves::kUnderFaults));
  ExpectAllNames({MetricMoves::kWithTls, MetricMoves::kOnGpus});
  Finish();
}

// A picture for each step, on the coordinator and the worker; of a ps its pulls and commits.
TEST_F(MetricsTest, EachRoleHasAPageOfWhereTheTimeOfStepsWent) {
  Make(1, 1, /*proxied=*/false, Flags({}));
  StartAll();
  CountOn(1);
  for (const TaskId task : {kChiefTask, WorkerTask(0)}) {
    const std::string page = PageOf(task, "/tracez").value_or("");
    EXPECT_THAT(page, HasSubstr("training step ")) << ToString(task);
    EXPECT_THAT(page, HasSubstr("<rect class=\"compute\"")) << ToString(task);
    EXPECT_THAT(page, HasSubstr("<rect class=\"served\"")) << ToString(task);
    EXPECT_THAT(page, Not(HasSubstr("<script"))) << ToString(task);
    EXPECT_THAT(PageOf(task, "/tracez.json").value_or(""), HasSubstr("\"traceparent\":\"00-"));
  }
  const std::string page = PageOf(PsTask(0), "/tracez").value_or("");
  EXPECT_THAT(page, HasSubstr("<td>commit</td>"));
  EXPECT_THAT(page, HasSubstr("<rect class=\"commit\""));
  Finish();
}

TEST_F(MetricsTest, NamesOfTablesMoveAndCertificatesTellTheirEnd) {
  Make(2, 1, /*proxied=*/false, Flags({"--keys", "--round=100"}));
  Pki pki("metrics");
  for (const TaskId task : cluster_->tasks()) {
    const std::string name = absl::StrCat(RoleName(task.role), "/", task.index);
    const TlsFiles files = pki.Files(absl::StrCat(RoleName(task.role), "-", task.index),
                                     pki.Issue("spiffe://test/" + name));
    LifeOptions life;
    life.flags = {"--tls_cert=" + files.cert, "--tls_key=" + files.key, "--tls_ca=" + files.ca};
    Start(task, life);
  }
  WaitFor(kChiefTask, "counting");
  ScrapeUntilMoved("ps", NamesOf("ps", MetricMoves::kWithTables));
  const double now = absl::ToDoubleSeconds(Clock::Real().WallTime() - absl::UnixEpoch());
  for (const std::string role : {"chief", "ps", "worker"}) {
    const double end = Most(role, "divvy_certificate_expiry_timestamp_seconds");
    EXPECT_GT(end, now) << role;
    EXPECT_LT(end, now + 3601) << role;
  }
  Finish();
}

}  // namespace
}  // namespace divvy
