// The rows of dynamic tables in the files of a checkpoint.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_FILES_H_
#define DIVVY_PS_SERVER_CORE_TABLE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps_server/core/checkpoint_files.h"
#include "ps_server/core/shard.h"
#include "ps_server/core/table/table_image.h"
#include "variables/table_tensors.h"

namespace divvy {

// The bytes of one row in the files of a checkpoint: key, count, tick, values and slots. REQUIRES:
// table.table() != nullptr.
int64_t RowBytesInFile(const Shard& table);

// Adds the rows of a segment, which begins with `first_bucket`, to a data file. Blocks.
// REQUIRES: table.table() != nullptr.
absl::Status AppendImage(const Shard& table, int64_t first_bucket, const TableImage& image,
                         CheckpointPart& part);

// Reads the rows of a part of a table, one segment after another. The checkpoint may have been
// written by any number of parameter servers: its rows lie in the order of their buckets. Blocks;
// used by one thread at a time.
class TableReader {
 public:
  // REQUIRES: `values` and `table` outlive it; nobody else knows the table yet.
  TableReader(CheckpointValues& values, const Shard& table);
  // The bytes of the rows that ReadNext reads in all, without keys that wait to be admitted.
  // Errors: as CheckpointValues::Read.
  absl::StatusOr<int64_t> BytesToRead();
  // Reads the rows of the next segment, and returns their bytes as BytesToRead counts. DataLoss:
  // the tensors do not fit each other. Otherwise as CheckpointValues::Read. ResourceExhausted: no
  // memory.
  absl::StatusOr<int64_t> ReadNext();

 private:
  // Rows [next, rows) of tensors with one row for each key.
  struct Cursor {
    int64_t next = 0, rows = 0;
    // Keys from `next` on that have been read already.
    std::vector<int64_t> ahead;
  };
  absl::Status Begin();
  absl::StatusOr<Cursor> CursorAt(const TableTensor& keys, int64_t bucket);
  // The keys from the cursor on whose buckets lie before `end_bucket`.
  absl::StatusOr<std::vector<int64_t>> KeysUpTo(const TableTensor& keys, int64_t end_bucket,
                                                Cursor& cursor);
  template <typename T>
  absl::Status ReadRows(const TableTensor& tensor, int64_t all_rows, int64_t first, int64_t rows,
                        std::vector<T>& out);
  absl::Status ReadImage(int64_t first_bucket, int64_t end_bucket, TableImage& image);
  absl::Status CheckEnd();
  template <typename Columns>
  static absl::Status CheckRows(const TableTensor& keys, int64_t first_bucket, const Columns& rows);
  absl::Status ReadWaiting(int64_t end_bucket, TableImage& image);

  CheckpointValues& values_;
  const Shard& table_;
  const TableTensors tensors_;
  bool has_begun_ = false;
  int64_t segment_ = 0;
  Cursor rows_, waiting_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_FILES_H_
