#include "ps_server/core/table_files.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

TableTensors TensorsOf(const Shard& table) {
  return {table.spec().name, table.table()->format().width, table.spec().optimizer,
          table.spec().dtype};
}

// How CheckpointFiles knows a run of rows of a table's tensor.
ShardSpec SpecOf(const Shard& table, const TableTensor& tensor, int64_t rows) {
  ShardSpec spec;
  spec.name = tensor.name;
  spec.dtype = tensor.dtype;
  spec.full_shape = tensor.ShapeWith(rows);
  spec.table = table.spec().table;
  return spec;
}

ShardSpec FilterSpec(const Shard& table, int64_t filter_bytes) {
  ShardSpec spec;
  spec.name = TensorsOf(table).filter;
  spec.dtype = DType::kUInt8;
  spec.full_shape = {kTableBuckets, filter_bytes};
  return spec;
}

}  // namespace

int64_t RowBytesInFile(const Shard& table) {
  const TableTensors tensors = TensorsOf(table);
  std::vector<TableTensor> of_rows = tensors.slots;
  for (const TableTensor& each : {tensors.keys, tensors.counts, tensors.ticks, tensors.values})
    of_rows.push_back(each);
  int64_t bytes = 0;
  for (const TableTensor& tensor : of_rows)
    bytes += tensor.one_row.num_elements() * DTypeSize(tensor.dtype);
  return bytes;
}

absl::Status AppendImage(const Shard& table, int64_t first_bucket, const TableImage& image,
                         CheckpointPart& part) {
  const TableTensors tensors = TensorsOf(table);
  const auto append = [&](const TableTensor& tensor, const auto& column, size_t rows) {
    ShardSpec spec = SpecOf(table, tensor, static_cast<int64_t>(rows));
    spec.first_row = first_bucket;
    const auto bytes = absl::MakeConstSpan(
        reinterpret_cast<const char*>(column.data()),
        column.size() * sizeof(typename std::decay_t<decltype(column)>::value_type));
    return part.Append(spec, 0, static_cast<int64_t>(rows),
                       [&](const TakePiece& take) { return take(bytes); });
  };
  if (const size_t rows = image.keys.size(); rows > 0) {
    RETURN_IF_ERROR(append(tensors.keys, image.keys, rows));
    RETURN_IF_ERROR(append(tensors.counts, image.counts, rows));
    RETURN_IF_ERROR(append(tensors.ticks, image.ticks, rows));
    RETURN_IF_ERROR(append(tensors.values, image.values, rows));
    for (size_t i = 0; i < tensors.slots.size(); ++i)
      RETURN_IF_ERROR(append(tensors.slots[i], image.slots[i], rows));
  }
  if (const size_t rows = image.waiting.keys.size(); rows > 0) {
    RETURN_IF_ERROR(append(tensors.waiting_keys, image.waiting.keys, rows));
    RETURN_IF_ERROR(append(tensors.waiting_counts, image.waiting.counts, rows));
    RETURN_IF_ERROR(append(tensors.waiting_ticks, image.waiting.ticks, rows));
  }
  if (image.filter_bytes == 0) return absl::OkStatus();
  // The whole filter is there, so that all slices of its tensor are.
  const TableShard& shard = *table.table();
  const int64_t buckets = std::min(shard.end_bucket() - first_bucket, shard.buckets_of_segment());
  std::vector<uint8_t> filter = image.filter;
  filter.resize(static_cast<size_t>(buckets * image.filter_bytes));
  const ShardSpec spec = FilterSpec(table, image.filter_bytes);
  return part.Append(spec, first_bucket, buckets, [&](const TakePiece& take) {
    return take(absl::MakeConstSpan(reinterpret_cast<const char*>(filter.data()), filter.size()));
  });
}

TableReader::TableReader(CheckpointValues& values, const Shard& table)
    : values_(values), table_(table), tensors_(TensorsOf(table)) {}

template <typename T>
absl::Status TableReader::ReadRows(const TableTensor& tensor, int64_t all_rows, int64_t first,
                                   int64_t rows, std::vector<T>& out) {
  const ShardSpec spec = SpecOf(table_, tensor, all_rows);
  const int64_t bytes = rows * spec.full_shape.row_elements() * DTypeSize(spec.dtype);
  out.resize(static_cast<size_t>(bytes) / sizeof(T));
  if (rows == 0) return absl::OkStatus();
  return values_.Read(
      spec, first, absl::MakeSpan(reinterpret_cast<char*>(out.data()), static_cast<size_t>(bytes)));
}

