#include "ops/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/blas_threads.h"
#include "ops/fused.h"
#include "ops/gradient_tape.h"
#include "ops/recording.h"
#include "ops/testing/gradient_check.h"
#include "ops/testing/map_reader.h"
#include "ops/testing/place.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::Pointwise;

Tensor Doubles(Shape shape, std::vector<double> values) {
  return There(*Tensor::Copy<double>(shape, values));
}
Tensor Floats(Shape shape, std::vector<float> values) {
  return There(*Tensor::Copy<float>(shape, values));
}
Tensor Zeros(DType dtype, Shape shape) { return There(*Tensor::Zeros(dtype, shape)); }
template <typename T>
Tensor List(std::initializer_list<T> values) {
  return There(Tensor::Vector<T>(values));
}

// A fixed sequence without symmetry, with values in [low, high) that are at least 0.001 away from
// 0. On the CPU.
Tensor Sample(Shape shape, double low = -1.5, double high = 1.5) {
  std::vector<double> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    const double fraction = std::fmod(0.137 + 0.61803398875 * static_cast<double>(i + 1), 1.0);
    values[i] = low + (high - low) * fraction;
    if (std::abs(values[i]) < 0.001) values[i] = 0.01;
  }
  return *Tensor::Copy<double>(shape, values);
}

template <typename T>
std::vector<T> ValuesOf(const Var& var) {
  const absl::StatusOr<Tensor> value = var.Value();
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return {};
  const absl::StatusOr<Tensor> here = value->To(Device{});
  EXPECT_TRUE(here.ok()) << here.status();
  if (!here.ok()) return {};
  const auto values = here->values<T>();
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? std::vector<T>(values->begin(), values->end()) : std::vector<T>();
}

// The error of the operation. If a GPU found the error while computing, it comes with the value.
absl::Status StatusOf(const Var& var) {
  const absl::StatusOr<Tensor> value = var.Value();
  return value.ok() ? value->To(Device{}).status() : value.status();
}

// ---- derivatives --------------------------------------------------------------------------------

struct GradientCase {
  std::string name;
  std::vector<Tensor> leaves;
  std::function<Var(const std::vector<Var>&)> function;
};

class EveryOperation : public ::testing::TestWithParam<GradientCase> {};

TEST_P(EveryOperation, AgreesWithCentralDifferences) {
  const auto& function = GetParam().function;
  EXPECT_EQ(absl::OkStatus(),
            CheckGradients(
                [&](GradientTape&, const std::vector<Var>& leaves) { return function(leaves); },
                GetParam().leaves, *TestDevice()));
}

using Vars = const std::vector<Var>&;

std::vector<GradientCase> BinaryCases() {
  std::vector<GradientCase> cases;
  const std::vector<std::pair<std::string, std::function<Var(const Var&, const Var&)>>> operations =
      {
          {"Add", [](const Var& a, const Var& b) { return a + b; }},
          {"Subtract", [](const Var& a, const Var& b) { return a - b; }},
          {"Multiply", [](const Var& a, const Var& b) { return a * b; }},
          {"Divide", [](const Var& a, const Var& b) { return a / b; }},
          {"Maximum", [](const Var& a, const Var& b) { return Maximum(a, b); }},
          {"Minimum", [](const Var& a, const Var& b) { return Minimum(a, b); }},
          {"Pow", [](const Var& a, const Var& b) { return Pow(Square(a) + 0.5f, b); }},
          {"Where",
           [](const Var& a, const Var& b) { return Where(Greater(a, 0.0f), Square(a), b); }},
          {"Clip", [](const Var& a, const Var& b) { return Clip(a, b - 1.5f, b); }},
      };
  const std::vector<std::pair<std::string, std::pair<Shape, Shape>>> shapes = {
      {"OfOneShape", {{2, 3}, {2, 3}}},        {"WithARow", {{4, 3}, {3}}},
      {"WithAColumn", {{2, 1}, {2, 3}}},       {"WithAScalar", {{2, 2}, {}}},
      {"StretchingBoth", {{2, 1, 3}, {4, 1}}}, {"InTheMiddle", {{2, 1, 3}, {2, 4, 3}}},
  };
  for (const auto& [operation, function] : operations) {
    for (const auto& [shape, extents] : shapes) {
      cases.push_back({operation + shape,
                       {Sample(extents.first), Sample(extents.second, 0.5, 2)},
                       [f = function](Vars v) { return f(v[0], v[1]); }});
    }
  }
  return cases;
}

GradientCase UnaryCase(std::string name, Var (*function)(const Var&), double low, double high) {
  return {
      std::move(name), {Sample({2, 5}, low, high)}, [function](Vars v) { return function(v[0]); }};
}

std::vector<GradientCase> UnaryCases() {
  return {
      UnaryCase(
          "Negative", [](const Var& x) { return -x; }, -1, 1),
      UnaryCase("Abs", Abs, -2, 2),
      UnaryCase("Exp", Exp, -2, 2),
      UnaryCase("Log", Log, 0.3, 3),
      UnaryCase("Sqrt", Sqrt, 0.3, 3),
      UnaryCase("Square", Square, -2, 2),
      UnaryCase("Relu", Relu, -2, 2),
      UnaryCase("Sigmoid", Sigmoid, -4, 4),
      UnaryCase("Tanh", Tanh, -2, 2),
      UnaryCase("Softmax", Softmax, -2, 2),
      UnaryCase("Gelu", Gelu, -3, 3),
      UnaryCase("Softplus", Softplus, -4, 4),
      UnaryCase("L2Normalize", L2Normalize, -2, 2),
      UnaryCase(
          "L2NormalizeOfAlmostNothing", [](const Var& x) { return L2Normalize(x * 1e-8f); }, -2, 2),
      UnaryCase(
          "DropoutBySeed", [](const Var& x) { return Dropout(Square(x), 0.4f, 7); }, -2, 2),
      UnaryCase(
          "ReduceSumOfAll", [](const Var& x) { return ReduceSum(x); }, -1, 1),
      UnaryCase(
          "ReduceMeanOfAll", [](const Var& x) { return ReduceMean(x); }, -1, 1)};
}

struct Chain {
  std::string name;
  internal::UnaryOp op;
  Var (*function)(const Var&);
};
const Chain kChains[] = {{"Exp", internal::UnaryOp::kExp, Exp},
                         {"Sqrt", internal::UnaryOp::kSqrt, Sqrt},
                         {"Relu", internal::UnaryOp::kRelu, Relu},
                         {"Sigmoid", internal::UnaryOp::kSigmoid, Sigmoid},
                         {"Tanh", internal::UnaryOp::kTanh, Tanh}};

std::vector<GradientCase> ChainCases() {
  std::vector<GradientCase> cases;
  for (const Chain& chain : kChains) {
    const double low = chain.op == internal::UnaryOp::kSqrt ? 0.1 : -1.5;
    const auto add_then = [op = chain.op](Vars v) { return internal::AddThen(op, v[0], v[1]); };
    cases.push_back({"AddThen" + chain.name + "WithARow",
                     {Sample({4, 3}, low), Sample({3}, 0.1, 0.5)},
                     add_then});
    cases.push_back({"AddThen" + chain.name + "StretchingBoth",
                     {Sample({2, 1, 3}, low), Sample({4, 1}, 0.1, 0.5)},
                     add_then});
    cases.push_back({"AddThen" + chain.name + "OfOneWithItself",
                     {Sample({5}, low)},
                     [op = chain.op](Vars v) { return internal::AddThen(op, v[0], v[0]); }});
  }
  return cases;
}

std::vector<GradientCase> MatMulCases() {
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  return {{"MatMul", {Sample({2, 3}), Sample({3, 4})}, [](Vars v) { return MatMul(v[0], v[1]); }},
          {"MatMulWithATransposed",
           {Sample({3, 2}), Sample({3, 4})},
           [](Vars v) { return MatMul(v[0], v[1], kYes); }},
          {"MatMulWithBTransposed",
           {Sample({2, 3}), Sample({4, 3})},
           [](Vars v) { return MatMul(v[0], v[1], kNo, kYes); }},
          {"MatMulWithBothTransposed",
           {Sample({3, 2}), Sample({4, 3})},
           [](Vars v) { return MatMul(v[0], v[1], kYes, kYes); }},
          {"MatMulOfSeveral",
           {Sample({3, 2, 3}), Sample({3, 3, 2})},
           [](Vars v) { return MatMul(v[0], v[1]); }},
          {"MatMulOfSeveralTransposed",
           {Sample({2, 3, 2}), Sample({2, 4, 3})},
           [](Vars v) { return MatMul(v[0], v[1], kYes, kYes); }},
          {"MatMulOfOneVariableWithItself", {Sample({3, 3})}, [](Vars v) {
             return MatMul(v[0], v[0]);
           }}};
}

GradientCase ConvolutionCase(std::string name, int stride, Padding padding) {
  return {std::move(name), {Sample({2, 5, 4, 2}), Sample({3, 2, 2, 3})}, [=](Vars v) {
            return Conv2D(v[0], v[1], stride, padding);
          }};
}

