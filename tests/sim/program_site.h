// The interface between the simulated cluster and the parts of its program.
#ifndef DIVVY_TESTS_SIM_PROGRAM_SITE_H_
#define DIVVY_TESTS_SIM_PROGRAM_SITE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "coordinator/core/coordinator_core.h"
#include "tests/sim/order_judge.h"

namespace divvy::sim {

// Integer weights that an entry adds to the rows of a variable.
struct Delta {
  int variable = 0;
  std::vector<int64_t> ids;  // empty: the whole variable
  int64_t amount = 1;        // added to each element, once for each id
};

// The variable "cells": one column of integers, a row of which is a cell.
constexpr int64_t kCells = 4;
constexpr char kCellsName[] = "cells";
constexpr char kTableName[] = "table";
// All keys that steps read. They write to all but the first.
constexpr int64_t kTableKeys[] = {12'345,
                                  0,
                                  -1,
                                  std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max(),
                                  int64_t{1} << 40,
                                  int64_t{3} << 40,
                                  77,
                                  100,
                                  101,
                                  102,
                                  104,
                                  -106,
                                  -108,
                                  110,
                                  112};

// A variable that the program asks to be placed with the first shard of another one.
constexpr char kNear[] = "near", kNearTo[] = "v0";

// A variable that is too large for every server, where memory is limited.
constexpr char kHuge[] = "huge";
constexpr int64_t kTightMemory = 4 << 20;

// Every element of a direct write is serial * kWriteUnit, or a little more. So each commit shows
// which write it belongs to.
constexpr int64_t kWriteUnit = 1'000'000;

// A direct write of the program: one of `deltas`, `cells` and `brought` is set.
struct DirectWrite {
  // Set by ProgramSite::Write, as is `begun`.
  int64_t serial = 0;
  int64_t begun = 0;
  // Added to variables. Each amount is serial * kWriteUnit.
  std::vector<Delta> deltas;
  // Values for all cells, written by one assign of the whole variable.
  std::vector<int64_t> cells;
  // The name of a variable with kBroughtRows x kBroughtWidth elements, which is created with
  // values.
  std::string brought;
};
constexpr int64_t kBroughtRows = 5, kBroughtWidth = 2;

// What the cluster offers to a part of the program. A callback runs only in the life of the program
// in which it was given; it is dropped when that life is over. REQUIRES: the site outlives the
// parts that use it.
class ProgramSite {
 public:
  virtual ~ProgramSite() = default;
  virtual CoordinatorCore& core() = 0;
  virtual Random& random() = 0;
  virtual bool may_fault() const = 0;  // false once faults have stopped
  // A function that tells whether this life of the program still goes on.
  virtual std::function<bool()> Alive() = 0;
  virtual void After(absl::Duration delay, std::function<void()> then) = 0;
  // Sends a direct write. Counts it as finished when `then` is called.
  virtual void Write(DirectWrite write, std::function<void()> then) = 0;
  // The values of the variables that the finished steps and writes add up to.
  virtual const std::vector<std::vector<int64_t>>& values() const = 0;
  // Ends this life of the program if the error is one that ends it; otherwise returns false.
  virtual bool EndsProgram(const absl::Status& error) = 0;
  virtual void Violated(absl::string_view rule, const std::string& what) = 0;
  virtual void Tell(absl::string_view text) = 0;  // writes to the trace
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_PROGRAM_SITE_H_
