#include "coordinator/core/stored_state.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/fake_step_host.h"
#include "coordinator/core/testing/no_dialer.h"
#include "coordinator/core/testing/parts_test.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

VariableLayout Variable(uint32_t id, std::string name) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = std::move(name);
  return variable;
}

// A store of an earlier life of the coordinator, which has variables 1 and 2.
class StoredStateTest : public StepsTest<FakeStepHost> {
 protected:
  StoredStateTest()
      : servers_(options_, clock_, dialer_), stored_(Before(), Row(), steps_, passes_, servers_) {
    servers_.Add({"zero", "one"});
    servers_[0].incarnation = Incarnation(10);
    servers_[1].incarnation = Incarnation(11);
  }

  static StoredJob Before() {
    StoredJob before;
    before.variables = {{Variable(1, "one"), Zeros()}, {Variable(2, "two"), Zeros()}};
    return before;
  }
  static JobRow Row() {
    JobRow row;
    row.job = JobId(7);
    row.lineage = Epoch(3);
    return row;
  }

  void PassTime(absl::Duration time) {
    Advance(time);
    steps_.NoteTime();
  }

  NoDialer dialer_;
  ServerSet servers_;
  StoredState stored_;
};

TEST_F(StoredStateTest, TheWholeStateReplacesTheVariablesThatTheStoreHad) {
  const auto layout = Layout::Received(
      5, {{VariableId(2), Variable(2, "two")}, {VariableId(3), Variable(3, "three")}});
  EXPECT_FALSE(stored_.is_told());
  const StoreChange change = stored_.Whole(*layout);
  EXPECT_TRUE(stored_.is_told() && stored_.IsStored());
  ASSERT_EQ(change.put_variables.size(), 2u);
  EXPECT_EQ(change.deleted_variables, std::vector<VariableId>{VariableId(1)});
  EXPECT_EQ(change.job->job, JobId(7));
  EXPECT_EQ(change.state->state.lineage, Epoch(3));
  EXPECT_EQ(change.state->state.layout->version(), 5u);
  EXPECT_EQ(change.state->state.servers,
            (std::vector<Incarnation>{Incarnation(10), Incarnation(11)}));
}

TEST_F(StoredStateTest, WhatHasChangedIsToldOnceAndOneChangeAtATime) {
  stored_.SetProgramState("early");
  EXPECT_FALSE(stored_.TakeChange(*Layout::Empty()))
      << "the servers hold no state of this life yet";
  stored_.Whole(*Layout::Empty());
  EXPECT_FALSE(stored_.TakeChange(*Layout::Empty()));
  stored_.SetProgramState("round 1");
  EXPECT_FALSE(stored_.IsStored());
  const std::optional<StoreChange> change = stored_.TakeChange(*Layout::Empty());
  ASSERT_TRUE(change);
  EXPECT_EQ(change->state->state.program_state, "round 1");
  stored_.SetProgramState("round 2");
  EXPECT_FALSE(stored_.TakeChange(*Layout::Empty())) << "a change is being stored";
  stored_.NotePut();
  EXPECT_FALSE(stored_.IsStored());
  ASSERT_TRUE(stored_.TakeChange(*Layout::Empty()));
  EXPECT_FALSE(stored_.IsStored()) << "the change is being stored";
  stored_.NotePut();
  EXPECT_TRUE(stored_.IsStored());
}

// The next coordinator adopts rows of tables that are dated by them.
TEST_F(StoredStateTest, TheMinutesOfTheJobAreStoredBeforeAnEntryIsDatedByThem) {
  stored_.Whole(*Layout::Empty());
  PassTime(absl::Seconds(59));
  EXPECT_TRUE(stored_.IsStored());
  PassTime(absl::Seconds(1));
  EXPECT_FALSE(stored_.IsStored());
  const std::optional<StoreChange> change = stored_.TakeChange(*Layout::Empty());
  ASSERT_TRUE(change);
  EXPECT_EQ(change->state->state.tick, 1u);
  stored_.NotePut();
  EXPECT_TRUE(stored_.IsStored());
  PassTime(absl::Minutes(10));
  EXPECT_EQ(stored_.TakeChange(*Layout::Empty())->state->state.tick, 11u);
}

TEST_F(StoredStateTest, TheStoreKnowsThatFirstValuesAreMissing) {
  stored_.Whole(*Layout::Empty());
  stored_.ExpectValues(1);
  EXPECT_TRUE(stored_.awaits_values());
  EXPECT_EQ(stored_.RowNow(*Layout::Empty()).held, StateRow::Held::kFirstValues);
  EXPECT_TRUE(stored_.TakeChange(*Layout::Empty()));
  stored_.NotePut();
  stored_.ExpectValues(-1);
  EXPECT_FALSE(stored_.IsStored());
  EXPECT_EQ(stored_.RowNow(*Layout::Empty()).held, StateRow::Held::kAll);
}

TEST_F(StoredStateTest, AVariableThatIsStoredIsDeletedWhenItIsGone) {
  stored_.Whole(*Layout::Empty());
  const StoreChange with = stored_.With(Variable(9, "nine"), *Layout::Empty());
  ASSERT_EQ(with.put_variables.size(), 1u);
  EXPECT_EQ(stored_.Whole(*Layout::Empty()).deleted_variables,
            std::vector<VariableId>{VariableId(9)});
}

TEST_F(StoredStateTest, AfterARewindTheStoreSpeaksOfNoStateUntilAllOfItIsTold) {
  stored_.Whole(*Layout::Empty());
  stored_.Forget();
  stored_.SetProgramState("later");
  EXPECT_FALSE(stored_.TakeChange(*Layout::Empty()));
  EXPECT_EQ(stored_.Whole(*Layout::Empty()).state->state.program_state, "later");
  EXPECT_TRUE(stored_.IsStored());
}

}  // namespace
}  // namespace divvy
