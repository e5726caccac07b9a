#include "ops/ops.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/blas_threads.h"
#include "ops/gradient_tape.h"
#include "ops/recording.h"
#include "ops/testing/gradient_check.h"
#include "ops/testing/map_reader.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

Tensor Doubles(Shape shape, std::vector<double> values) { return *Tensor::Copy<double>(shape, values); }
Tensor Floats(Shape shape, std::vector<float> values) { return *Tensor::Copy<float>(shape, values); }
Tensor Zeros(DType dtype, Shape shape) { return *Tensor::Zeros(dtype, shape); }

// A fixed sequence without symmetry in [low, high), none of it within 0.001 of 0.
Tensor Sample(Shape shape, double low = -1.5, double high = 1.5) {
  std::vector<double> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    const double fraction = std::fmod(0.137 + 0.61803398875 * static_cast<double>(i + 1), 1.0);
    values[i] = low + (high - low) * fraction;
    if (std::abs(values[i]) < 0.001) values[i] = 0.01;
  }
  return Doubles(shape, values);
}

template <typename T>
std::vector<T> ValuesOf(const Var& var) {
  const absl::StatusOr<Tensor> value = var.Value();
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return {};
  const auto values = value->values<T>();
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? std::vector<T>(values->begin(), values->end()) : std::vector<T>();
}

// ---- derivatives ---------------------------------------------------------------------------------------------------------------------------------------

struct GradientCase {
  std::string name;
  std::vector<Tensor> leaves;
  std::function<Var(const std::vector<Var>&)> function;
};

class EveryOperation : public ::testing::TestWithParam<GradientCase> {};

TEST_P(EveryOperation, AgreesWithCentralDifferences) {
  const auto& function = GetParam().function;
  EXPECT_EQ(absl::OkStatus(), CheckGradients([&](GradientTape&, const std::vector<Var>& leaves) { return function(leaves); }, GetParam().leaves));
}

using Vars = const std::vector<Var>&;

std::vector<GradientCase> BinaryCases() {
  std::vector<GradientCase> cases;
  const std::vector<std::pair<std::string, std::function<Var(const Var&, const Var&)>>> operations = {
      {"Add", [](const Var& a, const Var& b) { return a + b; }},
      {"Subtract", [](const Var& a, const Var& b) { return a - b; }},
      {"Multiply", [](const Var& a, const Var& b) { return a * b; }},
      {"Divide", [](const Var& a, const Var& b) { return a / b; }},
      {"Maximum", [](const Var& a, const Var& b) { return Maximum(a, b); }},
  };
  const std::vector<std::pair<std::string, std::pair<Shape, Shape>>> shapes = {
      {"OfOneShape", {{2, 3}, {2, 3}}},        {"WithARow", {{4, 3}, {3}}},
      {"WithAColumn", {{2, 1}, {2, 3}}},       {"WithAScalar", {{2, 2}, {}}},
      {"StretchingBoth", {{2, 1, 3}, {4, 1}}}, {"InTheMiddle", {{2, 1, 3}, {2, 4, 3}}},
  };
  for (const auto& [operation, function] : operations) {
    for (const auto& [shape, extents] : shapes) {
      cases.push_back({operation + shape, {Sample(extents.first), Sample(extents.second, 0.5, 2)}, [f = function](Vars v) { return f(v[0], v[1]); }});
    }
  }
  return cases;
}

GradientCase UnaryCase(std::string name, Var (*function)(const Var&), double low, double high) {
  return {std::move(name), {Sample({2, 5}, low, high)}, [function](Vars v) { return function(v[0]); }};
}

std::vector<GradientCase> UnaryCases() {
  return {UnaryCase(
              "Negative", [](const Var& x) { return -x; }, -1, 1),
          UnaryCase("Exp", Exp, -2, 2),
          UnaryCase("Log", Log, 0.3, 3),
          UnaryCase("Sqrt", Sqrt, 0.3, 3),
          UnaryCase("Square", Square, -2, 2),
          UnaryCase("Relu", Relu, -2, 2),
          UnaryCase("Sigmoid", Sigmoid, -4, 4),
          UnaryCase("Tanh", Tanh, -2, 2),
          UnaryCase("Softmax", Softmax, -2, 2),
          UnaryCase(
              "ReduceSumOfAll", [](const Var& x) { return ReduceSum(x); }, -1, 1),
          UnaryCase(
              "ReduceMeanOfAll", [](const Var& x) { return ReduceMean(x); }, -1, 1)};
}

