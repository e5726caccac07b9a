#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "kernels/bfloat16.h"
#include "kernels/duplicates.h"
#include "kernels/elements.h"
#include "kernels/halves.h"
#include "kernels/not_finite.h"
#include "kernels/value_histogram.h"

namespace divvy {
namespace {

TEST(WriteOpTest, HasANameForEach) {
  const std::vector<std::string> names = {
      "assign",      "add",         "sub",         "scatter_update", "scatter_add", "scatter_sub",
      "scatter_mul", "scatter_div", "scatter_min", "scatter_max",    "gradient"};
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(WriteOpName(static_cast<WriteOp>(i)), names[i]);
}

// ---- element operations -------------------------------------------------------------------------

template <typename T>
std::vector<T> After(WriteOp op, std::vector<T> target, const std::vector<T>& update) {
  EXPECT_TRUE(TakesElements(op, DTypeOf<T>::value));
  ApplyElements(op, DTypeOf<T>::value, target.data(), update.data(),
                static_cast<int64_t>(target.size()));
  return target;
}

TEST(ElementOpsTest, DoWhatTheirNamesSay) {
  const std::vector<float> x = {6, 2, -3}, y = {4, 8, -2};
  EXPECT_EQ(After<float>(WriteOp::kAssign, x, y), y);
  EXPECT_EQ(After<float>(WriteOp::kScatterUpdate, x, y), y);
  for (WriteOp op : {WriteOp::kAdd, WriteOp::kScatterAdd})
    EXPECT_EQ(After<float>(op, x, y), (std::vector<float>{10, 10, -5}));
  for (WriteOp op : {WriteOp::kSub, WriteOp::kScatterSub})
    EXPECT_EQ(After<float>(op, x, y), (std::vector<float>{2, -6, -1}));
  EXPECT_EQ(After<float>(WriteOp::kScatterMul, x, y), (std::vector<float>{24, 16, 6}));
  EXPECT_EQ(After<float>(WriteOp::kScatterDiv, x, y), (std::vector<float>{1.5, 0.25, 1.5}));
  EXPECT_EQ(After<float>(WriteOp::kScatterMin, x, y), (std::vector<float>{4, 2, -3}));
  EXPECT_EQ(After<float>(WriteOp::kScatterMax, x, y), (std::vector<float>{6, 8, -2}));
}

TEST(ElementOpsTest, TakeEveryArithmeticType) {
  EXPECT_EQ(After<double>(WriteOp::kScatterDiv, {1}, {8}), std::vector<double>{0.125});
  EXPECT_EQ(After<int8_t>(WriteOp::kScatterMul, {-5}, {7}), std::vector<int8_t>{-35});
  EXPECT_EQ(After<uint8_t>(WriteOp::kScatterMax, {200}, {7}), std::vector<uint8_t>{200});
  EXPECT_EQ(After<int32_t>(WriteOp::kScatterDiv, {-7}, {2}), std::vector<int32_t>{-3})
      << "rounded towards zero";
  EXPECT_EQ(After<int64_t>(WriteOp::kScatterMin, {int64_t{1} << 40}, {-1}),
            std::vector<int64_t>{-1});
  const std::vector<Half> half =
      After<Half>(WriteOp::kAdd, {Half::FromFloat(1.5f)}, {Half::FromFloat(2)});
  EXPECT_EQ(half[0].ToFloat(), 3.5f);
  const std::vector<BFloat16> brain =
      After<BFloat16>(WriteOp::kScatterMul, {BFloat16::FromFloat(3)}, {BFloat16::FromFloat(-2)});
  EXPECT_EQ(brain[0].ToFloat(), -6.0f);
}

TEST(ElementOpsTest, IntegersWrapAndDivisionByZeroIsZero) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min(),
                    kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(After<int32_t>(WriteOp::kAdd, {kMax}, {1}), std::vector<int32_t>{kMin});
  EXPECT_EQ(After<int32_t>(WriteOp::kScatterMul, {kMin}, {-1}), std::vector<int32_t>{kMin});
  EXPECT_EQ(After<int32_t>(WriteOp::kScatterDiv, {kMin, 5}, {-1, 0}),
            (std::vector<int32_t>{kMin, 0}));
  EXPECT_EQ(After<uint8_t>(WriteOp::kScatterDiv, {254, 255}, {255, 255}),
            (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(After<uint8_t>(WriteOp::kSub, {0}, {1}), std::vector<uint8_t>{255});
  EXPECT_TRUE(std::isinf(After<float>(WriteOp::kScatterDiv, {1}, {0})[0]));
}

TEST(ElementOpsTest, BoolsAreAssignedAndNothingElse) {
  for (WriteOp op : {WriteOp::kAssign, WriteOp::kScatterUpdate})
    EXPECT_TRUE(TakesElements(op, DType::kBool));
  for (WriteOp op : {WriteOp::kAdd, WriteOp::kScatterMul, WriteOp::kScatterMax, WriteOp::kGradient})
    EXPECT_FALSE(TakesElements(op, DType::kBool));
  EXPECT_FALSE(TakesElements(WriteOp::kGradient, DType::kFloat32));
  EXPECT_FALSE(TakesElements(WriteOp::kAssign, DType::kString));
  bool target = true;
  const bool update = false;
  ApplyElements(WriteOp::kAssign, DType::kBool, &target, &update, 1);
  EXPECT_FALSE(target);
}

TEST(DivideElementsTest, DividesFloatingElementsAndLeavesIntegersAlone) {
  std::vector<float> floats = {3, -1};
  DivideElements(DType::kFloat32, floats.data(), 2, 8);
  EXPECT_EQ(floats, (std::vector<float>{0.375f, -0.125f}));
  Half half = Half::FromFloat(3);
  DivideElements(DType::kFloat16, &half, 1, 2);
  EXPECT_EQ(half.ToFloat(), 1.5f);
  int32_t integer = 7;
  DivideElements(DType::kInt32, &integer, 1, 2);
  EXPECT_EQ(integer, 7);
}

TEST(ElementOpsTest, MinAndMaxKeepTheTargetBesideANan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const WriteOp op : {WriteOp::kScatterMin, WriteOp::kScatterMax}) {
    EXPECT_EQ(After<float>(op, {1}, {nan}), std::vector<float>{1});
    EXPECT_TRUE(std::isnan(After<float>(op, {nan}, {1})[0]));
  }
}

TEST(ElementOpsTest, SumsOfEachWidthWrapAndHalvesAreRounded) {
  EXPECT_EQ(After<int8_t>(WriteOp::kAdd, {127, -128}, {1, -1}), (std::vector<int8_t>{-128, 127}));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(After<int64_t>(WriteOp::kAdd, {kMost}, {1}),
            std::vector<int64_t>{std::numeric_limits<int64_t>::min()});
  // 2048 + 1 is halfway between two halves, and 256 + 1 between two bfloat16s. Ties go to even.
  EXPECT_EQ(After<Half>(WriteOp::kAdd, {Half::FromFloat(2048)}, {Half::FromFloat(1)})[0].ToFloat(),
            2048);
  EXPECT_EQ(After<BFloat16>(WriteOp::kAdd, {BFloat16::FromFloat(256)}, {BFloat16::FromFloat(1)})[0]
                .ToFloat(),
            256);
}

// ---- duplicates ---------------------------------------------------------------------------------

std::vector<float> Sums(const RowGroups& groups, const std::vector<float>& rows, int64_t width) {
  std::vector<float> sums(groups.ids.size() * width);
  SumGroups(groups, rows.data(), width, sums.data());
  return sums;
}

TEST(GroupByIdTest, SortsIdsAndKeepsTheOrderOfTheirRows) {
  const RowGroups groups = GroupById({5, 1, 5, 0, 1, 5});
  EXPECT_EQ(groups.ids, (std::vector<int64_t>{0, 1, 5}));
  EXPECT_EQ(groups.rows, (std::vector<int64_t>{3, 1, 4, 0, 2, 5}));
  EXPECT_EQ(groups.splits, (std::vector<int64_t>{0, 1, 3, 6}));
  EXPECT_EQ(Sums(groups, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60}, 2),
            (std::vector<float>{4, 40, 7, 70, 10, 100}));
}

TEST(GroupByIdTest, OccurrencesAreAddedInTheOrderGiven) {
  // (1e8 + -1e8) + 1, not 1e8 + (-1e8 + 1), which is 0 in float32.
  EXPECT_EQ(Sums(GroupById({3, 3, 3}), {1e8f, -1e8f, 1}, 1), std::vector<float>{1});
}

TEST(GroupByIdTest, GivesTheSumsOfAMap) {
  Random random(20261123);
  for (int round = 0; round < 50; ++round) {
    const int64_t width = static_cast<int64_t>(random.Below(4)),
                  rows = 1 + static_cast<int64_t>(random.Below(40));
    std::vector<int64_t> ids(rows);
    std::vector<float> values(rows * width);
    std::map<int64_t, std::vector<float>> expected;
    for (int64_t i = 0; i < rows; ++i) {
      ids[i] = static_cast<int64_t>(random.Below(10)) - 5;
      std::vector<float>& sum = expected[ids[i]];
      sum.resize(width);
      for (int64_t k = 0; k < width; ++k) {
        values[i * width + k] = static_cast<float>(random.Below(100));
        sum[k] += values[i * width + k];
      }
    }
    const RowGroups groups = GroupById(ids);
    const std::vector<float> sums = Sums(groups, values, width);
    ASSERT_EQ(groups.ids.size(), expected.size());
    auto at = expected.begin();
    for (size_t i = 0; i < groups.ids.size(); ++i, ++at) {
      EXPECT_EQ(groups.ids[i], at->first);
      EXPECT_EQ(std::vector<float>(sums.begin() + i * width, sums.begin() + (i + 1) * width),
                at->second);
    }
  }
}

TEST(GroupByIdTest, ManyIdsOfAnyRangeAreInTheOrderOfAStableSort) {
  Random random(20261126);
  for (const uint64_t range :
       {uint64_t{1}, uint64_t{3}, uint64_t{5'000}, uint64_t{1} << 33, ~uint64_t{0}}) {
    for (const size_t count : {511, 512, 3'000}) {
      std::vector<int64_t> ids(count);
      const uint64_t first = random.Chance(0.5) ? random.Next() >> 8 : -(range / 2);
      for (int64_t& id : ids)
        id = static_cast<int64_t>(range == ~uint64_t{0} ? random.Next()
                                                        : first + random.Below(range));
      std::map<int64_t, std::vector<int64_t>> expected;
      for (size_t i = 0; i < count; ++i) expected[ids[i]].push_back(static_cast<int64_t>(i));
      const RowGroups groups = GroupById(ids);
      ASSERT_EQ(groups.ids.size(), expected.size());
      size_t at = 0, group = 0;
      for (const auto& [id, places] : expected) {
        EXPECT_EQ(groups.ids[group], id);
        EXPECT_EQ(groups.splits[group++], static_cast<int64_t>(at));
        for (const int64_t place : places) EXPECT_EQ(groups.rows[at++], place);
      }
      EXPECT_EQ(groups.splits.back(), static_cast<int64_t>(count));
    }
  }
}

TEST(GroupByIdTest, TakesNoIdsAndRowsWithoutElements) {
  EXPECT_EQ(GroupById({}).splits, std::vector<int64_t>{0});
  const RowGroups groups = GroupById({2, 1, 2});
  EXPECT_EQ(groups.ids, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(Sums(groups, {}, 0).empty());
}

TEST(BFloat16Test, RoundsToNearestAndBackExactly) {
  Random random(3);
  std::vector<float> values = {0, -0.0f, 1, -1, 1e-45f, 3.4e38f, -3.4e38f};
  for (int i = 0; i < 1000; ++i)
    values.push_back(FloatFromBits(static_cast<uint32_t>(random.Next())));
  std::vector<BFloat16Bits> rounded(values.size());
  ToBFloat16(values.data(), static_cast<int64_t>(values.size()), rounded.data());
  std::vector<float> back(values.size());
  FromBFloat16(rounded.data(), static_cast<int64_t>(values.size()), back.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(rounded[i].bits, BFloat16Bits::FromFloat(values[i]).bits) << values[i];
    EXPECT_EQ(BitsOfFloat(back[i]), uint32_t{rounded[i].bits} << 16);
  }
}

TEST(BFloat16Test, AtRandomIsOneOfBothNeighboursAndRightOnAverage) {
  constexpr int64_t kCount = 1 << 16;
  for (const float value : {1.001f, -0.3f, 1e-20f, 1e30f}) {
    const std::vector<float> values(kCount, value);
    std::vector<BFloat16Bits> rounded(kCount);
    ToBFloat16AtRandom(values.data(), kCount, 17, rounded.data());
    const uint16_t toward_zero = static_cast<uint16_t>(BitsOfFloat(value) >> 16);
    double sum = 0;
    for (const BFloat16Bits each : rounded) {
      ASSERT_TRUE(each.bits == toward_zero || each.bits == toward_zero + 1) << each.ToFloat();
      sum += each.ToFloat();
    }
    EXPECT_NEAR(sum / kCount / value, 1, 1e-4) << value;
  }
}

TEST(BFloat16Test, AtRandomHoldsWhatIsExactInfiniteOrNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {
      0, 1, -2, infinity, -infinity, FloatFromBits(0x7FFFFFFF), FloatFromBits(0xFF800001)};
  std::vector<BFloat16Bits> rounded(values.size());
  for (uint64_t key = 0; key < 100; ++key) {
    ToBFloat16AtRandom(values.data(), static_cast<int64_t>(values.size()), key, rounded.data());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(rounded[i].bits, BFloat16Bits::FromFloat(values[i]).bits) << values[i];
  }
}

TEST(BFloat16Test, AtRandomFollowsFromTheKeyAlone) {
  Random random(5);
  std::vector<float> values(1003);
  for (float& value : values) value = static_cast<float>(random.Uniform());
  const auto rounded = [&](uint64_t key) {
    std::vector<BFloat16Bits> out(values.size());
    ToBFloat16AtRandom(values.data(), static_cast<int64_t>(values.size()), key, out.data());
    std::vector<uint16_t> bits;
    for (const BFloat16Bits each : out) bits.push_back(each.bits);
    return bits;
  };
  EXPECT_EQ(rounded(1), rounded(1));
  EXPECT_NE(rounded(1), rounded(2));
}

// ---- halves -------------------------------------------------------------------------------------

// The values next to `value` in steps of `dtype`.
std::vector<float> Rounded(DType dtype, const std::vector<float>& values, uint64_t key) {
  std::vector<uint16_t> bits(values.size());
  const auto count = static_cast<int64_t>(values.size());
  ToHalvesAtRandom(dtype, values.data(), count, {key, 5, 7}, bits.data());
  std::vector<float> rounded(values.size());
  FromHalves(dtype, bits.data(), count, rounded.data());
  return rounded;
}

TEST(HalvesTest, AtRandomIsOneOfBothNeighboursAndRightOnAverage) {
  constexpr int64_t kCount = 1 << 16;
  // Normal and denormal numbers of a float16.
  for (const float value : {1.0003f, -0.3f, 60'000.7f, 3.3e-5f, -1.23e-6f}) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      SCOPED_TRACE(value);
      std::map<float, int64_t> seen;
      double sum = 0;
      for (const float each : Rounded(dtype, std::vector<float>(kCount, value), 17)) {
        ++seen[each];
        sum += each;
      }
      ASSERT_EQ(seen.size(), 2u);
      EXPECT_LT(seen.begin()->first, value);
      EXPECT_GT(seen.rbegin()->first, value);
      const double step = seen.rbegin()->first - seen.begin()->first;
      EXPECT_NEAR(sum / kCount, value, step * 0.01);
    }
  }
}

TEST(HalvesTest, EveryFloat16HoldsItself) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float value = HalfBits{static_cast<uint16_t>(bits)}.ToFloat();
    for (const float each : {value, -value}) {
      for (uint64_t key = 0; key < 3; ++key)
        ASSERT_EQ(Rounded(DType::kFloat16, {each, each, each}, key), std::vector<float>(3, each));
    }
  }
}

TEST(HalvesTest, WhatIsTooLargeIsInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint64_t key = 0; key < 100; ++key) {
    const std::vector<float> rounded =
        Rounded(DType::kFloat16, {65'504, 65'510, 65'520, -1e6f, infinity, 1e-13f}, key);
    EXPECT_EQ(rounded, (std::vector<float>{65'504, 65'504, infinity, -infinity, infinity, 0}));
    EXPECT_TRUE(
        std::isnan(Rounded(DType::kFloat16, {std::numeric_limits<float>::quiet_NaN()}, key)[0]));
  }
}

TEST(HalvesTest, ARowDrawsFromItsOwnCounters) {
  const std::vector<float> values(100, 1.0003f);
  std::vector<uint16_t> a(100), b(100), c(92);
  ToHalvesAtRandom(DType::kFloat16, values.data(), 100, {1, 2, 3}, a.data());
  ToHalvesAtRandom(DType::kFloat16, values.data(), 100, {1, 2, 4}, b.data());
  EXPECT_NE(a, b);
  // Eight elements use one counter.
  EXPECT_EQ(std::vector<uint16_t>(a.begin() + 8, a.end()),
            std::vector<uint16_t>(b.begin(), b.end() - 8));
  ToHalvesAtRandom(DType::kFloat16, values.data(), 100, {1, 3, 3}, b.data());
  EXPECT_NE(a, b);
}

// ---- histograms ---------------------------------------------------------------------------------

using Counts = std::vector<uint64_t>;

TEST(ValueHistogramTest, CountsInBucketsOfEqualWidthOfWhichTheLastHasItsRightEnd) {
  const ValueHistogram histogram =
      HistogramOf(Tensor::Vector<float>({-1, -0.5, 0, 0.25, 0.5, 1}), 4);
  EXPECT_EQ(histogram.low, -1);
  EXPECT_EQ(histogram.high, 1);
  EXPECT_EQ(histogram.counts, (Counts{1, 1, 2, 2}));
}

TEST(ValueHistogramTest, ReadsEveryDtype) {
  EXPECT_EQ(HistogramOf(Tensor::Vector<bool>({true, false, true}), 2).counts, (Counts{1, 2}));
  EXPECT_EQ(HistogramOf(Tensor::Vector<int8_t>({-4, 4}), 2).counts, (Counts{1, 1}));
  EXPECT_EQ(HistogramOf(Tensor::Vector<uint8_t>({0, 200, 255}), 2).counts, (Counts{1, 2}));
  EXPECT_EQ(HistogramOf(Tensor::Vector<int32_t>({-7, 7, 6}), 2).counts, (Counts{1, 2}));
  EXPECT_EQ(HistogramOf(Tensor::Vector<int64_t>({int64_t{1} << 40, 0}), 2).counts, (Counts{1, 1}));
  EXPECT_EQ(HistogramOf(Tensor::Vector<double>({1e300, -1e300}), 2).counts, (Counts{1, 1}));
  EXPECT_EQ(HistogramOf(Tensor::Vector<Half>({Half::FromFloat(1), Half::FromFloat(3)}), 2).high, 3);
  EXPECT_EQ(HistogramOf(Tensor::Vector<BFloat16>({BFloat16::FromFloat(-2)}), 2).low, -2);
}

TEST(ValueHistogramTest, EqualValuesAreInTheLastBucket) {
  const ValueHistogram histogram = HistogramOf(Tensor::Vector<float>({3, 3, 3}), 3);
  EXPECT_EQ(histogram.low, 3);
  EXPECT_EQ(histogram.high, 3);
  EXPECT_EQ(histogram.counts, (Counts{0, 0, 3}));
}

TEST(ValueHistogramTest, WhatIsNotFiniteIsLeftOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor data = Tensor::Vector<float>({std::nanf(""), 1, infinity, 2, -infinity});
  EXPECT_EQ(CountNotFinite(data), 3);
  EXPECT_EQ(HistogramOf(data, 2).counts, (Counts{1, 1}));
  EXPECT_EQ(HistogramOf(data, 2).high, 2);
  EXPECT_EQ(HistogramOf(Tensor::Vector<float>({std::nanf("")})).counts, Counts());
  EXPECT_EQ(HistogramOf(Tensor()).counts, Counts());
}

// ---- elements that are not finite ---------------------------------------------------------------

template <typename T>
void ExpectEachBadElementIsFound(T bad) {
  for (const int64_t n : {1, 31, 32, 33, 4096, 4097, 9000}) {
    std::vector<T> values(static_cast<size_t>(n), std::numeric_limits<T>::max());
    EXPECT_EQ(FirstNotFinite(Tensor::Vector<T>(values)), -1) << n;
    for (const int64_t at : {n - 1, n / 2, int64_t{0}}) {  // the first one counts
      values[static_cast<size_t>(at)] = bad;
      EXPECT_EQ(FirstNotFinite(Tensor::Vector<T>(values)), at) << n;
    }
  }
}

TEST(FirstNotFiniteTest, FindsTheFirstElementThatIsNaNOrInfinite) {
  ExpectEachBadElementIsFound(std::nanf(""));
  ExpectEachBadElementIsFound(-std::numeric_limits<float>::infinity());
  ExpectEachBadElementIsFound(std::nan(""));
  ExpectEachBadElementIsFound(std::numeric_limits<double>::infinity());
}

TEST(FirstNotFiniteTest, OtherDtypesAndNoElementsHaveNone) {
  EXPECT_EQ(FirstNotFinite(Tensor::Vector<int64_t>({1})), -1);
  EXPECT_EQ(FirstNotFinite(Tensor::Vector<float>({})), -1);
}

TEST(ValueHistogramTest, TheWholeRangeOfDoublesHasBuckets) {
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(HistogramOf(Tensor::Vector<double>({-most, 0, most}), 4).counts, (Counts{1, 0, 1, 1}));
}

TEST(ValueHistogramTest, PartsAreCountedAsOneTensor) {
  const Tensor parts[] = {Tensor::Vector<float>({1, 5}), Tensor(),
                          Tensor::Vector<Half>({Half::FromFloat(3)})};
  const ValueHistogram histogram = HistogramOfParts(parts, 4);
  EXPECT_EQ(histogram.low, 1);
  EXPECT_EQ(histogram.high, 5);
  EXPECT_EQ(histogram.counts, (Counts{1, 0, 1, 1}));
  EXPECT_EQ(HistogramOfParts({}).counts, Counts());
  const Tensor thousand = Tensor::Vector<float>(std::vector<float>(1000, 1));
  EXPECT_EQ(HistogramOfParts({thousand, thousand}, 1, 64).counts, (Counts{62}));  // every 33rd
}

TEST(ValueHistogramTest, ReadsNoMoreElementsThanItMay) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const ValueHistogram histogram = HistogramOf(Tensor::Vector<float>(values), 2, 64);
  EXPECT_EQ(histogram.counts, (Counts{29, 30}));  // every 17th
  EXPECT_EQ(histogram.high, 986);
}

}  // namespace
}  // namespace divvy
