#include "base/build_id.h"

#include <gnu/libc-version.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

int Function() { return 1; }

const void* AddressOf(int (*function)()) { return reinterpret_cast<const void*>(function); }

TEST(BuildIdTest, IsTheSameForAllFunctionsOfAFileAndAnotherForAnotherFile) {
  const std::string own = BuildIdAt(AddressOf(Function));
  EXPECT_THAT(own, testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(BuildIdAt(AddressOf([] { return 2; })), own);
  // A function of the C library that no sanitizer replaces.
  EXPECT_NE(BuildIdAt(reinterpret_cast<const void*>(&gnu_get_libc_version)), own);
}

TEST(BuildIdTest, IsEmptyWhereNothingIsLoaded) { EXPECT_EQ(BuildIdAt(nullptr), ""); }

}  // namespace
}  // namespace divvy
