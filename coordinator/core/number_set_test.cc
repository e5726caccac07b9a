#include "coordinator/core/number_set.h"

#include <map>
#include <set>

#include "base/random.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(NumberSetTest, NumbersThatFollowEachOtherAreOneRange) {
  NumberSet numbers;
  for (const int64_t number : {0, 1, 4, 3, 2, 7}) numbers.Add(number);
  PassProgress pass;
  numbers.Save(pass);
  EXPECT_EQ(pass.next, 8);
  EXPECT_EQ(pass.unread, (std::map<int64_t, int64_t>{{5, 2}}));
}

TEST(NumberSetTest, ItHoldsWhatASetHoldsAndComesBackAsItWas) {
  Random random(20261122);
  NumberSet numbers;
  std::set<int64_t> model;
  for (int i = 0; i < 2'000; ++i) {
    const auto number = static_cast<int64_t>(random.Below(3'000));
    numbers.Add(number);
    model.insert(number);
  }
  PassProgress pass;
  numbers.Save(pass);
  const NumberSet again(pass);
  for (int64_t number = 0; number <= 3'000; ++number) {
    EXPECT_EQ(numbers.Contains(number), model.count(number) > 0) << number;
    EXPECT_EQ(again.Contains(number), model.count(number) > 0) << number;
  }
}

TEST(NumberSetTest, AnEmptyOneIsSavedAsNothing) {
  PassProgress pass;
  pass.next = 5;
  NumberSet().Save(pass);
  EXPECT_EQ(pass.next, 0);
  EXPECT_FALSE(NumberSet(pass).Contains(0));
}

}  // namespace
}  // namespace divvy
