// The seam between the core and the files of a checkpoint: where a parameter server's part of a
// checkpoint is written and read.
#ifndef DIVVY_PS_SERVER_CORE_CHECKPOINT_FILES_H_
#define DIVVY_PS_SERVER_CORE_CHECKPOINT_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/messages.h"

namespace divvy {

// Passes bytes to `take`, piece by piece and in order. A piece is valid until `take` returns.
// Returns the first error of `take`, or an error of its own.
using TakePiece = std::function<absl::Status(absl::Span<const char> piece)>;
using GivePieces = std::function<absl::Status(const TakePiece& take)>;

// One data file of a checkpoint, being written. Blocks; used by one thread at a time. After an
// error the file is useless, and every later call returns that error.
class CheckpointPart {
 public:
  virtual ~CheckpointPart() = default;
  // Adds rows [first_row, first_row + rows) of a tensor, in host byte order. `pieces` gives them in
  // small pieces, which fit into the processor's cache. If shard.table is set, the rows are those
  // of a dynamic table from bucket shard.first_row on, and full_shape has as many rows as are added
  // (SavedSlice::first_bucket). REQUIRES: the pieces have as many bytes as the rows.
  virtual absl::Status Append(const ShardSpec& shard, int64_t first_row, int64_t rows,
                              const GivePieces& pieces) = 0;
  // Completes the file. Returns when the file's bytes and its name are on the disk.
  virtual absl::StatusOr<std::vector<SavedSlice>> Finish() = 0;
};

// A committed checkpoint, being read. Blocks; used by one thread at a time.
class CheckpointValues {
 public:
  virtual ~CheckpointValues() = default;
  // Reads rows of the whole tensor called shard.name, from `first_row` on, as many as `out` has
  // room for. NotFound: there is no such tensor. FailedPrecondition: it has another dtype or shape.
  // DataLoss: its bytes are damaged.
  virtual absl::Status Read(const ShardSpec& shard, int64_t first_row, absl::Span<char> out) = 0;
  // The rows of a tensor. 0: there is no such tensor.
  virtual absl::StatusOr<int64_t> Rows(const std::string& tensor) = 0;
};

// Creates and opens checkpoint files. Thread-safe; blocks. Errors name the file and the remedy.
// NotFound: there is no such checkpoint. DataLoss: it is damaged. AlreadyExists: the part exists
// already. Otherwise the disk's error.
class CheckpointFiles {
 public:
  virtual ~CheckpointFiles() = default;
  virtual absl::StatusOr<std::unique_ptr<CheckpointPart>> Create(CheckpointId checkpoint, int file,
                                                                 int num_files) = 0;
  virtual absl::StatusOr<std::unique_ptr<CheckpointValues>> Open(CheckpointId checkpoint) = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_CHECKPOINT_FILES_H_
