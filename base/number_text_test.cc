#include "base/number_text.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(NumberTextTest, CountsHaveCommas) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(41234.6), "41,235");
  EXPECT_EQ(CountText(-1234567), "-1,234,567");
}

TEST(NumberTextTest, BytesHaveBinaryUnits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(98304), "96 KiB");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{5} << 30), "5 GiB");
}

TEST(NumberTextTest, FractionsHaveFourDigits) {
  EXPECT_EQ(NumberText(0.031268), "0.03127");
  EXPECT_EQ(NumberText(12), "12");
}

}  // namespace
}  // namespace divvy
