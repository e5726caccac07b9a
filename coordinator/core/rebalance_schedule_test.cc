#include "coordinator/core/rebalance_schedule.h"

#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The seconds at which it is time, if it is asked every second for two hours.
std::vector<int> TimesWith(const std::function<double(int)>& imbalance_at) {
  RebalanceSchedule schedule;
  std::vector<int> times;
  for (int second = 0; second < 7200; ++second) {
    const absl::Duration now = absl::Seconds(second);
    if (schedule.WantsLook(now) && schedule.Note(imbalance_at(second), now))
      times.push_back(second);
  }
  return times;
}

TEST(RebalanceScheduleTest, ALoadThatIsUnevenForAMinuteIsMendedAndThenTenMinutesAreLeftAlone) {
  EXPECT_THAT(TimesWith([](int second) { return second >= 100 && second < 1000 ? 2.0 : 1.0; }),
              ElementsAre(150, 800));
}

TEST(RebalanceScheduleTest, ALoadThatIsOftenUnevenForLessThanAMinuteIsLeftAlone) {
  EXPECT_THAT(TimesWith([](int second) { return second % 60 < 50 ? 3.0 : 1.2; }), IsEmpty());
  EXPECT_THAT(TimesWith([](int) { return 1.4; }), IsEmpty());
}

}  // namespace
}  // namespace divvy
