// Crosses of features: of numbers, of batches, of lists, and errors.
#include "data/cross.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "data/dataset.h"
#include "data/stacking.h"
#include "data/testing/seek_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T = int64_t>
std::vector<T> Values(const Nest& leaf) {
  const Tensor tensor = *leaf.tensor();
  const absl::Span<const T> values = *tensor.values<T>();
  return std::vector<T>(values.begin(), values.end());
}

Nest Scalar(int64_t value) { return Nest(Tensor::Scalar<int64_t>(value)); }
Nest Vector(const std::vector<int64_t>& values) { return Nest(Tensor::Vector<int64_t>(values)); }

Nest Lists(const std::vector<int64_t>& ids, const std::vector<int64_t>& splits) {
  return Nest(SparseIds{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(splits), {}});
}

Nest Weighted(const std::vector<int64_t>& ids, const std::vector<int64_t>& splits,
              const std::vector<float>& weights) {
  return Nest(SparseIds{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(splits),
                        Tensor::Vector<float>(weights)});
}

std::string ErrorOf(const absl::StatusOr<Nest>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

// Tables are trained with these: they never change.
TEST(CrossKeyTest, HasTheseValuesForEver) {
  EXPECT_EQ(CrossKey({3, 5}), -8258806148466212049);
  EXPECT_EQ(CrossKey({5, 3}), 4234863694274140643);
  EXPECT_EQ(CrossKey({3, 5}, "x"), 7681866449702458519);
  EXPECT_EQ(CrossKey({-1, 0, int64_t{1} << 62}), -542670096618855446);
  EXPECT_EQ(CrossKey({7}), 1300955537930879614);
}

TEST(CrossTest, OfNumbersIsAddedUnderTheNameOfBoth) {
  const Nest element = {{"a", Scalar(3)}, {"b", Scalar(5)}, {"y", Nest(1.5f)}};
  const Nest crossed = *Cross({"a", "b"}, 1000)(element);
  EXPECT_EQ(crossed.ToString(),
            "{\"a\": int64 [], \"a_X_b\": int64 [], \"b\": int64 [], \"y\": float32 []}");
  EXPECT_THAT(Values(crossed["a_X_b"]), ElementsAre(567));
  EXPECT_THAT(Values((*Cross({"b", "a"}, 1000)(element))["b_X_a"]), ElementsAre(643));
  EXPECT_THAT(Values((*Cross({"a", "b"}, 0)(element))["a_X_b"]), ElementsAre(-8258806148466212049));
  EXPECT_THAT(Values((*Cross({"a", "b"}, 1000, {"ab", "x"})(element))["ab"]), ElementsAre(519));
  EXPECT_THAT(Values((*Cross({"a"}, 1000, {"hashed"})(element))["hashed"]),
              ElementsAre((static_cast<uint64_t>(CrossKey({3})) % 1000)));
}

TEST(CrossTest, TakesEveryTypeOfInteger) {
  const Nest element = {{"a", Nest(Tensor::Vector<int32_t>({3, -1}))},
                        {"b", Nest(Tensor::Vector<uint8_t>({5, 255}))},
                        {"c", Vector({0, 7})}};
  EXPECT_THAT(Values((*Cross({"a", "b", "c"}, 0)(element))["a_X_b_X_c"]),
              ElementsAre(CrossKey({3, 5, 0}), CrossKey({-1, 255, 7})));
}

TEST(CrossTest, OfListsIsEveryCombinationInEachRow) {
  const Nest batch = {{"a", Lists({1, 2, 3}, {0, 2, 2, 3})}, {"b", Lists({7, 8, 9}, {0, 2, 3, 3})}};
  const Nest crossed = (*Cross({"a", "b"}, 0)(batch))["a_X_b"];
  EXPECT_THAT(Values(crossed["ids"]),
              ElementsAre(CrossKey({1, 7}), CrossKey({1, 8}), CrossKey({2, 7}), CrossKey({2, 8})));
  EXPECT_THAT(Values(crossed["row_splits"]), ElementsAre(0, 4, 4, 4));
  EXPECT_EQ(crossed.size(), 2u);
}

TEST(CrossTest, OfListsAndTensorsTakesTheTensorsRows) {
  const Nest batch = {{"a", Lists({1, 2, 3}, {0, 2, 3})},
                      {"b", Vector({7, 8})},
                      {"c", Nest(*Tensor::Copy<int64_t>({2, 2}, {4, 5, 6, 4}))}};
  const Nest ab = (*Cross({"a", "b"}, 0)(batch))["a_X_b"];
  EXPECT_THAT(Values(ab["ids"]), ElementsAre(CrossKey({1, 7}), CrossKey({2, 7}), CrossKey({3, 8})));
  EXPECT_THAT(Values(ab["row_splits"]), ElementsAre(0, 2, 3));
  const Nest ca = (*Cross({"c", "a"}, 0)(batch))["c_X_a"];
  EXPECT_THAT(Values(ca["ids"]), ElementsAre(CrossKey({4, 1}), CrossKey({4, 2}), CrossKey({5, 1}),
                                             CrossKey({5, 2}), CrossKey({6, 3}), CrossKey({4, 3})));
  // An element: a row of its own.
  const Nest element = {{"a", Lists({1, 2}, {0, 2})}, {"b", Scalar(7)}, {"c", Vector({4, 5})}};
  EXPECT_THAT(Values((*Cross({"a", "b"}, 0)(element))["a_X_b"]["ids"]),
              ElementsAre(CrossKey({1, 7}), CrossKey({2, 7})));
  EXPECT_THAT(Values((*Cross({"c", "b", "a"}, 0)(element))["c_X_b_X_a"]["row_splits"]),
              ElementsAre(0, 4));
}

TEST(CrossTest, WeightsAreMultiplied) {
  const Nest batch = {{"a", Weighted({1, 2}, {0, 2}, {0.5f, 2})},
                      {"b", Weighted({7, 8}, {0, 2}, {3, 4})},
                      {"c", Vector({9})}};
  const Nest crossed = (*Cross({"a", "c", "b"}, 10)(batch))["a_X_c_X_b"];
  EXPECT_THAT(Values<float>(crossed["weights"]), ElementsAre(1.5f, 2, 6, 8));
  EXPECT_THAT(Values<float>((*Cross({"c", "a"}, 10)(batch))["c_X_a"]["weights"]),
              ElementsAre(0.5f, 2));
}

TEST(CrossTest, OfNothingIsNothing) {
  const Nest batch = {{"a", Lists({}, {0})}, {"b", Lists({}, {0})}, {"c", Vector({})}};
  const Nest crossed = (*Cross({"a", "b", "c"}, 10)(batch))["a_X_b_X_c"];
  EXPECT_THAT(Values(crossed["ids"]), IsEmpty());
  EXPECT_THAT(Values(crossed["row_splits"]), ElementsAre(0));
}

// Random rows, some without values, as elements and as batches.
Nest RandomElement(Random& random) {
  const auto list = [&random] {
    std::vector<int64_t> ids(random.Below(4));
    for (int64_t& id : ids) id = static_cast<int64_t>(random.Next());
    return Lists(ids, {0, static_cast<int64_t>(ids.size())});
  };
  return {{"a", list()},
          {"b", list()},
          {"c", Scalar(static_cast<int64_t>(random.Below(5)))},
          {"d", Scalar(static_cast<int64_t>(random.Below(5)))}};
}

TEST(CrossTest, OfABatchIsTheBatchOfTheCrosses) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    std::vector<Nest> elements;
    for (int i = 0; i < 30; ++i) elements.push_back(RandomElement(random));
    const Dataset rows = Dataset::FromTensorSlices(*StackRows(elements));
    for (const std::vector<std::string>& features :
         {std::vector<std::string>{"a", "b"}, {"c", "d"}, {"c", "b", "a"}, {"d"}}) {
      const auto cross = Cross(features, 1000, {"crossed"});
      const Dataset each = rows.Map(cross), together = rows.MapBatches(cross, 7);
      const std::vector<Nest> batches = PlainPass(each.Batch(30));
      ASSERT_EQ(batches.size(), 1u);
      EXPECT_TRUE(BitwiseEqual(batches[0], PlainPass(together.Batch(30))[0]));
      EXPECT_TRUE(BitwiseEqual(batches[0], PlainPass(rows.Batch(30).Map(cross))[0]));
      ExpectEveryPositionCanBeSought(each, seed);
      ExpectEveryPositionCanBeSought(together.Shuffle(8, seed).Batch(4), seed);
    }
  }
}

