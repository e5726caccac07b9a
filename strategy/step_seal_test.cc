// In a process of its own: what is sealed stays so.
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
  EXPECT_NE(refused.message().find("the Step \"late\" was made after main had begun"),
            std::string::npos)
      << refused;
  EXPECT_NE(refused.message().find("const at namespace scope"), std::string::npos) << refused;
}

}  // namespace
}  // namespace divvy
