// Tests of element types and shapes.
#include "tensor/shape.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/dtype.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kHuge = int64_t{1} << 32;

TEST(DTypeTest, AreCalledAsInTensorFlowAndHaveTheirSizes) {
  struct Known {
    DType dtype;
    const char* name;
    int64_t size;
  };
  for (const Known& known : std::vector<Known>{{DType::kBool, "bool", 1},
                                               {DType::kInt8, "int8", 1},
                                               {DType::kUInt8, "uint8", 1},
                                               {DType::kInt32, "int32", 4},
                                               {DType::kInt64, "int64", 8},
                                               {DType::kFloat16, "float16", 2},
                                               {DType::kBFloat16, "bfloat16", 2},
                                               {DType::kFloat32, "float32", 4},
                                               {DType::kFloat64, "float64", 8},
                                               {DType::kComplex64, "complex64", 8},
                                               {DType::kComplex128, "complex128", 16},
                                               {DType::kString, "string", 0}}) {
    EXPECT_EQ(DTypeName(known.dtype), known.name);
    EXPECT_EQ(ParseDType(known.name), known.dtype);
    EXPECT_EQ(DTypeSize(known.dtype), known.size) << known.name;
  }
}

TEST(DTypeTest, ANameIsReadLetterByLetter) {
  for (const char* name : {"", "Float32", "float", "float32 ", "float3", "int16", "DT_FLOAT"})
    EXPECT_EQ(ParseDType(name), std::nullopt) << name;
}

std::vector<DType> Where(bool (*holds)(DType)) {
  std::vector<DType> found;
  for (int i = 0; i <= static_cast<int>(DType::kString); ++i) {
    if (holds(static_cast<DType>(i))) found.push_back(static_cast<DType>(i));
  }
  return found;
}

TEST(DTypeTest, ABoolIsNoIntegerAndAComplexNumberNotFloating) {
  EXPECT_THAT(Where(IsFloating),
              ElementsAre(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64));
  EXPECT_THAT(Where(IsInteger),
              ElementsAre(DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64));
}

TEST(DTypeTest, ADispatchVisitsTheTypeOfThatVeryName) {
  for (int i = 0; i < static_cast<int>(DType::kComplex64); ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(DispatchDType(
                  dtype, [](auto t) { return DTypeOf<decltype(t)>::value; }, DType::kString),
              dtype);
  }
}

TEST(DTypeTest, ADispatchOfWhatTensorsDoNotHoldVisitsNothing) {
  for (const DType dtype : {DType::kComplex64, DType::kComplex128, DType::kString}) {
    EXPECT_EQ(DispatchDType(
                  dtype, [](auto) { return 1; }, 2),
              2);
  }
}

// ---- 16-bit floats. The expected values follow from IEEE 754, computed by hand.

struct Rounding {
  float value;
  uint16_t bits;
};

TEST(HalfTest, RoundsToTheNearestAndTiesToEven) {
  for (const Rounding& known : std::vector<Rounding>{{1, 0x3C00},
                                                     {-2, 0xC000},
                                                     // Halfway: rounds to the even number below.
                                                     {0x1.002p0f, 0x3C00},
                                                     // Halfway: rounds to the even number above.
                                                     {0x1.006p0f, 0x3C02},
                                                     // Just above halfway.
                                                     {0x1.0021p0f, 0x3C01},
                                                     // Rounds up to the next power of two.
                                                     {0x1.FFEp0f, 0x4000},
                                                     {-0.0f, 0x8000}}) {
    EXPECT_EQ(Half::FromFloat(known.value).bits, known.bits) << known.value;
  }
}

TEST(HalfTest, BecomesInfinityFrom65520On) {
  EXPECT_EQ(Half::FromFloat(65504).bits, 0x7BFF);
  EXPECT_EQ(Half::FromFloat(std::nextafter(65520.0f, 0.0f)).bits, 0x7BFF);
  EXPECT_EQ(Half::FromFloat(65520).bits, 0x7C00);
  EXPECT_EQ(Half::FromFloat(-1e38f).bits, 0xFC00);
}