TEST(CrossTest, SpreadsOverItsBuckets) {
  std::set<int64_t> buckets;
  const auto cross = Cross({"a", "b"}, 1 << 20);
  for (int64_t a = 0; a < 100; ++a) {
    for (int64_t b = 0; b < 100; ++b)
      buckets.insert(Values((*cross({{"a", Scalar(a)}, {"b", Scalar(b)}}))["a_X_b"])[0]);
  }
  // 10,000 of a million: about 48 collide.
  EXPECT_GT(buckets.size(), 9900u);
}

TEST(CrossTest, RefusesWhatCannotBeCrossedByName) {
  const Nest batch = {{"a", Vector({1, 2})},     {"b", Vector({1, 2, 3})},
                      {"f", Nest(1.5f)},         {"l", Lists({1, 2}, {0, 1, 2})},
                      {"m", Lists({1}, {0, 1})}, {"t", Nest("text")},
                      {"a_X_l", Vector({1})}};
  EXPECT_THAT(ErrorOf(Cross({"a", "z"}, 10)(batch)),
              AllOf(HasSubstr("Cross of a, z: feature \"z\": "), HasSubstr("\"b\"")));
  EXPECT_THAT(ErrorOf(Cross({"a", "f"}, 10)(batch)),
              HasSubstr("feature \"f\": is float32 []: only integers on the CPU can be crossed"));
  EXPECT_THAT(ErrorOf(Cross({"a", "t"}, 10)(batch)),
              HasSubstr("Make keys of texts before (TextKeys, TextsToKeys)"));
  EXPECT_EQ(ErrorOf(Cross({"a", "b"}, 10)(batch)),
            "Cross of a, b: feature \"a\" has the shape [2], and \"b\" [3]: they must be the same");
  EXPECT_EQ(ErrorOf(Cross({"l", "m"}, 10)(batch)),
            "Cross of l, m: feature \"l\" has 2 rows, and \"m\" has 1: they must have as many");
  EXPECT_EQ(ErrorOf(Cross({"b", "l"}, 10)(batch)),
            "Cross of b, l: feature \"l\" has 2 rows, and \"b\" has the shape [3]: they must have "
            "as many");
  EXPECT_THAT(ErrorOf(Cross({"a", "l"}, 10)(batch)),
              HasSubstr("the element has a \"a_X_l\" already: give CrossOptions a name"));
  EXPECT_THAT(ErrorOf(Cross({}, 10)(batch)), HasSubstr("no features: give it at least 1"));
  EXPECT_THAT(ErrorOf(Cross({"a", "a"}, 10)(batch)), HasSubstr("a feature is named twice"));
  EXPECT_THAT(ErrorOf(Cross({"a"}, -1)(batch)),
              HasSubstr("-1 buckets: give the number of rows of the table, or 0"));
  EXPECT_THAT(ErrorOf(Cross({"a"}, 10)(Vector({1}))), HasSubstr("the element is no dict, but "));
}

TEST(CrossTest, RefusesAFloodOfCombinations) {
  const std::vector<int64_t> many(10'000);
  const Nest list = Lists(many, {0, 10'000});
  EXPECT_THAT(ErrorOf(Cross({"a", "b"}, 10)({{"a", list}, {"b", list}})),
              HasSubstr("Cross of a, b: more than 67108864 combinations in one element or batch"));
  // As many factors as would overflow a count of 64 bits; one empty list makes it nothing.
  Nest::Dict dict;
  std::vector<std::string> features;
  for (int i = 0; i < 6; ++i) {
    features.push_back(absl::StrCat("f", i));
    dict.emplace(features.back(), list);
  }
  EXPECT_THAT(ErrorOf(Cross(features, 10)(Nest(dict))), HasSubstr("more than 67108864"));
  dict["f5"] = Lists({}, {0, 0});
  EXPECT_TRUE(Cross(features, 10)(Nest(dict)).ok());
}

}  // namespace
}  // namespace divvy