std::vector<GradientCase> MatMulCases() {
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  return {{"MatMul", {Sample({2, 3}), Sample({3, 4})}, [](Vars v) { return MatMul(v[0], v[1]); }},
          {"MatMulWithATransposed", {Sample({3, 2}), Sample({3, 4})}, [](Vars v) { return MatMul(v[0], v[1], kYes); }},
          {"MatMulWithBTransposed", {Sample({2, 3}), Sample({4, 3})}, [](Vars v) { return MatMul(v[0], v[1], kNo, kYes); }},
          {"MatMulWithBothTransposed", {Sample({3, 2}), Sample({4, 3})}, [](Vars v) { return MatMul(v[0], v[1], kYes, kYes); }},
          {"MatMulOfSeveral", {Sample({3, 2, 3}), Sample({3, 3, 2})}, [](Vars v) { return MatMul(v[0], v[1]); }},
          {"MatMulOfSeveralTransposed", {Sample({2, 3, 2}), Sample({2, 4, 3})}, [](Vars v) { return MatMul(v[0], v[1], kYes, kYes); }},
          {"MatMulOfOneVariableWithItself", {Sample({3, 3})}, [](Vars v) { return MatMul(v[0], v[0]); }}};
}

std::vector<GradientCase> OtherCases() {
  const Tensor numbers = Tensor::Vector<int32_t>({2, 0, 1});
  const Tensor probabilities = Doubles({2, 3}, {0.2, 0.5, 0.3, 0, 0.9, 0.1});
  return {{"ReduceSumOverRows", {Sample({3, 4})}, [](Vars v) { return ReduceSum(v[0], 0); }},
          {"ReduceSumOverTheLastAxis", {Sample({3, 4})}, [](Vars v) { return ReduceSum(v[0], -1); }},
          {"ReduceSumOverTwoAxes",
           {Sample({2, 3, 4})},
           [](Vars v) {
             return ReduceSum(v[0], {0, -1});
           }},
          {"ReduceMeanOverTheMiddle", {Sample({2, 3, 4})}, [](Vars v) { return ReduceMean(v[0], 1); }},
          {"Reshape",
           {Sample({2, 6})},
           [](Vars v) {
             return Square(Reshape(v[0], {3, -1}));
           }},
          {"ConcatOfRows", {Sample({2, 3}), Sample({1, 3})}, [](Vars v) { return Concat(v, 0); }},
          {"ConcatAtTheEnd", {Sample({2, 3}), Sample({2, 1}), Sample({2, 2})}, [](Vars v) { return Concat(v, -1); }},
          {"ConcatInTheMiddle", {Sample({2, 1, 2}), Sample({2, 3, 2})}, [](Vars v) { return Concat(v, 1); }},
          {"AVariableUsedTwice", {Sample({3})}, [](Vars v) { return v[0] * v[0] + Exp(v[0]); }},
          {"AScalarBesideIt", {Sample({3})}, [](Vars v) { return 2.0f / (v[0] * v[0] + 1.0f) - 0.5f; }},
          {"SoftmaxCrossEntropyOfNumbers", {Sample({3, 4}, -3, 3)}, [=](Vars v) { return SoftmaxCrossEntropy(v[0], numbers); }},
          {"SoftmaxCrossEntropyOfProbabilities", {Sample({2, 3}, -3, 3)}, [=](Vars v) { return SoftmaxCrossEntropy(v[0], probabilities); }},
          {"SigmoidCrossEntropy", {Sample({2, 3}, -4, 4)}, [=](Vars v) { return SigmoidCrossEntropy(v[0], probabilities); }},
          {"SquaredErrorOnBothSides", {Sample({4}), Sample({4}, 0, 3)}, [](Vars v) { return SquaredError(v[0], v[1]); }},
          {"APerceptron", {Sample({3, 4}), Sample({4, 5}), Sample({5}), Sample({5, 3}), Sample({3})}, [=](Vars v) {
             return ReduceMean(SoftmaxCrossEntropy(MatMul(Tanh(MatMul(v[0], v[1]) + v[2]), v[3]) + v[4], numbers));
           }}};
}

