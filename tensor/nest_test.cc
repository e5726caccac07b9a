// Tests of structured values, and of their conversion from and to C++ types.
#include "tensor/nest.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::absl::InvalidArgumentError;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Tensor Numbers(std::initializer_list<int64_t> values) { return Tensor::Vector<int64_t>(values); }

IndexedSlices TwoRowsOfFive() { return {Numbers({4, 1}), *Tensor::Copy<float>({2, 1}, {1, 2}), 5}; }

Nest OneOfEachKind() {
  return {{"handle", PerWorkerHandle{7}},
          {"list", Nest::List{1.5, 2}},
          {"slices", TwoRowsOfFive()},
          {"tensor", Numbers({1, 2})},
          {"text", "hello"}};
}

const absl::Status& Reason() {
  static const auto* const reason =
      new absl::Status(absl::StatusCode::kUnavailable, "the file went away");
  return *reason;
}

// ---- Paths

TEST(NestTest, APathLeadsToItsLeaf) {
  const Nest nest = OneOfEachKind();
  EXPECT_THAT(*nest["tensor"].tensor()->values<int64_t>(), ElementsAre(1, 2));
  EXPECT_EQ(*nest["list"][0].tensor()->scalar<double>(), 1.5);
  EXPECT_EQ(*nest["list"][size_t{1}].tensor()->scalar<int32_t>(), 2);
  EXPECT_EQ(*nest["text"].text(), "hello");
  EXPECT_EQ(nest["handle"].handle()->id, 7u);
  EXPECT_EQ(nest["slices"].indexed_slices()->num_rows, 5);
}

TEST(NestTest, KnowsItsKindAndSize) {
  const Nest nest = OneOfEachKind();
  EXPECT_EQ(nest.kind(), Nest::Kind::kDict);
  EXPECT_EQ(nest.size(), 5u);
  EXPECT_EQ(nest.dict()->size(), 5u);
  EXPECT_EQ(nest.list(), nullptr);
  EXPECT_EQ(nest["list"].kind(), Nest::Kind::kList);
  EXPECT_EQ(nest["list"].size(), 2u);
  EXPECT_EQ(nest["tensor"].kind(), Nest::Kind::kTensor);
  EXPECT_EQ(nest["tensor"].size(), 0u);
  EXPECT_EQ(nest["slices"].kind(), Nest::Kind::kIndexedSlices);
  EXPECT_EQ(nest["text"].kind(), Nest::Kind::kText);
  EXPECT_EQ(nest["handle"].kind(), Nest::Kind::kHandle);
  EXPECT_EQ(nest["other"].kind(), Nest::Kind::kFailed);
  EXPECT_EQ(Nest().kind(), Nest::Kind::kList);
  EXPECT_EQ(Nest().size(), 0u);
}

TEST(NestTest, OfAKeyThatStandsTwiceTheFirstCounts) {
  const Nest nest = {{"a", 1}, {"a", 2}};
  EXPECT_EQ(nest.size(), 1u);
  EXPECT_EQ(*nest["a"].tensor()->scalar<int32_t>(), 1);
}

TEST(NestTest, AWrongKeyNamesThoseThatExist) {
  const Nest batch = {{"label", 1}, {"image", 2}};
  EXPECT_EQ(batch["imgae"].status(),
            InvalidArgumentError("no \"imgae\" here; there is \"image\", \"label\""));
  EXPECT_EQ(Nest(Nest::Dict{})["image"].status(),
            InvalidArgumentError("no \"image\" here; there is nothing"));
}

TEST(NestTest, AWrongIndexTellsHowManyThereAre) {
  const Nest list = Nest::List{1, 2};
  EXPECT_EQ(list[2].status(), InvalidArgumentError("no element 2 in a list of 2"));
  EXPECT_EQ(list[-1].status(), InvalidArgumentError("element -1 of a list: elements count from 0"));
}

