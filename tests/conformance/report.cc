// bazel run //tests/conformance:report
// Prints how Divvy's answers compare with TensorFlow's, file by file. DIVVY_GOLDEN_DIR names
// another directory of cases. Exit code 1: a case failed, or a file cannot be read.
#include <array>
#include <iomanip>
#include <iostream>

#include "tests/conformance/golden.h"

namespace divvy::conformance {
namespace {

constexpr int kShownFailures = 5;  // for each file

struct Counts {
  std::array<int, 4> of{};  // counts by Outcome
  int unreadable = 0;
};

void PrintRow(const std::string& name, const std::array<std::string, 4>& columns) {
  std::cout << std::left << std::setw(24) << name << std::right;
  for (const std::string& column : columns) std::cout << std::setw(13) << column;
  std::cout << "\n";
}

void PrintCounts(const std::string& name, const Counts& counts) {
  std::array<std::string, 4> columns;
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = std::to_string(counts.of[i]);
  PrintRow(name, columns);
}

Counts JudgeFile(const Family& family) {
  Counts counts;
  const absl::StatusOr<std::vector<Json>> cases = ReadCases(family.file);
  if (!cases.ok()) {
    std::cout << cases.status().message() << "\n";
    counts.unreadable = 1;
    return counts;
  }
  for (size_t number = 0; number < cases->size(); ++number) {
    const Verdict verdict = RunJudge(family.judge, (*cases)[number]);
    const int so_far = ++counts.of[static_cast<size_t>(verdict.outcome)];
    if (verdict.outcome == Outcome::kFailed && so_far <= kShownFailures)
      std::cout << family.file << "#" << number << ": " << verdict.message << "\n";
  }
  return counts;
}

int Report() {
  std::cout << "golden files of " << GoldenDirectory() << "\n";
  PrintRow("file", {"passed", "failed", "deviating", "not covered"});
  Counts total;
  for (const Family& family : Families()) {
    const Counts counts = JudgeFile(family);
    for (size_t i = 0; i < total.of.size(); ++i) total.of[i] += counts.of[i];
    total.unreadable += counts.unreadable;
    PrintCounts(family.file, counts);
  }
  PrintCounts("total", total);
  return total.of[static_cast<size_t>(Outcome::kFailed)] + total.unreadable > 0 ? 1 : 0;
}

}  // namespace
}  // namespace divvy::conformance

int main() { return divvy::conformance::Report(); }