std::string NameOf(const ::testing::TestParamInfo<GradientCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(OfTwo, EveryOperation, ::testing::ValuesIn(BinaryCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(OfOne, EveryOperation, ::testing::ValuesIn(UnaryCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Product, EveryOperation, ::testing::ValuesIn(MatMulCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Other, EveryOperation, ::testing::ValuesIn(OtherCases()), NameOf);

TEST(GradientCheckTest, FindsAWrongDerivative) {
  const Differentiable wrong = [](GradientTape& tape, const std::vector<Var>& leaves) {
    return tape.Record(*Square(leaves[0]).Value(), leaves, [](const Tensor& g) { return std::vector<Tensor>{g}; });
  };
  EXPECT_THAT(CheckGradients(wrong, {Doubles({2}, {1, 2})}).message(), HasSubstr("leaf 0, element 0: the tape gives 1, differences 2"));
}

// ---- values --------------------------------------------------------------------------------------------------------------------------------------------

TEST(ArithmeticTest, BroadcastsLikeNumPy) {
  const Var column(Floats({2, 1}, {1, 2})), row(Floats({3}, {10, 20, 30}));
  EXPECT_THAT(ValuesOf<float>(column + row), ElementsAre(11, 21, 31, 12, 22, 32));
  EXPECT_THAT(ValuesOf<float>(row - column), ElementsAre(9, 19, 29, 8, 18, 28));
  EXPECT_THAT(ValuesOf<float>(column * column), ElementsAre(1, 4));
  EXPECT_THAT(ValuesOf<float>(row / 10.0f), ElementsAre(1, 2, 3));
  EXPECT_THAT(ValuesOf<float>(Maximum(row, 15.0f)), ElementsAre(15, 20, 30));
  EXPECT_EQ((Shape{5, 2, 3}), (Var(Zeros(DType::kFloat32, {5, 1, 1})) + (column + row)).shape());
}

TEST(ArithmeticTest, AScalarOfCppTakesTheOtherDType) {
  EXPECT_THAT(ValuesOf<double>(Var(Doubles({2}, {1, 2})) * 0.5f), ElementsAre(0.5, 1));
  EXPECT_EQ(DType::kFloat32, (Var(2.0f) * 3.0f).dtype());
}

TEST(ArithmeticTest, NothingTimesSomethingIsNothing) {
  EXPECT_THAT(ValuesOf<float>(Var(Zeros(DType::kFloat32, {0, 3})) * Var(Zeros(DType::kFloat32, {3}))), IsEmpty());
}

TEST(MaximumTest, GivesTheGradientOfEqualsToTheFirst) {
  MapReader reader;
  GradientTape tape(reader);
  const Var a = tape.Watch("a", Floats({2}, {1, 5})), b = tape.Watch("b", Floats({2}, {1, 7}));
  const auto gradients = tape.Gradient(ReduceSum(Maximum(a, b)));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("a"))), ElementsAre(1, 0));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("b"))), ElementsAre(0, 1));
}

TEST(ReluTest, IsFlatAtZeroAndKeepsNaN) {
  MapReader reader;
  GradientTape tape(reader);
  const Var y = Relu(tape.Watch("x", Floats({3}, {-1, 0, 2})));
  EXPECT_THAT(ValuesOf<float>(y), ElementsAre(0, 0, 2));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("x"))), ElementsAre(0, 0, 1));
  EXPECT_TRUE(std::isnan(ValuesOf<float>(Relu(Floats({1}, {NAN})))[0]));
}

TEST(SigmoidTest, DoesNotOverflow) { EXPECT_THAT(ValuesOf<float>(Sigmoid(Floats({3}, {-1000, 0, 1000}))), ElementsAre(0, 0.5, 1)); }

