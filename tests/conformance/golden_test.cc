// Tests of the judges' tools. A comparison that accepted everything would judge nothing.
#include "tests/conformance/golden.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace divvy::conformance {
namespace {

Json Parse(const char* text) { return Json::parse(text); }

const Family& FamilyOf(const std::string& file) {
  for (const Family& family : Families()) {
    if (family.file == file) return family;
  }
  return Families().front();
}

Verdict JudgeText(const std::string& file, const char* text) {
  return RunJudge(FamilyOf(file).judge, Parse(text));
}

TEST(GoldenTest, ReadsTensorsWithNumbersThatJsonHasNot) {
  const Tensor tensor = *TensorFrom(Parse(
      R"({"dtype": "float32", "shape": [2, 2], "values": [1.5, "NaN", "Infinity", "-Infinity"]})"));
  EXPECT_EQ(tensor.shape(), Shape({2, 2}));
  EXPECT_EQ((*tensor.values<float>())[0], 1.5f);
  EXPECT_TRUE(std::isnan((*tensor.values<float>())[1]));
  EXPECT_EQ((*tensor.values<float>())[3], -INFINITY);
}

TEST(GoldenTest, ReadsIntegersExactly) {
  const Tensor tensor =
      *TensorFrom(Parse(R"({"dtype": "int64", "shape": [1], "values": [9007199254740993]})"));
  EXPECT_EQ(*tensor.Reshape({})->scalar<int64_t>(), 9007199254740993);
}

TEST(GoldenTest, RefusesTensorsThatAreNone) {
  EXPECT_FALSE(TensorFrom(Parse(R"({"dtype": "float32", "shape": [2], "values": [1]})")).ok());
  EXPECT_FALSE(TensorFrom(Parse(R"({"dtype": "float99", "shape": [1], "values": [1]})")).ok());
  EXPECT_FALSE(TensorFrom(Parse(R"({"dtype": "string", "shape": [1], "values": ["a"]})")).ok());
  EXPECT_FALSE(
      SlicesFrom(
          Parse(
              R"({"ids": {"dtype": "int64", "shape": [1], "values": [3]}, "rows": {"dtype": "float32", "shape": [1], "values": [1]}})"),
          3)
          .ok());
}

TEST(GoldenTest, ToleranceIsRelativePlusAbsolute) {
  EXPECT_TRUE(Near(101, 100, {0.01, 0}));
  EXPECT_FALSE(Near(101.1, 100, {0.01, 0}));
  EXPECT_TRUE(Near(1e-9, 0, {0.01, 1e-8}));
  EXPECT_FALSE(Near(1e-7, 0, {0.01, 1e-8}));
  EXPECT_TRUE(Near(NAN, NAN, {}));
  EXPECT_FALSE(Near(NAN, 1, {1, 1}));
  EXPECT_FALSE(Near(1, NAN, {1, 1}));
  EXPECT_TRUE(Near(INFINITY, INFINITY, {}));
  EXPECT_FALSE(Near(-INFINITY, INFINITY, {1, 1}));
  EXPECT_FALSE(Near(1e300, INFINITY, {1, 1}));
}

TEST(GoldenTest, DifferencesNameTheWorstElement) {
  const Json wanted = Parse(R"({"dtype": "float32", "shape": [3], "values": [1, 2, 3]})");
  EXPECT_EQ(Difference("w", Tensor::Vector<float>({1, 2, 3}), wanted), "");
  EXPECT_EQ(Difference("w", Tensor::Vector<float>({1.5, 2, 5}), wanted),
            "w[2] is 5, wanted 3 (relative tolerance 0, absolute 0)");
  EXPECT_EQ(Difference("w", Tensor::Vector<float>({1, 2}), wanted),
            "w is float32 [2], wanted float32 [3]");
  EXPECT_EQ(Difference("w", Tensor::Vector<int32_t>({1, 2, 3}), wanted),
            "w is int32 [3], wanted float32 [3]");
  EXPECT_EQ(Difference("w", absl::StatusOr<Tensor>(absl::NotFoundError("gone")), wanted),
            "w is an error: NOT_FOUND: gone");
}

TEST(GoldenTest, FailuresAreComparedByCode) {
  EXPECT_EQ(FailureDifference(absl::InvalidArgumentError("x"),
                              Parse(R"({"error": "ValueError", "status": "InvalidArgument"})")),
            "");
  EXPECT_EQ(FailureDifference(absl::OutOfRangeError("x"),
                              Parse(R"({"error": "ZeroDivisionError", "status": null})")),
            "");
  EXPECT_NE(FailureDifference(absl::OutOfRangeError("x"),
                              Parse(R"({"error": "ValueError", "status": "InvalidArgument"})")),
            "");
  EXPECT_NE(
      FailureDifference(absl::OkStatus(), Parse(R"({"error": "ValueError", "status": null})")), "");
}

TEST(JudgeTest, ACaseOfAnotherSchemaFails) {
  for (const Family& family : Families()) {
    if (family.judge == nullptr) continue;
    EXPECT_EQ(RunJudge(family.judge, Parse(R"({"nonsense": 1})")).outcome, Outcome::kFailed)
        << family.file;
  }
}

TEST(JudgeTest, AFileWithoutAJudgeIsNotCovered) {
  EXPECT_EQ(RunJudge(nullptr, Parse("{}")).outcome, Outcome::kNotCovered);
}

// Cases that no golden file has: a right answer must pass, and a wrong one must fail.
TEST(JudgeTest, WrongAnswersFail) {
  const auto outcome = [](const char* file, const char* text) {
    return JudgeText(file, text).outcome;
  };
  EXPECT_EQ(
      outcome(
          "div_split.json",
          R"({"rows": 4, "shards": 2, "expect": {"names": ["v/part_0", "v/part_1"], "sizes": [2, 2], "offsets": [0, 2]}})"),
      Outcome::kPassed);
  EXPECT_EQ(
      outcome(
          "div_split.json",
          R"({"rows": 4, "shards": 2, "expect": {"names": ["v/part_0", "v/part_1"], "sizes": [3, 1], "offsets": [0, 3]}})"),
      Outcome::kFailed);
  EXPECT_EQ(
      outcome(
          "div_split.json",
          R"({"rows": 4, "shards": 2, "ids": [3], "expect": {"names": ["v/part_0", "v/part_1"], "sizes": [2, 2], "offsets": [0, 2],
                                          "shard": [1], "local": [0]}})"),
      Outcome::kFailed);
  EXPECT_EQ(
      outcome(
          "partitioners.json",
          R"({"partitioner": "FixedShards", "args": {"num_shards": 2}, "shape": [9], "dtype": "float32", "axis": 0,
                                             "expect": {"shards": [3]}})"),
      Outcome::kFailed);
  EXPECT_EQ(
      outcome(
          "partitioners.json",
          R"({"partitioner": "FixedShards", "args": {"num_shards": 2}, "shape": [9], "dtype": "float32", "axis": 0,
                                             "expect": {"shards": [3]}, "divvy": {"shards": [2]}})"),
      Outcome::kPassed);
  EXPECT_EQ(
      outcome(
          "partitioners.json",
          R"({"partitioner": "Unheard", "args": {}, "shape": [9], "dtype": "float32", "axis": 0, "expect": {"shards": [3]}})"),
      Outcome::kNotCovered);
  EXPECT_EQ(
      outcome(
          "schedules.json",
          R"({"schedule": "InverseTimeDecay", "args": {"initial_learning_rate": 1, "decay_steps": 1, "decay_rate": 1}, "steps": [1],
                                          "expect": {"rates": [0.51]}})"),
      Outcome::kFailed);
  EXPECT_EQ(
      outcome(
          "initializers.json",
          R"({"initializer": "RandomUniform", "args": {}, "shape": [1000], "expect": {"mean": 0, "std": 0.05}})"),
      Outcome::kFailed);
  EXPECT_EQ(
      outcome(
          "initializers.json",
          R"({"initializer": "RandomNormal", "args": {}, "shape": [1000], "expect": {"mean": 0, "std": 0.05, "limit": 0.05}})"),
      Outcome::kFailed);
  EXPECT_EQ(
      outcome(
          "initializers.json",
          R"({"initializer": "RandomNormal", "args": {}, "shape": [9, 9], "expect": {"property": "orthogonal", "gain": 1}})"),
      Outcome::kFailed);
}

