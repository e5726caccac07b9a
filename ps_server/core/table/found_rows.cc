#include "ps_server/core/table/found_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "variables/table_keys.h"

namespace divvy {
namespace {

// As float32, whatever the table stores.
std::vector<float> ValuesOf(const TableFormat& format, const char* row) {
  std::vector<float> values(static_cast<size_t>(format.width));
  format.ToFloats(row + TableFormat::kValuesAt, values.data());
  return values;
}

FoundRow CopyOf(const TableFormat& format, const char* row) {
  const auto& head = *reinterpret_cast<const RowHead*>(row);
  return {head.key, head.count, head.tick, ValuesOf(format, row)};
}

// Those keys that belong to the part, unique and in its order.
std::vector<TableKey> OwnKeys(const TableShard& table, absl::Span<const int64_t> keys) {
  std::vector<TableKey> own;
  for (const int64_t key : keys) {
    const TableKey next{key, MixKey(key)};
    const int64_t bucket = BucketOf(next.mixed);
    if (bucket >= table.first_bucket() && bucket < table.end_bucket()) own.push_back(next);
  }
  const auto order = [](const TableKey& key) { return TableOrder(key.mixed); };
  std::sort(own.begin(), own.end(),
            [&](const TableKey& a, const TableKey& b) { return order(a) < order(b); });
  own.erase(std::unique(own.begin(), own.end(),
                        [](const TableKey& a, const TableKey& b) { return a.key == b.key; }),
            own.end());
  return own;
}

}  // namespace

std::vector<FoundRow> RowsOf(TableShard& table, absl::Span<const int64_t> keys) {
  const std::vector<TableKey> own = OwnKeys(table, keys);
  std::map<int64_t, FoundRow> found;
  for (const TableShard::Piece& piece : table.PiecesOf(own)) {
    table.With(piece.segment, [&](const TableSegment& segment) {
      for (const TableKey& key : piece.Of(own)) {
        if (const char* const row = segment.Find(key); row != nullptr)
          found.emplace(key.key, CopyOf(table.format(), row));
      }
    });
  }
  std::vector<FoundRow> rows;
  for (const int64_t key : keys) {
    if (const auto row = found.find(key); row != found.end()) rows.push_back(row->second);
  }
  return rows;
}

bool LargestRows::IsLarger(const Ranked& a, const Ranked& b) {
  return a.first != b.first ? a.first > b.first : a.second.key < b.second.key;
}

double LargestRows::SizeOf(const TableFormat& format, const char* row) const {
  if (by_ == By::kCount) return reinterpret_cast<const RowHead*>(row)->count;
  double sum = 0;
  for (const float value : ValuesOf(format, row)) sum += static_cast<double>(value) * value;
  return std::isnan(sum) ? std::numeric_limits<double>::infinity() : std::sqrt(sum);
}

void LargestRows::Look(TableShard& table) {
  for (int64_t segment = 0; segment < table.segments(); ++segment) {
    for (std::optional<uint32_t> next = 0; next;) {
      table.With(segment, [&](const TableSegment& locked) {
        next = Look(table.format(), locked, *next);
      });
    }
  }
}

std::optional<uint32_t> LargestRows::Look(const TableFormat& format, const TableSegment& segment,
                                          uint32_t row) {
  constexpr uint32_t kRowsAtATime = 4096;
  const RowSlabs& slabs = segment.slabs();
  const uint32_t end = std::min(slabs.end(), row + kRowsAtATime);
  for (; row < end; ++row) {
    if (slabs.is_free(row)) continue;
    const char* const at = slabs.at(row);
    Ranked next{SizeOf(format, at), {slabs.head(row).key}};
    const bool is_full = rows_.size() >= most_;
    if (is_full && (rows_.empty() || !IsLarger(next, rows_.front()))) continue;
    if (is_full) {
      std::pop_heap(rows_.begin(), rows_.end(), IsLarger);
      rows_.pop_back();
    }
    next.second = CopyOf(format, at);
    rows_.push_back(std::move(next));
    std::push_heap(rows_.begin(), rows_.end(), IsLarger);
  }
  return row < slabs.end() ? std::optional<uint32_t>(row) : std::nullopt;
}

std::vector<FoundRow> LargestRows::Take() && {
  std::sort_heap(rows_.begin(), rows_.end(), IsLarger);
  std::vector<FoundRow> rows;
  rows.reserve(rows_.size());
  for (Ranked& row : rows_) rows.push_back(std::move(row.second));
  return rows;
}

}  // namespace divvy
