#include "bench/results/result.h"

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/map_reader.h"

namespace divvy::results {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<float> Floats(const Tensor& tensor) {
  const absl::Span<const float> values = *tensor.values<float>();
  return {values.begin(), values.end()};
}

// What SGD with the rate 1 adds to the counter in a step over a batch, whose loss is the mean.
std::vector<float> AddedBy(int64_t batch) {
  const ExampleCounter counter;
  MapReader variables({{counter.variables[0].name, *Tensor::Zeros(DType::kFloat32, {5})}});
  GradientTape tape(variables);
  const Var losses = counter(tape, *Tensor::Zeros(DType::kFloat32, {batch}));
  EXPECT_THAT(Floats(*losses.Value()), Each(0));
  const auto gradients = tape.GradientOfSum(losses, 1.0 / static_cast<double>(batch));
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  if (!gradients.ok()) return {};
  std::vector<float> added =
      Floats(std::get<Tensor>(gradients->entries().at(counter.variables[0].name)));
  for (float& element : added) element = -element;
  return added;
}

TEST(ExampleCounterTest, AStepAddsOneAndTheDigitsOfItsBatch) {
  EXPECT_THAT(AddedBy(1), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(AddedBy(31), ElementsAre(1, 31, 0, 0, 0));
  EXPECT_THAT(AddedBy(32), ElementsAre(1, 0, 1, 0, 0));
  EXPECT_THAT(AddedBy(1000), ElementsAre(1, 8, 31, 0, 0));
  EXPECT_THAT(AddedBy((1 << 20) - 1), ElementsAre(1, 31, 31, 31, 31));
}

TEST(ExampleCounterTest, ItIsAppliedByPlainSgdWhateverTheModelUses) {
  const ExampleCounter counter;
  ASSERT_EQ(counter.variables.size(), 1);
  ASSERT_TRUE(counter.variables[0].optimizer.has_value());
  EXPECT_TRUE(std::holds_alternative<Sgd>(*counter.variables[0].optimizer));
}

TEST(ExampleCounterTest, AnEvaluationReadsAndCountsNothing) {
  MapReader variables;
  GradientTape tape(variables, GradientTape::Mode::kInference);
  const Var losses = ExampleCounter()(tape, Tensor::Vector<float>({1, 2}));
  EXPECT_THAT(Floats(*losses.Value()), ElementsAre(1, 2));
  EXPECT_TRUE(variables.calls().empty());
}

TEST(ValuesOfTest, AnOutputThatIsNotThereIsNamed) {
  const Outputs outputs = {{"logit", Tensor::Vector<float>({1, 2})}};
  EXPECT_THAT(*ValuesOf(outputs, "logit"), ElementsAre(1, 2));
  const absl::Status missing = ValuesOf(outputs, "label").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), ::testing::HasSubstr("no output label"));
}

}  // namespace
}  // namespace divvy::results
