#include "coordinator/core/adoption.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

VariableRow Row(uint32_t id, const std::string& name, std::vector<int> ps) {
  VariableRow row;
  row.layout.id = VariableId(id);
  row.layout.spec.name = name;
  row.layout.spec.shape = Shape{static_cast<int64_t>(ps.size())};
  for (size_t i = 0; i <= ps.size(); ++i) row.layout.offsets.push_back(static_cast<int64_t>(i));
  row.layout.ps = std::move(ps);
  return row;
}

// Two servers of lineage 3 with one variable on both. 100 steps have begun, and 2 of them were open
// when the newest horizon was sent.
class AdoptionTest : public ::testing::Test {
 protected:
  AdoptionTest() {
    stored_.variables = {Row(1, "table", {0, 1})};
    stored_.state.emplace();
    JobState& state = stored_.state->state;
    state.lineage = Epoch(3);
    state.layout = Layout::Received(4, {});
    state.finished_steps = 20;
    // Three steps had failed.
    state.next_ordinal = 23;
    state.epochs = 2;
    state.program_state = "round 7";
    const uint64_t hash =
        Layout::Received(4, {{VariableId(1), stored_.variables[0].layout}})->hash();
    for (int i = 0; i < 2; ++i) {
      PsAttachReply reply;
      reply.state = PsState::kFrozen;
      reply.lineage = Epoch(3);
      reply.layout_version = 4;
      reply.layout_hash = hash;
      reply.horizon = {EntryId(60), {EntryId(55)}, 50};
      replies_.push_back(reply);
    }
    // Server 1 has received a newer horizon than server 0.
    replies_[1].horizon = {EntryId(110), {EntryId(105), EntryId(107)}, 98};
  }

  void Applied(int ps, uint64_t id, int participants, EntryKind kind = EntryKind::kStep) {
    replies_[ps].remembered.push_back({EntryId(id), participants, kind});
  }
  absl::StatusOr<JobState> Look() const { return WhatServersHold(replies_, stored_); }
  std::string WhyNot() const {
    const absl::Status refused = Look().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(refused.message());
  }

  StoredJob stored_;
  std::vector<PsAttachReply> replies_;
};

TEST_F(AdoptionTest, WhatAllServersHoldIsAdoptedWithTheStepsOfTheNewestHorizon) {
  const absl::StatusOr<JobState> held = Look();
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->finished_steps, 98);
  EXPECT_EQ(held->lineage, Epoch(3));
  EXPECT_EQ(held->epochs, 2);
  EXPECT_EQ(held->program_state, "round 7");
  EXPECT_EQ(held->layout->version(), 4u);
  ASSERT_NE(held->layout->Find("table"), nullptr);
  EXPECT_EQ(held->layout->Find("table")->ps, (std::vector<int>{0, 1}));
}

// A state directory was lost, and the job began again under the same name. A server of the first
// run comes back with a state of the same epoch number.
TEST_F(AdoptionTest, AStateOfTheSameNumberThatOtherServersHoldIsNotAdopted) {
  stored_.state->state.servers = {Incarnation(10), Incarnation(11)};
  replies_[0].incarnation = Incarnation(10), replies_[1].incarnation = Incarnation(11);
  EXPECT_TRUE(Look().ok());
  replies_[1].incarnation = Incarnation(12);
  EXPECT_THAT(WhyNot(), HasSubstr("ps 1 holds a state that another coordinator made"));
  stored_.state->state.servers = {Incarnation(10)};
  EXPECT_THAT(WhyNot(), HasSubstr("ps 1 holds a state that another coordinator made"));
}

TEST_F(AdoptionTest, AWholeStepCountsThoughNobodyHadHeardOfIt) {
  Applied(0, 105, 2), Applied(1, 105, 2);
  Applied(1, 112, 1);
  EXPECT_EQ(Look()->finished_steps, 100);
}

TEST_F(AdoptionTest, AWholeWriteIsNoStep) {
  Applied(0, 105, 2, EntryKind::kWrite), Applied(1, 105, 2, EntryKind::kWrite);
  EXPECT_EQ(Look()->finished_steps, 98);
}

TEST_F(AdoptionTest, AnEntryThatOneOfItsServersLacksIsHalfApplied) {
  Applied(0, 105, 2);
  EXPECT_THAT(WhyNot(), HasSubstr("entry 105 was applied by 1 of 2"));
}

TEST_F(AdoptionTest, AnEntryOfTwoRunsThatDifferInWidthIsHalfApplied) {
  Applied(0, 105, 2), Applied(1, 105, 1);
  EXPECT_THAT(WhyNot(), HasSubstr("entry 105"));
}

TEST_F(AdoptionTest, WhatTheNewestHorizonClosesIsNotLookedAt) {
  // Id 55 is closed, so server 1 has forgotten it.
  Applied(0, 55, 2);
  // Id 104 is closed in the newest horizon, which server 0 has not received.
  Applied(0, 104, 2);
  EXPECT_EQ(Look()->finished_steps, 98);
}