GradientCase PoolCase(std::string name, int window, int stride, Padding padding) {
  return {std::move(name), {Sample({2, 5, 4, 2})}, [=](Vars v) {
            return MaxPool2D(v[0], window, stride, padding);
          }};
}

std::vector<GradientCase> ImageCases() {
  return {
      ConvolutionCase("Convolution", 1, Padding::kSame),
      ConvolutionCase("ConvolutionWithoutPadding", 1, Padding::kValid),
      ConvolutionCase("ConvolutionWithAStride", 2, Padding::kSame),
      ConvolutionCase("ConvolutionWithAStrideWiderThanTheWindow", 3, Padding::kValid),
      {"ConvolutionBeyondTheImage",
       {Sample({1, 2, 1, 1}), Sample({5, 4, 1, 2})},
       [](Vars v) { return Conv2D(v[0], v[1]); }},
      PoolCase("Pool", 2, 2, Padding::kValid),
      PoolCase("PoolWithOverlap", 3, 1, Padding::kSame),
      PoolCase("PoolThatSkips", 2, 3, Padding::kSame),
      {"AConvolutionalNet",
       {Sample({2, 6, 6, 1}), Sample({3, 3, 1, 2}), Sample({2}), Sample({18, 3})},
       [](Vars v) {
         const Var pooled = MaxPool2D(Relu(Conv2D(v[0], v[1]) + v[2]), 2, 2);
         return SoftmaxCrossEntropy(MatMul(Reshape(pooled, {2, 18}), v[3]), List<int32_t>({2, 0}));
       }}};
}

std::vector<GradientCase> RowCases() {
  const Tensor ids = There(*Tensor::Copy<int32_t>({2, 2}, {3, 0, 3, 1})),
               splits = Tensor::Vector<int64_t>({0, 2, 2, 5});
  return {{"LayerNorm",
           {Sample({3, 4}), Sample({4}, 0.5, 2), Sample({4})},
           [](Vars v) { return LayerNorm(v[0], v[1], v[2], 0.1f); }},
          {"LayerNormOfImages",
           {Sample({2, 2, 3}), Sample({3}), Sample({3})},
           [](Vars v) { return LayerNorm(v[0], v[1], v[2]); }},
          {"Gather", {Sample({4, 3})}, [=](Vars v) { return Gather(v[0], ids); }},
          {"GatherOfNumbers", {Sample({4})}, [=](Vars v) { return Square(Gather(v[0], ids)); }},
          {"SegmentSum", {Sample({5, 2})}, [=](Vars v) { return SegmentSum(v[0], splits); }},
          {"SegmentSumOfNumbers",
           {Sample({5})},
           [=](Vars v) { return Square(SegmentSum(v[0], splits)); }},
          {"DotInteraction", {Sample({2, 4, 3})}, [](Vars v) { return DotInteraction(v[0]); }},
          {"DotInteractionOfOne",
           {Sample({2, 1, 3})},
           [](Vars v) {
             return Concat({DotInteraction(v[0]), Reshape(v[0], {2, 3})}, 1);
           }},
          {"SliceOfRows", {Sample({4, 3})}, [](Vars v) { return Slice(v[0], 0, 1, 3); }},
          {"SliceInTheMiddle",
           {Sample({2, 4, 3})},
           [](Vars v) { return Square(Slice(v[0], -2, 1, 4)); }},
          {"PermuteOfTwo",
           {Sample({3, 4})},
           [](Vars v) {
             return Permute(v[0], {1, 0});
           }},
          {"PermuteOfFour", {Sample({2, 3, 4, 2})}, [](Vars v) {
             return Permute(v[0], {2, -1, 0, 1});
           }}};
}

std::vector<GradientCase> OtherCases() {
  const Tensor numbers = List<int32_t>({2, 0, 1});
  const Tensor probabilities = Doubles({2, 3}, {0.2, 0.5, 0.3, 0, 0.9, 0.1});
  return {
      {"ReduceSumOverRows", {Sample({3, 4})}, [](Vars v) { return ReduceSum(v[0], 0); }},
      {"ReduceSumOverTheLastAxis", {Sample({3, 4})}, [](Vars v) { return ReduceSum(v[0], -1); }},
      {"ReduceSumOverTwoAxes",
       {Sample({2, 3, 4})},
       [](Vars v) {
         return ReduceSum(v[0], {0, -1});
       }},
      {"ReduceMeanOverTheMiddle", {Sample({2, 3, 4})}, [](Vars v) { return ReduceMean(v[0], 1); }},
      {"ReduceMaxOverRows", {Sample({3, 4})}, [](Vars v) { return ReduceMax(v[0], 0); }},
      {"ReduceMaxOverTwoAxes",
       {Sample({2, 3, 4})},
       [](Vars v) {
         return ReduceMax(v[0], {0, -1});
       }},
      {"Reshape",
       {Sample({2, 6})},
       [](Vars v) {
         return Square(Reshape(v[0], {3, -1}));
       }},
      {"ConcatOfRows", {Sample({2, 3}), Sample({1, 3})}, [](Vars v) { return Concat(v, 0); }},
      {"ConcatAtTheEnd",
       {Sample({2, 3}), Sample({2, 1}), Sample({2, 2})},
       [](Vars v) { return Concat(v, -1); }},
      {"ConcatInTheMiddle",
       {Sample({2, 1, 2}), Sample({2, 3, 2})},
       [](Vars v) { return Concat(v, 1); }},
      {"AVariableUsedTwice", {Sample({3})}, [](Vars v) { return v[0] * v[0] + Exp(v[0]); }},
      {"AScalarBesideIt", {Sample({3})}, [](Vars v) { return 2.0f / (v[0] * v[0] + 1.0f) - 0.5f; }},
      {"SoftmaxCrossEntropyOfNumbers",
       {Sample({3, 4}, -3, 3)},
       [=](Vars v) { return SoftmaxCrossEntropy(v[0], numbers); }},
      {"SoftmaxCrossEntropyOfProbabilities",
       {Sample({2, 3}, -3, 3)},
       [=](Vars v) { return SoftmaxCrossEntropy(v[0], probabilities); }},
      {"SigmoidCrossEntropy",
       {Sample({2, 3}, -4, 4)},
       [=](Vars v) { return SigmoidCrossEntropy(v[0], probabilities); }},
      {"SquaredErrorOnBothSides",
       {Sample({4}), Sample({4}, 0, 3)},
       [](Vars v) { return SquaredError(v[0], v[1]); }},
      {"APerceptron",
       {Sample({3, 4}), Sample({4, 5}), Sample({5}), Sample({5, 3}), Sample({3})},
       [=](Vars v) {
         return ReduceMean(
             SoftmaxCrossEntropy(MatMul(Tanh(MatMul(v[0], v[1]) + v[2]), v[3]) + v[4], numbers));
       }}};
}