TEST(SoftmaxTest, DoesNotOverflow) {
  EXPECT_THAT(ValuesOf<float>(Softmax(Floats({2, 2}, {1000, 1000, -1000, 0}))), ElementsAre(0.5, 0.5, 0, 1));
  EXPECT_THAT(ValuesOf<float>(Softmax(Zeros(DType::kFloat32, {2, 0}))), IsEmpty());
}

TEST(MatMulTest, MultipliesMatrices) {
  const Var a(Floats({2, 3}, {1, 2, 3, 4, 5, 6})), b(Floats({3, 2}, {1, 0, 0, 1, 1, 1}));
  EXPECT_THAT(ValuesOf<float>(MatMul(a, b)), ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(ValuesOf<float>(MatMul(b, a, Transpose::kYes, Transpose::kYes)), ElementsAre(4, 10, 5, 11));
}

TEST(MatMulTest, AnEmptyBatchGivesZeroGradients) {
  SetBlasThreads(1);
  MapReader reader;
  GradientTape tape(reader);
  const Var y = MatMul(Zeros(DType::kFloat32, {0, 3}), tape.Watch("w", Floats({3, 1}, {1, 2, 3})));
  EXPECT_EQ((Shape{0, 1}), y.shape());
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("w"))), ElementsAre(0, 0, 0));
}

TEST(ReduceTest, DropsTheAxes) {
  const Var x(Floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(ValuesOf<float>(ReduceSum(x)), ElementsAre(21));
  EXPECT_THAT(ValuesOf<float>(ReduceSum(x, 0)), ElementsAre(5, 7, 9));
  EXPECT_THAT(ValuesOf<float>(ReduceMean(x, -1)), ElementsAre(2, 5));
  EXPECT_EQ((Shape{}), ReduceMean(x, {0, 1}).shape());
  EXPECT_EQ((Shape{2, 3}), ReduceSum(x, kNoAxis).shape());
}

TEST(ReduceTest, OfNothingIsZeroAndItsMeanNaN) {
  EXPECT_THAT(ValuesOf<float>(ReduceSum(Zeros(DType::kFloat32, {0}))), ElementsAre(0));
  EXPECT_TRUE(std::isnan(ValuesOf<float>(ReduceMean(Zeros(DType::kFloat32, {0})))[0]));
}

TEST(ReduceTest, SumsManyFloatsWithoutDrift) {
  const std::vector<float> tenths(1 << 20, 0.1f);
  EXPECT_NEAR(104857.6, ValuesOf<float>(ReduceSum(Tensor::Vector<float>(tenths)))[0], 0.01);
}

TEST(MovementTest, MovesAnyDType) {
  const Var a(Tensor::Vector<int64_t>({1, 2})), b(Tensor::Vector<int64_t>({3}));
  EXPECT_THAT(ValuesOf<int64_t>(Concat({a, b}, 0)), ElementsAre(1, 2, 3));
  EXPECT_EQ((Shape{2, 1}), Reshape(a, {2, -1}).shape());
  EXPECT_THAT(ValuesOf<int64_t>(Range(3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(ValuesOf<int64_t>(Range(0)), IsEmpty());
}

TEST(ConcatTest, TakesEmptyParts) {
  EXPECT_THAT(ValuesOf<float>(Concat({Zeros(DType::kFloat32, {0, 2}), Floats({1, 2}, {3, 4})}, 0)), ElementsAre(3, 4));
  EXPECT_EQ((Shape{0, 5}), Concat({Zeros(DType::kFloat32, {0, 2}), Zeros(DType::kFloat32, {0, 3})}, 1).shape());
}

TEST(CastTest, SaturatesAndTakesNaNToZero) {
  const Tensor floats = Floats({6}, {1.9f, -1.9f, 300, -300, NAN, INFINITY});
  EXPECT_THAT(ValuesOf<int8_t>(Cast(floats, DType::kInt8)), ElementsAre(1, -1, 127, -128, 0, 127));
  EXPECT_THAT(ValuesOf<uint8_t>(Cast(floats, DType::kUInt8)), ElementsAre(1, 0, 255, 0, 0, 255));
  EXPECT_THAT(ValuesOf<int64_t>(Cast(Floats({1}, {1e30f}), DType::kInt64)), ElementsAre(std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(ValuesOf<bool>(Cast(Floats({2}, {0, 0.5f}), DType::kBool)), ElementsAre(false, true));
  EXPECT_THAT(ValuesOf<float>(Cast(Cast(Floats({1}, {1.5f}), DType::kBFloat16), DType::kFloat32)), ElementsAre(1.5f));
}

TEST(CastTest, CarriesTheGradientBetweenFloatingTypesOnly) {
  MapReader reader;
  GradientTape tape(reader);
  const Var x = tape.Watch("x", Floats({2}, {1, 2})), y = tape.Watch("y", Floats({1}, {3}));
  const auto gradients = tape.Gradient(ReduceSum(Cast(x, DType::kFloat64)) * 2.0f + ReduceSum(Cast(Cast(y, DType::kInt32), DType::kFloat64)));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("x"))), ElementsAre(2, 2));
  EXPECT_EQ(1u, gradients->entries().size());
}

TEST(StopGradientTest, KeepsTheValueAndEndsTheDerivative) {
  MapReader reader;
  GradientTape tape(reader);
  const Var x = tape.Watch("x", Floats({2}, {3, 4}));
  const auto gradients = tape.Gradient(ReduceSum(x * StopGradient(x)));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("x"))), ElementsAre(3, 4));
}

