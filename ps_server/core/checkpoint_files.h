// Where a parameter server's part of a checkpoint is written to and read from: the seam between the
// core and the files.
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

// Hands bytes to `take`, piece by piece and in order; each piece is there until `take` returns.
// Returns take's first error, or its own.
using TakePiece = std::function<absl::Status(absl::Span<const char> piece)>;
using GivePieces = std::function<absl::Status(const TakePiece& take)>;

// One data file of a checkpoint. Blocks; one thread at a time. After an error the file is worth
// nothing: every later call gives that error again.
class CheckpointPart {
 public:
  virtual ~CheckpointPart() = default;
  // Adds rows [first_row, first_row + rows) of a tensor, in host byte order. The pieces are small,
  // so that they pass through the processor's cache. REQUIRES: they have as many bytes as the rows.
  virtual absl::Status Append(const ShardSpec& shard, int64_t first_row, int64_t rows,
                              const GivePieces& pieces) = 0;
  // Returns when all of it is on the disk and its name too.
  virtual absl::StatusOr<std::vector<SavedSlice>> Finish() = 0;
};

// A committed checkpoint. Blocks; one thread at a time.
class CheckpointValues {
 public:
  virtual ~CheckpointValues() = default;
  // Reads rows from `first_row` of the whole tensor called shard.name, as many as `out` has room
  // for. NotFound: no such tensor. FailedPrecondition: it is of another dtype or shape. DataLoss:
  // its bytes are not those that were written.
  virtual absl::Status Read(const ShardSpec& shard, int64_t first_row, absl::Span<char> out) = 0;
};

// Thread-safe. Blocks. Errors name the file and the remedy: NotFound (no such checkpoint), DataLoss
// (damaged), AlreadyExists (the part), else the disk's.
class CheckpointFiles {
 public:
  virtual ~CheckpointFiles() = default;
  virtual absl::StatusOr<std::unique_ptr<CheckpointPart>> Create(CheckpointId checkpoint, int file,
                                                                 int num_files) = 0;
  virtual absl::StatusOr<std::unique_ptr<CheckpointValues>> Open(CheckpointId checkpoint) = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_CHECKPOINT_FILES_H_