TEST(NestTest, WhatIsNoDictOrListIsSaidWithWhatItIs) {
  const Nest tensor = Numbers({1, 2});
  EXPECT_EQ(tensor["a"].status(), InvalidArgumentError("wanted a dict with \"a\", not int64 [2]"));
  EXPECT_EQ(tensor[0].status(),
            InvalidArgumentError("wanted a list with element 0, not int64 [2]"));
  EXPECT_EQ(tensor[-1].status(),
            InvalidArgumentError("wanted a list with element -1, not int64 [2]"));
  EXPECT_EQ(Nest(Nest::List{1})["a"].status(),
            InvalidArgumentError("wanted a dict with \"a\", not [int32 []]"));
  EXPECT_EQ((Nest{{"a", 1}}[0].status()),
            InvalidArgumentError("wanted a list with element 0, not {\"a\": int32 []}"));
}

TEST(NestTest, AFailureKeepsItsReasonWhateverIsAskedOfIt) {
  const Nest failed = Nest::Failed(Reason());
  EXPECT_EQ(failed.status(), Reason());
  for (const Nest& below :
       {failed["a"], failed[0], failed[size_t{3}], failed[-1], failed["a"][0]["b"]})
    EXPECT_EQ(below.status(), Reason());
  EXPECT_EQ(failed.tensor().status(), Reason());
  EXPECT_EQ(failed.indexed_slices().status(), Reason());
  EXPECT_EQ(failed.sparse_ids().status(), Reason());
  EXPECT_EQ(failed.text().status(), Reason());
  EXPECT_EQ(failed.handle().status(), Reason());
}

TEST(NestTest, TheFirstWrongStepOfAPathIsTheReasonAtItsEnd) {
  const Nest batch = {{"image", 2}};
  EXPECT_EQ(batch["imgae"]["left"][3].tensor().status(),
            InvalidArgumentError("no \"imgae\" here; there is \"image\""));
}

TEST(NestTest, WhatHoldsAFailureHasNotFailed) {
  const Nest list = Nest::List{1, Nest::Failed(Reason())};
  EXPECT_EQ(list.status(), absl::OkStatus());
  EXPECT_EQ(list[0].status(), absl::OkStatus());
  EXPECT_EQ(list[1].status(), Reason());
}

// ---- Leaves

TEST(NestTest, ALeafOfAnotherKindIsSaidWithWhatItIs) {
  EXPECT_EQ(Nest("hello").tensor().status(),
            InvalidArgumentError("wanted a tensor, not \"hello\""));
  EXPECT_EQ(Nest(1.5).indexed_slices().status(),
            InvalidArgumentError("wanted indexed slices, not float64 []"));
  EXPECT_EQ(Nest(TwoRowsOfFive()).text().status(),
            InvalidArgumentError("wanted a text, not slices of 5 rows: float32 [2, 1]"));
  EXPECT_EQ(Nest().handle().status(), InvalidArgumentError("wanted a per-worker handle, not []"));
  EXPECT_EQ(Nest(PerWorkerHandle{7}).tensor().status(),
            InvalidArgumentError("wanted a tensor, not per-worker handle 7"));
  EXPECT_EQ(Nest(1).sparse_ids().status(),
            InvalidArgumentError("wanted sparse ids, a dict of \"ids\", \"row_splits\" and perhaps "
                                 "\"weights\", not int32 []"));
}

TEST(NestTest, IndexedSlicesAreGivenAsTheyWerePutIn) {
  const IndexedSlices wrong{Numbers({9}), Tensor(), 1};
  EXPECT_EQ(Nest(wrong).indexed_slices()->num_rows, 1);
  EXPECT_TRUE(BitwiseEqual(Nest(wrong).indexed_slices()->ids, wrong.ids));
}