std::string NameOf(const ::testing::TestParamInfo<GradientCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(OfTwo, EveryOperation, ::testing::ValuesIn(BinaryCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(OfOne, EveryOperation, ::testing::ValuesIn(UnaryCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Chain, EveryOperation, ::testing::ValuesIn(ChainCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Product, EveryOperation, ::testing::ValuesIn(MatMulCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Images, EveryOperation, ::testing::ValuesIn(ImageCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Rows, EveryOperation, ::testing::ValuesIn(RowCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Other, EveryOperation, ::testing::ValuesIn(OtherCases()), NameOf);

TEST(GradientCheckTest, FindsAWrongDerivative) {
  const Differentiable wrong = [](GradientTape& tape, const std::vector<Var>& leaves) {
    return tape.Record(*Square(leaves[0]).Value(), leaves,
                       [](const Tensor& g) { return std::vector<Tensor>{g}; });
  };
  EXPECT_THAT(CheckGradients(wrong, {Tensor::Vector<double>({1, 2})}).message(),
              HasSubstr("leaf 0, element 0: the tape gives 1, differences 2"));
}

// ---- values -------------------------------------------------------------------------------------

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

TEST(ArithmeticTest, AScalarOfCppIsRoundedOnceToTheOtherDType) {
  EXPECT_THAT(ValuesOf<double>(Var(Doubles({2}, {1, 10})) * 0.1), ElementsAre(0.1, 1.0));
  EXPECT_THAT(ValuesOf<double>(0.1 + Var(Doubles({1}, {0}))), ElementsAre(0.1));
  EXPECT_THAT(ValuesOf<double>(Var(Doubles({1}, {1})) * 16777217), ElementsAre(16777217.0));
  EXPECT_THAT(ValuesOf<float>(Var(Tensor::Vector<float>({1})) * 0.1), ElementsAre(0.1f));
  EXPECT_THAT(ValuesOf<double>(Where(Less(0.5, Doubles({2}, {1, 0})), 0.1, Doubles({2}, {7, 7}))),
              ElementsAre(0.1, 7));
  EXPECT_THAT(ValuesOf<float>(Var(0.1) * 1), ElementsAre(0.1f)) << "two C++ scalars give a float32";
}

TEST(ArithmeticTest, NothingTimesSomethingIsNothing) {
  EXPECT_THAT(
      ValuesOf<float>(Var(Zeros(DType::kFloat32, {0, 3})) * Var(Zeros(DType::kFloat32, {3}))),
      IsEmpty());
}

// The value of `function`, and its gradients for "a" and "b", or for one of them; all on the CPU.
std::vector<Tensor> ValueAndGradients(const Tensor& a, const Tensor& b, bool watch_a,
                                      const std::function<Var(const Var&, const Var&)>& function) {
  MapReader reader;
  GradientTape tape(reader);
  const Var y = function(watch_a ? tape.Watch("a", a) : Var(a), tape.Watch("b", b));
  const absl::StatusOr<Gradients> gradients = tape.Gradient(ReduceSum(Square(y)));
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  std::vector<Tensor> all{*y.Value()->To(Device{})};
  if (!gradients.ok()) return all;
  for (const auto& [name, gradient] : gradients->entries())
    all.push_back(*std::get<Tensor>(gradient).To(Device{}));
  return all;
}

TEST(AddThenTest, HasTheBitsOfTheSumAndOfTheFunctionAfterIt) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor a = *Cast(There(Sample({37, 19}, -3, 3)), dtype).Value(),
                 row = *Cast(There(Sample({19}, -2, 2)), dtype).Value();
    for (const Chain& chain : kChains) {
      for (const bool watch_a : {true, false}) {
        SCOPED_TRACE(chain.name);
        const auto one = ValueAndGradients(a, row, watch_a, [&](const Var& v, const Var& w) {
          return internal::AddThen(chain.op, v, w);
        });
        const auto two = ValueAndGradients(
            a, row, watch_a, [&](const Var& v, const Var& w) { return chain.function(v + w); });
        ASSERT_EQ(one.size(), watch_a ? 3u : 2u);
        for (size_t i = 0; i < one.size(); ++i) {
          EXPECT_EQ(one[i].shape(), two[i].shape());
          EXPECT_EQ(
              std::memcmp(one[i].data(), two[i].data(), static_cast<size_t>(one[i].size_bytes())),
              0)
              << (i == 0 ? "value" : "gradient");
        }
      }
    }
  }
}

TEST(AddThenTest, TakesAScalarAndWhatIsEmpty) {
  EXPECT_THAT(
      ValuesOf<double>(internal::AddThen(internal::UnaryOp::kRelu, Doubles({2}, {-3, 1}), 2.0f)),
      ElementsAre(0, 3));
  EXPECT_THAT(
      ValuesOf<float>(internal::AddThen(internal::UnaryOp::kTanh, Zeros(DType::kFloat32, {0, 3}),
                                        Zeros(DType::kFloat32, {3}))),
      IsEmpty());
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

// The gradients of the sum of function(a, b), "a" first.
std::vector<std::vector<float>> GradientsAt(
    std::vector<float> a, std::vector<float> b,
    const std::function<Var(const Var&, const Var&)>& function) {
  MapReader reader;
  GradientTape tape(reader);
  const int64_t n = static_cast<int64_t>(a.size());
  const Var x = tape.Watch("a", Floats({n}, a)), y = tape.Watch("b", Floats({n}, b));
  const auto gradients = tape.Gradient(ReduceSum(function(x, y)));
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  if (!gradients.ok()) return {};
  return {ValuesOf<float>(std::get<Tensor>(gradients->entries().at("a"))),
          ValuesOf<float>(std::get<Tensor>(gradients->entries().at("b")))};
}

TEST(MinimumTest, GivesTheGradientOfEqualsToTheFirstAndKeepsNaN) {
  EXPECT_THAT(GradientsAt({1, 5, 9}, {1, 7, 8}, Minimum),
              ElementsAre(ElementsAre(1, 1, 0), ElementsAre(0, 0, 1)));
  EXPECT_THAT(ValuesOf<float>(Minimum(Floats({2}, {NAN, 1}), Floats({2}, {1, NAN}))),
              ElementsAre(IsNan(), IsNan()));
}

TEST(AbsTest, IsFlatAtZeroOnlyAndKeepsNaN) {
  EXPECT_THAT(
      GradientsAt({-2, 0, 3}, {0, 0, 0}, [](const Var& a, const Var& b) { return Abs(a) + b; })[0],
      ElementsAre(-1, 0, 1));
  EXPECT_THAT(ValuesOf<float>(Abs(Floats({3}, {-2, 0, NAN}))), ElementsAre(2, 0, IsNan()));
}

TEST(ClipTest, LetsTheGradientThroughAtBothEnds) {
  const auto clipped = [](const Var& a, const Var& b) { return Clip(a, -1.0f, 1.0f) + 0.0f * b; };
  EXPECT_THAT(GradientsAt({-2, -1, 0, 1, 2}, {0, 0, 0, 0, 0}, clipped)[0],
              ElementsAre(0, 1, 1, 1, 0));
  EXPECT_THAT(ValuesOf<double>(Clip(Doubles({3}, {-2, 0, 2}), -1.0f, 1.0f)), ElementsAre(-1, 0, 1));
}

TEST(PowTest, HasNoGradientOfTheExponentWhereTheBaseIsNotPositive) {
  const auto gradients = GradientsAt({2, 0, -2}, {3, 2, 3}, Pow);
  EXPECT_THAT(gradients[0], ElementsAre(FloatEq(12), 0, FloatEq(12)));
  EXPECT_THAT(gradients[1], ElementsAre(FloatEq(8 * std::log(2.0f)), 0, 0));
  EXPECT_THAT(ValuesOf<float>(Pow(Floats({3}, {4, -1, 0}), 0.5f)), ElementsAre(2, IsNan(), 0));
}

TEST(ComparisonTest, GivesMasksOfTheOperandsTypeWithoutADerivative) {
  const Var a = Floats({4}, {1, 2, 3, NAN}), two(2.0f);
  EXPECT_THAT(ValuesOf<float>(Less(a, two)), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(ValuesOf<float>(LessEqual(a, two)), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(ValuesOf<float>(Greater(a, two)), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(ValuesOf<float>(GreaterEqual(a, two)), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(ValuesOf<float>(Equal(a, two)), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(ValuesOf<double>(Greater(Doubles({2}, {1, 3}), Doubles({2, 1}, {0, 2}))),
              ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(
      GradientsAt({1, 2}, {2, 1},
                  [](const Var& x, const Var& y) { return Greater(x, y) * x + 0.0f * y; })[0],
      ElementsAre(0, 1));
}

TEST(WhereTest, TakesMasksOfAnyTypeAndLeavesOutWhatWasNotChosen) {
  const Var a = Floats({2}, {1, NAN}), b = Floats({2}, {NAN, 4});
  EXPECT_THAT(ValuesOf<float>(Where(List<int64_t>({7, 0}), a, b)), ElementsAre(1, 4));
  EXPECT_THAT(ValuesOf<double>(Where(List<uint8_t>({1, 0}), 5.0f, Doubles({2}, {1, 2}))),
              ElementsAre(5, 2));
  // Elements that were not chosen get no gradient, even if their own derivative is infinite.
  const auto safe_sqrt = [](const Var& x, const Var& y) {
    return Where(Greater(x, 0.0f), Sqrt(Where(Greater(x, 0.0f), x, 1.0f)), y);
  };
  EXPECT_THAT(GradientsAt({4, 0}, {5, 6}, safe_sqrt),
              ElementsAre(ElementsAre(0.25, 0), ElementsAre(0, 1)));
}

TEST(ReluTest, IsFlatAtZeroAndKeepsNaN) {
  MapReader reader;
  GradientTape tape(reader);
  const Var y = Relu(tape.Watch("x", Floats({3}, {-1, 0, 2})));
  EXPECT_THAT(ValuesOf<float>(y), ElementsAre(0, 0, 2));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("x"))),
              ElementsAre(0, 0, 1));
  EXPECT_TRUE(std::isnan(ValuesOf<float>(Relu(Floats({1}, {NAN})))[0]));
}

TEST(SigmoidTest, DoesNotOverflow) {
  EXPECT_THAT(ValuesOf<float>(Sigmoid(Floats({3}, {-1000, 0, 1000}))), ElementsAre(0, 0.5, 1));
}

TEST(SoftmaxTest, DoesNotOverflow) {
  EXPECT_THAT(ValuesOf<float>(Softmax(Floats({2, 2}, {1000, 1000, -1000, 0}))),
              ElementsAre(0.5, 0.5, 0, 1));
  EXPECT_THAT(ValuesOf<float>(Softmax(Zeros(DType::kFloat32, {2, 0}))), IsEmpty());
}

TEST(MatMulTest, MultipliesMatrices) {
  const Var a(Floats({2, 3}, {1, 2, 3, 4, 5, 6})), b(Floats({3, 2}, {1, 0, 0, 1, 1, 1}));
  EXPECT_THAT(ValuesOf<float>(MatMul(a, b)), ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(ValuesOf<float>(MatMul(b, a, Transpose::kYes, Transpose::kYes)),
              ElementsAre(4, 10, 5, 11));
}

TEST(MatMulTest, AnEmptyBatchGivesZeroGradients) {
  SetBlasThreads(1);
  MapReader reader;
  GradientTape tape(reader);
  const Var y = MatMul(Zeros(DType::kFloat32, {0, 3}), tape.Watch("w", Floats({3, 1}, {1, 2, 3})));
  EXPECT_EQ((Shape{0, 1}), y.shape());
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("w"))),
              ElementsAre(0, 0, 0));
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
  EXPECT_NEAR(104857.6, ValuesOf<float>(ReduceSum(There(Tensor::Vector<float>(tenths))))[0], 0.01);
}

TEST(MovementTest, MovesAnyDType) {
  const Var a(List<int64_t>({1, 2})), b(List<int64_t>({3}));
  EXPECT_THAT(ValuesOf<int64_t>(Concat({a, b}, 0)), ElementsAre(1, 2, 3));
  EXPECT_EQ((Shape{2, 1}), Reshape(a, {2, -1}).shape());
  EXPECT_THAT(ValuesOf<int64_t>(Range(3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(ValuesOf<int64_t>(Range(0)), IsEmpty());
}

TEST(ConcatTest, TakesEmptyParts) {
  EXPECT_THAT(ValuesOf<float>(Concat({Zeros(DType::kFloat32, {0, 2}), Floats({1, 2}, {3, 4})}, 0)),
              ElementsAre(3, 4));
  EXPECT_EQ((Shape{0, 5}),
            Concat({Zeros(DType::kFloat32, {0, 2}), Zeros(DType::kFloat32, {0, 3})}, 1).shape());
}

TEST(CastTest, SaturatesAndTakesNaNToZero) {
  const Tensor floats = Floats({6}, {1.9f, -1.9f, 300, -300, NAN, INFINITY});
  EXPECT_THAT(ValuesOf<int8_t>(Cast(floats, DType::kInt8)), ElementsAre(1, -1, 127, -128, 0, 127));
  EXPECT_THAT(ValuesOf<uint8_t>(Cast(floats, DType::kUInt8)), ElementsAre(1, 0, 255, 0, 0, 255));
  EXPECT_THAT(ValuesOf<int64_t>(Cast(Floats({1}, {1e30f}), DType::kInt64)),
              ElementsAre(std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(ValuesOf<bool>(Cast(Floats({2}, {0, 0.5f}), DType::kBool)), ElementsAre(false, true));
  EXPECT_THAT(ValuesOf<float>(Cast(Cast(Floats({1}, {1.5f}), DType::kBFloat16), DType::kFloat32)),
              ElementsAre(1.5f));
}

// 2049 is halfway between two float16 numbers, and a float cannot hold the rest.
TEST(CastTest, ADoubleBecomesNarrowByWayOfFloatOnEveryDevice) {
  const Tensor doubles =
      Tensor::Vector<double>({2049.0000001, -2049.0000001, 2049.001, 257.0000001});
  EXPECT_THAT(ValuesOf<float>(Cast(Cast(There(doubles), DType::kFloat16), DType::kFloat32)),
              ElementsAre(2048, -2048, 2050, 257));
  EXPECT_THAT(ValuesOf<float>(Cast(Cast(There(doubles), DType::kBFloat16), DType::kFloat32)),
              ElementsAre(2048, -2048, 2048, 256));
}

TEST(CastTest, CarriesTheGradientBetweenFloatingTypesOnly) {
  MapReader reader;
  GradientTape tape(reader);
  const Var x = tape.Watch("x", Floats({2}, {1, 2})), y = tape.Watch("y", Floats({1}, {3}));
  const auto gradients = tape.Gradient(ReduceSum(Cast(x, DType::kFloat64)) * 2.0f +
                                       ReduceSum(Cast(Cast(y, DType::kInt32), DType::kFloat64)));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("x"))), ElementsAre(2, 2));
  EXPECT_EQ(1u, gradients->entries().size());
}

// The CPU does not compute in the narrow types, but values move in them, and so do gradients.
TEST(NarrowTest, GradientsOfAValueUsedTwiceAreAddedUp) {
  for (const DType narrow : {DType::kBFloat16, DType::kFloat16}) {
    MapReader reader;
    GradientTape tape(reader);
    const Var x = tape.Watch("x", Floats({4}, {1, 2, 3, 4})), half = Cast(x, narrow);
    const Var front = Cast(Slice(half, 0, 0, 3), DType::kFloat32),
              back = Cast(Slice(half, 0, 1, 4), DType::kFloat32);
    const auto gradients = tape.Gradient(ReduceSum(front) * 2.0f + ReduceSum(back) * 0.5f);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("x"))),
                ElementsAre(2, 2.5, 2.5, 0.5))
        << DTypeName(narrow);
  }
}

TEST(NarrowTest, GradientsOfRowsTakenMoreThanOnceAreAddedUp) {
  for (const DType narrow : {DType::kBFloat16, DType::kFloat16}) {
    MapReader reader;
    GradientTape tape(reader);
    const Var table = tape.Watch("table", Floats({3, 2}, {1, 2, 3, 4, 5, 6}));
    const Var rows = Cast(Gather(Cast(table, narrow), List<int64_t>({2, 0, 2})), DType::kFloat32);
    const auto gradients = tape.Gradient(ReduceSum(rows * Floats({3, 1}, {1, 2, 4})));
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("table"))),
                ElementsAre(2, 2, 0, 0, 5, 5))
        << DTypeName(narrow);
  }
}

TEST(StopGradientTest, KeepsTheValueAndEndsTheDerivative) {
  MapReader reader;
  GradientTape tape(reader);
  const Var x = tape.Watch("x", Floats({2}, {3, 4}));
  const auto gradients = tape.Gradient(ReduceSum(x * StopGradient(x)));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(gradients->entries().at("x"))), ElementsAre(3, 4));
}

TEST(GeluTest, IsTheExactForm) {
  EXPECT_THAT(ValuesOf<double>(Gelu(Doubles({3}, {-40, 0, 1}))),
              ElementsAre(0, 0, DoubleNear(0.8413447460685429, 1e-15)));
}

TEST(SoftplusTest, DoesNotOverflow) {
  EXPECT_THAT(ValuesOf<float>(Softplus(Floats({3}, {-1000, 0, 1000}))),
              ElementsAre(0, FloatEq(std::log(2.0f)), 1000));
}

// Every 1,009th float: all signs and exponents, denormal numbers, infinities and NaN.
TEST(FloatFunctionTest, AgreesWithTheStandardLibraryOverAllFloats) {
  const std::tuple<std::string, Var (*)(const Var&), double (*)(double)> functions[] = {
      {"Exp", Exp, [](double x) { return std::exp(x); }},
      {"Tanh", Tanh, [](double x) { return std::tanh(x); }},
      {"Log", Log, [](double x) { return std::log(x); }},
      {"Sigmoid", Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Softplus", Softplus,
       [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }}};
  std::vector<float> inputs;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1009) {
    const auto word = static_cast<uint32_t>(bits);
    float x;
    std::memcpy(&x, &word, sizeof(x));
    inputs.push_back(x);
  }
  inputs.insert(inputs.end(), {INFINITY, -INFINITY, 88.72283f, 88.73f, -87.3f, -103.9f, 0.625f,
                               -0.625f, 0.0f, -0.0f});
  const Tensor x = There(Tensor::Vector<float>(inputs));
  for (const auto& [name, function, standard] : functions) {
    const std::vector<float> got = ValuesOf<float>(function(x));
    for (size_t i = 0; i < got.size(); ++i) {
      const double wanted = standard(inputs[i]);
      const bool same =
          std::isnan(wanted) ? std::isnan(got[i]) : got[i] == static_cast<float>(wanted);
      ASSERT_TRUE(same || std::abs(got[i] - wanted) <= 4e-7 * std::abs(wanted) + 3e-45)
          << name << "(" << inputs[i] << ") is " << got[i];
    }
  }
}

TEST(FloatFunctionTest, GeluAndItsSlopeAgreeWithTheNormalDistribution) {
  std::vector<float> inputs;
  for (float x = -14; x <= 14; x += 1e-3f) inputs.push_back(x);
  MapReader reader;
  GradientTape tape(reader);
  const Var gelu = Gelu(tape.Watch("x", There(Tensor::Vector<float>(inputs))));
  const std::vector<float> got = ValuesOf<float>(gelu);
  const std::vector<float> slopes =
      ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(gelu))->entries().at("x")));
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = inputs[i], phi = 0.5 * std::erfc(-x * M_SQRT1_2);
    const double density = std::exp(-0.5 * x * x) * (M_2_SQRTPI * M_SQRT1_2 / 2);
    ASSERT_NEAR(got[i], x * phi, 1.5e-7 * std::max(1.0, std::abs(x))) << x;
    ASSERT_NEAR(slopes[i], phi + x * density, 3e-7) << x;
  }
}

