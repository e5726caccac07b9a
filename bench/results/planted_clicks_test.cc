#include "bench/results/planted_clicks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::results {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All batches of a pass, each leaf with all its rows.
class Pass {
 public:
  Pass(int64_t first, int64_t end, int64_t batch_size) {
    const auto pass = PlantedClicks(first, end, batch_size).Iterate();
    for (;;) {
      const auto batch = pass->Next();
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok() || !batch->has_value()) return;
      sizes.push_back((**batch)["label"].tensor()->shape().dim(0));
      Append(**batch, "label", label);
      Append(**batch, "dense", dense);
      Append(**batch, "planted", planted);
      Append(**batch, "sparse", sparse);
    }
  }
  std::vector<int64_t> sizes, sparse;
  std::vector<float> label, dense, planted;

 private:
  template <typename T>
  static void Append(const Nest& batch, const char* leaf, std::vector<T>& to) {
    const Tensor tensor = *batch[leaf].tensor();
    const absl::Span<const T> values = *tensor.values<T>();
    to.insert(to.end(), values.begin(), values.end());
  }
};

TEST(PlantedClicksTest, TheCardinalitiesAreThoseOfKaggle) {
  int64_t all = 0;
  for (const int64_t categories : kClickCategories) all += categories;
  EXPECT_EQ(all, 33'762'577);
}

TEST(PlantedClicksTest, AClickDependsOnItsNumberAlone) {
  const Pass whole(0, 100, 100), batches(0, 100, 30), part(40, 100, 7);
  EXPECT_THAT(batches.sizes, ElementsAre(30, 30, 30, 10));
  EXPECT_EQ(batches.sparse, whole.sparse);
  EXPECT_EQ(batches.dense, whole.dense);
  EXPECT_EQ(batches.label, whole.label);
  EXPECT_EQ(part.sparse,
            std::vector<int64_t>(whole.sparse.begin() + 40 * kClickFields, whole.sparse.end()));
  EXPECT_EQ(part.planted, std::vector<float>(whole.planted.begin() + 40, whole.planted.end()));
}

TEST(PlantedClicksTest, LabelsFollowTheProbabilitiesOfTheLogits) {
  const Pass clicks(0, 20'000, 1000);
  double expected = 0, clicked = 0, above = 0, clicked_above = 0, expected_above = 0;
  for (size_t i = 0; i < clicks.label.size(); ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(clicks.planted[i])));
    expected += p;
    clicked += clicks.label[i];
    if (clicks.planted[i] < 0) continue;
    ++above;
    expected_above += p;
    clicked_above += clicks.label[i];
  }
  EXPECT_NEAR(clicked / 20'000, expected / 20'000, 0.02);
  ASSERT_GT(above, 2000);
  EXPECT_NEAR(clicked_above / above, expected_above / above, 0.04);
}

// Of n categories with Zipf's law, the share of the most frequent one is 1 / (the sum of k^-1.05).
TEST(PlantedClicksTest, CategoriesFollowZipfsLaw) {
  constexpr int64_t kClicks = 20'000;
  const Pass clicks(0, kClicks, 1000);
  for (const int64_t field : {8, 19, 5, 1, 2}) {  // 3, 4, 24, 583 and 10,131,227 categories
    SCOPED_TRACE(field);
    std::map<int64_t, int64_t> counts;
    for (int64_t i = 0; i < kClicks; ++i) ++counts[clicks.sparse[i * kClickFields + field]];
    EXPECT_LE(counts.size(), kClickCategories[field]);
    if (field != 2) {
      EXPECT_GT(counts.size(), kClickCategories[field] * 95 / 100);
    }
    double sum = 0;
    for (int64_t k = 1; k <= kClickCategories[field]; ++k)
      sum += std::pow(static_cast<double>(k), -1.05);
    int64_t most = 0;
    for (const auto& [category, count] : counts) most = std::max(most, count);
    // The law is made continuous, which gives the first category a little more or less.
    EXPECT_NEAR(static_cast<double>(most) / kClicks * sum, 1, 0.35);
  }
}

TEST(PlantedClicksTest, FieldsDoNotShareCategories) {
  const Pass clicks(0, 500, 500);
  std::map<int64_t, std::set<int64_t>> fields;
  for (size_t i = 0; i < clicks.sparse.size(); ++i)
    fields[clicks.sparse[i]].insert(static_cast<int64_t>(i) % kClickFields);
  for (const auto& [hash, of] : fields) EXPECT_EQ(of.size(), 1) << hash;
}

TEST(PlantedClicksTest, CountsAreWholeNumbersFromZero) {
  for (const float count : Pass(0, 200, 200).dense) {
    EXPECT_GE(count, 0);
    EXPECT_EQ(count, std::floor(count));
  }
}

TEST(PlantedClicksTest, NoClickOrNoBatchIsRefused) {
  for (const Dataset& none :
       {PlantedClicks(0, 0, 10), PlantedClicks(0, 10, 0), PlantedClicks(-1, 10, 5)}) {
    const absl::Status refused = none.Iterate()->Next().status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("give at least one click"));
  }
}

}  // namespace
}  // namespace divvy::results