TEST_F(AdoptionTest, OfTwoHorizonsWithOneNextIdTheOneThatClosesMoreIsTheNewest) {
  replies_[0].horizon = {EntryId(110), {EntryId(107)}, 99};
  Applied(1, 105, 2);
  EXPECT_EQ(Look()->finished_steps, 99);
}

TEST_F(AdoptionTest, OrdinalsThatMayBeInTheStateAreNotGivenAgain) {
  EXPECT_EQ(Look()->next_ordinal, 98 + 3 + 2)
      << "98 finished steps, 3 failed steps, and 2 open steps that no server has applied";
  Applied(0, 105, 2), Applied(1, 105, 2);
  // The ids 110, 111 and 112 must have been given before 113.
  Applied(0, 113, 1);
  EXPECT_EQ(Look()->next_ordinal, 100 + 3 + 1 + 3);
}

TEST_F(AdoptionTest, AServerThatHasRestartedHoldsNothing) {
  replies_[1].state = PsState::kEmpty;
  EXPECT_THAT(WhyNot(), HasSubstr("ps 1 has restarted"));
}

TEST_F(AdoptionTest, AStateThatTheStoreDoesNotKnowIsNotAdopted) {
  replies_[0].lineage = Epoch(4);
  EXPECT_THAT(WhyNot(),
              HasSubstr("ps 0 holds a state of lineage 4, and the store knows lineage 3"));
}

TEST_F(AdoptionTest, AServerThatWasToldOfALaterLayoutThanTheStoreIsInTheMiddleOfAChange) {
  replies_[0].layout_version = 5;
  EXPECT_THAT(WhyNot(), HasSubstr("ps 0 was told of a layout change"));
  // The last layout change did not touch ps 0.
  replies_[0].layout_version = 3;
  replies_[0].layout_hash = 77;
  EXPECT_TRUE(Look().ok());
}

TEST_F(AdoptionTest, AnotherLayoutOfTheSameVersionIsNotAdopted) {
  replies_[0].layout_hash = 77;
  EXPECT_THAT(WhyNot(), HasSubstr("ps 0"));
}

TEST_F(AdoptionTest, AStoreOfAnOlderVersionAdoptsNothing) {
  stored_.state.reset();
  EXPECT_THAT(WhyNot(), HasSubstr("the store does not describe their state"));
}

// The pass in the store. When it was written, 8 positions had been given, and positions 4 to 7
// belonged to open steps.
DataPass PassOfStore() {
  DataPass pass;
  pass.iterator = ResourceId(5);
  pass.in_loop = true;
  pass.source = "clicks";
  pass.finished = 4;
  pass.next = 8;
  pass.unread = {{4, 4}};
  return pass;
}

TEST_F(AdoptionTest, APassStandsWhereTheNewestHorizonAndTheStepsThatItDoesNotCloseHaveLeftIt) {
  stored_.state->state.data = {PassOfStore()};
  PassProgress told = PassOfStore();
  told.finished = 20;
  told.next = 30;
  told.unread = {{20, 10}};
  told.in_loop = false;
  replies_[0].horizon.passes = {PassOfStore()};
  replies_[1].horizon = {EntryId(110), {}, 98, {told}};
  replies_[0].remembered = {{EntryId(110), 1, EntryKind::kStep, {{ResourceId(5), 24, 2}}}};
  replies_[1].remembered = {
      {EntryId(112), 1, EntryKind::kStep, {{ResourceId(5), 40, 2}, {ResourceId(6), 0, 2}}}};
  const auto held = Look();
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_EQ(held->data.size(), 1u);
  const DataPass& pass = held->data[0];
  EXPECT_EQ(pass.source, "clicks");
  EXPECT_EQ(pass.finished, 22);
  EXPECT_EQ(pass.next, 42);
  EXPECT_EQ(pass.unread, (std::map<int64_t, int64_t>{{20, 4}, {26, 4}, {30, 10}}));
  EXPECT_TRUE(pass.in_loop) << "the value of the store counts";
}

TEST_F(AdoptionTest, APassThatNoHorizonKnowsYetStandsWhereTheStoreAndItsStepsSay) {
  stored_.state->state.data = {PassOfStore()};
  replies_[0].remembered = {{EntryId(112), 1, EntryKind::kStep, {{ResourceId(5), 8, 4}}}};
  const auto held = Look();
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->data.at(0).next, 12);
  EXPECT_EQ(held->data.at(0).unread, (std::map<int64_t, int64_t>{{4, 4}}));
}

TEST_F(AdoptionTest, AStoreThatDoesNotSayWhichPassIsUnderWayAndFirstValuesAreNotAdopted) {
  stored_.state->held = StateRow::Held::kLeasedData;
  EXPECT_THAT(WhyNot(), HasSubstr("leased data"));
  stored_.state->held = StateRow::Held::kFirstValues;
  EXPECT_THAT(WhyNot(), HasSubstr("first values"));
}

TEST_F(AdoptionTest, FewerServersThanTheVariablesLieOnAdoptNothing) {
  replies_.pop_back();
  EXPECT_THAT(WhyNot(), HasSubstr("\"table\" lies on more than the 1 parameter servers"));
}

}  // namespace
}  // namespace divvy
