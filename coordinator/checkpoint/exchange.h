// Exports checkpoints to the formats of other programs, and imports them. All functions but OfDisk
// block.
#ifndef DIVVY_COORDINATOR_CHECKPOINT_EXCHANGE_H_
#define DIVVY_COORDINATOR_CHECKPOINT_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "coordinator/core/live_variables.h"
#include "formats/safetensors.h"

namespace divvy {

// The result of an export or import.
struct Exchanged {
  // The paths of the written files.
  std::vector<std::string> written;
  // Tensors that could not be converted, with the reason: "t/string: Divvy has no tensors of
  // string".
  std::vector<std::string> left_out;
  // The number of tensors written.
  size_t tensors = 0;
};

// 5 GiB, the size at which PyTorch's tools split their models.
constexpr int64_t kMaxShardBytes = int64_t{5} << 30;

enum class ExchangeFormat { kSafetensors, kBundle };

// The options of ExportCheckpoint.
struct ExchangeOptions {
  // A checkpoint directory or a prefix (coordinator/checkpoint/open_checkpoint.h).
  std::string from;
  // For safetensors: NAME.safetensors, or a directory that gets model.safetensors. For a bundle:
  // its prefix. Missing directories are made.
  std::string to;
  ExchangeFormat format = ExchangeFormat::kSafetensors;
  // The largest size of one file of tensors; for safetensors only.
  int64_t max_shard_bytes = kMaxShardBytes;
  // For safetensors only: a bundle never replaces an existing one.
  Existing existing = Existing::kKept;
  // Whether the slots of optimizers are exported, too.
  bool slots = true;
  // ExportOptions::timeout.
  absl::Duration timeout = absl::InfiniteDuration();
};

// The error of a write to a device. A DataLoss becomes Reason::kDisk: the device failed, and the
// error says nothing about the data that was to be written. Every other status is unchanged. Pure.
absl::Status OfDisk(const absl::Status& written);

// Exports a checkpoint's variables and slots, without Divvy's own tensors ("_divvy/..."). Verifies
// every checksum. Memory: the largest slice. Without slots, a checkpoint of Divvy exports the
// tensors that its job state calls variables. A checkpoint of another program then exports all
// tensors whose names are not those of TensorFlow's slots (".OPTIMIZER_SLOT", "optimizer/").
//
// Errors: those of OpenCheckpoint, WriteShardedSafetensors and WriteBundleIndex. AlreadyExists: the
// target exists and is kept. Reason::kDisk (protocol/error.h): the target's device failed.
// DataLoss: the checkpoint is damaged. DeadlineExceeded: it took longer than `timeout`; an existing
// target is unchanged.
absl::StatusOr<Exchanged> ExportCheckpoint(FileSystem& files, const ExchangeOptions& options);

// Exports the variables of a running job to `path`. "NAME.safetensors" is replaced atomically. For
// a directory, adds a bundle with a new name, which becomes the newest there. Memory: 64 MiB and
// one variable's row. Errors: as ExportCheckpoint, and those of `variables.read`.
absl::Status ExportVariables(FileSystem& files, const LiveVariables& variables,
                             const std::string& path);

// Makes a bundle with prefix `to` from another program's checkpoint. `from`: a bundle (directory or
// prefix), a .safetensors file, or a model.safetensors.index.json with the files that it names.
// InvalidArgument: two of these files have a tensor of the same name. Other errors: as
// ExportCheckpoint.
absl::StatusOr<Exchanged> ImportCheckpoint(FileSystem& files, const std::string& from,
                                           const std::string& to);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_EXCHANGE_H_