TEST(ReduceMaxTest, SharesTheGradientEvenlyAmongEquals) {
  MapReader reader;
  GradientTape tape(reader);
  const Var max = ReduceMax(tape.Watch("x", Floats({2, 3}, {4, 1, 4, -2, -1, -3})), 1);
  EXPECT_THAT(ValuesOf<float>(max), ElementsAre(4, -1));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(max))->entries().at("x"))),
              ElementsAre(0.5, 0, 0.5, 0, 1, 0));
}

TEST(ReduceMaxTest, KeepsNaNAndOfNothingIsMinusInfinity) {
  const std::vector<float> max =
      ValuesOf<float>(ReduceMax(Floats({3, 2}, {1, 5, NAN, 6, 2, 7}), 0));
  EXPECT_TRUE(std::isnan(max[0]));
  EXPECT_EQ(7, max[1]);
  EXPECT_THAT(ValuesOf<float>(ReduceMax(Zeros(DType::kFloat32, {2, 0}), 1)),
              ElementsAre(-INFINITY, -INFINITY));
  EXPECT_EQ((Shape{2, 3}), ReduceMax(Zeros(DType::kFloat32, {2, 3}), kNoAxis).shape());
}

TEST(LayerNormTest, TakesARowWithoutVariance) {
  EXPECT_THAT(ValuesOf<float>(LayerNorm(Floats({1, 3}, {7, 7, 7}), Floats({3}, {2, 2, 2}),
                                        Floats({3}, {1, 2, 3}))),
              ElementsAre(1, 2, 3));
  EXPECT_EQ((Shape{0, 3}), LayerNorm(Zeros(DType::kFloat32, {0, 3}), Floats({3}, {1, 1, 1}),
                                     Floats({3}, {0, 0, 0}))
                               .shape());
  EXPECT_EQ((Shape{3, 0}), LayerNorm(Zeros(DType::kFloat32, {3, 0}), Zeros(DType::kFloat32, {0}),
                                     Zeros(DType::kFloat32, {0}))
                               .shape());
}

