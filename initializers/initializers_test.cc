#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "initializers/initializer.h"
#include "initializers/key_row.h"
#include "initializers/normal.h"

namespace divvy {
namespace {

InitializerContext Context(Shape shape, std::string name = "w", uint64_t job_seed = 1) {
  return {job_seed, std::move(name), shape};
}

std::vector<float> Fill(const Initializer& initializer, const InitializerContext& context,
                        int64_t first, int64_t count) {
  std::vector<float> rows(count * context.shape.row_elements());
  EXPECT_EQ(FillRows(initializer, context, first, count, absl::MakeSpan(rows)), absl::OkStatus());
  return rows;
}

std::vector<float> FillAll(const Initializer& initializer, const InitializerContext& context) {
  return Fill(initializer, context, 0, context.shape.rows());
}

std::tuple<double, double> MeanAndStddev(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / values.size();
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / values.size())};
}

std::vector<Initializer> PerRowLaws() {
  return {Constant{2.5f},  RandomUniform{}, RandomNormal{}, TruncatedNormal{},
          GlorotUniform(), HeNormal(7),     LecunNormal(),  Identity{2}};
}

TEST(NormalTest, QuantilesInvertTheDistributionFunction) {
  EXPECT_EQ(NormalQuantile(0.5), 0);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.001), -3.090232306167814, 1e-14);
  // The lowest probability that a 32-bit word gives.
  EXPECT_NEAR(NormalQuantile(0x1.0p-33), -6.337957754553789, 1e-14);
  for (double x = -6; x <= 6; x += 0.125)
    EXPECT_NEAR(NormalQuantile(NormalProbability(x)), x, x <= 3 ? 1e-12 : 2e-7) << x;
}

TEST(InitializerTest, ValuesDoNotDependOnTheSharding) {
  const uint64_t seed = 77;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const Initializer& law : PerRowLaws()) {
    const InitializerContext context = Context({23, 7});
    const std::vector<float> whole = FillAll(law, context);
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t first = random.Below(23), count = random.Below(24 - first);
      const std::vector<float> part = Fill(law, context, first, count);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * 7))
          << "law " << law.index() << ", rows from " << first;
    }
  }
}

TEST(InitializerTest, AnElementIsAWordOfPhiloxAtItsRowAndColumn) {
  const std::vector<float> values =
      FillAll(RandomUniform{0, 1, /*seed=*/9}, Context({3, 6}, "w", /*job_seed=*/4));
  const std::array<uint32_t, 4> words = Philox4x32(MixSeeds(4, 9), /*row=*/2, /*column / 4=*/1);
  EXPECT_FLOAT_EQ(values[2 * 6 + 5], words[1] * 0x1.0p-32);
}

TEST(InitializerTest, SeedZeroTakesTheVariablesName) {
  const std::vector<float> a = FillAll(RandomNormal{}, Context({4, 4}, "a"));
  EXPECT_NE(a, FillAll(RandomNormal{}, Context({4, 4}, "b")));
  EXPECT_EQ(a, FillAll(RandomNormal{}, Context({4, 4}, "a")));
  EXPECT_EQ(FillAll(RandomNormal{0, 1, 5}, Context({4, 4}, "a")),
            FillAll(RandomNormal{0, 1, 5}, Context({4, 4}, "b")));
}

TEST(InitializerTest, AnotherJobSeedGivesOtherValues) {
  EXPECT_NE(FillAll(RandomNormal{0, 1, 5}, Context({4, 4}, "a", 1)),
            FillAll(RandomNormal{0, 1, 5}, Context({4, 4}, "a", 2)));
}

TEST(InitializerTest, FansAreThoseOfTheWholeVariable) {
  // The limit for shape (6000, 4000) is sqrt(6 / 10000). Fans of these three rows alone would give
  // a larger limit.
  const std::vector<float> part = Fill(GlorotUniform(3), Context({6000, 4000}), 0, 3);
  const float limit = std::sqrt(6.0f / 10000);
  EXPECT_GT(*std::max_element(part.begin(), part.end()), 0.99f * limit);
  EXPECT_LE(*std::max_element(part.begin(), part.end()), limit);
}

