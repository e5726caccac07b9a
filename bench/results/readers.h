// Readers of the data sets that no reader of data/dataset.h makes into features. A reader keeps the
// whole file in memory. Thread-safe.
//
// DataLoss: a line that is not in the file's form; the message has file and line. NotFound: no such
// file. A file may be compressed with gzip.
#ifndef DIVVY_BENCH_RESULTS_READERS_H_
#define DIVVY_BENCH_RESULTS_READERS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/results/measures.h"
#include "divvy.h"

namespace divvy::results {

// Calls `take` with every line of the file that is not blank. An error of `take` becomes DataLoss
// with file and line.
absl::Status ForEachLine(const std::string& file,
                         const std::function<absl::Status(absl::string_view line)>& take);

// ---- Adult (UCI): 14 columns and the label, separated by commas and spaces ----------------------

constexpr int kAdultCategories = 8, kAdultNumbers = 6;
// The features of the wide part of a row: a bucket of the age, the categories, and two crosses.
constexpr int kAdultWide = 1 + kAdultCategories + 2;
// The numbers of rows of the tables that the features name.
constexpr int64_t kAdultCategoryRows = 160, kAdultWideRows = 2400;

// What is learned from the training file and used for both files: a number for each category, and
// the mean and standard deviation of each numeric column. "?", a missing value, is a category.
struct AdultColumns {
  // By text; the numbers of all columns differ. A category that the training file lacks has the
  // number of its column's "unknown", below kAdultCategories.
  std::array<std::map<std::string, int64_t, std::less<>>, kAdultCategories> categories;
  std::array<double, kAdultNumbers> means{}, deviations{};
};

// DataLoss also if the file has no line, or more than kAdultCategoryRows categories.
absl::StatusOr<AdultColumns> LearnAdultColumns(const std::string& training_file);

// Returns {"wide": int64 [n, kAdultWide], "category": int64 [n, kAdultCategories], "number":
// float32 [n, kAdultNumbers], "label": float32 [n]}. "number" has the numeric columns, less their
// mean and divided by their deviation. The label is 1 for ">50K". The crosses are (education,
// occupation) and (bucket of the age, education, occupation), hashed, as in "Wide & Deep Learning
// for Recommender Systems" (Cheng et al., 2016) and TensorFlow's tutorial on this data set.
absl::StatusOr<Nest> ReadAdult(const std::string& file, const AdultColumns& columns);

// ---- LightGCN's split of Gowalla: lines "user item item ..." ------------------------------------

// The items of each user. A user without a line, or with a line of one number, has no items. A user
// that has several lines has the items of all.
absl::StatusOr<ItemLists> ReadItemLists(const std::string& file);

// Returns {"user", "item": int64 [n], "log_q": float32 [n]}: a row for each item of each user.
// "log_q" is the logarithm of the item's share of all rows. InvalidArgument: there are no rows.
absl::StatusOr<Nest> PairsOf(const ItemLists& lists);

}  // namespace divvy::results

#endif  // DIVVY_BENCH_RESULTS_READERS_H_
