#include "ps_server/core/table/table_image.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "variables/table_keys.h"

namespace divvy {
namespace {

// The places of the heads, by the bucket and then the key. Only the keys of one bucket are compared
// with each other.
template <typename HeadAt>
std::vector<size_t> InOrder(size_t n, const HeadAt& head_at) {
  std::vector<int64_t> buckets(n);
  for (size_t i = 0; i < n; ++i) buckets[i] = BucketOf(MixKey(head_at(i).key));
  const auto [least, most] = std::minmax_element(buckets.begin(), buckets.end());
  const int64_t first = n == 0 ? 0 : *least, count = n == 0 ? 0 : *most - first + 1;
  // Where the places of each bucket end, once all are there.
  std::vector<size_t> ends(static_cast<size_t>(count));
  for (const int64_t bucket : buckets) ++ends[static_cast<size_t>(bucket - first)];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::vector<size_t> order(n), at = ends;
  for (size_t i = n; i-- > 0;) order[--at[static_cast<size_t>(buckets[i] - first)]] = i;
  const auto has_lower_key = [&](size_t a, size_t b) { return head_at(a).key < head_at(b).key; };
  for (size_t b = 0; b < ends.size(); ++b)
    std::sort(order.begin() + static_cast<ptrdiff_t>(at[b]),
              order.begin() + static_cast<ptrdiff_t>(ends[b]), has_lower_key);
  return order;
}

template <typename Columns>
void AddHead(const RowHead& head, Columns& columns) {
  columns.keys.push_back(head.key);
  columns.counts.push_back(head.count);
  columns.ticks.push_back(head.tick);
}

template <typename Columns>
RowHead HeadAt(const Columns& columns, size_t i) {
  return {columns.keys[i], static_cast<uint32_t>(columns.counts[i]),
          static_cast<uint32_t>(columns.ticks[i])};
}

int64_t SlotBytes(const TableFormat& format, size_t slot) {
  return format.slots_at[slot + 1] - format.slots_at[slot];
}

}  // namespace

void Reserve(const TableFormat& format, size_t rows, TableImage& image) {
  for (std::vector<int64_t>* column : {&image.keys, &image.counts, &image.ticks})
    column->reserve(rows);
  image.values.reserve(rows * static_cast<size_t>(format.value_bytes));
  image.slots.resize(format.slots.size());
  for (size_t slot = 0; slot < image.slots.size(); ++slot)
    image.slots[slot].reserve(rows * static_cast<size_t>(SlotBytes(format, slot)));
}

void Append(const TableFormat& format, SegmentRows rows, TableImage& image) {
  const auto row_bytes = static_cast<size_t>(format.row_bytes);
  const size_t n = rows.rows.size() / row_bytes;
  const auto row_at = [&](size_t i) { return rows.rows.data() + i * row_bytes; };
  const auto head_at = [&](size_t i) { return *reinterpret_cast<const RowHead*>(row_at(i)); };
  const std::vector<size_t> order = InOrder(n, head_at);
  image.slots.resize(format.slots.size());
  for (const size_t i : order) AddHead(head_at(i), image);
  // Column by column: each grows in one place.
  const auto add_column = [&](int64_t from, int64_t bytes, std::vector<char>& column) {
    const size_t before = column.size();
    column.resize(before + n * static_cast<size_t>(bytes));
    char* to = column.data() + before;
    for (const size_t i : order) {
      std::memcpy(to, row_at(i) + from, static_cast<size_t>(bytes));
      to += bytes;
    }
  };
  add_column(TableFormat::kValuesAt, format.value_bytes, image.values);
  for (size_t slot = 0; slot < format.slots.size(); ++slot)
    add_column(format.slots_at[slot], SlotBytes(format, slot), image.slots[slot]);
  for (const size_t i : InOrder(rows.waiting.size(), [&](size_t at) { return rows.waiting[at]; }))
    AddHead(rows.waiting[i], image.waiting);
  if (!rows.filter.empty()) image.filter = std::move(rows.filter);
}

void Append(TableImage next, TableImage& image) {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(image.keys, next.keys), append(image.counts, next.counts);
  append(image.ticks, next.ticks), append(image.values, next.values);
  image.slots.resize(next.slots.size());
  for (size_t slot = 0; slot < next.slots.size(); ++slot)
    append(image.slots[slot], next.slots[slot]);
  append(image.waiting.keys, next.waiting.keys);
  append(image.waiting.counts, next.waiting.counts);
  append(image.waiting.ticks, next.waiting.ticks);
  append(image.filter, next.filter);
}

bool Restore(const TableImage& image, const TableFormat& format, TableSegment& segment) {
  segment.Reserve(image.keys.size(), image.waiting.keys.size());
  const auto value_bytes = static_cast<size_t>(format.value_bytes);
  std::vector<absl::Span<const char>> slots(format.slots.size());
  for (size_t i = 0; i < image.keys.size(); ++i) {
    const TableKey key{image.keys[i], MixKey(image.keys[i])};
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      const auto bytes = static_cast<size_t>(SlotBytes(format, slot));
      slots[slot] = absl::MakeConstSpan(image.slots[slot]).subspan(i * bytes, bytes);
    }
    if (!segment.Restore(key, HeadAt(image, i),
                         absl::MakeConstSpan(image.values).subspan(i * value_bytes, value_bytes),
                         slots))
      return false;
  }
  for (size_t i = 0; i < image.waiting.keys.size(); ++i) {
    const TableKey key{image.waiting.keys[i], MixKey(image.waiting.keys[i])};
    if (!segment.RestoreWaiting(key, HeadAt(image.waiting, i))) return false;
  }
  return segment.RestoreFilter(image.filter);
}

}  // namespace divvy
