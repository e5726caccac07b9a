#include "coordinator/core/load_reports.h"

#include <limits>

#include "tensor/tensor.h"

namespace divvy {
namespace {

// What a row costs beside its bytes: its number, and the search for it.
constexpr int64_t kBytesBesideARow = 64;

int64_t RowBytes(const VariableLayout& variable) {
  return variable.spec.shape.row_elements() * DTypeSize(variable.spec.dtype);
}

// The part's share of the bytes of the variable and its slots. Of a table, what the server told.
int64_t BytesOf(const VariableLayout& variable, int part) {
  if (variable.rows() == 0) return 0;
  const auto first = static_cast<size_t>(part);
  const auto rows = static_cast<double>(variable.offsets[first + 1] - variable.offsets[first]);
  const auto bytes = static_cast<double>(variable.value_bytes() + variable.slot_bytes());
  return static_cast<int64_t>(bytes * rows / static_cast<double>(variable.rows()));
}

}  // namespace

LoadReport LoadNow(const Layout& layout, const ServerSet& servers) {
  LoadReport report;
  for (const auto& [id, variable] : layout.variables()) {
    for (int part = 0; part < variable.num_shards(); ++part)
      report.shards[{id, 0, static_cast<uint16_t>(part)}].bytes = BytesOf(variable, part);
  }
  for (const auto& ps : servers) {
    for (const auto& [key, rows] : ps.loads.rows_per_second()) {
      const auto shard = report.shards.find(key);
      if (shard == report.shards.end()) continue;
      shard->second.bytes_per_second =
          rows * static_cast<double>(RowBytes(*layout.Find(key.variable)) + kBytesBesideARow);
    }
    for (const SyncReply::Table& told : ps.tables) {
      const auto shard = report.shards.find(told.shard);
      if (shard != report.shards.end()) shard->second.bytes = told.stats.bytes;
    }
    report.room.push_back(ps.memory_limit_bytes == 0 ? std::numeric_limits<int64_t>::max()
                                                     : ps.memory_limit_bytes / 10 * 9);
  }
  return report;
}

}  // namespace divvy
