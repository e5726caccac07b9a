// Judges one golden file: one test for each case, named file#number.
//   bazel test //tests/conformance:partitioners_test
//   --test_arg=--gtest_filter='golden.partitioners#12'
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "ops/testing/place.h"
#include "tests/conformance/golden.h"

namespace divvy::conformance {
namespace {

class CaseTest : public testing::Test {
 public:
  CaseTest(const Family& family, Json test_case) : family_(family), case_(std::move(test_case)) {}
  void TestBody() override {
    const Verdict verdict = RunJudge(family_.judge, case_);
    if (verdict.outcome == Outcome::kDeviating) GTEST_SKIP() << "deviating: " << verdict.message;
    if (verdict.outcome == Outcome::kNotCovered) GTEST_SKIP() << "not covered: " << verdict.message;
    EXPECT_EQ(verdict.outcome, Outcome::kPassed) << verdict.message << "\n"
                                                 << case_.dump().substr(0, 2000);
  }

 private:
  const Family& family_;
  const Json case_;
};

// A file that cannot be read gives one failing test. Without it there would be no test.
class ReadableTest : public testing::Test {
 public:
  explicit ReadableTest(absl::Status status) : status_(std::move(status)) {}
  void TestBody() override { EXPECT_EQ(status_, absl::OkStatus()); }

 private:
  const absl::Status status_;
};

void RegisterCases(const Family& family) {
  const std::string name(absl::StripSuffix(family.file, ".json"));
  const absl::StatusOr<std::vector<Json>> cases = ReadCases(family.file);
  testing::RegisterTest(
      "golden", absl::StrCat(name, ".is_readable").c_str(), nullptr, nullptr, __FILE__, __LINE__,
      [status = cases.status()]() -> testing::Test* { return new ReadableTest(status); });
  if (!cases.ok()) return;
  for (size_t number = 0; number < cases->size(); ++number) {
    testing::RegisterTest("golden", absl::StrCat(name, "#", number).c_str(), nullptr, nullptr,
                          __FILE__, __LINE__,
                          [&family, test_case = (*cases)[number]]() -> testing::Test* {
                            return new CaseTest(family, test_case);
                          });
  }
}

}  // namespace
}  // namespace divvy::conformance

// The first argument after those of gtest is the file to judge.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!divvy::TestDevice().ok()) GTEST_FLAG_SET(filter, "GpuTest.*");  // reports the reason
  for (const divvy::conformance::Family& family : divvy::conformance::Families()) {
    if (argc == 2 && family.file == argv[1]) {
      divvy::conformance::RegisterCases(family);
      return RUN_ALL_TESTS();
    }
  }
  std::fprintf(stderr, "usage: %s FILE, one of the files in families.cc\n", argv[0]);
  return 2;
}