TEST(L2NormalizeTest, OfZerosIsZeros) {
  EXPECT_THAT(ValuesOf<float>(L2Normalize(Floats({2, 2}, {0, 0, 3, 4}))),
              ElementsAre(0, 0, 0.6f, 0.8f));
}

// ---- images -------------------------------------------------------------------------------------

// Six loops, as in the definition, with the padding of TensorFlow's documentation.
Tensor ConvolutionByDefinition(const Tensor& x, const Tensor& kernel, int64_t stride,
                               Padding padding) {
  const Shape &s = x.shape(), &k = kernel.shape();
  const auto places = [&](int axis) {
    return padding == Padding::kSame ? (s.dim(axis) + stride - 1) / stride
                                     : (s.dim(axis) - k.dim(axis - 1)) / stride + 1;
  };
  const auto before = [&](int axis) {
    return std::max<int64_t>(0, (places(axis) - 1) * stride + k.dim(axis - 1) - s.dim(axis)) / 2;
  };
  const int64_t top = padding == Padding::kSame ? before(1) : 0,
                left = padding == Padding::kSame ? before(2) : 0;
  Tensor y = *Tensor::Zeros(DType::kFloat64, {s.dim(0), places(1), places(2), k.dim(3)});
  double* to = y.mutable_values<double>()->data();
  const auto at = [](const Tensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return t.data_as<
        double>()[((a * t.shape().dim(1) + b) * t.shape().dim(2) + c) * t.shape().dim(3) + d];
  };
  for (int64_t place = 0; place < y.shape().num_elements() / k.dim(3); ++place) {
    const int64_t j = place % places(2), i = place / places(2) % places(1),
                  n = place / places(2) / places(1);
    for (int64_t a = 0; a < k.dim(0) * k.dim(1); ++a) {
      const int64_t row = i * stride - top + a / k.dim(1),
                    column = j * stride - left + a % k.dim(1);
      if (row < 0 || row >= s.dim(1) || column < 0 || column >= s.dim(2)) continue;
      for (int64_t c = 0; c < k.dim(2) * k.dim(3); ++c) {
        to[place * k.dim(3) + c % k.dim(3)] +=
            at(x, n, row, column, c / k.dim(3)) *
            at(kernel, a / k.dim(1), a % k.dim(1), c / k.dim(3), c % k.dim(3));
      }
    }
  }
  return y;
}

TEST(Conv2DTest, IsItsDefinitionForEveryWindowStrideAndPadding) {
  for (int64_t height = 1; height <= 4; ++height) {
    for (int64_t width = 1; width <= 4; ++width) {
      for (int stride = 1; stride <= 3; ++stride) {
        for (Padding padding : {Padding::kSame, Padding::kValid}) {
          const Tensor x = Sample({2, 5, 6, 2}), kernel = Sample({height, width, 2, 3});
          const Tensor wanted = ConvolutionByDefinition(x, kernel, stride, padding);
          const Var y = Conv2D(There(x), There(kernel), stride, padding);
          ASSERT_EQ(wanted.shape(), y.shape()) << height << " x " << width << ", stride " << stride;
          EXPECT_THAT(ValuesOf<double>(y), Pointwise(DoubleNear(1e-12), *wanted.values<double>()))
              << height << " x " << width << ", stride " << stride;
        }
      }
    }
  }
}

// Float32 images with few channels take another way than others.
TEST(Conv2DTest, OfFewChannelsIsItsDefinition) {
  const uint64_t seed = EntropySeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Random random(seed);
  for (int i = 0; i < 60; ++i) {
    const auto upto = [&](int64_t most) { return 1 + static_cast<int64_t>(random.Below(most)); };
    const int64_t channels = upto(i % 3 == 0 ? 40 : 4);
    const Shape image = {upto(4) - 1, upto(12), random.Chance(0.1) ? upto(5) - 1 : upto(40),
                         channels};
    const int64_t stride = upto(3);
    // A window beyond the image needs padding.
    const bool is_large = random.Chance(0.2) || image.dim(2) == 0;
    const Padding padding = is_large || random.Chance(0.5) ? Padding::kSame : Padding::kValid;
    const Shape window = {upto(is_large ? 6 : std::min<int64_t>(6, image.dim(1))),
                          upto(is_large ? 6 : std::min<int64_t>(6, image.dim(2))), channels,
                          upto(70)};
    const Tensor x = Sample(image), kernel = Sample(window);
    SCOPED_TRACE(absl::StrCat(image.ToString(), " by ", window.ToString(), ", stride ", stride));
    const Tensor wanted = ConvolutionByDefinition(x, kernel, stride, padding);
    const Var few = Cast(There(x), DType::kFloat32), weights = Cast(There(kernel), DType::kFloat32);
    const Var y = Conv2D(few, weights, stride, padding);
    ASSERT_EQ(wanted.shape(), y.shape());
    EXPECT_THAT(ValuesOf<double>(Cast(y, DType::kFloat64)),
                Pointwise(DoubleNear(1e-3), *wanted.values<double>()));
    // The gradients of sum(y * g), in both dtypes.
    const Tensor g = Sample(wanted.shape());
    std::vector<double> gradients[2];
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      MapReader reader;
      GradientTape tape(reader);
      const Var v = tape.Watch("kernel", *Cast(There(kernel), dtype).Value());
      const Var sum =
          ReduceSum(Conv2D(Cast(There(x), dtype), v, stride, padding) * Cast(There(g), dtype));
      const Gradients all = *tape.Gradient(sum);
      gradients[dtype == DType::kFloat32] = ValuesOf<double>(
          Cast(There(std::get<Tensor>(all.entries().at("kernel"))), DType::kFloat64));
    }
    EXPECT_THAT(gradients[1], Pointwise(DoubleNear(2e-2), gradients[0]));
  }
}

TEST(Conv2DTest, GoesBlockByBlockOverWhatNoCacheHolds) {
  const Tensor x = Sample({3, 64, 64, 8}), kernel = Sample({3, 3, 8, 2});
  EXPECT_THAT(ValuesOf<double>(Conv2D(There(x), There(kernel))),
              Pointwise(DoubleNear(1e-10),
                        *ConvolutionByDefinition(x, kernel, 1, Padding::kSame).values<double>()));
}

TEST(Conv2DTest, AnEmptyBatchGivesZeroGradients) {
  MapReader reader;
  GradientTape tape(reader);
  const Var y = Conv2D(Zeros(DType::kFloat32, {0, 4, 4, 1}),
                       tape.Watch("w", Floats({1, 1, 1, 2}, {1, 2})), 2);
  EXPECT_EQ((Shape{0, 2, 2, 2}), y.shape());
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("w"))),
              ElementsAre(0, 0));
}

TEST(MaxPool2DTest, GivesTheGradientToTheFirstOfEquals) {
  MapReader reader;
  GradientTape tape(reader);
  const Var y = MaxPool2D(tape.Watch("x", Floats({1, 2, 3, 1}, {1, 5, 5, 5, 2, 0})), 2, 1);
  EXPECT_THAT(ValuesOf<float>(y), ElementsAre(5, 5));
  EXPECT_THAT(ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("x"))),
              ElementsAre(0, 2, 0, 0, 0, 0));
}