TEST(HalfTest, BecomesADenormalNumberAndThenZero) {
  for (const Rounding& known : std::vector<Rounding>{{0x1p-14f, 0x0400},
                                                     {0x1p-15f, 0x0200},
                                                     {0x1p-24f, 0x0001},
                                                     {0x1.8p-25f, 0x0001},
                                                     // Halfway between 0 and the least number: 0 is
                                                     // even.
                                                     {0x1p-25f, 0x0000},
                                                     {0x1.8p-24f, 0x0002},
                                                     {-0x1p-26f, 0x8000}}) {
    EXPECT_EQ(Half::FromFloat(known.value).bits, known.bits) << known.value;
  }
}

TEST(HalfTest, IsExactAsAFloat) {
  EXPECT_EQ(Half{0x3C01}.ToFloat(), 0x1.004p0f);
  EXPECT_EQ(Half{0x7BFF}.ToFloat(), 65504.0f);
  EXPECT_EQ(Half{0x0001}.ToFloat(), 0x1p-24f);
  EXPECT_EQ(Half{0x83FF}.ToFloat(), -0x1.FF8p-15f);
  EXPECT_EQ(Half{0xFC00}.ToFloat(), -std::numeric_limits<float>::infinity());
}

TEST(BFloat16Test, RoundsToTheNearestAndTiesToEven) {
  for (const Rounding& known : std::vector<Rounding>{{1, 0x3F80},
                                                     {0x1.01p0f, 0x3F80},
                                                     {0x1.03p0f, 0x3F82},
                                                     {0x1.0101p0f, 0x3F81},
                                                     {std::numeric_limits<float>::max(), 0x7F80},
                                                     {0x1p-133f, 0x0001},
                                                     {0x1p-134f, 0x0000},
                                                     {-0x1p-135f, 0x8000}}) {
    EXPECT_EQ(BFloat16::FromFloat(known.value).bits, known.bits) << known.value;
  }
}

TEST(BFloat16Test, IsExactAsAFloat) {
  EXPECT_EQ(BFloat16{0x3F81}.ToFloat(), 0x1.02p0f);
  EXPECT_EQ(BFloat16{0xFF80}.ToFloat(), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(BFloat16{0x0001}.ToFloat(), 0x1p-133f);
}

template <typename T>
void ExpectThatEachPatternComesBack() {
  for (int bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = T{static_cast<uint16_t>(bits)}.ToFloat();
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(T::FromFloat(value).ToFloat())) << bits;
    } else {
      ASSERT_EQ(T::FromFloat(value).bits, bits);
    }
  }
}

TEST(HalfTest, EachPatternComesBack) { ExpectThatEachPatternComesBack<Half>(); }
TEST(BFloat16Test, EachPatternComesBack) { ExpectThatEachPatternComesBack<BFloat16>(); }

TEST(BFloat16Test, ANaNOfTheLowBitsAloneStaysOne) {
  for (const char* payload : {"", "1"}) {
    EXPECT_TRUE(std::isnan(BFloat16::FromFloat(std::nanf(payload)).ToFloat()));
    EXPECT_TRUE(std::isnan(Half::FromFloat(std::nanf(payload)).ToFloat()));
  }
  const uint32_t bits = 0x7F800001;
  float signalling;
  std::memcpy(&signalling, &bits, sizeof(signalling));
  EXPECT_TRUE(std::isnan(BFloat16::FromFloat(signalling).ToFloat()));
  EXPECT_TRUE(std::isnan(Half::FromFloat(signalling).ToFloat()));
}

// ---- Shapes

TEST(ShapeTest, CountsElementsRowsAndWhatARowHas) {
  const Shape images{64, 28, 20};
  EXPECT_EQ(images.rank(), 3);
  EXPECT_EQ(images.num_elements(), 64 * 28 * 20);
  EXPECT_EQ(images.rows(), 64);
  EXPECT_EQ(images.row_elements(), 560);
  EXPECT_EQ(images.dim(1), 28);
  EXPECT_EQ(images.dim(-1), 20);
  EXPECT_EQ(images.dim(-3), 64);
  EXPECT_THAT(images.dims(), ElementsAre(64, 28, 20));
}

TEST(ShapeTest, AScalarIsOneRowOfOneElement) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().rows(), 1);
  EXPECT_EQ(Shape().row_elements(), 1);
  EXPECT_TRUE(Shape().status().ok());
}

