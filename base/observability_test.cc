#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/recent_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// ---- Log

// The text that `write` puts on stderr under `options`.
template <typename Write>
std::string Stderr(LogOptions options, Write write) {
  ::testing::internal::CaptureStderr();
  SetLogOptions(std::move(options));
  write();
  SetLogOptions({});
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, ALineTellsSeverityTimeThreadAndPlace) {
  const std::string line = Stderr({}, [] { DIVVY_LOG(WARNING) << "worker " << 3 << " is lost"; });
  EXPECT_THAT(line, MatchesRegex("W[0-9]{4} [0-9:]{8}\\.[0-9]{6} [0-9]+ "
                                 "observability_test\\.cc:[0-9]+\\] worker 3 is lost\n"));
  EXPECT_THAT(Stderr({}, [] { DIVVY_LOG(INFO) << "x"; }), StartsWith("I"));
  EXPECT_THAT(Stderr({}, [] { DIVVY_LOG(ERROR) << "x"; }), StartsWith("E"));
}

TEST(LogTest, WhatIsLessThanTheLeastIsNotWritten) {
  LogOptions options;
  options.least = Severity::kError;
  const std::string lines = Stderr(options, [] {
    DIVVY_LOG(INFO) << "a";
    DIVVY_LOG(WARNING) << "b";
    DIVVY_LOG(ERROR) << "c";
  });
  EXPECT_THAT(lines, EndsWith("] c\n"));
  EXPECT_THAT(lines, StartsWith("E"));
}

TEST(LogTest, TextIsNoFormat) {
  EXPECT_THAT(Stderr({}, [] { DIVVY_LOG(INFO) << "{} %s {0:d"; }), EndsWith("] {} %s {0:d\n"));
}

nlohmann::json JsonLine(const std::string& text) {
  LogOptions options;
  options.format = LogFormat::kJson;
  options.context = {{"role", "ps"}, {"task", "1"}};
  const std::string line = Stderr(options, [&] { DIVVY_LOG(ERROR) << text; });
  EXPECT_THAT(line, EndsWith("\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  return nlohmann::json::parse(line, nullptr, false);
}

TEST(LogTest, JsonIsOneObjectALineWithTheContextsFields) {
  const nlohmann::json line = JsonLine("said \"so\"\nand more");
  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line["sev"], "ERROR");
  EXPECT_EQ(line["role"], "ps");
  EXPECT_EQ(line["task"], "1");
  EXPECT_EQ(line["msg"], "said \"so\"\nand more");
  EXPECT_EQ(line["file"], "observability_test.cc");
  EXPECT_GT(line["line"], 0);
  EXPECT_THAT(line["ts"].get<std::string>(),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z"));
}

TEST(LogTest, JsonSurvivesBytesThatAreNoText) {
  EXPECT_EQ(JsonLine("bad \xff\xfe byte")["msg"], "bad \xEF\xBF\xBD\xEF\xBF\xBD byte");
}

TEST(LogTest, ASinkTakesEntriesInsteadOfStderrUntilItIsTakenAway) {
  std::vector<LogEntry> entries;
  LogOptions options;
  options.least = Severity::kError;  // does not apply to the sink
  const std::string lines = Stderr(options, [&] {
    SetLogSink([&](const LogEntry& entry) { entries.push_back(entry); });
    DIVVY_LOG(INFO) << "to the sink";
    LogSink sink = SetLogSink(nullptr);
    EXPECT_NE(sink, nullptr);
    DIVVY_LOG(ERROR) << "to stderr";
  });
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].text, "to the sink");
  EXPECT_EQ(entries[0].severity, Severity::kInfo);
  EXPECT_THAT(lines, EndsWith("] to stderr\n"));
  EXPECT_EQ(SetLogSink(nullptr), nullptr);
}

TEST(LogTest, ASinkMayLogAndBeTakenAwayWhileItRuns) {
  std::vector<std::string> texts;
  SetLogSink([&](const LogEntry& entry) {
    texts.push_back(entry.text);
    if (entry.text == "outer") DIVVY_LOG(INFO) << "inner";
    SetLogSink(nullptr);
  });
  DIVVY_LOG(INFO) << "outer";
  EXPECT_THAT(texts, ElementsAre("outer", "inner"));
}

