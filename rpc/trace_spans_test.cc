#include "rpc/trace_spans.h"

#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace divvy {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

// Queued for 2 ms; 40 ms from dispatch to report, of which the worker knows 30.
v1::TracedStep Step() {
  v1::TracedStep step;
  step.set_step(0x21);
  step.set_attempt(1);
  step.set_ordinal(130);
  step.set_function("train");
  step.set_worker(3);
  step.set_outcome(v1::Report::OK);
  step.set_ended_ns(1'000'000 * kMs);
  step.set_queued_ns(2 * kMs);
  step.set_total_ns(40 * kMs);
  v1::StepTrace& parts = *step.mutable_parts();
  parts.set_began_ns(4 * kMs);
  parts.set_computed_ns(20 * kMs);
  parts.set_committed_ns(22 * kMs);
  parts.set_reported_ns(30 * kMs);
  const auto add = [&parts](bool commit, int ps, int64_t since, int64_t took, int64_t served) {
    v1::StepTrace::Call& call = *parts.add_calls();
    call.set_commit(commit);
    call.set_ps(ps);
    call.set_since_ns(since * kMs);
    call.set_took_ns(took * kMs);
    call.set_served_ns(served * kMs);
  };
  add(false, 1, 4, 6, 3);
  add(false, 0, 4, 2, 0);
  add(true, 1, 22, 8, 5);
  return step;
}

// "worker 3 compute 11+16"
std::vector<std::string> Texts(const v1::TracedStep& step) {
  std::vector<std::string> texts;
  for (const TraceSpan& span : SpansOf(step))
    texts.push_back(absl::StrCat(v1::Job_Name(span.job), " ", span.index, " ", span.name, " ",
                                 absl::ToInt64Milliseconds(span.begin), "+",
                                 absl::ToInt64Milliseconds(span.took)));
  return texts;
}

// The 10 ms that the worker does not know are the way of the dispatch and of the report.
TEST(TraceSpansTest, TheWorkersTimesLieBetweenDispatchAndReport) {
  EXPECT_THAT(
      Texts(Step()),
      ElementsAre("CHIEF 0 queued 0+2", "CHIEF 0 dispatch 2+5", "CHIEF 0 report 37+5",
                  "WORKER 3 waits 7+4", "WORKER 3 compute 11+16", "WORKER 3 prepares 27+2",
                  "WORKER 3 commits 29+8", "PS 0 pull 11+2", "PS 1 pull 11+6", "PS 1 commit 29+8"));
}

TEST(TraceSpansTest, AStepThatWritesNothingHasNoCommits) {
  v1::TracedStep step = Step();
  step.clear_ordinal();
  step.mutable_parts()->set_committed_ns(0);
  step.mutable_parts()->set_computed_ns(30 * kMs);
  step.mutable_parts()->mutable_calls()->DeleteSubrange(1, 2);
  EXPECT_THAT(Texts(step),
              ElementsAre("CHIEF 0 queued 0+2", "CHIEF 0 dispatch 2+5", "CHIEF 0 report 37+5",
                          "WORKER 3 waits 7+4", "WORKER 3 compute 11+26", "PS 1 pull 11+6"));
  EXPECT_EQ(NameOf(step), "train, read-only, worker 3");
}

TEST(TraceSpansTest, OfALostWorkerOnlyTheCoordinatorKnows) {
  v1::TracedStep step = Step();
  step.clear_parts();
  step.clear_outcome();
  step.set_attempt(2);
  EXPECT_THAT(Texts(step), ElementsAre("CHIEF 0 queued 0+2", "CHIEF 0 lost 2+40"));
  EXPECT_EQ(NameOf(step), "train, training step 131, worker 3, attempt 2");
  EXPECT_EQ(EndOf(step), "worker lost");
}

// The messages took long, and the worker was fast. It is not lost.
TEST(TraceSpansTest, OfAStepWhoseWorkerSentNoTimesTheWholeIsShown) {
  v1::TracedStep step = Step();
  step.clear_parts();
  EXPECT_THAT(Texts(step), ElementsAre("CHIEF 0 queued 0+2", "CHIEF 0 not told 2+40"));
  EXPECT_EQ(EndOf(step), "ok");
}

