// The tables of a coordinator's store, and the conversion of its rows. docs/formats/state.md
// documents them for people. All functions are pure.
#ifndef DIVVY_COORDINATOR_STORE_STORE_ROWS_H_
#define DIVVY_COORDINATOR_STORE_STORE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/core/store.h"
#include "coordinator/store/sqlite_database.h"

namespace divvy {

// A table in which each row has a checksum.
struct StoreTable {
  std::string name;
  // Without `crc`, which is the last column.
  std::vector<std::string> columns;
  // The number of leading columns that form the primary key.
  int num_keys;
  // The table's SQL, in the form in which SQLite keeps it.
  std::string create;

  // CRC-32C of a row's table, key and content. A flipped bit anywhere in a row changes it.
  uint32_t Crc(const SqlRow& row) const;
};
// The tables. The references are valid for the life of the process.
const StoreTable& JobTable();
const StoreTable& VariableTable();
const StoreTable& CheckpointTable();
const StoreTable& StateTable();
// The seal has one row (rows, crc_sum): the number of rows in all other tables, and the sum of
// their checksums modulo 2^64. It detects a row that is missing or is an older version of itself.
constexpr char kSealTable[] = "seal";
constexpr char kCreateSeal[] =
    "CREATE TABLE seal (id INTEGER PRIMARY KEY CHECK (id = 1), rows INTEGER NOT NULL, crc_sum "
    "INTEGER NOT NULL) STRICT, WITHOUT ROWID";

// Rows in the order of their table's columns, without the checksum. The decoders return
// InvalidArgument for a row that no encoder makes.
SqlRow Encode(const JobRow& row);
SqlRow Encode(const VariableRow& row);
SqlRow Encode(const CheckpointRow& row);
SqlRow Encode(const StateRow& row);
absl::StatusOr<JobRow> DecodeJob(absl::Span<const SqlValue> row);
absl::StatusOr<VariableRow> DecodeVariable(absl::Span<const SqlValue> row);
absl::StatusOr<CheckpointRow> DecodeCheckpoint(absl::Span<const SqlValue> row);
absl::StatusOr<StateRow> DecodeState(absl::Span<const SqlValue> row);
// The primary key of a row.
SqlRow KeyOf(VariableId id);
SqlRow KeyOf(CheckpointId id);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_STORE_ROWS_H_
