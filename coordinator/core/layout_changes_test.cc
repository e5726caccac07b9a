#include "coordinator/core/layout_changes.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "variables/dynamic_table.h"

namespace divvy {
namespace {

// A coordinator with two parameter servers, for which the test answers.
class FakeHost : public LayoutChanges::Host {
 public:
  bool MayChangeLayout() const override { return may_change; }
  bool IsChoosing() const override { return choosing; }
  void CreateShardsAt(int ps) override { created.push_back(ps); }
  void DeleteShardsAt(int ps) override { deleted.push_back(ps); }
  void StoreLayout(const VariableLayout&, std::shared_ptr<const Layout> next) override {
    storing = std::move(next);
  }
  void OnShardsMade(uint64_t, const LayoutChanges::Shards&) override { ++made; }

  bool may_change = true, choosing = false;
  std::vector<int> created, deleted;
  std::shared_ptr<const Layout> storing;
  int made = 0;
};

VariableSpec SpecOf(const std::string& name) {
  VariableSpec spec;
  spec.name = name;
  spec.shape = Shape({8, 2});
  spec.dtype = DType::kFloat32;
  spec.initializer = Zeros();
  spec.partitioner = FixedShardsPartitioner{2};
  return spec;
}

class LayoutChangesTest : public testing::Test {
 protected:
  LayoutChangesTest()
      : workers_(options_, Clock::Real(), outbox_),
        plan_(options_),
        changes_(options_, outbox_, plan_, workers_, host_) {
    plan_.SetNumPs(2);
  }

  void Create(const std::string& name) { Create(SpecOf(name)); }
  void Create(const VariableSpec& spec) {
    const VariableId id(next_id_++);
    changes_.AwaitNumber(
        id, [this, name = spec.name](const absl::Status& created) { answers_[name] = created; });
    changes_.NumberStored(spec, std::nullopt, id);
  }
  // All servers and the store answer.
  void Finish(const absl::Status& answer = absl::OkStatus()) {
    changes_.OnCreated(0, answer);
    changes_.OnCreated(1, absl::OkStatus());
    if (host_.storing != nullptr) changes_.OnStored(std::exchange(host_.storing, nullptr));
    outbox_.Drain();
  }