// ---- losses --------------------------------------------------------------------------------------------------------------------------------------------

TEST(SoftmaxCrossEntropyTest, TakesNumbersOfAnyIntegerType) {
  const Var logits(Floats({2, 2}, {0, 0, 1000, 0}));
  for (const Tensor& labels : {Tensor::Vector<uint8_t>({0, 1}), Tensor::Vector<int32_t>({0, 1}), Tensor::Vector<int64_t>({0, 1})}) {
    EXPECT_THAT(ValuesOf<float>(SoftmaxCrossEntropy(logits, labels)), ElementsAre(std::log(2.0f), 1000)) << labels.ToString();
  }
}

TEST(SoftmaxCrossEntropyTest, IgnoresWhatHasNoProbability) {
  const Var logits(Floats({1, 2}, {0, -INFINITY}));
  EXPECT_THAT(ValuesOf<float>(SoftmaxCrossEntropy(logits, Floats({1, 2}, {1, 0}))), ElementsAre(0));
}

TEST(SoftmaxCrossEntropyTest, NamesALabelOutOfRangeAndTheNumberOfClasses) {
  for (int64_t label : {-1, 10}) {
    const absl::Status status = SoftmaxCrossEntropy(Zeros(DType::kFloat32, {2, 10}), Tensor::Vector<int64_t>({3, label})).status();
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(absl::StrCat("label ", label, " of example 1")), HasSubstr("10 classes")));
  }
}

TEST(SigmoidCrossEntropyTest, IsStableAndTakesLabelsOfAnyType) {
  const Var logits(Floats({3}, {1000, -1000, 0}));
  EXPECT_THAT(ValuesOf<float>(SigmoidCrossEntropy(logits, Tensor::Vector<int64_t>({1, 1, 0}))), ElementsAre(0, 1000, std::log(2.0f)));
}

TEST(SquaredErrorTest, TakesLabelsOfAnyType) {
  EXPECT_THAT(ValuesOf<double>(SquaredError(Doubles({2}, {1, 2}), Tensor::Vector<uint8_t>({4, 2}))), ElementsAre(9, 0));
}

TEST(LossTest, OfAnEmptyBatchIsEmptyAndItsGradientZero) {
  MapReader reader;
  GradientTape tape(reader);
  const Var w = tape.Watch("w", Floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Var losses = SoftmaxCrossEntropy(MatMul(Zeros(DType::kFloat32, {0, 2}), w), Zeros(DType::kInt64, {0}));
  EXPECT_THAT(ValuesOf<float>(losses), IsEmpty());
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceMean(losses))->entries().at("w"))), ElementsAre(0, 0, 0, 0, 0, 0));
}

// ---- errors --------------------------------------------------------------------------------------------------------------------------------------------