TEST(ShapeTest, WithoutRowsThereAreNoElementsButARowHasItsOwn) {
  EXPECT_EQ((Shape{0, 7}.num_elements()), 0);
  EXPECT_EQ((Shape{0, 7}.row_elements()), 7);
  EXPECT_EQ((Shape{7, 0}.row_elements()), 0);
}

TEST(ShapeTest, AnUnknownDimensionLeavesTheNumberUnknownEvenBesideAZero) {
  EXPECT_EQ((Shape{-1, 3}.num_elements()), -1);
  EXPECT_EQ((Shape{0, -1}.num_elements()), -1);
  EXPECT_EQ((Shape{-1, 3}.rows()), -1);
  EXPECT_EQ((Shape{-1, 3}.row_elements()), 3);
  EXPECT_TRUE((Shape{-1, -1}.status().ok()));
}

TEST(ShapeTest, WhatCannotBeHasNoRankAndSaysWhy) {
  const Shape below{4, -2}, deep{1, 1, 1, 1, 1, 1, 1, 1, 1}, large{kHuge, kHuge};
  for (const Shape& shape : {below, deep, large}) {
    EXPECT_EQ(shape.status(),
              absl::InvalidArgumentError("invalid shape: a dimension below -1, more than 8 "
                                         "dimensions, or more than 2^63 elements"));
    EXPECT_EQ(shape.rank(), 0);
    EXPECT_THAT(shape.dims(), IsEmpty());
    EXPECT_EQ(shape.ToString(), "[invalid]");
    EXPECT_EQ(shape, below);
    EXPECT_NE(shape, Shape());
  }
}

TEST(ShapeTest, HasUpTo8DimensionsAndAsManyElementsAsAnInt64Counts) {
  EXPECT_EQ((Shape{1, 1, 1, 1, 1, 1, 1, 2}.num_elements()), 2);
  EXPECT_EQ((Shape{std::numeric_limits<int64_t>::max()}.num_elements()),
            std::numeric_limits<int64_t>::max());
  EXPECT_TRUE((Shape{kHuge, kHuge / 2 - 1}.status().ok()));
  EXPECT_FALSE((Shape{kHuge, kHuge / 2}.status().ok()));
}

TEST(ShapeTest, NeitherAZeroNorAnUnknownDimensionSavesOneThatIsTooLarge) {
  EXPECT_FALSE((Shape{0, kHuge, kHuge}.status().ok()));
  EXPECT_FALSE((Shape{kHuge, kHuge, 0}.status().ok()));
  EXPECT_FALSE((Shape{kHuge, -1, kHuge}.status().ok()));
}

TEST(ShapeTest, OtherRowsMayBeTooMany) {
  EXPECT_EQ((Shape{3, 4}.WithRows(5)), (Shape{5, 4}));
  EXPECT_EQ((Shape{3, 4}.WithRows(0)), (Shape{0, 4}));
  EXPECT_FALSE((Shape{1, kHuge}.WithRows(kHuge).status().ok()));
}

TEST(ShapeTest, RowsOfIdsHaveTheShapeOfTheIdsAndThenOfARow) {
  EXPECT_EQ((Shape{100, 4, 5}.WithRowsOf({2, 3})), (Shape{2, 3, 4, 5}));
  EXPECT_EQ((Shape{100}.WithRowsOf({7})), (Shape{7}));
  EXPECT_EQ((Shape{100, 4}.WithRowsOf({})), (Shape{4}));
  EXPECT_FALSE((Shape{1, 1, 1, 1, 1}.WithRowsOf({1, 1, 1, 1, 1}).status().ok()));
}

TEST(ShapeTest, EqualMeansDimensionByDimension) {
  EXPECT_EQ((Shape{2, 3}), Shape(std::vector<int64_t>{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_EQ((Shape{-1}), (Shape{-1}));
  EXPECT_NE((Shape{-1}), (Shape{1}));
}

TEST(ShapeTest, PrintsItsDimensions) {
  EXPECT_EQ((Shape{64, -1}.ToString()), "[64, -1]");
  EXPECT_EQ(Shape().ToString(), "[]");
}

}  // namespace
}  // namespace divvy