  CoordinatorOptions options_;
  Outbox outbox_;
  WorkerSet workers_;
  LayoutPlan plan_;
  FakeHost host_;
  LayoutChanges changes_;
  uint32_t next_id_ = 1;
  std::map<std::string, absl::Status> answers_;
};

TEST_F(LayoutChangesTest, AVariableIsThereWhenAllServersAndTheStoreHaveIt) {
  Create("w");
  EXPECT_EQ(host_.created, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan_.layout()->Find("w"), nullptr);
  changes_.OnCreated(0, absl::OkStatus());
  EXPECT_EQ(host_.storing, nullptr);
  changes_.OnCreated(1, absl::OkStatus());
  ASSERT_NE(host_.storing, nullptr);
  EXPECT_EQ(plan_.layout()->Find("w"), nullptr);
  changes_.OnStored(host_.storing);
  outbox_.Drain();
  EXPECT_NE(plan_.layout()->Find("w"), nullptr);
  EXPECT_EQ(answers_.at("w"), absl::OkStatus());
  EXPECT_EQ(host_.made, 1);
}

TEST_F(LayoutChangesTest, ChangesAreMadeOneAfterTheOther) {
  Create("w");
  Create("b");
  EXPECT_EQ(host_.created.size(), 2);
  Finish();
  EXPECT_EQ(host_.created.size(), 4);
  Finish();
  EXPECT_EQ(answers_.at("b"), absl::OkStatus());
}

TEST_F(LayoutChangesTest, NothingBeginsWhileTheServersMayNotBeChanged) {
  host_.may_change = false;
  Create("w");
  EXPECT_TRUE(host_.created.empty());
  host_.may_change = true;
  changes_.StartNext();
  EXPECT_EQ(host_.created.size(), 2);
}

TEST_F(LayoutChangesTest, WhatOthersMadeIsDeletedWhereOneServerRefuses) {
  Create("w");
  Finish(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(host_.deleted, (std::vector<int>{0, 1}));
  EXPECT_TRUE(changes_.AwaitsDeleted());
  EXPECT_EQ(answers_.count("w"), 0);
  changes_.OnDeleted(0);
  changes_.OnDeleted(1);
  outbox_.Drain();
  EXPECT_TRUE(absl::IsResourceExhausted(answers_.at("w")));
  EXPECT_EQ(plan_.layout()->Find("w"), nullptr);
  EXPECT_FALSE(changes_.is_changing());
}

TEST_F(LayoutChangesTest, ANameIsTakenOnce) {
  Create("w");
  Finish();
  answers_.clear();
  Create("w");
  outbox_.Drain();
  EXPECT_TRUE(absl::IsAlreadyExists(answers_.at("w")));
}

TEST_F(LayoutChangesTest, RequestsForTheSameSlotsShareOneChange) {
  Create("w");
  Finish();
  int answers = 0;
  for (int i = 0; i < 3; ++i)
    changes_.CreateSlots("w", Adam{}, [&](const absl::Status& made) { answers += made.ok(); });
  EXPECT_EQ(host_.created.size(), 4);
  Finish();
  EXPECT_EQ(answers, 3);
  EXPECT_TRUE(plan_.layout()->Find("w")->SlotsFor(Adam{}));
}

TEST_F(LayoutChangesTest, ARewindLetsTheChangeUnderWayBeginAnew) {
  Create("w");
  changes_.Rewind();
  EXPECT_FALSE(changes_.CreateRequestFor(0));
  changes_.StartNext();
  EXPECT_EQ(host_.created.size(), 4);
  EXPECT_TRUE(changes_.CreateRequestFor(0));
}

TEST_F(LayoutChangesTest, WhileTheStateIsChosenVariablesAreDeclared) {
  host_.choosing = true;
  Create("w");
  outbox_.Drain();
  EXPECT_EQ(answers_.at("w"), absl::OkStatus());
  EXPECT_TRUE(host_.created.empty());
  EXPECT_EQ(plan_.DeclaredNames(), std::vector<std::string>{"w"});
  plan_.MakeAllDeclared();
  EXPECT_EQ(plan_.to_make().size(), 2);
}

TEST_F(LayoutChangesTest, ADeclaredVariableOfTheStateIsLoadedAndOneOfAnotherShapeIsRefused) {
  Create("w");
  Finish();
  JobState state;
  state.layout = plan_.layout();
  CoordinatorOptions options;
  LayoutPlan next(options);
  next.SetNumPs(2);
  next.SetOrigin("ckpt-1", "train in an empty --checkpoint_dir");
  uint32_t new_id = 100;
  const LayoutPlan::NewId new_ids = [&new_id] { return VariableId(new_id++); };
  EXPECT_EQ(next.Relayout(state, new_ids), absl::OkStatus());
  EXPECT_EQ(next.ToLoad(0).size(), 1);
  EXPECT_TRUE(next.PrepareVariable(SpecOf("w"), std::nullopt, VariableId(7)).ok());
  VariableSpec other = SpecOf("w");
  other.shape = Shape({9, 2});
  const absl::Status refused = next.PrepareVariable(other, std::nullopt, VariableId(8)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(refused.message().find("and in ckpt-1 it is"), absl::string_view::npos);
}

DynamicTable TableWith(int64_t max_rows, int64_t width = 4) {
  DynamicTable table("user", {.width = width, .optimizer = Adam{0.1}, .max_rows = max_rows});
  table.partitioner = FixedShardsPartitioner{2};
  return table;
}

// The state that a checkpoint of this job has.
JobState StateWith(const LayoutPlan& plan) {
  JobState state;
  state.layout = plan.layout();
  return state;
}

TEST_F(LayoutChangesTest, ATableOfTheStateGetsTheOptionsOfTheProgram) {
  Create(TableWith(100));
  Finish();
  const std::shared_ptr<const Layout> held = plan_.layout();
  // As after a restart: the state has the table, and the program has not declared it.
  plan_.SetOrigin("ckpt-1", "train in an empty --checkpoint_dir");
  ASSERT_TRUE(plan_.Relayout(StateWith(plan_), [] { return VariableId(); }).ok());
  host_.created.clear();

  Create(TableWith(200));
  EXPECT_EQ(host_.created, (std::vector<int>{0, 1})) << "every part has to know the options";
  const auto request = changes_.CreateRequestFor(1);
  ASSERT_TRUE(request.has_value());
  ASSERT_EQ(request->shards.size(), 1u);
  EXPECT_EQ(request->shards[0].table->max_rows, 200);
  EXPECT_EQ(request->shards[0].key.variable, held->Find("user")->id);
  Finish();
  EXPECT_EQ(answers_.at("user"), absl::OkStatus());
  EXPECT_EQ(plan_.layout()->Find("user")->spec.table->max_rows, 200);
  EXPECT_NE(plan_.layout()->hash(), held->hash());
}

TEST_F(LayoutChangesTest, ATableThatExistsIsNotDeletedWhereAServerRefusesItsOptions) {
  Create(TableWith(100));
  Finish();
  ASSERT_TRUE(plan_.Relayout(StateWith(plan_), [] { return VariableId(); }).ok());
  Create(TableWith(200));
  Finish(absl::InternalError("no"));
  ASSERT_TRUE(changes_.AwaitsDeleted());
  for (const int ps : {0, 1}) {
    ASSERT_TRUE(changes_.DeleteRequestFor(ps).has_value());
    EXPECT_TRUE(changes_.DeleteRequestFor(ps)->shards.empty());
    changes_.OnDeleted(ps);
  }
  outbox_.Drain();
  EXPECT_TRUE(absl::IsInternal(answers_.at("user")));
  EXPECT_EQ(plan_.layout()->Find("user")->spec.table->max_rows, 100);
}

TEST_F(LayoutChangesTest, TheSameOptionsNeedNoServerAndAnotherWidthIsRefused) {
  Create(TableWith(100));
  Finish();
  plan_.SetOrigin("ckpt-1", "train in an empty --checkpoint_dir");
  ASSERT_TRUE(plan_.Relayout(StateWith(plan_), [] { return VariableId(); }).ok());
  host_.created.clear();
  const absl::Status refused =
      plan_.PrepareVariable(TableWith(100, /*width=*/5), std::nullopt, VariableId(7)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  for (const char* width :
       {"a dynamic table of float32 of width 5", "a dynamic table of float32 of width 4"})
    EXPECT_NE(refused.message().find(width), absl::string_view::npos) << refused;
  Create(TableWith(100));
  EXPECT_TRUE(host_.created.empty());
}

TEST_F(LayoutChangesTest, WhatServersHoldGetsTheOptionsThatWereDeclared) {
  Create(TableWith(100));
  Finish();
  Create("w");
  Finish();
  const std::shared_ptr<const Layout> held = plan_.layout();
  const VariableId user = held->Find("user")->id;
  for (const int64_t max_rows : {100, 200}) {
    LayoutPlan next(options_);
    next.SetNumPs(2);
    ASSERT_TRUE(next.Declare(TableWith(max_rows), std::nullopt, VariableId(50)).ok());
    ASSERT_TRUE(next.Declare(SpecOf("new"), std::nullopt, VariableId(51)).ok());
    ASSERT_TRUE(next.Adopt(held).ok());
    EXPECT_EQ(next.layout()->Find("user")->id, user);
    EXPECT_EQ(next.layout()->Find("user")->spec.table->max_rows, max_rows);
    std::set<VariableId> made;
    for (const auto& [ps, shards] : next.to_make()) {
      for (const ShardSpec& shard : shards) made.insert(shard.key.variable);
    }
    const bool changes = max_rows != 100;
    EXPECT_EQ(made.count(user), changes ? 1u : 0u);
    EXPECT_EQ(made.size(), changes ? 2u : 1u) << "the new variable, too, and not w";
    EXPECT_EQ(next.to_change().count(user), changes ? 1u : 0u);
    EXPECT_EQ(next.to_change().size(), changes ? 1u : 0u);
  }
}

TEST_F(LayoutChangesTest, OptionsThatGiveAPartNoRowAreRefusedForWhatServersHold) {
  Create(TableWith(100));
  Finish();
  const std::shared_ptr<const Layout> held = plan_.layout();
  LayoutPlan next(options_);
  next.SetNumPs(2);
  const DynamicTable in_one_part("user", {.width = 4, .optimizer = Adam{0.1}, .max_rows = 1});
  ASSERT_TRUE(next.Declare(in_one_part, std::nullopt, VariableId(50)).ok());
  const absl::Status refused = next.Adopt(held);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("max_rows is 1, and the table has 2 parts"),
            absl::string_view::npos)
      << refused;
}

TEST_F(LayoutChangesTest, AStateWhoseTableHasTooFewRowsForItsPartsIsRefused) {
  JobState state;
  VariableLayout user;
  user.id = VariableId(1);
  user.spec = DynamicTable("user", {.width = 4, .optimizer = Adam{0.1}, .max_rows = 3});
  user.offsets = {0, 1, 2, 3, kTableBuckets};
  user.ps = {0, 1, 0, 1};
  state.layout = Layout::Empty()->With(user);
  const absl::Status refused = plan_.Relayout(state, [] { return VariableId(); });
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("max_rows is 3, and the table has 4 parts"),
            absl::string_view::npos)
      << refused;
}

TEST_F(LayoutChangesTest, AJobThatFailsTakesAllCompletionsAwayAndRefusesWhatComesLater) {
  Create("w");
  Create("b");
  std::vector<Task> calls;
  changes_.FailAll(absl::AbortedError("over"), calls);
  EXPECT_EQ(calls.size(), 2);
  for (const Task& call : calls) call();
  EXPECT_TRUE(absl::IsAborted(answers_.at("b")));
  absl::Status later;
  changes_.CreateSlots("w", Adam{}, [&](const absl::Status& made) { later = made; });
  outbox_.Drain();
  EXPECT_TRUE(absl::IsAborted(later));
}

}  // namespace
}  // namespace divvy
