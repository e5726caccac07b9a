// Checkpoints to and from what other programs read.
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

struct Exchanged {
  // files, or the prefix of the bundle
  std::vector<std::string> written;
  // tensors that could not come along, and why: "t/string: Divvy has no tensors of string"
  std::vector<std::string> left_out;
  size_t tensors = 0;
};

constexpr int64_t kMaxShardBytes = int64_t{5} << 30;  // PyTorch's world cuts its models so

enum class ExchangeFormat { kSafetensors, kBundle };

struct ExchangeOptions {
  // A directory of checkpoints or a prefix (coordinator/checkpoint/open_checkpoint.h).
  std::string from;
  // safetensors: NAME.safetensors, or a directory for model.safetensors. A bundle: its prefix.
  // Directories are made
  std::string to;
  ExchangeFormat format = ExchangeFormat::kSafetensors;
  int64_t max_shard_bytes = kMaxShardBytes;  // of one file of tensors; safetensors only
  Existing existing = Existing::kKept;       // safetensors only: a bundle's name is used once
  bool slots = true;                         // of optimizers, too
};

// What is said of a failed write: DataLoss, a device that failed, is no word about the data that
// was to be written.
absl::Status OfDisk(const absl::Status& written);

// Writes a checkpoint's variables and slots, without what Divvy keeps for itself ("_divvy/...").
// Every checksum is verified on the way. Memory: the largest slice. Errors: as of OpenCheckpoint,
// WriteShardedSafetensors and WriteBundleIndex; AlreadyExists: something of that name is there, and
// kept. Reason::kDisk (cluster/error.h): the device that is written to failed; DataLoss is the
// checkpoint's that is read.
// Without slots: of Divvy's checkpoints what its job's state calls a variable; of others what
// TensorFlow does not name as a slot (".OPTIMIZER_SLOT").
absl::StatusOr<Exchanged> ExportCheckpoint(FileSystem& files, const ExchangeOptions& options);

// The variables of a running job, to `path`: "NAME.safetensors", replaced as a whole, or a
// directory, of which a bundle of another name than those before becomes the newest. Memory: 64 MiB
// and one variable's row. Errors: as above, and those of `variables.read`.
absl::Status ExportVariables(FileSystem& files, const LiveVariables& variables,
                             const std::string& path);

// Makes a bundle, of the prefix `to`, of another program's: a bundle (directory or prefix), a
// .safetensors file, or a model.safetensors.index.json with the files that it names.
// InvalidArgument: two of these files have a tensor of one name. Others: as above.
absl::StatusOr<Exchanged> ImportCheckpoint(FileSystem& files, const std::string& from,
                                           const std::string& to);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_EXCHANGE_H_
