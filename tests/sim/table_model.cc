#include "tests/sim/table_model.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "variables/table_keys.h"

namespace divvy::sim {
namespace {

constexpr auto kWidth = static_cast<size_t>(kTableWidth);

bool IsWithin(int64_t key, int64_t first, int64_t end) {
  const int64_t bucket = BucketOf(MixKey(key));
  return first <= bucket && bucket < end;
}

// Removes the rows of the buckets for which `is_over(row)` is true.
template <typename IsOver>
int64_t RemoveIf(TableModel::Rows& rows, int64_t first, int64_t end, const IsOver& is_over) {
  int64_t removed = 0;
  for (auto row = rows.begin(); row != rows.end();) {
    const bool goes = IsWithin(row->first, first, end) && is_over(row->second);
    removed += goes;
    row = goes ? rows.erase(row) : std::next(row);
  }
  return removed;
}

std::string TextOf(const TableModel::Row& row) {
  return absl::StrCat(row.count, " steps until minute ", row.minute);
}

}  // namespace

float TableModel::ValueAfter(int64_t writes) const {
  return static_cast<float>(write_ == TableWrite::kAdd ? writes : writes * (writes + 1) / 2);
}

float TableModel::ValueOf(int64_t key) const {
  const auto row = rows_.find(key);
  return row == rows_.end() ? 0 : ValueAfter(row->second.writes);
}

// Whether the key gets a row. `row` becomes what is known of its steps so far.
bool TableModel::Admits(int64_t key, Row& row) {
  const auto* after = std::get_if<AdmitAfter>(&rules_.admission);
  if (after == nullptr) return true;
  if (after->counter_bytes > 0) {
    int64_t& counted = filter_[key];
    row.count = counted;
    if (counted + 1 >= after->steps) return true;
    ++counted;
    return false;
  }
  if (const auto waits = waiting_.find(key); waits != waiting_.end()) row = waits->second;
  if (row.count + 1 < after->steps) return false;
  waiting_.erase(key);
  return true;
}

void TableModel::Step(absl::Span<const int64_t> keys, uint32_t minute) {
  for (const int64_t key : keys) {
    auto row = rows_.find(key);
    if (row == rows_.end()) {
      Row made;
      if (!Admits(key, made)) {
        // A filter does not know when.
        if (filter_.count(key) == 0)
          waiting_[key] = {made.count + 1, std::max(made.minute, minute), 0};
        continue;
      }
      row = rows_.emplace(key, made).first;
    }
    ++row->second.count, ++row->second.writes;
    row->second.minute = std::max(row->second.minute, minute);
  }
}

int64_t TableModel::Evict(uint32_t now, int64_t first, int64_t end) {
  if (const auto* unused = std::get_if<EvictUnusedFor>(&rules_.eviction)) {
    const auto is_old = [now, minutes = absl::ToInt64Minutes(unused->duration)](const Row& row) {
      return int64_t{now} - int64_t{row.minute} >= minutes;
    };
    RemoveIf(waiting_, first, end, is_old);
    return RemoveIf(rows_, first, end, is_old);
  }
  const auto* below = std::get_if<EvictBelowNorm>(&rules_.eviction);
  if (below == nullptr) return 0;
  return RemoveIf(rows_, first, end, [&](const Row& row) {
    const double value = ValueAfter(row.writes), norm = below->norm;
    return static_cast<double>(kTableWidth) * value * value < norm * norm;
  });
}

std::string TableModel::Contradiction(const std::vector<TableImage>& parts,
                                      Minutes minutes) const {
  const auto is_of = [minutes](int64_t count, int64_t minute, const Row& row) {
    return count == row.count && (minutes == Minutes::kIgnored || minute == row.minute);
  };
  std::set<int64_t> left, left_waiting;
  for (const auto& [key, row] : rows_) left.insert(key);
  for (const auto& [key, row] : waiting_) left_waiting.insert(key);
  for (const TableImage& part : parts) {
    for (size_t i = 0; i < part.keys.size(); ++i) {
      const int64_t key = part.keys[i];
      if (left.erase(key) == 0)
        return absl::StrCat("key ", key, " has a row, for ", part.counts[i], " steps until minute ",
                            part.ticks[i], ", and should have none, or has two");
      const Row& row = rows_.at(key);
      if (!is_of(part.counts[i], part.ticks[i], row))
        return absl::StrCat("the row of key ", key, " is of ", part.counts[i],
                            " steps until minute ", part.ticks[i], ", and should be of ",
                            TextOf(row));
      if (const std::string wrong = WrongElements(part, i, row); !wrong.empty()) return wrong;
    }
    for (size_t i = 0; i < part.waiting.keys.size(); ++i) {
      const int64_t key = part.waiting.keys[i];
      if (left_waiting.erase(key) == 0) return absl::StrCat("key ", key, " should not wait");
      const Row& row = waiting_.at(key);
      if (!is_of(part.waiting.counts[i], part.waiting.ticks[i], row))
        return absl::StrCat("key ", key, " waits after ", part.waiting.counts[i],
                            " steps until minute ", part.waiting.ticks[i], ", and should after ",
                            TextOf(row));
    }
  }
  if (!left.empty())
    return absl::StrCat("key ", *left.begin(), " has no row, and should have one of ",
                        TextOf(rows_.at(*left.begin())));
  if (!left_waiting.empty())
    return absl::StrCat("key ", *left_waiting.begin(), " does not wait, and should after ",
                        TextOf(waiting_.at(*left_waiting.begin())));
  return "";
}

namespace {

float FloatAt(const std::vector<char>& column, size_t i) {
  float value = 0;
  std::memcpy(&value, column.data() + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

// The values of row i, and its slot.
std::string TableModel::WrongElements(const TableImage& part, size_t i, const Row& row) const {
  for (size_t at = i * kWidth; at < (i + 1) * kWidth; ++at) {
    if (const float value = FloatAt(part.values, at); value != ValueAfter(row.writes))
      return absl::StrCat("the row of key ", part.keys[i], " is ", value, " after ", row.writes,
                          " writes, and should be ", ValueAfter(row.writes));
    if (write_ == TableWrite::kAdd) continue;
    const float slot = FloatAt(part.slots[0], at);
    if (slot != static_cast<float>(row.writes))
      return absl::StrCat("the slot of key ", part.keys[i], " is ", slot, " after ", row.writes,
                          " writes");
  }
  return "";
}

std::string UnevenColumns(const TableImage& part) {
  const size_t n = part.keys.size(), bytes = n * kWidth * sizeof(float);
  const bool even = part.counts.size() == n && part.ticks.size() == n &&
                    part.values.size() == bytes &&
                    std::all_of(part.slots.begin(), part.slots.end(),
                                [&](const auto& slot) { return slot.size() == bytes; });
  return even ? "" : absl::StrCat("the columns of ", n, " rows are of other rows");
}

}  // namespace divvy::sim