TEST(NestTest, SparseIdsAreADictOfTheirParts) {
  const SparseIds sparse{Numbers({3, 1}), Numbers({0, 2}), Tensor::Vector<float>({1, 2})};
  const Nest nest = sparse;
  EXPECT_EQ(nest.ToString(),
            "{\"ids\": int64 [2], \"row_splits\": int64 [2], \"weights\": float32 [2]}");
  const SparseIds again = *nest.sparse_ids();
  EXPECT_TRUE(BitwiseEqual(again.ids, sparse.ids) &&
              BitwiseEqual(again.row_splits, sparse.row_splits) &&
              BitwiseEqual(*again.weights, *sparse.weights));
  EXPECT_EQ(Nest(SparseIds{sparse.ids, sparse.row_splits, {}}).sparse_ids()->weights, std::nullopt);
}

TEST(NestTest, SparseIdsAreCheckedAndOtherKeysPassedOver) {
  EXPECT_TRUE((Nest{{"ids", Numbers({3})}, {"row_splits", Numbers({0, 1})}, {"more", "text"}}
                   .sparse_ids()
                   .ok()));
  EXPECT_EQ((Nest{{"ids", Numbers({3})}, {"row_splits", Numbers({0, 2})}}.sparse_ids().status()),
            InvalidArgumentError("SparseIds: row_splits must rise from 0 to 1, for ids int64 [1]"));
  EXPECT_EQ((Nest{{"ids", Numbers({3})}}.sparse_ids().status()),
            InvalidArgumentError("no \"row_splits\" here; there is \"ids\""));
  EXPECT_EQ((Nest{{"ids", Numbers({3})}, {"row_splits", Numbers({0, 1})}, {"weights", "heavy"}}
                 .sparse_ids()
                 .status()),
            InvalidArgumentError("wanted a tensor, not \"heavy\""));
}

// ---- Whole structures

TEST(FlattenTest, GivesTheTensorsDepthFirstAndKeysInOrder) {
  const Nest nest = {{"b", Nest::List{3, Nest{{"y", 5}, {"x", 4}}}}, {"a", Nest::List{1, 2}}};
  const std::vector<Tensor> leaves = *nest.Flatten();
  std::vector<int32_t> values;
  for (const Tensor& leaf : leaves) values.push_back(*leaf.scalar<int32_t>());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(*Nest().Flatten(), IsEmpty());
  EXPECT_EQ(Nest(1).Flatten()->size(), 1u);
}

TEST(FlattenTest, GivesTheFirstReasonThatItMeets) {
  EXPECT_EQ(Nest(Nest::List{1, "hello", Nest::Failed(Reason())}).Flatten().status(),
            InvalidArgumentError("wanted a tensor, not \"hello\""));
  EXPECT_EQ(Nest(Nest::List{1, Nest::Failed(Reason()), "hello"}).Flatten().status(), Reason());
}

TEST(PackAsTest, PutsTensorsInThePlacesOfTheLeavesOfAnyKind) {
  const Nest nest = {
      {"b", Nest::List{"hello", Nest{{"x", TwoRowsOfFive()}}}}, {"a", 1}, {"none", Nest()}};
  const Nest packed = *nest.PackAs({Numbers({1}), Numbers({2}), Numbers({3})});
  EXPECT_TRUE(BitwiseEqual(packed, {{"a", Numbers({1})},
                                    {"b", Nest::List{Numbers({2}), Nest{{"x", Numbers({3})}}}},
                                    {"none", Nest()}}))
      << packed.ToString();
}

TEST(PackAsTest, RefusesAnotherNumber) {
  const Nest two = Nest::List{1, 2};
  EXPECT_EQ(two.PackAs({Numbers({1})}).status(),
            InvalidArgumentError("PackAs: 1 tensors for a structure with 2 leaves"));
  EXPECT_EQ(two.PackAs({Tensor(), Tensor(), Tensor()}).status(),
            InvalidArgumentError("PackAs: 3 tensors for a structure with 2 leaves"));
  EXPECT_EQ(Nest(Nest::List{1, Nest::Failed(Reason())}).PackAs({Tensor(), Tensor()}).status(),
            Reason());
}