struct ErrorCase {
  std::string name;
  std::function<Var()> run;
  std::vector<std::string> words;
};

class EveryMisfit : public ::testing::TestWithParam<ErrorCase> {};

TEST_P(EveryMisfit, NamesTheOperationAndBothShapes) {
  const absl::Status status = GetParam().run().status();
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code()) << status;
  for (const std::string& word : GetParam().words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
}

Var F(Shape shape) { return Zeros(DType::kFloat32, shape); }
Var I(Shape shape) { return Zeros(DType::kInt64, shape); }

std::vector<ErrorCase> ErrorCases() {
  const std::vector<std::string> shapes = {"[2]", "[3]"};
  const auto with = [](std::string name, std::vector<std::string> words) { return words.insert(words.begin(), std::move(name)), words; };
  return {{"Add", [] { return F({2}) + F({3}); }, with("operator+", shapes)},
          {"Subtract", [] { return F({2}) - F({3}); }, with("operator-", shapes)},
          {"Multiply", [] { return F({2}) * F({3}); }, with("operator*", shapes)},
          {"Divide", [] { return F({2}) / F({3}); }, with("operator/", shapes)},
          {"Maximum", [] { return Maximum(F({2}), F({3})); }, with("Maximum", shapes)},
          {"MixedDTypes", [] { return F({2}) + Var(Zeros(DType::kFloat64, {2})); }, {"operator+", "float32 [2]", "float64 [2]", "Cast"}},
          {"Integers", [] { return I({2}) + 1.0f; }, {"operator+", "int64 [2]"}},
          {"Negative", [] { return -I({2}); }, {"operator-", "int64 [2]"}},
          {"Exp", [] { return Exp(I({2})); }, {"Exp", "int64 [2]"}},
          {"Log", [] { return Log(I({2})); }, {"Log", "int64 [2]"}},
          {"Sqrt", [] { return Sqrt(I({2})); }, {"Sqrt", "int64 [2]"}},
          {"Square", [] { return Square(I({2})); }, {"Square", "int64 [2]"}},
          {"Relu", [] { return Relu(I({2})); }, {"Relu", "int64 [2]"}},
          {"Sigmoid", [] { return Sigmoid(I({2})); }, {"Sigmoid", "int64 [2]"}},
          {"Tanh", [] { return Tanh(I({2})); }, {"Tanh", "int64 [2]"}},
          {"SoftmaxOfIntegers", [] { return Softmax(I({2})); }, {"Softmax", "int64 [2]"}},
          {"SoftmaxOfAScalar", [] { return Softmax(F({})); }, {"Softmax", "float32 []"}},
          {"MatMulInner",
           [] {
             return MatMul(F({2, 3}), F({4, 5}));
           },
           {"MatMul", "[2, 3] x [4, 5]", "3 and 4"}},
          {"MatMulTransposed",
           [] {
             return MatMul(F({2, 3}), F({3, 5}), Transpose::kYes);
           },
           {"MatMul", "[2, 3] transposed x [3, 5]"}},
          {"MatMulRank1",
           [] {
             return MatMul(F({3}), F({3, 5}));
           },
           {"MatMul", "[3] x [3, 5]", "rank"}},
          {"MatMulBatch",
           [] {
             return MatMul(F({2, 3, 4}), F({1, 4, 5}));
           },
           {"MatMul", "[2, 3, 4] x [1, 4, 5]", "2 and 1"}},
          {"MatMulDTypes",
           [] {
             return MatMul(F({2, 3}), I({3, 2}));
           },
           {"MatMul", "[2, 3] x [3, 2]", "float32 and int64"}},
          {"MatMulIntegers",
           [] {
             return MatMul(I({2, 3}), I({3, 2}));
           },
           {"MatMul", "int64"}},
          {"ReduceSumAxis",
           [] {
             return ReduceSum(F({2, 3}), 2);
           },
           {"ReduceSum", "axis 2", "[2, 3]"}},
          {"ReduceMeanAxis",
           [] {
             return ReduceMean(F({2, 3}), -3);
           },
           {"ReduceMean", "axis -3", "[2, 3]"}},
          {"ReduceSumTwice",
           [] {
             return ReduceSum(F({2, 3}), {1, -1});
           },
           {"ReduceSum", "twice", "[2, 3]"}},
          {"ReduceSumIntegers", [] { return ReduceSum(I({2})); }, {"ReduceSum", "int64 [2]"}},
          {"Reshape",
           [] {
             return Reshape(F({2, 3}), {4, -1});
           },
           {"Reshape", "[2, 3]", "[4, -1]"}},
          {"Concat",
           [] {
             return Concat({F({2, 3}), F({3, 4})}, 0);
           },
           {"Concat", "[2, 3]", "[3, 4]"}},
          {"ConcatDTypes",
           [] {
             return Concat({F({2}), I({2})}, 0);
           },
           {"Concat", "float32 [2]", "int64 [2]"}},
          {"ConcatAxis", [] { return Concat({F({2})}, 1); }, {"Concat", "axis 1", "[2]"}},
          {"ConcatOfNothing", [] { return Concat({}, 0); }, {"Concat"}},
          {"Cast", [] { return Cast(F({2}), DType::kString); }, {"Cast", "float32 [2]", "string"}},
          {"Range", [] { return Range(-1); }, {"Range", "-1"}},
          {"SoftmaxCrossEntropy",
           [] {
             return SoftmaxCrossEntropy(F({2, 3}), I({3}));
           },
           {"SoftmaxCrossEntropy", "[2, 3]", "[3]"}},
          {"SoftmaxCrossEntropyRank", [] { return SoftmaxCrossEntropy(F({2}), I({2})); }, {"SoftmaxCrossEntropy", "[2]", "[batch, classes]"}},
          {"SoftmaxCrossEntropyFloats",
           [] {
             return SoftmaxCrossEntropy(F({2, 3}), F({2}));
           },
           {"SoftmaxCrossEntropy", "float32 [2]"}},
          {"SoftmaxCrossEntropyLogits",
           [] {
             return SoftmaxCrossEntropy(I({2, 3}), I({2}));
           },
           {"SoftmaxCrossEntropy", "int64 [2, 3]"}},
          {"SigmoidCrossEntropy",
           [] {
             return SigmoidCrossEntropy(F({2, 1}), I({2}));
           },
           {"SigmoidCrossEntropy", "[2, 1]", "[2]"}},
          {"SigmoidCrossEntropyLogits", [] { return SigmoidCrossEntropy(I({2}), I({2})); }, {"SigmoidCrossEntropy", "int64 [2]"}},
          {"SquaredError", [] { return SquaredError(F({2}), F({3})); }, {"SquaredError", "[2]", "[3]"}}};
}