TEST(InitializerTest, FollowsTheLawsOfKeras) {
  const std::tuple<Initializer, Shape, double, double, double> cases[] = {
      // law, shape, mean, standard deviation, greatest distance from the mean
      {RandomUniform{-1, 3}, {500, 200}, 1, 4 / std::sqrt(12.0), 2},
      {RandomNormal{1, 2}, {500, 200}, 1, 2, 1e9},
      {TruncatedNormal{1, 2}, {500, 200}, 1, 2 * 0.879625661, 4},
      {GlorotUniform(), {256, 512}, 0, std::sqrt(1 / 384.0), std::sqrt(3 / 384.0)},
      {GlorotNormal(), {256, 512}, 0, std::sqrt(1 / 384.0), 2 * std::sqrt(1 / 384.0) / 0.879625661},
      {HeUniform(), {3, 3, 64, 96}, 0, std::sqrt(2 / 576.0), std::sqrt(6 / 576.0)},
      {HeNormal(), {256, 512}, 0, std::sqrt(2 / 256.0), 2 * std::sqrt(2 / 256.0) / 0.879625661},
      {LecunUniform(), {100'000}, 0, std::sqrt(1e-5), std::sqrt(3e-5)},
      {LecunNormal(), {256, 512}, 0, std::sqrt(1 / 256.0), 2 * std::sqrt(1 / 256.0) / 0.879625661},
      {VarianceScaling{VarianceScaling::Fan::kOut, VarianceScaling::Distribution::kUniform, 3},
       {256, 512},
       0,
       std::sqrt(3 / 512.0),
       std::sqrt(9 / 512.0)},
  };
  for (const auto& [law, shape, mean, stddev, reach] : cases) {
    SCOPED_TRACE(testing::Message() << "law " << law.index() << " of " << shape.ToString());
    const std::vector<float> values = FillAll(law, Context(shape));
    const auto [got_mean, got_stddev] = MeanAndStddev(values);
    EXPECT_NEAR(got_mean, mean, 5 * stddev / std::sqrt(values.size()));
    EXPECT_NEAR(got_stddev, stddev, 0.01 * stddev);
    for (const float value : values) ASSERT_LE(std::fabs(value - mean), reach * 1.000001);
  }
}

TEST(InitializerTest, UniformStaysBelowItsUpperEnd) {
  // A range of a few float steps, in which rounding would otherwise reach the open end.
  const float low = 1, high = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  for (const float value : FillAll(RandomUniform{low, high}, Context({1000}))) {
    ASSERT_GE(value, low);
    ASSERT_LT(value, high);
  }
}

TEST(InitializerTest, ConstantsAndIdentityAreLiteral) {
  EXPECT_EQ(FillAll(Zeros(), Context({2, 2})), std::vector<float>({0, 0, 0, 0}));
  EXPECT_EQ(FillAll(Ones(), Context({})), std::vector<float>({1}));
  EXPECT_EQ(FillAll(Constant{-1.5f}, Context({3})), std::vector<float>({-1.5f, -1.5f, -1.5f}));
  EXPECT_EQ(FillAll(Identity{2}, Context({3, 2})), std::vector<float>({2, 0, 0, 2, 0, 0}));
  EXPECT_EQ(Fill(Identity{2}, Context({4, 3}), 1, 3),
            std::vector<float>({0, 2, 0, 0, 0, 2, 0, 0, 0}));
}

TEST(OrthogonalTest, RowsOrColumnsAreOrthogonalOfNormGain) {
  for (const auto& [rows, columns] :
       {std::pair<int, int>{32, 32}, {32, 16}, {16, 32}, {1, 5}, {5, 1}}) {
    const std::vector<float> q = FillAll(Orthogonal{1.5f}, Context({rows, columns}));
    const int count = std::min(rows, columns), length = std::max(rows, columns);
    const int stride = rows < columns ? columns : 1, step = rows < columns ? 1 : columns;
    for (int a = 0; a < count; ++a) {
      for (int b = 0; b <= a; ++b) {
        double dot = 0;
        for (int i = 0; i < length; ++i)
          dot += static_cast<double>(q[a * stride + i * step]) * q[b * stride + i * step];
        EXPECT_NEAR(dot, a == b ? 2.25 : 0, 1e-5)
            << rows << "x" << columns << ": " << a << ", " << b;
      }
    }
  }
}

TEST(OrthogonalTest, APartIsCutFromTheSameMatrix) {
  const std::vector<float> whole = FillAll(Orthogonal{}, Context({8, 4})),
                           part = Fill(Orthogonal{}, Context({8, 4}), 3, 2);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 12));
}

