#include "ps_server/core/applied_table.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(AppliedTableTest, ForgetsWhatIsClosedAndApplied) {
  AppliedTable table;
  for (uint64_t id : {1, 2, 3, 9}) {
    table.Begin({EntryId(id), 2, EntryKind::kStep});
    if (id != 3) table.Finish(EntryId(id));
  }
  EXPECT_EQ(table.Find(EntryId(3)), AppliedTable::State::kApplying);
  EXPECT_EQ(table.Find(EntryId(4)), AppliedTable::State::kUnknown);
  table.TakeHorizon({EntryId(5), {EntryId(2)}, 0});
  EXPECT_EQ(table.Find(EntryId(1)), AppliedTable::State::kApplied)
      << "closed, and not forgotten yet";
  table.ForgetClosed();
  EXPECT_EQ(table.Find(EntryId(1)), AppliedTable::State::kUnknown);
  EXPECT_EQ(table.Find(EntryId(2)), AppliedTable::State::kApplied);
  EXPECT_EQ(table.Find(EntryId(3)), AppliedTable::State::kApplying) << "until it is settled";
  EXPECT_EQ(table.Find(EntryId(9)), AppliedTable::State::kApplied);
  table.Abandon(EntryId(3));
  EXPECT_EQ(table.size(), 2u);
  const std::vector<EntryId> query = {EntryId(9), EntryId(1), EntryId(2)};
  ASSERT_EQ(table.Applied(query).size(), 2u);
  EXPECT_EQ(table.Applied(query)[0].id, EntryId(9));
}

TEST(AppliedTableTest, ClosesWhatIsBelowTheHorizonAndNotOpen) {
  AppliedTable table;
  EXPECT_FALSE(table.IsClosed(EntryId(1)));
  table.TakeHorizon({EntryId(5), {EntryId(2)}, 0});
  EXPECT_TRUE(table.IsClosed(EntryId(1)));
  EXPECT_FALSE(table.IsClosed(EntryId(2)));
  EXPECT_FALSE(table.IsClosed(EntryId(5)));
}

TEST(AppliedTableTest, CountsWhatIsAppliedAndNotWhatIsRefused) {
  AppliedTable table;
  table.Begin({EntryId(1), 1, EntryKind::kStep});
  table.Finish(EntryId(1));
  table.Begin({EntryId(2), 1, EntryKind::kStep});
  table.Abandon(EntryId(2));
  EXPECT_EQ(table.applied_seq(), 1u);
  EXPECT_TRUE(table.history().empty());
}

TEST(AppliedTableTest, ClearBeginsAnotherLineageUnderTheSameHorizon) {
  AppliedTable table(AppliedTable::Keep::kHistory);
  table.TakeHorizon({EntryId(3), {}, 7});
  table.Begin({EntryId(4), 1, EntryKind::kStep});
  table.Finish(EntryId(4));
  EXPECT_EQ(table.history(), (std::map<EntryId, int>{{EntryId(4), 1}}));
  table.Clear();
  EXPECT_EQ(table.Find(EntryId(4)), AppliedTable::State::kUnknown);
  EXPECT_EQ(table.applied_seq(), 0u);
  EXPECT_TRUE(table.history().empty());
  EXPECT_EQ(table.horizon().finished_steps, 7u);
}

}  // namespace
}  // namespace divvy