INSTANTIATE_TEST_SUITE_P(Of, EveryMisfit, ::testing::ValuesIn(ErrorCases()), [](const auto& info) { return info.param.name; });

TEST(VarTest, AnErrorTravelsWithItsFirstReason) {
  const Var failed = MatMul(F({2, 3}), F({4, 5}));
  const Var later = ReduceMean(Softmax(Relu(failed) + F({7}))) * MatMul(F({1}), F({1}));
  EXPECT_EQ(failed.status(), later.status());
  EXPECT_EQ(failed.status(), later.Value().status());
  EXPECT_EQ((Shape{}), later.shape());
  for (const Var& other :
       {Concat({F({1}), failed}, 0), Reshape(failed, {1}), Cast(failed, DType::kInt32), StopGradient(failed), ReduceSum(failed),
        SoftmaxCrossEntropy(F({1, 1}), failed), SigmoidCrossEntropy(failed, F({1})), SquaredError(failed, failed), -failed, Softmax(failed)}) {
    EXPECT_EQ(failed.status(), other.status());
  }
}

TEST(VarTest, ComesFromALeafOfANest) {
  const Nest batch{{"image", Nest(Floats({1}, {7}))}, {"name", Nest("seven")}};
  EXPECT_THAT(ValuesOf<float>(Var(batch["image"]) + 1.0f), ElementsAre(8));
  EXPECT_THAT(std::string(Var(batch["imgae"]).status().message()), HasSubstr("image"));
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, Var(batch["name"]).status().code());
}

}  // namespace
}  // namespace divvy