TEST(FromRowsTest, IsAskedForTheRowsWanted) {
  const FromRows counting{[](int64_t first, int64_t count) -> absl::StatusOr<Tensor> {
    std::vector<float> rows;
    for (int64_t row = first; row < first + count; ++row)
      rows.insert(rows.end(), {static_cast<float>(row), -1});
    return Tensor::Copy<float>({count, 2}, rows);
  }};
  EXPECT_EQ(Fill(counting, Context({10, 2}), 3, 2), std::vector<float>({3, -1, 4, -1}));
}

TEST(FromRowsTest, RefusesRowsOfAnotherShapeAndPassesErrorsOn) {
  const FromRows short_rows{
      [](int64_t, int64_t) -> absl::StatusOr<Tensor> { return Tensor::Vector<float>({1}); }};
  const absl::Status status =
      InitialRows(short_rows, Context({4, 2}, "table"), DType::kFloat32, 0, 2).status();
  EXPECT_EQ(status.message(),
            "FromRows of table gave float32 [1] for rows [0, 2); it must give float32 [2, 2]");
  const FromRows failing{
      [](int64_t, int64_t) -> absl::StatusOr<Tensor> { return absl::NotFoundError("no file"); }};
  EXPECT_EQ(InitialRows(failing, Context({4, 2}), DType::kFloat32, 0, 2).status(),
            absl::NotFoundError("no file"));
}

TEST(TensorInitializerTest, RowsAreSlices) {
  const Tensor whole = *Tensor::Copy<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Fill(whole, Context({3, 2}), 1, 2), std::vector<float>({3, 4, 5, 6}));
  EXPECT_EQ(FillAll(Tensor::Scalar<float>(7), Context({})), std::vector<float>({7}));
}