// For the status page. What a sink takes or the options leave out is kept, too.
TEST(LogTest, TheLastWarningsAreKept) {
  const absl::Time begin = absl::Now();
  SetLogSink([](const LogEntry&) {});
  for (int i = 0; i < 60; ++i) {
    DIVVY_LOG(INFO) << "nothing " << i;
    DIVVY_LOG(WARNING) << "warning " << i;
  }
  DIVVY_LOG(ERROR) << std::string(10'000, 'x');
  SetLogSink(nullptr);
  const std::vector<LoggedEntry> kept = RecentWarnings();
  ASSERT_EQ(kept.size(), 50u);
  EXPECT_EQ(kept[0].text, "warning 11");
  EXPECT_EQ(kept[48].text, "warning 59");
  EXPECT_EQ(kept[48].severity, Severity::kWarning);
  EXPECT_EQ(kept[49].severity, Severity::kError);
  EXPECT_EQ(kept[49].text, std::string(1960, 'x') + "... [8040 more bytes]");
  EXPECT_GE(kept[0].at, begin);
}

TEST(LogTest, TheLastEntriesAreKeptWithTheirSource) {
  SetLogSink([](const LogEntry&) {});
  const int64_t before = LastEntries().written;
  DIVVY_LOG(INFO) << "one\nof two lines";
  DIVVY_LOG(WARNING) << "two";
  SetLogSink(nullptr);
  const RecentLog last = LastEntries(2);
  EXPECT_EQ(last.written, before + 2);
  ASSERT_EQ(last.entries.size(), 2u);
  EXPECT_EQ(last.entries[0].text, "one\nof two lines");
  EXPECT_EQ(last.entries[0].severity, Severity::kInfo);
  EXPECT_EQ(last.entries[0].file, "observability_test.cc");
  EXPECT_EQ(last.entries[0].line + 1, last.entries[1].line);
  EXPECT_EQ(last.entries[1].severity, Severity::kWarning);
}

TEST(LogTest, WhatIsKeptOfTheLogIsBounded) {
  SetLogSink([](const LogEntry&) {});
  for (int i = 0; i < 1500; ++i) DIVVY_LOG(INFO) << "entry " << i;
  const RecentLog many = LastEntries();
  EXPECT_EQ(many.entries.size(), RecentLog::kMostEntries);
  EXPECT_EQ(many.entries.back().text, "entry 1499");
  EXPECT_EQ(many.entries.front().text, "entry 500");
  for (int i = 0; i < 300; ++i) DIVVY_LOG(INFO) << std::string(100'000, 'x');
  SetLogSink(nullptr);
  size_t bytes = 0;
  for (const LoggedEntry& entry : LastEntries().entries) bytes += entry.text.size();
  EXPECT_LE(bytes, RecentLog::kMostBytes);
  EXPECT_GT(bytes, RecentLog::kMostBytes - 2001);
  // A text of just the limit is whole.
  SetLogSink([](const LogEntry&) {});
  DIVVY_LOG(INFO) << std::string(2000, 'y');
  SetLogSink(nullptr);
  EXPECT_EQ(LastEntries(1).entries[0].text, std::string(2000, 'y'));
}

TEST(LogTest, LinesOfManyThreadsStayWhole) {
  const std::string lines = Stderr({}, [] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int n = 0; n < 100; ++n) DIVVY_LOG(INFO) << "abcdefghij";
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  const std::vector<std::string> each = absl::StrSplit(lines, '\n', absl::SkipEmpty());
  EXPECT_EQ(each.size(), 400u);
  for (const std::string& line : each) ASSERT_THAT(line, EndsWith("] abcdefghij"));
}

TEST(CheckTest, PassesWhatHoldsAndAbortsWithTheConditionOtherwise) {
  int evaluated = 0;
  DIVVY_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(DIVVY_CHECK(1 + 1 == 3), "observability_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

// ---- Metrics

TEST(MetricsTest, OneNameAndLabelsAreOneMetric) {
  MetricsRegistry metrics;
  Counter& ok = metrics.GetCounter("divvy_commits_total", "Commits.", {{"code", "ok"}});
  ok.Add(2);
  metrics.GetCounter("divvy_commits_total", "ignored", {{"code", "ok"}}).Add(1);
  metrics.GetCounter("divvy_commits_total", "", {{"code", "aborted"}}).Add(5);
  EXPECT_EQ(ok.value(), 3u);
  EXPECT_EQ(metrics.ToPrometheusText(),
            "# HELP divvy_commits_total Commits.\n"
            "# TYPE divvy_commits_total counter\n"
            "divvy_commits_total{code=\"aborted\"} 5\n"
            "divvy_commits_total{code=\"ok\"} 3\n");
}

TEST(MetricsTest, GaugesPrintTheShortestNumberThatReadsBackTheSame) {
  MetricsRegistry metrics;
  Gauge& gauge = metrics.GetGauge("g", "A gauge.");
  const auto printed = [&](double value) {
    gauge.Set(value);
    const std::string text = metrics.ToPrometheusText();
    return text.substr(text.rfind(' ') + 1);
  };
  EXPECT_EQ(printed(0.1), "0.1\n");
  EXPECT_EQ(printed(-3), "-3\n");
  EXPECT_EQ(printed(1.0 / 3), "0.33333333333333331\n");
  EXPECT_EQ(printed(std::numeric_limits<double>::infinity()), "+Inf\n");
  EXPECT_EQ(printed(-std::numeric_limits<double>::infinity()), "-Inf\n");
  EXPECT_EQ(printed(std::nan("")), "NaN\n");
  gauge.Set(1);
  gauge.Add(-0.25);
  EXPECT_EQ(gauge.value(), 0.75);
}

TEST(MetricsTest, AHistogramCountsUpToAndWithEachBound) {
  MetricsRegistry metrics;
  Histogram& histogram =
      metrics.GetHistogram("divvy_pull_seconds", "Pulls.", {{"role", "worker"}}, {0.5, 2, 3});
  EXPECT_THAT(histogram.bounds(), ElementsAre(0.5, 1, 2));
  for (const double value : {0.25, 0.5, 0.75, 2.0, 2.5, -1.0}) histogram.Observe(value);
  histogram.Observe(std::nan(""));
  EXPECT_THAT(histogram.counts(), ElementsAre(3, 1, 1, 1));
  EXPECT_EQ(metrics.ToPrometheusText(),
            "# HELP divvy_pull_seconds Pulls.\n"
            "# TYPE divvy_pull_seconds histogram\n"
            "divvy_pull_seconds_bucket{role=\"worker\",le=\"0.5\"} 3\n"
            "divvy_pull_seconds_bucket{role=\"worker\",le=\"1\"} 4\n"
            "divvy_pull_seconds_bucket{role=\"worker\",le=\"2\"} 5\n"
            "divvy_pull_seconds_bucket{role=\"worker\",le=\"+Inf\"} 6\n"
            "divvy_pull_seconds_sum{role=\"worker\"} 5\n"
            "divvy_pull_seconds_count{role=\"worker\"} 6\n");
}

TEST(MetricsTest, TheUsualBucketsReachFromMicrosecondsToMinutes) {
  const Histogram histogram{BucketOptions()};
  EXPECT_EQ(histogram.bounds().size(), 24u);
  EXPECT_DOUBLE_EQ(histogram.bounds().front(), 1e-5);
  EXPECT_NEAR(histogram.bounds().back(), 83.9, 0.1);
}

TEST(MetricsTest, HistogramsOfOneNameShareTheirBuckets) {
  MetricsRegistry metrics;
  metrics.GetHistogram("h", "", {{"a", "1"}}, {1, 10, 2});
  EXPECT_THAT(metrics.GetHistogram("h", "", {{"a", "2"}}, {5, 2, 9}).bounds(), ElementsAre(1, 10));
}

TEST(MetricsTest, HelpAndLabelsAreEscaped) {
  MetricsRegistry metrics;
  metrics.GetCounter("c", "back\\slash\nline \"quote\"", {{"l", "back\\slash\nline \"quote\""}});
  EXPECT_EQ(metrics.ToPrometheusText(),
            "# HELP c back\\\\slash\\nline \"quote\"\n"
            "# TYPE c counter\n"
            "c{l=\"back\\\\slash\\nline \\\"quote\\\"\"} 0\n");
}

TEST(MetricsTest, AMistakeInTheSourceAbortsAtOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  MetricsRegistry metrics;
  metrics.GetCounter("taken", "");
  EXPECT_DEATH(metrics.GetGauge("taken", ""), "check failed");
  EXPECT_DEATH(metrics.GetCounter("no-dashes", ""), "check failed");
  EXPECT_DEATH(metrics.GetCounter("1st", ""), "check failed");
  EXPECT_DEATH(metrics.GetCounter("c", "", {{"no-dashes", ""}}), "check failed");
  EXPECT_DEATH(metrics.GetHistogram("h", "", {{"le", ""}}), "check failed");
  EXPECT_DEATH(metrics.GetHistogram("h", "", {}, {0, 2, 3}), "check failed");
}

TEST(MetricsTest, NothingIsLostWhenManyThreadsCount) {
  MetricsRegistry metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&metrics] {
      for (int n = 0; n < 500; ++n) {
        metrics.GetCounter("c", "").Add(1);
        metrics.GetGauge("g", "").Add(0.5);
        metrics.GetHistogram("h", "").Observe(1);
        if (n % 100 == 0) metrics.ToPrometheusText();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.GetCounter("c", "").value(), 2000u);
  EXPECT_EQ(metrics.GetGauge("g", "").value(), 1000);
  EXPECT_EQ(metrics.GetHistogram("h", "").sum(), 2000);
}

TEST(MetricsTest, TheProcessHasOneRegistryOfItsOwn) {
  EXPECT_EQ(&MetricsRegistry::Default(), &MetricsRegistry::Default());
  EXPECT_EQ(MetricsRegistry().ToPrometheusText(), "");
}

}  // namespace
}  // namespace divvy
