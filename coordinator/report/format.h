// Turns figures of progress into text. All functions are pure.
#ifndef DIVVY_COORDINATOR_REPORT_FORMAT_H_
#define DIVVY_COORDINATOR_REPORT_FORMAT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "variables/layout.h"

namespace divvy {

std::string FormatLength(absl::Duration length);  // "0.4 s", "12.3 s", "3:05", "1:02:45"

// Everything that one progress line shows.
struct ProgressLine {
  CoordinatorSnapshot snapshot;
  // The number of epochs that the program intends to train.
  std::optional<int64_t> epochs;
  // Means over the last interval.
  std::map<std::string, double> metrics;
  // The greatest staleness of the steps in the last interval.
  uint64_t max_staleness = 0;
  // 0: not known.
  double examples_per_second = 0;
  // The time until the pass ends. Nullopt: not known.
  std::optional<absl::Duration> left;
};

// Whether `work` has lasted long enough to be shown on the line: a second.
bool IsWorthSaying(const CoordinatorSnapshot::Work& work);

// "restore 45 % of 2.6 GiB, 12.2 s left"; "checkpoint 0 % of 96 MiB" if nothing is done yet;
// "restore" if the total is not known. The time left is what the rest takes at the rate so far.
std::string FormatWork(const CoordinatorSnapshot::Work& work);

// One line, without control codes:
//
//   epoch 19/30  [=====>    ]  62 %  step 837/1,350  41,200 examples/s  loss 0.031  ps 2/2
//   workers 2/2  0:01 left
//
// A job with dynamic tables has "table rows 12,345", and "table user is full: 17 keys refused" for
// each table in which keys found no room. A part that is not known is left out. Work that is worth
// saying, and waits of at least 5 s, stand behind the step, where also a terminal of 80 columns has
// room for them:
//
//   epoch 19/30  62 %  step 837/1,350  restore 45 % of 2.6 GiB, 12.2 s left  ps 2/2  workers 2/2
//
// `bar`: whether the line has the bar, if nothing stands behind the step.
std::string FormatProgress(const ProgressLine& line, bool bar);

// One line for each variable, such as:
//
//   mlp/0/kernel  float32 [64, 128]  32 KiB + 64 KiB slots  1 shard: ps 0
std::string FormatVariables(const Layout& layout);

// The points of the tables in event files: "tables/user/rows", and so on for the other numbers of
// TablePartStats.
std::map<std::string, double> TablePoints(const CoordinatorSnapshot& snapshot);

// "loss 0.094  accuracy 0.975": "loss" first, the other keys in order.
std::string FormatMetrics(const std::map<std::string, double>& metrics);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_FORMAT_H_
