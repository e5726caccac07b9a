// What the parts of the simulated program share with the cluster that it runs on.
#ifndef DIVVY_TESTS_SIM_PROGRAM_SITE_H_
#define DIVVY_TESTS_SIM_PROGRAM_SITE_H_

#include <cstdint>
#include <functional>
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

// One that was asked to lie where the first shard of the other does.
constexpr char kNear[] = "near", kNearTo[] = "v0";

// One that no server has the memory for, where memory is limited.
constexpr char kHuge[] = "huge";
constexpr int64_t kTightMemory = 1 << 20;

// Every element of a direct write is serial * kWriteUnit, or a little more: so a commit names the
// write that it is of.
constexpr int64_t kWriteUnit = 1'000'000;

// A direct write of the program: one of the three.
struct DirectWrite {
  // Given by ProgramSite::Write.
  int64_t serial = 0;
  // likewise
  int64_t begun = 0;
  // added to variables; each amount is that of the serial
  std::vector<Delta> deltas;
  // assigned; all of them: in one assign of the whole variable
  std::vector<int64_t> cells;
  // The first values of this variable, which has kBroughtRows x kBroughtWidth elements.
  std::string brought;
};
constexpr int64_t kBroughtRows = 5, kBroughtWidth = 2;

// REQUIRES: outlives what it is given to. Callbacks run in the life of the program in which they
// were given, and are dropped when that is over.
class ProgramSite {
 public:
  virtual ~ProgramSite() = default;
  virtual CoordinatorCore& core() = 0;
  virtual Random& random() = 0;
  virtual bool may_fault() const = 0;  // faults have not stopped
  // Whether this life of the program goes on.
  virtual std::function<bool()> Alive() = 0;
  virtual void After(absl::Duration delay, std::function<void()> then) = 0;
  // Writes, and counts it as finished where `then` is called.
  virtual void Write(DirectWrite write, std::function<void()> then) = 0;
  // Variables as the finished steps and writes have made them.
  virtual const std::vector<std::vector<int64_t>>& values() const = 0;
  // An error that ends this life of the program. False: it is of another kind.
  virtual bool EndsProgram(const absl::Status& error) = 0;
  virtual void Violated(absl::string_view rule, const std::string& what) = 0;
  virtual void Tell(absl::string_view text) = 0;  // to the trace
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_PROGRAM_SITE_H_