// A worker's clock may run fast, or the worker may lie.
TEST(TraceSpansTest, WhatAWorkerClaimsStaysWithinItsStep) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  v1::TracedStep step = Step();
  v1::StepTrace& parts = *step.mutable_parts();
  parts.set_began_ns(kMost);
  parts.set_computed_ns(1);
  parts.set_committed_ns(kMost);
  parts.set_reported_ns(kMost);
  for (v1::StepTrace::Call& call : *parts.mutable_calls()) {
    call.set_since_ns(kMost);
    call.set_took_ns(kMost);
    call.set_served_ns(kMost);
  }
  for (const TraceSpan& span : SpansOf(step)) {
    EXPECT_GE(span.begin, absl::ZeroDuration()) << span.name;
    EXPECT_GE(span.took, absl::ZeroDuration()) << span.name;
    EXPECT_LE(span.begin + span.took, absl::Milliseconds(42)) << span.name;
    EXPECT_LE(span.served, span.took) << span.name;
  }
}

// W3C Trace Context: version 00, 32 and 16 hexadecimal digits that are not all 0, sampled.
TEST(TraceSpansTest, TheTraceIdIsTheJobAndTheEntry) {
  EXPECT_EQ(TraceparentOf(0xabc, Step()),
            "00-0000000000000abc0000000000000021-0000000000000001-01");
}

TEST(TraceSpansTest, JsonHasTheNamesOfTheProtocol) {
  v1::GetTracesReply traces;
  traces.set_job_id(0xabc);
  *traces.add_last() = Step();
  const auto json = nlohmann::json::parse(JsonOf(traces));
  EXPECT_EQ(json["last"][0]["function"], "train");
  EXPECT_EQ(json["last"][0]["parts"]["calls"][2]["commit"], true);
  EXPECT_EQ(json["last"][0]["traceparent"], TraceparentOf(0xabc, Step()));
  EXPECT_TRUE(json["slowest"].empty());
}

// With it a call of a parameter server is found in the steps of other roles.
TEST(TraceSpansTest, JsonOfACallHasTheTraceIdOfItsStep) {
  v1::GetTracesReply traces;
  traces.set_job_id(0xabc);
  traces.add_last_calls()->set_step(0x21);
  traces.add_slowest_calls()->set_step(0x22);
  const auto json = nlohmann::json::parse(JsonOf(traces));
  EXPECT_EQ(json["last_calls"][0]["trace_id"], TraceIdOf(0xabc, 0x21));
  EXPECT_EQ(json["slowest_calls"][0]["trace_id"], TraceIdOf(0xabc, 0x22));
}

// JSON goes to terminals. DEL and the controls from 0x80 on may command one.
TEST(TraceSpansTest, JsonHoldsNoByteThatATerminalObeys) {
  v1::TracedStep step = Step();
  step.set_function("a\x7f b\xc2\x9b c\x1b[2J \xc3\xa9");
  v1::GetTracesReply traces;
  *traces.add_last() = step;
  traces.add_last_calls()->set_refusal(step.function());
  for (const std::string& json :
       {JsonOf(1, step), JsonOf(traces), ChromeJsonOf(1, std::vector<v1::TracedStep>{step})}) {
    EXPECT_TRUE(nlohmann::json::accept(json)) << json;
    for (const char c : json)
      EXPECT_TRUE((c >= ' ' && c < '\x7f') || c == '\n') << static_cast<int>(c);
  }
}

TEST(TraceSpansTest, TheLargestNumbersOverflowNothing) {
  v1::TracedStep step = Step();
  step.set_ordinal(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(NumberOf(step), uint64_t{1} << 63);
  TraceSpan span;
  span.retries = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(TriesText(span), "sent 4294967296 times");
  step.mutable_parts()->set_left_out(1);
  EXPECT_EQ(LeftOutText(step), "1 shorter pull or commit is not shown");
}

// Perfetto wants events of one thread that are nested or follow each other, and names for the
// processes.
TEST(TraceSpansTest, ChromesEventsOfAThreadDoNotCross) {
  const auto json = nlohmann::json::parse(ChromeJsonOf(0xabc, {Step(), Step()}));
  std::set<std::string> processes;
  struct Event {
    double begin, end;
  };
  std::map<std::pair<int, int>, std::vector<Event>> threads;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M") {
      processes.insert(event["args"]["name"]);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    const double begin = event["ts"], took = event["dur"];
    threads[{event["pid"], event["tid"]}].push_back({begin, begin + took});
  }
  EXPECT_THAT(processes, ElementsAre("chief", "ps 0", "ps 1", "worker 3"));
  for (const auto& [thread, events] : threads) {
    for (const Event& a : events) {
      for (const Event& b : events) {
        const bool crosses = a.begin < b.begin && b.begin < a.end && a.end < b.end;
        EXPECT_FALSE(crosses) << thread.first << " " << thread.second;
      }
    }
  }
}

}  // namespace
}  // namespace divvy
