#include "program/own_program.h"

#include "absl/flags/flag.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategy/program.h"
#include "strategy/step.h"

ABSL_FLAG(int, test_rows, 3, "of the test's program");

namespace divvy {
namespace {

absl::StatusOr<int64_t> Double(WorkerContext&, int64_t number) { return 2 * number; }
const Step kDouble("double", Double);

absl::Status Train(Coordinator&) { return absl::OkStatus(); }
DIVVY_PROGRAM(Train);

TEST(OwnProgramTest, HasItsStepsItsFlagsAndTheBuildOfItsFile) {
  const ProgramDescription own = DescribeOwnProgram();
  EXPECT_THAT(own.steps, testing::ElementsAre(
                             testing::Pair("double", StepRegistry::Find("double")->signature)));
  EXPECT_THAT(own.flags, testing::ElementsAre("test_rows"));
  EXPECT_THAT(own.build, testing::MatchesRegex("[0-9a-f]+"));
}

}  // namespace
}  // namespace divvy
