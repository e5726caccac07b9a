// Runs in a process of its own, because a sealed registry stays sealed.
#include "gtest/gtest.h"
#include "strategy/step.h"

namespace divvy {
namespace {

absl::Status DoNothing(WorkerContext&) { return absl::OkStatus(); }
const Step kEarly("early", DoNothing);

TEST(StepRegistryTest, AStepThatIsMadeAfterMainHasBegunIsRefusedByName) {
  StepRegistry::Seal();
  const Step late("late", DoNothing);
  EXPECT_TRUE(StepRegistry::Get("early").ok());
  const absl::Status refused = StepRegistry::Get("late").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("the Step \"late\" was constructed after main began"),
            std::string::npos)
      << refused;
  EXPECT_NE(refused.message().find("const at namespace scope"), std::string::npos) << refused;
}

}  // namespace
}  // namespace divvy