TEST(InitialRowsTest, ConvertsToTheVariablesDtype) {
  const Tensor counts = *InitialRows(Constant{3}, Context({2, 2}), DType::kInt64, 0, 1);
  EXPECT_TRUE(BitwiseEqual(counts, *Tensor::Copy<int64_t>({1, 2}, {3, 3})));
  EXPECT_TRUE(BitwiseEqual(*InitialRows(Ones(), Context({}), DType::kBool, 0, 1),
                           Tensor::Scalar<bool>(true)));
  const Tensor halves = *InitialRows(Constant{1.5f}, Context({1}), DType::kFloat16, 0, 1);
  EXPECT_EQ((*halves.values<Half>())[0].ToFloat(), 1.5f);
  const Tensor doubles = *InitialRows(RandomNormal{}, Context({5, 2}), DType::kFloat64, 2, 2);
  const std::vector<float> floats = Fill(RandomNormal{}, Context({5, 2}), 2, 2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ((*doubles.values<double>())[i], floats[i]);
}

TEST(InitializerTest, OnlyWhatIsMadeWholeIsNotEvaluatedPerRow) {
  for (const Initializer& law : PerRowLaws()) EXPECT_TRUE(EvaluatedPerRow(law)) << law.index();
  EXPECT_FALSE(EvaluatedPerRow(Orthogonal{}));
  EXPECT_FALSE(EvaluatedPerRow(FromRows{}));
  EXPECT_FALSE(EvaluatedPerRow(Tensor()));
}

TEST(InitializerTest, RefusesWhatCannotBeAndNamesTheFix) {
  const float inf = INFINITY;
  const std::tuple<Initializer, Shape, DType, std::string> cases[] = {
      {RandomUniform{2, 1},
       {4},
       DType::kFloat32,
       "RandomUniform: low 2 is above high 1; swap them"},
      {RandomUniform{-inf, 1},
       {4},
       DType::kFloat32,
       "RandomUniform: low is -inf; give a finite number"},
      {RandomUniform{0, NAN},
       {4},
       DType::kFloat32,
       "RandomUniform: high is nan; give a finite number"},
      {RandomNormal{0, -1}, {4}, DType::kFloat32, "RandomNormal: stddev is -1; give 0 or more"},
      {RandomNormal{NAN, 1},
       {4},
       DType::kFloat32,
       "RandomNormal: mean is nan; give a finite number"},
      {TruncatedNormal{NAN, 1},
       {4},
       DType::kFloat32,
       "TruncatedNormal: mean is nan; give a finite number"},
      {TruncatedNormal{0, -1},
       {4},
       DType::kFloat32,
       "TruncatedNormal: stddev is -1; give 0 or more"},
      {TruncatedNormal{0, inf},
       {4},
       DType::kFloat32,
       "TruncatedNormal: stddev is inf; give a finite number"},
      {VarianceScaling{VarianceScaling::Fan::kIn, VarianceScaling::Distribution::kUniform, 0},
       {4},
       DType::kFloat32,
       "VarianceScaling: scale is 0; give a number above 0"},
      {VarianceScaling{VarianceScaling::Fan::kIn, VarianceScaling::Distribution::kUniform, inf},
       {4},
       DType::kFloat32,
       "VarianceScaling: scale is inf; give a finite number"},
      {Identity{NAN}, {2, 2}, DType::kFloat32, "Identity: gain is nan; give a finite number"},
      {Identity{}, {4}, DType::kFloat32, "Identity: needs a variable of rank 2, not of shape [4]"},
      {Orthogonal{},
       {2, 2, 2},
       DType::kFloat32,
       "Orthogonal: needs a variable of rank 2, not of shape [2, 2, 2]"},
      {Orthogonal{NAN}, {2, 2}, DType::kFloat32, "Orthogonal: gain is nan; give a finite number"},
      {FromRows{}, {4}, DType::kFloat32, "FromRows: has no function; give one that makes rows"},
      {Tensor::Vector<float>({1, 2}),
       {3},
       DType::kFloat32,
       "initial value: is float32 [2]; the variable is float32 [3]"},
      {Tensor::Vector<int32_t>({1, 2}),
       {2},
       DType::kFloat32,
       "initial value: is int32 [2]; the variable is float32 [2]"},
      {RandomNormal{},
       {4},
       DType::kInt32,
       "a random initializer needs a floating dtype, not int32; use Constant or a Tensor"},
      {Constant{1.5f}, {4}, DType::kInt32, "Constant: a int32 variable cannot hold 1.5"},
      {Constant{-1}, {4}, DType::kUInt8, "Constant: a uint8 variable cannot hold -1"},
      {Constant{128}, {4}, DType::kInt8, "Constant: a int8 variable cannot hold 128"},
      {Constant{2}, {4}, DType::kBool, "Constant: a bool variable cannot hold 2"},
      {Constant{NAN}, {4}, DType::kInt64, "Constant: a int64 variable cannot hold nan"},
      {Constant{NAN}, {4}, DType::kFloat32, "Constant: value is nan; give a finite number"},
      {Constant{-inf}, {4}, DType::kBFloat16, "Constant: value is -inf; give a finite number"},
      {Zeros(), {-1}, DType::kFloat32, "a variable needs a fully known shape, not [-1]"},
      {Zeros(), {4}, DType::kString, "a variable cannot be string"},
  };
  for (const auto& [law, shape, dtype, message] : cases) {
    const absl::Status status = Validate(law, shape, dtype);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
  EXPECT_FALSE(Validate(Zeros(), {-2}, DType::kFloat32).ok());
}

TEST(InitializerTest, HoldsTheLimitsOfIntegerTypes) {
  EXPECT_TRUE(Validate(Constant{127}, {4}, DType::kInt8).ok());
  EXPECT_TRUE(Validate(Constant{-128}, {4}, DType::kInt8).ok());
  EXPECT_TRUE(Validate(Constant{-0x1.0p63f}, {4}, DType::kInt64).ok());
  EXPECT_FALSE(Validate(Constant{0x1.0p63f}, {4}, DType::kInt64).ok());
}

TEST(InitializerTest, RefusesRowsAndRoomThatDoNotFit) {
  std::vector<float> four(4);
  const InitializerContext context = Context({4, 2});
  EXPECT_EQ(FillRows(Zeros(), context, 0, 2, absl::MakeSpan(four)), absl::OkStatus());
  for (const auto& [first, count] :
       {std::pair<int64_t, int64_t>{3, 2}, {-1, 2}, {0, -1}, {INT64_MAX, 2}}) {
    EXPECT_EQ(FillRows(Zeros(), context, first, count, absl::MakeSpan(four)).code(),
              absl::StatusCode::kInvalidArgument)
        << first << ", " << count;
  }
  EXPECT_EQ(FillRows(Zeros(), context, 0, 1, absl::MakeSpan(four)).message(),
            "room for 4 elements, 2 wanted");
  EXPECT_FALSE(InitialRows(Zeros(), context, DType::kInt8, 4, 1).ok());
}

// ---- rows of keys -------------------------------------------------------------------------------

TEST(KeyRowTest, AKeyHasTheBitsOfTheRowWithItsNumber) {
  constexpr int64_t kRows = 9, kWidth = 6;
  const InitializerContext context{5, "users", Shape({kRows, kWidth})};
  for (const Initializer& initializer :
       {Initializer(Constant{2}), Initializer(RandomUniform{-1, 2}),
        Initializer(RandomNormal{1, 2}), Initializer(TruncatedNormal{0, 3})}) {
    ASSERT_TRUE(EvaluatedPerKey(initializer));
    std::vector<float> rows(kRows * kWidth);
    ASSERT_TRUE(FillRows(initializer, context, 0, kRows, absl::MakeSpan(rows)).ok());
    for (int64_t key = 0; key < kRows; ++key) {
      std::vector<float> row(kWidth);
      FillKeyRow(initializer, context, key, absl::MakeSpan(row));
      EXPECT_EQ(row,
                std::vector<float>(rows.begin() + key * kWidth, rows.begin() + (key + 1) * kWidth));
    }
  }
}

TEST(KeyRowTest, AnyNumberIsAKey) {
  const InitializerContext context{5, "users", Shape({1, 4})};
  const uint64_t seed = MixSeeds(5, HashText("users"));
  for (const int64_t key :
       {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    std::vector<float> row(4);
    FillKeyRow(RandomUniform{0, 1}, context, key, absl::MakeSpan(row));
    const auto words = Philox4x32(seed, static_cast<uint64_t>(key), 0);
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_FLOAT_EQ(row[i], static_cast<float>((words[i] + 0.5) * 0x1.0p-32)) << key;
  }
}

TEST(KeyRowTest, WhatDependsOnTheShapeIsNotEvaluatedPerKey) {
  EXPECT_FALSE(EvaluatedPerKey(GlorotUniform()));
  EXPECT_FALSE(EvaluatedPerKey(Identity{}));
  EXPECT_FALSE(EvaluatedPerKey(Orthogonal{}));
  EXPECT_FALSE(EvaluatedPerKey(FromRows{}));
}

}  // namespace
}  // namespace divvy
