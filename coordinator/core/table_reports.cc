#include "coordinator/core/table_reports.h"

#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "variables/table_parts.h"

namespace divvy {
namespace {

// The table that has this part on `ps`. Null: none has.
const VariableLayout* TableOf(const Layout& layout, int ps, ShardKey part) {
  const VariableLayout* const table = layout.Find(part.variable);
  const bool is_there = table != nullptr && table->spec.table && part.slot == 0 &&
                        part.part < table->num_shards() && table->ps[part.part] == ps;
  return is_there ? table : nullptr;
}

absl::Status NoRoom(const VariableLayout& table, int ps, const SyncReply::Table& told) {
  const int part = told.shard.part;
  const int64_t max_rows = table.spec.table->max_rows;
  const int64_t share =
      max_rows == 0 ? 0 : ShareOfRows(max_rows, table.offsets[part], table.offsets[part + 1]);
  const bool is_full = max_rows > 0 && told.stats.rows >= share;
  const std::string limit =
      is_full ? absl::StrCat("it has ", told.stats.rows, " rows there, and max_rows=", max_rows,
                             " gives this part ", share)
              : absl::StrCat("it has ", told.stats.rows,
                             " rows there, and --memory_limit_bytes leaves no memory");
  return absl::ResourceExhaustedError(absl::StrCat(
      "dynamic table \"", table.spec.name, "\" is full: ", told.stats.refused,
      " writes to new keys found no room on ps ", ps, " (", limit,
      "). The job ends because the table's `full` is kFail. ",
      is_full ? "Raise max_rows" : "Raise --memory_limit_bytes, or add parameter servers",
      ", or give the table an eviction rule, or set `full` to kRefuse; then start the program "
      "again"));
}

struct Text {
  std::string operator()(AdmitAlways) const { return "AdmitAlways"; }
  std::string operator()(const AdmitAfter& rule) const {
    return absl::StrCat("AdmitAfter{", rule.steps,
                        rule.counter_bytes == 0 ? "" : absl::StrCat(", ", rule.counter_bytes), "}");
  }
  std::string operator()(AdmitWithProbability rule) const {
    return absl::StrCat("AdmitWithProbability{", rule.probability, "}");
  }
  std::string operator()(EvictNever) const { return "EvictNever"; }
  std::string operator()(EvictUnusedFor rule) const {
    return absl::StrCat("EvictUnusedFor{", absl::FormatDuration(rule.duration), "}");
  }
  std::string operator()(EvictBelowNorm rule) const {
    return absl::StrCat("EvictBelowNorm{", rule.norm, "}");
  }
  std::string operator()(EvictLeastUsed) const { return "EvictLeastUsed"; }
  std::string operator()(EvictLeastRecent) const { return "EvictLeastRecent"; }
};

}  // namespace

std::vector<CoordinatorSnapshot::Table> TablesNow(const Layout& layout, const ServerSet& servers) {
  std::map<VariableId, CoordinatorSnapshot::Table> tables;
  for (const auto& [id, variable] : layout.variables()) {
    if (variable.spec.table)
      tables[id] = {variable.spec.name, TablePartStats(), variable.spec.table->max_rows};
  }
  if (tables.empty()) return {};
  for (const auto& ps : servers) {
    for (const SyncReply::Table& told : ps.tables) {
      if (TableOf(layout, ps.index, told.shard) != nullptr)
        tables[told.shard.variable].stats += told.stats;
    }
  }
  std::vector<CoordinatorSnapshot::Table> all;
  all.reserve(tables.size());
  for (auto& [id, table] : tables) all.push_back(std::move(table));
  return all;
}

absl::Status CheckRoom(const Layout& layout, int ps, absl::Span<const SyncReply::Table> told) {
  for (const SyncReply::Table& part : told) {
    const VariableLayout* const table = TableOf(layout, ps, part.shard);
    if (table == nullptr || table->spec.table->full != TableOptions::Full::kFail) continue;
    if (part.stats.refused > 0) return NoRoom(*table, ps, part);
  }
  return absl::OkStatus();
}

std::string DescribeChange(const TableOptions& before, const TableOptions& now) {
  std::vector<std::string> parts;
  const auto add = [&](absl::string_view name, const std::string& from, const std::string& to) {
    if (from != to) parts.push_back(absl::StrCat(name, " ", from, " -> ", to));
  };
  const auto absent = [](const TableOptions& options) {
    return options.absent == TableOptions::Absent::kZeros ? "kZeros" : "kInitialValue";
  };
  const auto full = [](const TableOptions& options) {
    return options.full == TableOptions::Full::kFail ? "kFail" : "kRefuse";
  };
  add("admission", std::visit(Text(), before.admission), std::visit(Text(), now.admission));
  add("eviction", std::visit(Text(), before.eviction), std::visit(Text(), now.eviction));
  add("absent", absent(before), absent(now));
  add("max_rows", absl::StrCat(before.max_rows), absl::StrCat(now.max_rows));
  add("full", full(before), full(now));
  return absl::StrJoin(parts, ", ");
}

}  // namespace divvy