TEST(MaxPool2DTest, PaddingIsNoElement) {
  EXPECT_THAT(ValuesOf<float>(MaxPool2D(Floats({1, 3, 1, 1}, {-3, -2, -1}), 2, 2, Padding::kSame)),
              ElementsAre(-2, -1));
}

// ---- rows ---------------------------------------------------------------------------------------

TEST(GatherTest, TakesRowsOfAnyDTypeByIdsOfAnyShape) {
  const Tensor table = There(*Tensor::Copy<int64_t>({3, 2}, {1, 2, 3, 4, 5, 6})),
               ids = There(*Tensor::Copy<uint8_t>({1, 3}, {2, 0, 2}));
  const Var rows = Gather(table, ids);
  EXPECT_EQ((Shape{1, 3, 2}), rows.shape());
  EXPECT_THAT(ValuesOf<int64_t>(rows), ElementsAre(5, 6, 1, 2, 5, 6));
  EXPECT_EQ((Shape{0, 2}), Gather(table, Zeros(DType::kInt64, {0})).shape());
}

TEST(SegmentSumTest, GivesZerosForEmptyLists) {
  EXPECT_THAT(
      ValuesOf<float>(SegmentSum(Floats({3}, {1, 2, 4}), Tensor::Vector<int64_t>({0, 0, 2, 3, 3}))),
      ElementsAre(0, 3, 4, 0));
  EXPECT_EQ((Shape{0, 2}),
            SegmentSum(Zeros(DType::kFloat32, {0, 2}), Tensor::Vector<int64_t>({0})).shape());
}

TEST(DotInteractionTest, GoesRowByRowUnderTheDiagonal) {
  const Var features(Floats({1, 3, 2}, {1, 0, 2, 3, 5, 7}));
  EXPECT_THAT(ValuesOf<float>(DotInteraction(features)), ElementsAre(2, 5, 31));
  EXPECT_EQ((Shape{0, 3}), DotInteraction(Zeros(DType::kFloat32, {0, 3, 2})).shape());
}

TEST(SliceTest, CutsAnyAxisOfAnyDType) {
  const Tensor x = There(*Tensor::Copy<uint8_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(ValuesOf<uint8_t>(Slice(x, -1, 1, 3)), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(ValuesOf<uint8_t>(Slice(x, 0, 1, 2)), ElementsAre(4, 5, 6));
  EXPECT_EQ((Shape{2, 0}), Slice(x, 1, 2, 2).shape());
  EXPECT_EQ((Shape{0, 1}), Slice(Zeros(DType::kFloat32, {0, 3}), 1, 2, 3).shape());
}

// Checks that each element of y, at index i, is the element of x whose index along axis axes[j] is
// i[j].
template <typename T>
void CheckPermutation(const Shape& shape, std::vector<int> axes, const Var& y) {
  ASSERT_TRUE(y.status().ok()) << y.status();
  std::vector<int64_t> strides(shape.rank(), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * shape.dim(axis + 1);
  const std::vector<T> values = ValuesOf<T>(y);
  for (int64_t place = 0; place < shape.num_elements(); ++place) {
    int64_t rest = place, from = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      from += rest % shape.dim(axes[axis]) * strides[axes[axis]];
      rest /= shape.dim(axes[axis]);
    }
    ASSERT_EQ(static_cast<T>(from), values[place]) << "place " << place;
  }
}

TEST(PermuteTest, MovesEveryElementOfAnyDType) {
  const auto counted = [](const Shape& shape, DType dtype) {
    return Cast(Reshape(There(*Range(shape.num_elements()).Value()), shape), dtype);
  };
  CheckPermutation<double>({33, 40}, {1, 0}, Permute(counted({33, 40}, DType::kFloat64), {1, 0}));
  CheckPermutation<int8_t>({2, 3, 4}, {2, 0, 1},
                           Permute(counted({2, 3, 4}, DType::kInt8), {2, 0, 1}));
  CheckPermutation<int32_t>({2, 3, 4}, {0, 2, 1},
                            Permute(counted({2, 3, 4}, DType::kInt32), {0, 2, 1}));
  CheckPermutation<int64_t>({2, 3, 1, 4}, {3, 1, 2, 0},
                            Permute(counted({2, 3, 1, 4}, DType::kInt64), {3, 1, 2, 0}));
  CheckPermutation<float>({2, 3, 4, 5}, {1, 0, 3, 2},
                          Permute(counted({2, 3, 4, 5}, DType::kFloat32), {1, 0, 3, 2}));
  CheckPermutation<float>({2, 3, 4}, {0, 1, 2},
                          Permute(counted({2, 3, 4}, DType::kFloat32), {0, 1, 2}));
  EXPECT_THAT(
      ValuesOf<float>(Permute(
          Cast(Permute(counted({2, 2}, DType::kBFloat16), {1, 0}), DType::kFloat32), {0, 1})),
      ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(ValuesOf<float>(Permute(Floats({}, {3}), {})), ElementsAre(3));
  EXPECT_EQ((Shape{3, 0}), Permute(Zeros(DType::kFloat32, {0, 3}), {1, 0}).shape());
}

// ---- dropout ------------------------------------------------------------------------------------

// The results of two calls, and of one with its own seed, on ones, in one step.
struct Draws {
  std::vector<float> first, second, seeded;
};

Draws DrawsOf(uint64_t step_seed, uint64_t own_seed = 5) {
  const Tensor ones = Floats({64}, std::vector<float>(64, 1));
  MapReader reader;
  reader.SetSeed(step_seed);
  GradientTape tape(reader);
  const Var x = tape.Watch("x", ones);
  return {ValuesOf<float>(Dropout(x, 0.5f)), ValuesOf<float>(Dropout(x, 0.5f)),
          ValuesOf<float>(Dropout(x, 0.5f, own_seed))};
}

TEST(DropoutTest, DropsTheSameElementsWhenAStepIsTriedAgain) {
  const Draws first = DrawsOf(1), again = DrawsOf(1);
  EXPECT_EQ(first.first, again.first);
  EXPECT_EQ(first.second, again.second);
  EXPECT_EQ(first.seeded, again.seeded);
}

TEST(DropoutTest, DropsOthersInEachCallStepAndSeed) {
  const Draws step = DrawsOf(1), other = DrawsOf(2);
  EXPECT_NE(step.first, step.second);
  EXPECT_NE(step.first, step.seeded);
  EXPECT_NE(step.first, other.first);
  EXPECT_NE(step.seeded, other.seeded);
  EXPECT_NE(step.seeded, DrawsOf(1, 6).seeded);
}

TEST(DropoutTest, DropsWithTheProbabilityGivenAndKeepsTheMean) {
  MapReader reader;
  GradientTape tape(reader);
  const std::vector<float> y = ValuesOf<float>(
      Dropout(tape.Watch("x", Floats({40001}, std::vector<float>(40001, 4))), 0.2f));
  const auto dropped = std::count(y.begin(), y.end(), 0.0f),
             kept = std::count(y.begin(), y.end(), 5.0f);
  EXPECT_EQ(40001, dropped + kept);
  EXPECT_NEAR(8000, dropped, 400);  // five standard deviations
}

TEST(DropoutTest, SendsTheGradientWhereTheValueWent) {
  MapReader reader;
  GradientTape tape(reader);
  const Var y = Dropout(tape.Watch("x", Floats({100}, std::vector<float>(100, 1))), 0.25f);
  EXPECT_EQ(ValuesOf<float>(y),
            ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceSum(y))->entries().at("x"))));
}

TEST(DropoutTest, TakesAConstantForOneOfTheTapeOnThisThread) {
  const Var ones(Floats({64}, std::vector<float>(64, 1)));
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, Dropout(ones, 0.5f).status().code());
  MapReader reader;
  GradientTape outer(reader);
  EXPECT_NE(ValuesOf<float>(ones), ValuesOf<float>(Dropout(ones, 0.5f)));
  {
    GradientTape inner(reader, GradientTape::Mode::kInference);
    EXPECT_EQ(ValuesOf<float>(ones), ValuesOf<float>(Dropout(ones, 0.5f)));
  }
  EXPECT_NE(ValuesOf<float>(ones), ValuesOf<float>(Dropout(ones, 0.5f)));
}

TEST(DropoutTest, IsTheIdentityInInferenceModeAndForRateZero) {
  MapReader reader({{"x", Floats({3}, {1, 2, 3})}});
  GradientTape training(reader);
  EXPECT_THAT(ValuesOf<float>(Dropout(training.Read("x"), 0)), ElementsAre(1, 2, 3));
  GradientTape inference(reader, GradientTape::Mode::kInference);
  EXPECT_THAT(ValuesOf<float>(Dropout(Square(inference.Read("x")), 0.9f)), ElementsAre(1, 4, 9));
}

// ---- losses -------------------------------------------------------------------------------------

