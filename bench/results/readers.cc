#include "bench/results/readers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace divvy::results {
namespace {

// A leaf under construction.
template <typename T>
struct Column {
  std::vector<T> values;
  int64_t width;

  absl::StatusOr<Nest> Done() const {
    const int64_t rows = static_cast<int64_t>(values.size()) / width;
    ASSIGN_OR_RETURN(const Tensor tensor,
                     Tensor::Copy<T>(width == 1 ? Shape{rows} : Shape{rows, width},
                                     absl::MakeConstSpan(values)));
    return Nest(tensor);
  }
};

// ---- Adult

constexpr size_t kColumns = 15, kLabel = 14, kAge = 0;
constexpr std::array<size_t, kAdultCategories> kCategoryColumns = {1, 3, 5, 6, 7, 8, 9, 13};
constexpr std::array<size_t, kAdultNumbers> kNumberColumns = {0, 2, 4, 10, 11, 12};
constexpr size_t kEducation = 1, kOccupation = 3;  // in kCategoryColumns
// TensorFlow's tutorial has these bounds.
constexpr std::array<double, 10> kAgeBounds = {18, 25, 30, 35, 40, 45, 50, 55, 60, 65};
constexpr int64_t kAgeBuckets = kAgeBounds.size() + 1;
// The wide table: the categories, the buckets of the age, then a range for each cross.
constexpr int64_t kCrossRows = 1000, kFirstCross = kAdultCategoryRows + kAgeBuckets;
static_assert(kFirstCross + 2 * kCrossRows <= kAdultWideRows, "the wide table is too small");

struct AdultRow {
  std::array<absl::string_view, kAdultCategories> categories;
  std::array<double, kAdultNumbers> numbers;
  float label;
};

absl::StatusOr<AdultRow> ParseAdult(absl::string_view line) {
  std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  if (fields.size() != kColumns)
    return absl::DataLossError(absl::StrCat(fields.size(), " fields, wanted ", kColumns));
  for (absl::string_view& field : fields) field = absl::StripAsciiWhitespace(field);
  AdultRow row;
  for (size_t i = 0; i < kCategoryColumns.size(); ++i)
    row.categories[i] = fields[kCategoryColumns[i]];
  for (size_t i = 0; i < kNumberColumns.size(); ++i) {
    const absl::string_view text = fields[kNumberColumns[i]];
    if (!absl::SimpleAtod(text, &row.numbers[i]) || !std::isfinite(row.numbers[i]))
      return absl::DataLossError(absl::StrCat("\"", text, "\" is not a number"));
  }
  // The published test file ends its labels with a dot.
  const absl::string_view label = absl::StripSuffix(fields[kLabel], ".");
  if (label != ">50K" && label != "<=50K")
    return absl::DataLossError(absl::StrCat("label \"", label, "\", wanted >50K or <=50K"));
  row.label = label == ">50K" ? 1 : 0;
  return row;
}

int64_t NumberOf(const AdultColumns& columns, size_t column, absl::string_view category) {
  const auto found = columns.categories[column].find(category);
  return found == columns.categories[column].end() ? static_cast<int64_t>(column) : found->second;
}

int64_t AgeBucket(double age) {
  return std::upper_bound(kAgeBounds.begin(), kAgeBounds.end(), age) - kAgeBounds.begin();
}

int64_t CrossRow(int cross, uint64_t hash) {
  return kFirstCross + cross * kCrossRows +
         static_cast<int64_t>(MixSeeds(hash, static_cast<uint64_t>(cross)) % kCrossRows);
}

// The published test file begins with a line of words.
bool IsHeading(absl::string_view line) { return line[0] == '|'; }

// ---- Gowalla

// No data set of this form has more; a larger number is a damaged file.
constexpr int64_t kMostUsers = 100'000'000;

absl::Status AddItems(absl::string_view line, ItemLists& lists) {
  std::vector<int64_t> numbers;
  for (const absl::string_view text : absl::StrSplit(line, ' ', absl::SkipWhitespace())) {
    int64_t number;
    if (!absl::SimpleAtoi(text, &number) || number < 0 || number >= kMostUsers)
      return absl::DataLossError(
          absl::StrCat("\"", text, "\" is not a number in [0, ", kMostUsers, ")"));
    numbers.push_back(number);
  }
  const auto user = static_cast<size_t>(numbers[0]);
  if (user >= lists.size()) lists.resize(user + 1);
  lists[user].insert(lists[user].end(), numbers.begin() + 1, numbers.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status ForEachLine(const std::string& file,
                         const std::function<absl::Status(absl::string_view line)>& take) {
  const std::unique_ptr<DatasetIterator> lines = Dataset::TextLines(file).Iterate();
  for (int64_t number = 1;; ++number) {
    ASSIGN_OR_RETURN(const std::optional<Nest> element, lines->Next());
    if (!element.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string text, element->text());
    const absl::string_view line = absl::StripAsciiWhitespace(text);
    if (line.empty()) continue;
    if (const absl::Status status = take(line); !status.ok())
      return absl::DataLossError(absl::StrCat(file, ":", number, ": ", status.message()));
  }
}

absl::StatusOr<AdultColumns> LearnAdultColumns(const std::string& training_file) {
  AdultColumns columns;
  std::array<double, kAdultNumbers> squares{};
  double rows = 0;
  int64_t next = kAdultCategories;
  RETURN_IF_ERROR(ForEachLine(training_file, [&](absl::string_view line) -> absl::Status {
    if (IsHeading(line)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const AdultRow row, ParseAdult(line));
    for (size_t i = 0; i < row.categories.size(); ++i) {
      const auto [added, is_new] = columns.categories[i].emplace(row.categories[i], next);
      if (is_new && ++next > kAdultCategoryRows)
        return absl::DataLossError(absl::StrCat("more than ", kAdultCategoryRows, " categories"));
    }
    for (size_t i = 0; i < row.numbers.size(); ++i) {
      columns.means[i] += row.numbers[i];
      squares[i] += row.numbers[i] * row.numbers[i];
    }
    rows += 1;
    return absl::OkStatus();
  }));
  if (rows == 0) return absl::DataLossError(absl::StrCat(training_file, ": no lines"));
  for (size_t i = 0; i < squares.size(); ++i) {
    double& mean = columns.means[i];
    mean /= rows;
    const double variance = squares[i] / rows - mean * mean;
    columns.deviations[i] = variance > 0 ? std::sqrt(variance) : 1;
  }
  return columns;
}

absl::StatusOr<Nest> ReadAdult(const std::string& file, const AdultColumns& columns) {
  Column<int64_t> wide{{}, kAdultWide}, category{{}, kAdultCategories};
  Column<float> number{{}, kAdultNumbers}, label{{}, 1};
  RETURN_IF_ERROR(ForEachLine(file, [&](absl::string_view line) -> absl::Status {
    if (IsHeading(line)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const AdultRow row, ParseAdult(line));
    const int64_t age = AgeBucket(row.numbers[kAge]);
    wide.values.push_back(kAdultCategoryRows + age);
    for (size_t i = 0; i < row.categories.size(); ++i) {
      const int64_t id = NumberOf(columns, i, row.categories[i]);
      wide.values.push_back(id);
      category.values.push_back(id);
    }
    const uint64_t pair =
        MixSeeds(HashText(row.categories[kEducation]), HashText(row.categories[kOccupation]));
    wide.values.push_back(CrossRow(0, pair));
    wide.values.push_back(CrossRow(1, MixSeeds(pair, static_cast<uint64_t>(age))));
    for (size_t i = 0; i < row.numbers.size(); ++i)
      number.values.push_back(
          static_cast<float>((row.numbers[i] - columns.means[i]) / columns.deviations[i]));
    label.values.push_back(row.label);
    return absl::OkStatus();
  }));
  ASSIGN_OR_RETURN(const Nest wides, wide.Done());
  ASSIGN_OR_RETURN(const Nest categories, category.Done());
  ASSIGN_OR_RETURN(const Nest numbers, number.Done());
  ASSIGN_OR_RETURN(const Nest labels, label.Done());
  return Nest{{"wide", wides}, {"category", categories}, {"number", numbers}, {"label", labels}};
}

absl::StatusOr<ItemLists> ReadItemLists(const std::string& file) {
  ItemLists lists;
  RETURN_IF_ERROR(ForEachLine(file, [&](absl::string_view line) { return AddItems(line, lists); }));
  return lists;
}

absl::StatusOr<Nest> PairsOf(const ItemLists& lists) {
  Column<int64_t> user{{}, 1}, item{{}, 1};
  std::vector<double> counts;
  for (size_t u = 0; u < lists.size(); ++u) {
    for (const int64_t i : lists[u]) {
      user.values.push_back(static_cast<int64_t>(u));
      item.values.push_back(i);
      if (static_cast<size_t>(i) >= counts.size()) counts.resize(static_cast<size_t>(i) + 1);
      counts[static_cast<size_t>(i)] += 1;
    }
  }
  if (user.values.empty()) return absl::InvalidArgumentError("no user has an item");
  Column<float> log_q{{}, 1};
  const double total = static_cast<double>(item.values.size());
  for (const int64_t i : item.values)
    log_q.values.push_back(static_cast<float>(std::log(counts[static_cast<size_t>(i)] / total)));
  ASSIGN_OR_RETURN(const Nest users, user.Done());
  ASSIGN_OR_RETURN(const Nest items, item.Done());
  ASSIGN_OR_RETURN(const Nest log_qs, log_q.Done());
  return Nest{{"user", users}, {"item", items}, {"log_q", log_qs}};
}

}  // namespace divvy::results
