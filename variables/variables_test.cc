#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "variables/layout.h"
#include "variables/variable_spec.h"
#include "variables/variable_table.h"

namespace divvy {
namespace {

// ---- variables ----------------------------------------------------------------------------------

TEST(VariableSpecTest, NamesArePartsJoinedBySlashes) {
  for (const char* name : {"w", "dense/kernel", "a.b-c_D9/0"})
    EXPECT_TRUE(Validate(VariableSpec{name, {2}}).ok()) << name;
  for (const char* name : {"", "/w", "w/", "a//b", "a b", "a/../b", "a/.", "w:0", "größe"}) {
    EXPECT_EQ(Validate(VariableSpec{name, {2}}).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(VariableSpecTest, ANameIsAsShortAsTheWireWantsItWithItsSlots) {
  EXPECT_TRUE(Validate(VariableSpec{std::string(960, 'w'), {2}}).ok());
  EXPECT_EQ(
      Validate(VariableSpec{std::string(961, 'w'), {2}}).message(),
      "the name of a variable has 961 bytes, more than 960: \"" + std::string(60, 'w') + "...\"");
}

TEST(VariableSpecTest, ErrorsNameTheVariableAndTheFix) {
  const auto message = [](const VariableSpec& spec) {
    return std::string(Validate(spec).message());
  };
  EXPECT_EQ(message({"w", {-1, 3}}),
            "variable \"w\": shape [-1, 3] is not fully known: give every dimension");
  VariableSpec text{"w", {2}};
  text.dtype = DType::kString;
  EXPECT_EQ(message(text),
            "variable \"w\": dtype string cannot be trained on parameter servers; use float32");
  VariableSpec whole{"w", {2}};
  whole.dtype = DType::kInt64;
  whole.optimizer.emplace(Adam{0.1});
  EXPECT_EQ(message(whole), "variable \"w\": Adam needs float32, and the dtype is int64");
  EXPECT_NE(message({"w", {2}, Tensor::Vector<float>({1, 2, 3})}), "");
  EXPECT_NE(message({"w", {2}, Zeros(), Adam{0.1, 2.0f}}).find("beta1"), std::string::npos);
}

// ---- layout -------------------------------------------------------------------------------------

VariableLayout Variable(uint32_t id, std::string name) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = std::move(name);
  variable.spec.shape = Shape{7, 3};
  variable.offsets = {0, 3, 5, 7};
  variable.ps = {0, 1, 0};
  return variable;
}

void AddSlots(const Optimizer& optimizer, VariableLayout& variable) {
  for (const SlotSpec& slot : SlotsOf(optimizer)) {
    variable.slots.push_back(slot);
    variable.slot_optimizers.emplace_back(OptimizerName(optimizer));
  }
}

TEST(VariableLayoutTest, FindsShardsSlotsAndSizes) {
  VariableLayout variable = Variable(1, "w");
  EXPECT_EQ(variable.num_shards(), 3);
  EXPECT_EQ(variable.rows(), 7);
  EXPECT_EQ(variable.ShardShape(1), (Shape{2, 3}));
  const std::vector<int> parts = {0, 0, 0, 1, 1, 2, 2};
  for (int64_t row = 0; row < 7; ++row)
    EXPECT_EQ(variable.PartOf(row), parts[static_cast<size_t>(row)]);
  AddSlots(Momentum{0.1}, variable);
  AddSlots(Adam{0.1}, variable);
  EXPECT_EQ(*variable.SlotsFor(Adam{0.2}), (std::vector<uint8_t>{2, 3, 4}));
  EXPECT_EQ(*variable.SlotsFor(Sgd{0.2}), std::vector<uint8_t>());
  EXPECT_EQ(variable.SlotsFor(Ftrl{0.2}), std::nullopt);
  EXPECT_EQ(variable.SlotsFor(Adam{0.2, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true}), std::nullopt)
      << "vhat was not made";
  EXPECT_EQ(variable.SlotNumber("Adam", "v"), 3);
  EXPECT_EQ(variable.SlotNumber("Momentum", "v"), std::nullopt);
  EXPECT_EQ(variable.SlotName(1), "w/Adam/" + SlotsOf(Adam{0.1})[0].name);
  EXPECT_EQ(variable.value_bytes(), 84);
  EXPECT_EQ(variable.slot_bytes(), 3 * 84 + 28);
}

TEST(VariableLayoutTest, AScalarIsOneShardOfOneRow) {
  VariableLayout scalar = Variable(1, "s");
  scalar.spec.shape = Shape{};
  scalar.offsets = {0, 1};
  scalar.ps = {0};
  EXPECT_EQ(scalar.ShardShape(0), Shape());
  EXPECT_EQ(scalar.PartOf(0), 0);
}

TEST(LayoutTest, EachChangeIsANewVersionAndTheOldOneStays) {
  const auto empty = Layout::Empty();
  const auto one = empty->With(Variable(1, "a"));
  const auto two = one->With(Variable(2, "b"));
  EXPECT_EQ(empty->version(), 0u);
  EXPECT_EQ(two->version(), 2u);
  EXPECT_EQ(one->Find("b"), nullptr);
  EXPECT_EQ(two->Find("b")->id, VariableId(2));
}

// Against a std::map, with enough variables for many chunks.
TEST(LayoutTest, ManyChangesInAnyOrderGiveWhatAMapGives) {
  Random random(7);
  std::map<VariableId, std::string> expected;
  std::shared_ptr<const Layout> layout = Layout::Empty();
  for (int change = 0; change < 3000; ++change) {
    const VariableId id(1 + static_cast<uint32_t>(random.Below(600)));
    // A name that another id never has, and that this id sometimes changes.
    const std::string name = absl::StrCat("v", id.value(), random.Chance(0.1) ? "/other" : "");
    expected[id] = name;
    layout = layout->With(Variable(id.value(), name));
  }
  ASSERT_GT(expected.size(), 200u);
  EXPECT_EQ(layout->variables().size(), expected.size());
  std::map<VariableId, VariableLayout> variables;
  for (const auto& [id, variable] : layout->variables()) {
    EXPECT_TRUE(variables.empty() || variables.rbegin()->first < id);
    EXPECT_EQ(expected[id], variable.spec.name);
    EXPECT_EQ(layout->Find(variable.spec.name), &variable);
    EXPECT_EQ(layout->Find(id), &variable);
    variables.emplace(id, variable);
  }
  const auto received = Layout::Received(layout->version(), std::move(variables));
  EXPECT_EQ(received->hash(), layout->hash());
  EXPECT_EQ(received->message_bytes(), layout->message_bytes());
}

// Against a std::set, with enough variables for many chunks, until none is left.
TEST(VariableTableTest, WhatIsErasedIsGoneAndTheRestStays) {
  Random random(8);
  std::set<VariableId> expected;
  VariableTable table;
  for (int change = 0; change < 6000; ++change) {
    const VariableId id(1 + static_cast<uint32_t>(random.Below(600)));
    if (change >= 3000 || random.Chance(0.3)) {
      expected.erase(id);
      table.Erase(id);
    } else {
      expected.insert(id);
      table.Put(Variable(id.value(), absl::StrCat("v", id.value())));
    }
    if (change % 100 != 0) continue;
    ASSERT_EQ(table.size(), expected.size());
    auto next = expected.begin();
    for (const auto& [id, variable] : table) {
      ASSERT_EQ(id, *next++);
      EXPECT_EQ(table.Find(variable.spec.name), &variable);
    }
  }
  for (const VariableId id : std::set<VariableId>(expected)) table.Erase(id);
  EXPECT_TRUE(table.empty());
}

TEST(LayoutTest, TheHashIsOfTheVariablesAlone) {
  const auto a = Layout::Empty()->With(Variable(1, "a"))->With(Variable(2, "b"));
  const auto b =
      Layout::Empty()->With(Variable(2, "c"))->With(Variable(1, "a"))->With(Variable(2, "b"));
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_NE(a->version(), b->version());
  EXPECT_EQ(Layout::Received(7, {})->hash(), Layout::Empty()->hash());
}

TEST(LayoutTest, TheHashTellsWhateverTwoProcessesMustAgreeOn) {
  const auto hash = [](const std::function<void(VariableLayout&)>& change) {
    VariableLayout variable = Variable(1, "w");
    change(variable);
    return Layout::Empty()->With(variable)->hash();
  };
  std::vector<std::function<void(VariableLayout&)>> changes = {
      [](VariableLayout&) {},
      [](VariableLayout& v) { v.id = VariableId(2); },
      [](VariableLayout& v) { v.spec.name = "v"; },
      [](VariableLayout& v) {
        v.spec.shape = Shape{7, 3, 1};
      },
      [](VariableLayout& v) { v.spec.dtype = DType::kInt32; },
      [](VariableLayout& v) { v.spec.aggregation = VariableAggregation::kSum; },
      [](VariableLayout& v) {
        v.offsets = {0, 2, 5, 7};
      },
      [](VariableLayout& v) {
        v.ps = {0, 1, 1};
      },
      [](VariableLayout& v) { v.spec.optimizer = Sgd{0.1}; },
      [](VariableLayout& v) { v.spec.optimizer = Sgd{0.2}; },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{ExponentialDecay{0.1, 10, 0.5}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{InverseTimeDecay{0.1, 10, 0.5}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{PolynomialDecay{0.1, 10}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{CosineDecay{0.1, 10}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{CosineDecay{0.1, 10, 0, 2, 0.3}};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Sgd{PiecewiseConstant{{5}, {0.1, 0.2}}};
      },
      [](VariableLayout& v) { v.spec.optimizer = Momentum{0.1}; },
      [](VariableLayout& v) {
        v.spec.optimizer = Momentum{0.1, 0.9f, true};
      },
      [](VariableLayout& v) { v.spec.optimizer = Adagrad{0.1}; },
      [](VariableLayout& v) { v.spec.optimizer = Adam{0.1}; },
      [](VariableLayout& v) {
        v.spec.optimizer = Adam{0.1, 0.8f};
      },
      [](VariableLayout& v) {
        v.spec.optimizer = Adam{0.1, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true};
      },
      [](VariableLayout& v) { v.spec.optimizer = RowwiseAdagrad{0.1}; },
      [](VariableLayout& v) { v.spec.optimizer = RmsProp{0.1}; },
      [](VariableLayout& v) {
        v.spec.optimizer = RmsProp{0.1, 0.9f, 0, 1e-7f, /*centered=*/true};
      },
      [](VariableLayout& v) { v.spec.optimizer = Ftrl{0.1}; },
      [](VariableLayout& v) { AddSlots(Adam{0.1}, v); },
      [](VariableLayout& v) { AddSlots(Adagrad{0.1}, v); },
      [](VariableLayout& v) {
        AddSlots(Adagrad{0.1, 0.5f}, v);
      }};
  std::map<uint64_t, size_t> seen;
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_TRUE(seen.emplace(hash(changes[i]), i).second)
        << "change " << i << " has the hash of " << seen[hash(changes[i])];
    EXPECT_EQ(hash(changes[i]), hash(changes[i]));
  }
  EXPECT_EQ(hash([](VariableLayout& v) { v.spec.initializer = Ones(); }), hash(changes[0]))
      << "means nothing once the variable is made";
}

TEST(LayoutTest, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto layout = Layout::Empty()
                          ->With(Variable(1, "dense/kernel"))
                          ->With(Variable(2, "dense/bias"))
                          ->With(Variable(3, "embedding"))
                          ->With(Variable(4, "zzz"));
  const absl::Status status = layout->UnknownVariable("dense/kernal");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()),
            "no variable \"dense/kernal\" among 4; the nearest: \"dense/kernel\", \"dense/bias\", "
            "\"embedding\"");
  EXPECT_EQ(Layout::Empty()->UnknownVariable("w").message(),
            "no variable \"w\": none has been created");
}

}  // namespace
}  // namespace divvy