// Keys come in the order of (bucket, key), each once, and counts and ticks have 32 bits.
template <typename Columns>
absl::Status TableReader::CheckRows(const TableTensor& keys, int64_t first_bucket,
                                    const Columns& rows) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto lost = [&keys](int64_t key, absl::string_view why) {
    return absl::DataLossError(absl::StrCat("\"", keys.name, "\": key ", key, " ", why));
  };
  std::pair<int64_t, int64_t> before = {first_bucket - 1, 0};
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    const int64_t key = rows.keys[i];
    const std::pair<int64_t, int64_t> place = {BucketOf(MixKey(key)), key};
    if (place <= before) return lost(key, "is there twice, or not in its bucket");
    before = place;
    if (rows.counts[i] < 0 || rows.counts[i] > kMost || rows.ticks[i] < 0 || rows.ticks[i] > kMost)
      return lost(key, absl::StrCat("has the count ", rows.counts[i], " and the minute ",
                                    rows.ticks[i], ", which are not of 32 bits"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TableReader::Cursor> TableReader::CursorAt(const TableTensor& keys, int64_t bucket) {
  Cursor cursor;
  ASSIGN_OR_RETURN(cursor.rows, values_.Rows(keys.name));
  // Every key lies in [0, kTableBuckets).
  if (bucket <= 0) return cursor;
  if (bucket >= kTableBuckets) {
    cursor.next = cursor.rows;
    return cursor;
  }
  int64_t end = cursor.rows;
  while (cursor.next < end) {
    const int64_t middle = cursor.next + (end - cursor.next) / 2;
    std::vector<int64_t> key;
    RETURN_IF_ERROR(ReadRows(keys, cursor.rows, middle, 1, key));
    if (BucketOf(MixKey(key[0])) < bucket)
      cursor.next = middle + 1;
    else
      end = middle;
  }
  return cursor;
}

absl::StatusOr<std::vector<int64_t>> TableReader::KeysUpTo(const TableTensor& keys,
                                                           int64_t end_bucket, Cursor& cursor) {
  constexpr int64_t kAtATime = 16 << 10;
  std::vector<int64_t> taken;
  while (cursor.next < cursor.rows) {
    if (cursor.ahead.empty()) {
      const int64_t count = std::min(kAtATime, cursor.rows - cursor.next);
      RETURN_IF_ERROR(ReadRows(keys, cursor.rows, cursor.next, count, cursor.ahead));
    }
    const auto begin = cursor.ahead.begin();
    const auto end = std::find_if(begin, cursor.ahead.end(),
                                  [&](int64_t key) { return BucketOf(MixKey(key)) >= end_bucket; });
    const bool is_over = end != cursor.ahead.end();
    taken.insert(taken.end(), begin, end);
    cursor.next += end - begin;
    cursor.ahead.erase(begin, end);
    if (is_over) break;
  }
  return taken;
}

absl::Status TableReader::Begin() {
  const int64_t first_bucket = table_.table()->first_bucket();
  ASSIGN_OR_RETURN(rows_, CursorAt(tensors_.keys, first_bucket));
  ASSIGN_OR_RETURN(waiting_, CursorAt(tensors_.waiting_keys, first_bucket));
  has_begun_ = true;
  return absl::OkStatus();
}

absl::Status TableReader::ReadImage(int64_t first_bucket, int64_t end_bucket, TableImage& image) {
  const int64_t first = rows_.next;
  ASSIGN_OR_RETURN(image.keys, KeysUpTo(tensors_.keys, end_bucket, rows_));
  const auto rows = static_cast<int64_t>(image.keys.size());
  RETURN_IF_ERROR(ReadRows(tensors_.counts, rows_.rows, first, rows, image.counts));
  RETURN_IF_ERROR(ReadRows(tensors_.ticks, rows_.rows, first, rows, image.ticks));
  RETURN_IF_ERROR(ReadRows(tensors_.values, rows_.rows, first, rows, image.values));
  image.slots.resize(tensors_.slots.size());
  for (size_t i = 0; i < image.slots.size(); ++i)
    RETURN_IF_ERROR(ReadRows(tensors_.slots[i], rows_.rows, first, rows, image.slots[i]));
  const std::shared_ptr<const TableOptions> options = table_.table()->options();
  if (CountsExactly(*options)) RETURN_IF_ERROR(ReadWaiting(end_bucket, image));
  RETURN_IF_ERROR(CheckRows(tensors_.keys, first_bucket, image));
  RETURN_IF_ERROR(CheckRows(tensors_.waiting_keys, first_bucket, image.waiting));
  image.filter_bytes = FilterBytesOf(*options);
  if (image.filter_bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t buckets, values_.Rows(tensors_.filter));
  if (buckets == 0) return absl::OkStatus();  // the rule was another one
  image.filter.resize(static_cast<size_t>((end_bucket - first_bucket) * image.filter_bytes));
  const absl::Status read = values_.Read(
      FilterSpec(table_, image.filter_bytes), first_bucket,
      absl::MakeSpan(reinterpret_cast<char*>(image.filter.data()), image.filter.size()));
  if (!absl::IsFailedPrecondition(read)) return read;
  image.filter.clear();  // a filter of another size counted; keys are counted anew
  return absl::OkStatus();
}

absl::Status TableReader::ReadWaiting(int64_t end_bucket, TableImage& image) {
  const int64_t first = waiting_.next;
  ASSIGN_OR_RETURN(image.waiting.keys, KeysUpTo(tensors_.waiting_keys, end_bucket, waiting_));
  const auto rows = static_cast<int64_t>(image.waiting.keys.size());
  RETURN_IF_ERROR(
      ReadRows(tensors_.waiting_counts, waiting_.rows, first, rows, image.waiting.counts));
  return ReadRows(tensors_.waiting_ticks, waiting_.rows, first, rows, image.waiting.ticks);
}

// The next parameter server begins where the search for its first bucket ends. If keys are not in
// the order of their buckets, that may be behind the rows that were read here, and nobody would
// read those between.
absl::Status TableReader::CheckEnd() {
  const int64_t end_bucket = table_.table()->end_bucket();
  const auto check = [&](const TableTensor& keys, const Cursor& cursor) -> absl::Status {
    ASSIGN_OR_RETURN(const Cursor end, CursorAt(keys, end_bucket));
    if (cursor.next == end.next) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("\"", keys.name, "\": the keys of rows ", cursor.next,
                                            " and ", end.next,
                                            " are not in the order of their buckets"));
  };
  RETURN_IF_ERROR(check(tensors_.keys, rows_));
  return CountsExactly(*table_.table()->options()) ? check(tensors_.waiting_keys, waiting_)
                                                   : absl::OkStatus();
}

absl::StatusOr<int64_t> TableReader::BytesToRead() {
  ASSIGN_OR_RETURN(const Cursor begin, CursorAt(tensors_.keys, table_.table()->first_bucket()));
  ASSIGN_OR_RETURN(const Cursor end, CursorAt(tensors_.keys, table_.table()->end_bucket()));
  // Keys that are not in order are an error of ReadNext.
  return std::max<int64_t>(0, end.next - begin.next) * RowBytesInFile(table_);
}

absl::StatusOr<int64_t> TableReader::ReadNext() {
  if (!has_begun_) RETURN_IF_ERROR(Begin());
  TableShard& shard = *table_.table();
  const int64_t first = shard.first_bucket() + segment_ * shard.buckets_of_segment(),
                end = std::min(shard.end_bucket(), first + shard.buckets_of_segment());
  TableImage image;
  RETURN_IF_ERROR(ReadImage(first, end, image));
  bool has_memory = false;
  shard.With(segment_,
             [&](TableSegment& segment) { has_memory = Restore(image, shard.format(), segment); });
  ++segment_;
  if (has_memory) {
    if (segment_ == shard.segments()) RETURN_IF_ERROR(CheckEnd());
    return static_cast<int64_t>(image.keys.size()) * RowBytesInFile(table_);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("\"", table_.spec().name, "\": no memory for ", rows_.rows,
                   " rows of a checkpoint: raise --memory_limit_bytes, or add parameter servers"));
}

}  // namespace divvy