TEST(SoftmaxCrossEntropyTest, TakesNumbersOfAnyIntegerType) {
  const Var logits(Floats({2, 2}, {0, 0, 1000, 0}));
  for (const Tensor& labels :
       {List<uint8_t>({0, 1}), List<int32_t>({0, 1}), List<int64_t>({0, 1})}) {
    EXPECT_THAT(ValuesOf<float>(SoftmaxCrossEntropy(logits, labels)),
                ElementsAre(std::log(2.0f), 1000))
        << labels.ToString();
  }
}

TEST(SoftmaxCrossEntropyTest, IgnoresWhatHasNoProbability) {
  const Var logits(Floats({1, 2}, {0, -INFINITY}));
  EXPECT_THAT(ValuesOf<float>(SoftmaxCrossEntropy(logits, Floats({1, 2}, {1, 0}))), ElementsAre(0));
}

TEST(SoftmaxCrossEntropyTest, NamesALabelOutOfRangeAndTheNumberOfClasses) {
  for (int64_t label : {-1, 10}) {
    const absl::Status status =
        StatusOf(SoftmaxCrossEntropy(Zeros(DType::kFloat32, {2, 10}), List<int64_t>({3, label})));
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(absl::StrCat("label ", label, " of example 1")), HasSubstr("10 classes")));
  }
}

TEST(SoftmaxCrossEntropyTest, NamesAProbabilityOutOfRange) {
  for (const float wrong : {-0.5f, 1.5f, NAN}) {
    const absl::Status status = StatusOf(SoftmaxCrossEntropy(
        Zeros(DType::kFloat32, {2, 3}), Floats({2, 3}, {0, 1, 0, 0, wrong, 0})));
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("probability ", wrong,
                                       " of example 1, class 1, is outside [0, 1]")));
  }
}

TEST(SigmoidCrossEntropyTest, NamesALabelOutsideZeroToOneItsExampleAndTheWayOut) {
  for (const Shape& shape : {Shape{4}, Shape{4, 1}}) {
    for (const float wrong : {-1.0f, 2.0f, NAN}) {
      const absl::Status status = StatusOf(
          SigmoidCrossEntropy(Zeros(DType::kFloat32, shape), Floats(shape, {1, 0, 0.5f, wrong})));
      EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code());
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("label ", wrong, " of example 3 is outside [0, 1]")),
                        HasSubstr("LibsvmLabels::kBinary"), HasSubstr("Maximum")));
    }
  }
  EXPECT_THAT(
      std::string(StatusOf(SigmoidCrossEntropy(Zeros(DType::kFloat32, {2, 2}), List<int64_t>({0})))
                      .message()),
      HasSubstr("shape"));
  EXPECT_THAT(std::string(StatusOf(SigmoidCrossEntropy(Zeros(DType::kFloat32, {2, 2}),
                                                       Floats({2, 2}, {0, 1, 1, -3})))
                              .message()),
              HasSubstr("label -3 of example 1"));
}

TEST(SigmoidCrossEntropyTest, IsStableAndTakesLabelsOfAnyType) {
  const Var logits(Floats({3}, {1000, -1000, 0}));
  EXPECT_THAT(ValuesOf<float>(SigmoidCrossEntropy(logits, List<int64_t>({1, 1, 0}))),
              ElementsAre(0, 1000, FloatEq(std::log(2.0f))));
}

TEST(SigmoidCrossEntropyTest, IsAsExactForConfidentPositivesAsForNegatives) {
  const std::vector<float> of_ones =
      ValuesOf<float>(SigmoidCrossEntropy(Floats({3}, {1, 10, 17}), Floats({3}, {1, 1, 1})));
  EXPECT_THAT(of_ones, ElementsAre(FloatEq(0.313261688f), FloatEq(4.53988992e-05f),
                                   FloatEq(4.13993765e-08f)));
  EXPECT_EQ(of_ones, ValuesOf<float>(
                         SigmoidCrossEntropy(Floats({3}, {-1, -10, -17}), Floats({3}, {0, 0, 0}))));
}

TEST(SquaredErrorTest, TakesLabelsOfAnyType) {
  EXPECT_THAT(ValuesOf<double>(SquaredError(Doubles({2}, {1, 2}), List<uint8_t>({4, 2}))),
              ElementsAre(9, 0));
}

