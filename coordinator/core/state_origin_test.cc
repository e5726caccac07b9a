#include "coordinator/core/state_origin.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace divvy {
namespace {

JobState Checkpoint(uint64_t serial, int64_t steps) {
  JobState state;
  state.checkpoint = {Epoch(2), serial};
  state.layout = Layout::Empty();
  state.finished_steps = steps;
  return state;
}

// A store that describes a state of lineage 3 without variables, and two servers that hold this
// state.
class StateOriginTest : public testing::Test {
 protected:
  StateOriginTest() {
    stored_.state.emplace();
    stored_.state->state.lineage = Epoch(3);
    stored_.state->state.layout = Layout::Received(4, {});
    PsAttachReply reply;
    reply.state = PsState::kFrozen;
    reply.lineage = Epoch(3);
    reply.layout_version = 4;
    reply.layout_hash = Layout::Received(4, {})->hash();
    reply.horizon = {EntryId(60), {}, 50};
    replies_ = {reply, reply};
  }

  StoredJob stored_;
  std::vector<PsAttachReply> replies_;
};

TEST_F(StateOriginTest, WithoutACheckpointAndBeforeServersAreLookedAtThereIsNothing) {
  const StateOrigin origin(StoredJob(), std::nullopt);
  EXPECT_EQ(origin.Restorable(), nullptr);
  EXPECT_EQ(origin.Text(), "nothing");
  EXPECT_FALSE(origin.is_stored());
  EXPECT_FALSE(origin.is_chosen());
}

TEST_F(StateOriginTest, WhatServersHoldIsPreferredToACheckpoint) {
  StateOrigin origin(stored_, Checkpoint(7, 40));
  EXPECT_EQ(origin.Restorable()->finished_steps, 40);
  EXPECT_EQ(origin.Text(), origin.found()->checkpoint.name());
  origin.NoteHeld(replies_);
  ASSERT_TRUE(origin.held().ok()) << origin.held().status();
  EXPECT_EQ(origin.Restorable()->finished_steps, 50);
  EXPECT_EQ(origin.Text(), "what the parameter servers hold");
}

TEST_F(StateOriginTest, AServerThatHoldsNothingLeavesTheCheckpoint) {
  StateOrigin origin(stored_, Checkpoint(7, 40));
  replies_[1].state = PsState::kEmpty;
  origin.NoteHeld(replies_);
  EXPECT_FALSE(origin.held().ok());
  EXPECT_EQ(origin.Restorable()->finished_steps, 40);
  // The newest checkpoint was damaged.
  origin.SetFound(Checkpoint(6, 30));
  origin.Restore();
  EXPECT_EQ(origin.restored(), (CheckpointId{Epoch(2), 6}));
}

TEST_F(StateOriginTest, AnAdoptionIsUnsavedUntilACheckpointIsCommitted) {
  StateOrigin origin(stored_, std::nullopt);
  origin.NoteHeld(replies_);
  origin.SetAdopting(true);
  origin.Restore();
  origin.SetChosen();
  origin.NoteAdopted(50, /*unsaved=*/true);
  EXPECT_FALSE(origin.is_adopting());
  EXPECT_EQ(origin.adopted_steps(), 50);
  EXPECT_TRUE(origin.is_unsaved());
  origin.NoteSaved();
  EXPECT_FALSE(origin.is_unsaved());
}

TEST_F(StateOriginTest, OrdinalsThatAnAdoptionHasStoredAreNotGivenAgainAfterItIsTakenBack) {
  stored_.state->state.next_ordinal = 50;
  stored_.state->state.finished_steps = 50;
  // Two steps are open, so the ordinals 0 to 51 were given.
  for (PsAttachReply& reply : replies_)
    reply.horizon = {EntryId(60), {EntryId(58), EntryId(59)}, 50};
  StateOrigin origin(stored_, std::nullopt);
  origin.NoteHeld(replies_);
  ASSERT_TRUE(origin.held().ok()) << origin.held().status();
  EXPECT_EQ(origin.held()->next_ordinal, 52);
  StateRow row = *stored_.state;
  row.state = *origin.held();
  row.state.layout = stored_.state->state.layout;
  origin.NoteStored(row);
  origin.TakeBack();
  // One server was told of the adoption. Its horizon is the newest, and closes both steps.
  replies_[0].horizon = {EntryId(70), {}, 50};
  origin.NoteHeld(replies_);
  ASSERT_TRUE(origin.held().ok()) << origin.held().status();
  EXPECT_EQ(origin.held()->next_ordinal, 52);
}

TEST_F(StateOriginTest, AChoiceThatIsTakenBackIsOpenAgainAndWaitersStay) {
  StateOrigin origin(stored_, std::nullopt);
  origin.Await([](const absl::StatusOr<int64_t>&) {});
  origin.NoteHeld(replies_);
  origin.SetAdopting(true);
  origin.Restore();
  origin.SetChosen();
  origin.TakeBack();
  EXPECT_FALSE(origin.is_chosen() || origin.is_adopting() || origin.restored());
  EXPECT_TRUE(origin.is_awaited());
  EXPECT_EQ(origin.TakeWaiters().size(), 1u);
  EXPECT_FALSE(origin.is_awaited());
}

}  // namespace
}  // namespace divvy
