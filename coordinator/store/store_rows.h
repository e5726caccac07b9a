// The tables of a coordinator's store, and its rows as they stand there. docs/formats/state.md has
// them for people.
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

// A table of rows that each carry their checksum.
struct StoreTable {
  std::string name;
  std::vector<std::string> columns;  // without `crc`, which is the last
  int num_keys;                      // so many of the first columns are the primary key
  std::string create;                // its SQL, as SQLite keeps it

  // CRC-32C of a row's place and content. A flip anywhere in a row changes it.
  uint32_t Crc(const SqlRow& row) const;
};
const StoreTable& JobTable();
const StoreTable& VariableTable();
const StoreTable& CheckpointTable();
const StoreTable& StateTable();
// The one row (rows, crc_sum): how many rows the other tables have, and the sum of their checksums
// modulo 2^64. So a row that is lost, or is an older state of itself, is noticed.
constexpr char kSealTable[] = "seal";
constexpr char kCreateSeal[] =
    "CREATE TABLE seal (id INTEGER PRIMARY KEY CHECK (id = 1), rows INTEGER NOT NULL, crc_sum "
    "INTEGER NOT NULL) STRICT, WITHOUT ROWID";

// Rows in the order of their table's columns, the checksum left out. The decoders refuse what no
// encoder makes: InvalidArgument.
SqlRow Encode(const JobRow& row);
SqlRow Encode(const VariableRow& row);
SqlRow Encode(const CheckpointRow& row);
SqlRow Encode(const StateRow& row);
absl::StatusOr<JobRow> DecodeJob(absl::Span<const SqlValue> row);
absl::StatusOr<VariableRow> DecodeVariable(absl::Span<const SqlValue> row);
absl::StatusOr<CheckpointRow> DecodeCheckpoint(absl::Span<const SqlValue> row);
absl::StatusOr<StateRow> DecodeState(absl::Span<const SqlValue> row);
SqlRow KeyOf(VariableId id);
SqlRow KeyOf(CheckpointId id);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_STORE_ROWS_H_
