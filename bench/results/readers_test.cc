#include "bench/results/readers.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::results {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file with this text, in the folder of the test.
std::string FileOf(const std::string& text) {
  static int number = 0;
  const std::string path = absl::StrCat(::testing::TempDir(), "/readers_test_", ++number);
  EXPECT_TRUE(FileSystem::Real().ReplaceFile(path, text).ok());
  return path;
}

template <typename T>
std::vector<T> ValuesOf(const Nest& leaf) {
  const auto tensor = leaf.tensor();
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  const auto values = tensor->template values<T>();
  EXPECT_TRUE(values.ok()) << values.status();
  return {values->begin(), values->end()};
}

// Lines of the published files, of which the second is changed to have a missing value.
constexpr char kTraining[] =
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K\n"
    "49, ?, 83311, Masters, 15, Married-civ-spouse, Adm-clerical, Husband, White, Male, 0, 0, 20, "
    "United-States, >50K\n\n";
constexpr char kTest[] =
    "|1x3 Cross validator\n"
    "44, State-gov, 77516, Bachelors, 13, Never-married, Sales, Husband, White, Male, 0, 0, 30, "
    "Peru, >50K.\n";

TEST(AdultTest, CategoriesAreNumberedByColumnInTheOrderOfTheTrainingFile) {
  const auto columns = LearnAdultColumns(FileOf(kTraining));
  ASSERT_TRUE(columns.ok()) << columns.status();
  const auto rows = ReadAdult(FileOf(kTraining), *columns);
  ASSERT_TRUE(rows.ok()) << rows.status();
  // The first row has new categories throughout. The second shares four with it.
  EXPECT_THAT(ValuesOf<int64_t>((*rows)["category"]), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15,  //
                                                                  16, 17, 18, 11, 19, 13, 14, 15));
  EXPECT_THAT(ValuesOf<float>((*rows)["label"]), ElementsAre(0, 1));
}

TEST(AdultTest, NumbersAreStandardisedByTheTrainingFile) {
  const auto columns = LearnAdultColumns(FileOf(kTraining));
  ASSERT_TRUE(columns.ok()) << columns.status();
  const auto rows = ReadAdult(FileOf(kTest), *columns);
  ASSERT_TRUE(rows.ok()) << rows.status();
  // Age: 44 is the mean of 39 and 49. capital-loss is the same in all rows. Hours: 30 of 20 and 40.
  EXPECT_THAT(ValuesOf<float>((*rows)["number"]),
              ElementsAre(FloatNear(0, 1e-6), FloatNear(-1, 1e-6), FloatNear(-1, 1e-6),
                          FloatNear(-1, 1e-6), 0, FloatNear(0, 1e-6)));
}

TEST(AdultTest, ACategoryOfTheTestFileAloneIsItsColumnsUnknown) {
  const auto columns = LearnAdultColumns(FileOf(kTraining));
  ASSERT_TRUE(columns.ok()) << columns.status();
  const auto rows = ReadAdult(FileOf(kTest), *columns);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const std::vector<int64_t> categories = ValuesOf<int64_t>((*rows)["category"]);
  EXPECT_EQ(categories[3], 3) << "occupation Sales";
  EXPECT_EQ(categories[7], 7) << "native-country Peru";
  EXPECT_EQ(categories[4], 19) << "relationship Husband, which the training file has";
  EXPECT_THAT(ValuesOf<float>((*rows)["label"]), ElementsAre(1)) << "with a dot";
}

TEST(AdultTest, WideFeaturesAreTheAgeTheCategoriesAndTwoCrosses) {
  const auto columns = LearnAdultColumns(FileOf(kTraining));
  ASSERT_TRUE(columns.ok()) << columns.status();
  const auto rows = ReadAdult(FileOf(kTraining), *columns);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const std::vector<int64_t> wide = ValuesOf<int64_t>((*rows)["wide"]);
  ASSERT_EQ(wide.size(), 2 * kAdultWide);
  // 39 is in the bucket from 35, 49 in the one from 45.
  EXPECT_EQ(wide[0], kAdultCategoryRows + 4);
  EXPECT_EQ(wide[kAdultWide], kAdultCategoryRows + 6);
  EXPECT_EQ(wide[1], 8);
  for (const int64_t row : wide) EXPECT_LT(row, kAdultWideRows);
  // Both have the occupation, but not the education.
  EXPECT_NE(wide[9], wide[kAdultWide + 9]);
  EXPECT_NE(wide[10], wide[kAdultWide + 10]);
}

TEST(AdultTest, BadLinesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1, 2, 3\n", ":1: 3 fields, wanted 15"},
      {"\n39, a, x, b, 13, c, d, e, f, g, 0, 0, 40, h, >50K\n", ":2: \"x\" is not a number"},
      {"39, a, inf, b, 13, c, d, e, f, g, 0, 0, 40, h, >50K\n", ":1: \"inf\" is not a number"},
      {"39, a, 1, b, 13, c, d, e, f, g, 0, 0, 40, h, rich\n", ":1: label \"rich\""},
      {"\n", "no lines"}};
  for (const auto& [text, message] : cases) {
    const absl::Status status = LearnAdultColumns(FileOf(text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  EXPECT_EQ(LearnAdultColumns("/nowhere/adult.data").status().code(), absl::StatusCode::kNotFound);
}

TEST(AdultTest, MoreCategoriesThanTheTableHasRowsAreRefused) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    absl::StrAppend(&text, "39, w", i, ", 1, b, 13, c, d, e, f, g, 0, 0, 40, h, >50K\n");
  const absl::Status status = LearnAdultColumns(FileOf(text)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 160 categories"));
}

TEST(ItemListsTest, AreReadByUser) {
  const auto lists = ReadItemLists(FileOf("0 3 1\n2 4\n1\n2 0 \n"));
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_THAT(*lists, ElementsAre(ElementsAre(3, 1), IsEmpty(), ElementsAre(4, 0)));
}

TEST(ItemListsTest, BadLinesAreNamed) {
  for (const char* const text : {"0 1\n0 x\n", "0 1\n0 -1\n", "0 1\n4000000000 1\n"}) {
    const absl::Status status = ReadItemLists(FileOf(text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(":2: "));
  }
}

TEST(PairsTest, HaveTheShareOfTheirItem) {
  const auto pairs = PairsOf({{3, 1}, {}, {3, 3}});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(ValuesOf<int64_t>((*pairs)["user"]), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(ValuesOf<int64_t>((*pairs)["item"]), ElementsAre(3, 1, 3, 3));
  const float often = std::log(0.75f), once = std::log(0.25f);
  EXPECT_THAT(ValuesOf<float>((*pairs)["log_q"]),
              ElementsAre(FloatNear(often, 1e-6f), FloatNear(once, 1e-6f), FloatNear(often, 1e-6f),
                          FloatNear(often, 1e-6f)));
  EXPECT_EQ(PairsOf({{}, {}}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace divvy::results