TEST(MapLeavesTest, KeepsTheStructureAndGivesEachLeafOnce) {
  std::vector<std::string> seen;
  const Nest nest = {{"b", Nest::List{1, "hello"}},
                     {"a", TwoRowsOfFive()},
                     {"c", SparseIds{Numbers({3}), Numbers({0, 1}), {}}}};
  const Nest mapped = *nest.MapLeaves([&seen](const Nest& leaf) -> absl::StatusOr<Nest> {
    seen.push_back(leaf.ToString());
    return Nest("leaf");
  });
  EXPECT_THAT(seen, ElementsAre("slices of 5 rows: float32 [2, 1]", "int32 []", "\"hello\"",
                                "int64 [1]", "int64 [2]"));
  EXPECT_EQ(mapped.ToString(),
            R"({"a": "leaf", "b": ["leaf", "leaf"], "c": {"ids": "leaf", "row_splits": "leaf"}})");
}

TEST(MapLeavesTest, TheFirstErrorEndsIt) {
  int calls = 0;
  const auto fail_second = [&calls](const Nest& leaf) -> absl::StatusOr<Nest> {
    if (++calls == 2) return absl::OutOfRangeError("the second");
    return leaf;
  };
  EXPECT_EQ(Nest(Nest::List{1, 2, 3}).MapLeaves(fail_second).status(),
            absl::OutOfRangeError("the second"));
  EXPECT_EQ(calls, 2);
}

TEST(MapLeavesTest, AFailureIsNoLeaf) {
  int calls = 0;
  const auto count = [&calls](const Nest& leaf) -> absl::StatusOr<Nest> {
    ++calls;
    return leaf;
  };
  EXPECT_EQ((Nest{{"a", 1}, {"b", Nest::Failed(Reason())}, {"c", 2}}.MapLeaves(count).status()),
            Reason());
  EXPECT_EQ(calls, 1);
}

TEST(NestTest, WeighsItsValuesAndKeysAnd32BytesForEach) {
  EXPECT_EQ(Nest().size_bytes(), 32);
  EXPECT_EQ(Nest(Numbers({1, 2})).size_bytes(), 32 + 16);
  EXPECT_EQ(Nest("hello").size_bytes(), 32 + 5);
  EXPECT_EQ(Nest(PerWorkerHandle{}).size_bytes(), 32);
  EXPECT_EQ(Nest(TwoRowsOfFive()).size_bytes(), 32 + 16 + 8);
  EXPECT_EQ((Nest{{"abc", Nest::List{1}}}.size_bytes()), 32 + 3 + 32 + 32 + 4);
}

TEST(NestTest, PrintsItsStructureNotItsValues) {
  EXPECT_EQ(
      OneOfEachKind().ToString(),
      R"({"handle": per-worker handle 7, "list": [float64 [], int32 []], "slices": slices of 5 rows: float32 [2, 1], "tensor": int64 [2], "text": "hello"})");
  EXPECT_EQ(Nest::Failed(Reason()).ToString(), "(failed: the file went away)");
}

TEST(NestBitwiseEqualTest, WantsTheSameStructureAndLeaves) {
  EXPECT_TRUE(BitwiseEqual(OneOfEachKind(), OneOfEachKind()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(BitwiseEqual(Nest(nan), Nest(nan)));
  EXPECT_TRUE(BitwiseEqual(Nest::Failed(Reason()), Nest::Failed(Reason())));
}

TEST(NestBitwiseEqualTest, FindsOneThatDiffers) {
  IndexedSlices more = TwoRowsOfFive(), others = TwoRowsOfFive();
  more.num_rows = 6;
  others.ids = Numbers({4, 2});
  const std::vector<Nest> all = {Nest(),
                                 Nest(Nest::Dict{}),
                                 Nest::List{1},
                                 Nest::List{2},
                                 Nest::List{1, 1},
                                 Nest{{"a", 1}},
                                 Nest{{"a", 2}},
                                 Nest{{"b", 1}},
                                 Nest("a"),
                                 Nest("b"),
                                 Nest(PerWorkerHandle{1}),
                                 Nest(PerWorkerHandle{2}),
                                 Nest(0.0f),
                                 Nest(-0.0f),
                                 Nest(TwoRowsOfFive()),
                                 Nest(more),
                                 Nest(others),
                                 Nest::Failed(Reason()),
                                 Nest::Failed(InvalidArgumentError("x"))};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j)
      EXPECT_EQ(BitwiseEqual(all[i], all[j]), i == j)
          << all[i].ToString() << " and " << all[j].ToString();
  }
}