// One step of SGD from 1 with gradient 2: the result is 0 at a rate of 0.5.
std::string OneStep(const std::string& family, const std::string& same_in, const std::string& w,
                    const std::string& more = "") {
  return R"({"optimizer": "SGD", "family": ")" + family + R"(", "same_in": [)" + same_in +
         R"(], "args": {"learning_rate": 0.5}, "gradients": "dense",
    "initial": {"dtype": "float32", "shape": [1], "values": [1]}, "steps_gradients": [{"dtype": "float32", "shape": [1], "values": [2]}],
    "expect": [{"w": {"dtype": "float32", "shape": [1], "values": [)" +
         w + "]}}]" + more + "}";
}

TEST(JudgeTest, OnlyOtherFamiliesMayComputeOtherwise) {
  const auto outcome = [](const std::string& text) {
    return JudgeText("optimizers.json", text.c_str()).outcome;
  };
  EXPECT_EQ(outcome(OneStep("keras2_legacy", "", "0")), Outcome::kPassed);
  EXPECT_EQ(outcome(OneStep("keras3", "", "0")), Outcome::kPassed);
  EXPECT_EQ(outcome(OneStep("keras2_legacy", "", "0.5")), Outcome::kFailed);
  EXPECT_EQ(outcome(OneStep("keras3", R"("keras2_legacy")", "0.5")), Outcome::kFailed);
  EXPECT_EQ(outcome(OneStep("keras3", "", "0.5")), Outcome::kDeviating);
  const std::string divvy =
      R"(, "divvy": {"why": "x", "steps": [{"w": {"dtype": "float32", "shape": [1], "values": [WWW]}}]})";
  EXPECT_EQ(
      outcome(OneStep("keras3", "", "0.5", std::string(divvy).replace(divvy.find("WWW"), 3, "0"))),
      Outcome::kPassed);
  EXPECT_EQ(outcome(OneStep("keras3", "", "0.5",
                            std::string(divvy).replace(divvy.find("WWW"), 3, "0.25"))),
            Outcome::kDeviating);
  EXPECT_EQ(outcome(OneStep("keras2_legacy", "", "0.5",
                            std::string(divvy).replace(divvy.find("WWW"), 3, "0.25"))),
            Outcome::kFailed);
}

}  // namespace
}  // namespace divvy::conformance