TEST(LossTest, OfAnEmptyBatchIsEmptyAndItsGradientZero) {
  MapReader reader;
  GradientTape tape(reader);
  const Var w = tape.Watch("w", Floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Var losses =
      SoftmaxCrossEntropy(MatMul(Zeros(DType::kFloat32, {0, 2}), w), Zeros(DType::kInt64, {0}));
  EXPECT_THAT(ValuesOf<float>(losses), IsEmpty());
  EXPECT_THAT(
      ValuesOf<float>(std::get<Tensor>(tape.Gradient(ReduceMean(losses))->entries().at("w"))),
      ElementsAre(0, 0, 0, 0, 0, 0));
}

// ---- errors -------------------------------------------------------------------------------------

struct ErrorCase {
  std::string name;
  std::function<Var()> run;
  std::vector<std::string> words;
};

class EveryMisfit : public ::testing::TestWithParam<ErrorCase> {};

TEST_P(EveryMisfit, NamesTheOperationAndBothShapes) {
  const absl::Status status = StatusOf(GetParam().run());
  EXPECT_EQ(absl::StatusCode::kInvalidArgument, status.code()) << status;
  for (const std::string& word : GetParam().words)
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
}

Var F(Shape shape) { return Zeros(DType::kFloat32, shape); }
Var I(Shape shape) { return Zeros(DType::kInt64, shape); }

std::vector<ErrorCase> ErrorCases() {
  const std::vector<std::string> shapes = {"[2]", "[3]"};
  const auto with = [](std::string name, std::vector<std::string> words) {
    return words.insert(words.begin(), std::move(name)), words;
  };
  return {
      {"Add", [] { return F({2}) + F({3}); }, with("operator+", shapes)},
      {"Subtract", [] { return F({2}) - F({3}); }, with("operator-", shapes)},
      {"Multiply", [] { return F({2}) * F({3}); }, with("operator*", shapes)},
      {"Divide", [] { return F({2}) / F({3}); }, with("operator/", shapes)},
      {"Maximum", [] { return Maximum(F({2}), F({3})); }, with("Maximum", shapes)},
      {"Minimum", [] { return Minimum(F({2}), F({3})); }, with("Minimum", shapes)},
      {"Pow", [] { return Pow(F({2}), F({3})); }, with("Pow", shapes)},
      {"Greater", [] { return Greater(F({3}), F({2})); }, with("Greater", shapes)},
      {"Where", [] { return Where(F({3}), F({2}), F({2})); }, with("Where", shapes)},
      {"EqualIntegers", [] { return Equal(I({2}), 1.0f); }, {"Equal", "int64 [2]"}},
      {"MixedDTypes",
       [] { return F({2}) + Var(Zeros(DType::kFloat64, {2})); },
       {"operator+", "float32 [2]", "float64 [2]", "Cast"}},
      {"Integers", [] { return I({2}) + 1.0f; }, {"operator+", "int64 [2]"}},
      {"AddThen", [] { return internal::AddThen(internal::UnaryOp::kRelu, F({2}), F({3})); },
       with("operator+", shapes)},
      {"AddThenDTypes",
       [] {
         return internal::AddThen(internal::UnaryOp::kRelu, F({2}), Zeros(DType::kFloat64, {2}));
       },
       {"operator+", "float32 [2]", "float64 [2]", "Cast"}},
      {"AddThenIntegers",
       [] { return internal::AddThen(internal::UnaryOp::kRelu, I({2}), I({2})); },
       {"operator+", "int64 [2]"}},
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
      {"Gelu", [] { return Gelu(I({2})); }, {"Gelu", "int64 [2]"}},
      {"Softplus", [] { return Softplus(I({2})); }, {"Softplus", "int64 [2]"}},
      {"Dropout", [] { return Dropout(I({2}), 0.5f); }, {"Dropout", "int64 [2]"}},
      {"DropoutRate", [] { return Dropout(F({2}), 1); }, {"Dropout", "rate is 1", "[0, 1)"}},
      {"DropoutNegativeRate", [] { return Dropout(F({2}), -0.1f); }, {"Dropout", "-0.1"}},
      {"Conv2DChannels",
       [] {
         return Conv2D(F({1, 4, 4, 2}), F({3, 3, 1, 5}));
       },
       {"Conv2D", "[1, 4, 4, 2]", "[3, 3, 1, 5]", "channels"}},
      {"Conv2DRank",
       [] {
         return Conv2D(F({4, 4, 2}), F({3, 3, 2, 5}));
       },
       {"Conv2D", "[4, 4, 2]", "[3, 3, 2, 5]"}},
      {"Conv2DDTypes",
       [] {
         return Conv2D(F({1, 4, 4, 2}), I({3, 3, 2, 5}));
       },
       {"Conv2D", "float32 [1, 4, 4, 2]", "int64 [3, 3, 2, 5]"}},
      {"Conv2DIntegers",
       [] {
         return Conv2D(I({1, 4, 4, 2}), I({3, 3, 2, 5}));
       },
       {"Conv2D", "int64 [1, 4, 4, 2]"}},
      {"Conv2DStride",
       [] {
         return Conv2D(F({1, 4, 4, 2}), F({3, 3, 2, 5}), 0);
       },
       {"Conv2D", "stride is 0"}},
      {"Conv2DEmptyWindow",
       [] {
         return Conv2D(F({1, 4, 4, 2}), F({0, 3, 2, 5}));
       },
       {"Conv2D", "0 x 3"}},
      {"Conv2DLargerThanTheImage",
       [] {
         return Conv2D(F({1, 2, 4, 2}), F({3, 3, 2, 5}), 1, Padding::kValid);
       },
       {"Conv2D", "3 x 3", "[1, 2, 4, 2]", "kSame"}},
      {"MaxPool2DRank",
       [] {
         return MaxPool2D(F({4, 4}), 2, 2);
       },
       {"MaxPool2D", "[4, 4]"}},
      {"MaxPool2DIntegers",
       [] {
         return MaxPool2D(I({1, 4, 4, 1}), 2, 2);
       },
       {"MaxPool2D", "int64 [1, 4, 4, 1]"}},
      {"MaxPool2DWindow",
       [] {
         return MaxPool2D(F({1, 4, 4, 1}), 0, 2);
       },
       {"MaxPool2D", "0 x 0"}},
      {"MaxPool2DStride",
       [] {
         return MaxPool2D(F({1, 4, 4, 1}), 2, -1);
       },
       {"MaxPool2D", "stride is -1"}},
      {"MaxPool2DLargerThanTheImage",
       [] {
         return MaxPool2D(F({1, 4, 1, 1}), 2, 2);
       },
       {"MaxPool2D", "2 x 2", "[1, 4, 1, 1]"}},
      {"LayerNormScale",
       [] {
         return LayerNorm(F({2, 3}), F({2}), F({3}));
       },
       {"LayerNorm", "[2, 3]", "float32 [2]"}},
      {"LayerNormOffset",
       [] {
         return LayerNorm(F({2, 3}), F({3}), I({3}));
       },
       {"LayerNorm", "[2, 3]", "int64 [3]"}},
      {"LayerNormOfAScalar",
       [] { return LayerNorm(F({}), F({1}), F({1})); },
       {"LayerNorm", "float32 []"}},
      {"LayerNormEpsilon",
       [] { return LayerNorm(F({1}), F({1}), F({1}), -1); },
       {"LayerNorm", "epsilon is -1"}},
      {"L2NormalizeOfAScalar", [] { return L2Normalize(F({})); }, {"L2Normalize", "float32 []"}},
      {"ReduceMaxAxis",
       [] {
         return ReduceMax(F({2, 3}), 2);
       },
       {"ReduceMax", "axis 2", "[2, 3]"}},
      {"ReduceMaxIntegers", [] { return ReduceMax(I({2}), 0); }, {"ReduceMax", "int64 [2]"}},
      {"SliceAxis", [] { return Slice(F({2}), 1, 0, 1); }, {"Slice", "axis 1", "[2]"}},
      {"SliceEnd",
       [] {
         return Slice(F({2, 3}), 1, 1, 4);
       },
       {"Slice", "[1, 4)", "[2, 3]"}},
      {"SliceBegin", [] { return Slice(F({2}), 0, -1, 1); }, {"Slice", "[-1, 1)", "[2]"}},
      {"SliceReversed", [] { return Slice(F({2}), 0, 2, 1); }, {"Slice", "[2, 1)", "[2]"}},
      {"PermuteNumber",
       [] {
         return Permute(F({2, 3}), {1});
       },
       {"Permute", "1 axes", "[2, 3]"}},
      {"PermuteTwice",
       [] {
         return Permute(F({2, 3}), {1, -1});
       },
       {"Permute", "twice", "[2, 3]"}},
      {"PermuteAxis",
       [] {
         return Permute(F({2, 3}), {0, 2});
       },
       {"Permute", "axis 2", "[2, 3]"}},
      {"GatherOfAScalar", [] { return Gather(F({}), I({1})); }, {"Gather", "float32 []"}},
      {"GatherByFloats",
       [] {
         return Gather(F({2, 3}), F({1}));
       },
       {"Gather", "float32 [1]"}},
      {"GatherOutside",
       [] {
         return Gather(F({2, 3}), List<int64_t>({0, 2}));
       },
       {"Gather", "id 2 at 1", "[0, 2)", "float32 [2, 3]"}},
      {"GatherNegative",
       [] {
         return Gather(F({2, 3}), List<int64_t>({-1}));
       },
       {"Gather", "id -1 at 0", "[0, 2)", "float32 [2, 3]"}},
      {"SegmentSumSplits",
       [] {
         return SegmentSum(F({3, 2}), Tensor::Vector<int64_t>({0, 2}));
       },
       {"SegmentSum", "from 0 to 3", "[3, 2]"}},
      {"SegmentSumFalling",
       [] {
         return SegmentSum(F({3, 2}), Tensor::Vector<int64_t>({0, 2, 1, 3}));
       },
       {"SegmentSum", "rise"}},
      {"SegmentSumSplitsOfOtherType",
       [] {
         return SegmentSum(F({3}), Tensor::Vector<int32_t>({0, 3}));
       },
       {"SegmentSum", "int32 [2]"}},
      {"SegmentSumOfAScalar",
       [] {
         return SegmentSum(F({}), Tensor::Vector<int64_t>({0, 1}));
       },
       {"SegmentSum", "float32 []"}},
      {"SegmentSumIntegers",
       [] {
         return SegmentSum(I({1}), Tensor::Vector<int64_t>({0, 1}));
       },
       {"SegmentSum", "int64 [1]"}},
      {"DotInteraction",
       [] {
         return DotInteraction(F({2, 3}));
       },
       {"DotInteraction", "[2, 3]", "[batch, features, width]"}},
      {"DotInteractionIntegers",
       [] {
         return DotInteraction(I({1, 2, 3}));
       },
       {"DotInteraction", "int64 [1, 2, 3]"}},
      {"Range", [] { return Range(-1); }, {"Range", "-1"}},
      {"SoftmaxCrossEntropy",
       [] {
         return SoftmaxCrossEntropy(F({2, 3}), I({3}));
       },
       {"SoftmaxCrossEntropy", "[2, 3]", "[3]"}},
      {"SoftmaxCrossEntropyRank",
       [] { return SoftmaxCrossEntropy(F({2}), I({2})); },
       {"SoftmaxCrossEntropy", "[2]", "[batch, classes]"}},
      {"SoftmaxCrossEntropyFloats",
       [] {
         return SoftmaxCrossEntropy(F({2, 3}), F({2}));
       },
       {"SoftmaxCrossEntropy", "float32 [2]"}},
      {"SoftmaxCrossEntropyLabel",
       [] {
         return SoftmaxCrossEntropy(F({2, 3}), List<int64_t>({0, 5}));
       },
       {"SoftmaxCrossEntropy", "label 5 of example 1", "[0, 3)", "float32 [2, 3]", "3 classes"}},
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
      {"SigmoidCrossEntropyLogits",
       [] { return SigmoidCrossEntropy(I({2}), I({2})); },
       {"SigmoidCrossEntropy", "int64 [2]"}},
      {"SquaredError",
       [] { return SquaredError(F({2}), F({3})); },
       {"SquaredError", "[2]", "[3]"}}};
}

INSTANTIATE_TEST_SUITE_P(Of, EveryMisfit, ::testing::ValuesIn(ErrorCases()),
                         [](const auto& info) { return info.param.name; });

TEST(VarTest, AnErrorTravelsWithItsFirstReason) {
  const Var failed = MatMul(F({2, 3}), F({4, 5}));
  const Var later = ReduceMean(Softmax(Relu(failed) + F({7}))) * MatMul(F({1}), F({1}));
  EXPECT_EQ(failed.status(), later.status());
  EXPECT_EQ(failed.status(), later.Value().status());
  EXPECT_EQ((Shape{}), later.shape());
  for (const Var& other : {Concat({F({1}), failed}, 0),
                           Reshape(failed, {1}),
                           Cast(failed, DType::kInt32),
                           StopGradient(failed),
                           ReduceSum(failed),
                           SoftmaxCrossEntropy(F({1, 1}), failed),
                           SigmoidCrossEntropy(failed, F({1})),
                           SquaredError(failed, failed),
                           -failed,
                           Softmax(failed),
                           Conv2D(F({1, 1, 1, 1}), failed),
                           MaxPool2D(failed, 1, 1),
                           LayerNorm(F({1}), failed, F({1})),
                           L2Normalize(failed),
                           ReduceMax(failed, 0),
                           Slice(failed, 0, 0, 1),
                           Permute(failed, {0}),
                           Gather(F({1}), failed),
                           SegmentSum(failed, Tensor()),
                           DotInteraction(failed),
                           internal::AddThen(internal::UnaryOp::kRelu, F({1}), failed),
                           Dropout(failed, 0.5f)}) {
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