// ---- C++ types

template <typename T>
T ThereAndBack(const T& value) {
  return *NestCodec<T>::Decode(NestCodec<T>::Encode(value));
}

template <typename T>
absl::Status Refusal(const Nest& nest) {
  return NestCodec<T>::Decode(nest).status();
}

TEST(NestCodecTest, NumbersTravelAsTheirDTypeOrAsInt64) {
  EXPECT_EQ(Nest(true).ToString(), "bool []");
  EXPECT_EQ(Nest(int32_t{1}).ToString(), "int32 []");
  EXPECT_EQ(Nest(1.5f).ToString(), "float32 []");
  EXPECT_EQ(Nest(1.5).ToString(), "float64 []");
  for (const Nest& nest :
       {Nest(uint8_t{1}), Nest(int16_t{1}), Nest(uint32_t{1}), Nest(int64_t{1}), Nest(uint64_t{1})})
    EXPECT_EQ(nest.ToString(), "int64 []");
}

TEST(NestCodecTest, EachNumberComesBack) {
  EXPECT_EQ(ThereAndBack(std::numeric_limits<int64_t>::min()), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ThereAndBack(std::numeric_limits<uint64_t>::max()),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ThereAndBack(std::numeric_limits<int8_t>::min()), std::numeric_limits<int8_t>::min());
  EXPECT_EQ(ThereAndBack(std::numeric_limits<uint32_t>::max()),
            std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(ThereAndBack(std::numeric_limits<double>::infinity()),
            std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(ThereAndBack(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(ThereAndBack(true));
}

TEST(NestCodecTest, ANumberThatTheTypeCannotHoldIsRefused) {
  const absl::Status why =
      InvalidArgumentError("a number that does not fit the wanted type: int64 []");
  EXPECT_EQ(Refusal<uint8_t>(int64_t{256}), why);
  EXPECT_EQ(Refusal<uint8_t>(int64_t{-1}), why);
  EXPECT_EQ(Refusal<int8_t>(int64_t{128}), why);
  EXPECT_EQ(Refusal<uint32_t>(int64_t{-1}), why);
  EXPECT_EQ(Refusal<uint32_t>(int64_t{1} << 32), why);
}

TEST(NestCodecTest, ANumberOfAnotherDTypeOrSeveralAreRefused) {
  EXPECT_EQ(Refusal<int64_t>(int32_t{1}),
            InvalidArgumentError("the tensor is int32 []; wanted int64"));
  EXPECT_EQ(Refusal<double>(1.0f),
            InvalidArgumentError("the tensor is float32 []; wanted float64"));
  EXPECT_EQ(Refusal<int64_t>(Numbers({1, 2})),
            InvalidArgumentError("wanted one element, not int64 [2]"));
  EXPECT_EQ(Refusal<bool>("true"), InvalidArgumentError("wanted a tensor, not \"true\""));
}

TEST(NestCodecTest, CollectionsComeBack) {
  using Many = std::tuple<std::vector<int64_t>, std::map<std::string, std::string>,
                          std::pair<float, bool>, std::optional<int64_t>, std::monostate>;
  const Many many{{1, 2, 3}, {{"a", "x"}, {"b", "y"}}, {1.5f, true}, 7, {}};
  EXPECT_EQ(ThereAndBack(many), many);
  const Many empty{{}, {}, {}, std::nullopt, {}};
  EXPECT_EQ(ThereAndBack(empty), empty);
  EXPECT_EQ(
      NestCodec<Many>::Encode(many).ToString(),
      R"([[int64 [], int64 [], int64 []], {"a": "x", "b": "y"}, [float32 [], bool []], [int64 []], []])");
}

TEST(NestCodecTest, AnOptionalNothingIsSomething) {
  EXPECT_TRUE(ThereAndBack<std::optional<std::monostate>>(std::monostate()).has_value());
  EXPECT_FALSE(ThereAndBack<std::optional<std::monostate>>(std::nullopt).has_value());
}

TEST(NestCodecTest, LeavesComeBack) {
  EXPECT_TRUE(BitwiseEqual(ThereAndBack(Numbers({1, 2})), Numbers({1, 2})));
  EXPECT_EQ(ThereAndBack(TwoRowsOfFive()).num_rows, 5);
  EXPECT_TRUE(
      BitwiseEqual(ThereAndBack(SparseIds{Numbers({3}), Numbers({0, 1}), {}}).ids, Numbers({3})));
  EXPECT_TRUE(BitwiseEqual(ThereAndBack(OneOfEachKind()), OneOfEachKind()));
}

TEST(NestCodecTest, AnotherStructureIsSaidWithWhatItIs) {
  EXPECT_EQ(Refusal<std::vector<float>>(Numbers({1, 2})),
            InvalidArgumentError("wanted a list, not int64 [2]"));
  EXPECT_EQ((Refusal<std::vector<float>>(Nest{{"a", 1}})),
            InvalidArgumentError("wanted a list, not {\"a\": int32 []}"));
  EXPECT_EQ((Refusal<std::pair<float, float>>(Nest::List{1.5f})),
            InvalidArgumentError("wanted a list of 2, not [float32 []]"));
  EXPECT_EQ((Refusal<std::tuple<float>>(Nest::List{1.5f, 1.5f})),
            InvalidArgumentError("wanted a list of 1, not [float32 [], float32 []]"));
  EXPECT_EQ(Refusal<std::optional<float>>(Nest::List{1.5f, 1.5f}),
            InvalidArgumentError("wanted a list of 1, not [float32 [], float32 []]"));
  EXPECT_EQ((Refusal<std::map<std::string, float>>(Nest())),
            InvalidArgumentError("wanted a dict, not []"));
  EXPECT_EQ(Refusal<std::monostate>(1), InvalidArgumentError("wanted nothing, not int32 []"));
  EXPECT_EQ(Refusal<std::monostate>(Nest::List{1}),
            InvalidArgumentError("wanted nothing, not [int32 []]"));
}

TEST(NestCodecTest, AnElementThatDoesNotFitIsTheReason) {
  const absl::Status why = InvalidArgumentError("wanted a text, not int32 []");
  EXPECT_EQ(Refusal<std::vector<std::string>>(Nest::List{"a", 1}), why);
  EXPECT_EQ((Refusal<std::map<std::string, std::string>>(Nest{{"a", 1}})), why);
  EXPECT_EQ(Refusal<std::optional<std::string>>(Nest::List{1}), why);
  EXPECT_EQ((Refusal<std::pair<std::string, std::string>>(Nest::List{"a", 1})), why);
  EXPECT_EQ((Refusal<std::tuple<float, std::string>>(Nest::List{1.5f, 1})), why);
}

TEST(NestCodecTest, AFailureIsItsReasonForEachType) {
  const Nest failed = Nest::Failed(Reason());
  for (const absl::Status& status :
       {Refusal<bool>(failed), Refusal<uint16_t>(failed), Refusal<std::string>(failed),
        Refusal<Tensor>(failed), Refusal<IndexedSlices>(failed), Refusal<SparseIds>(failed),
        Refusal<Nest>(failed), Refusal<std::monostate>(failed), Refusal<std::vector<float>>(failed),
        Refusal<std::map<std::string, float>>(failed), Refusal<std::optional<float>>(failed),
        Refusal<std::pair<float, float>>(failed), Refusal<std::tuple<>>(failed)}) {
    EXPECT_EQ(status, Reason());
  }
}

}  // namespace
}  // namespace divvy
