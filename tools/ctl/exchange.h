// Checkpoints to and from what other programs read.
#ifndef DIVVY_TOOLS_CTL_EXCHANGE_H_
#define DIVVY_TOOLS_CTL_EXCHANGE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_system.h"

namespace divvy {

struct Exchanged {
  std::vector<std::string> written;   // files, or the prefix of the bundle
  std::vector<std::string> left_out;  // tensors that could not come along, and why: "t/string: Divvy has no tensors of string"
  size_t tensors = 0;
};

enum class ExchangeFormat { kSafetensors, kBundle };

struct ExportOptions {
  std::string from;  // a directory of checkpoints or a prefix (tools/ctl/checkpoint.h)
  std::string to;    // safetensors: a directory, made if it is not there. A bundle: its prefix
  ExchangeFormat format = ExchangeFormat::kSafetensors;
  int64_t max_shard_bytes = std::numeric_limits<int64_t>::max();  // of one file of tensors; safetensors only
};

// Writes a checkpoint's variables and slots, without what Divvy keeps for itself ("_divvy/..."). Every checksum is verified on the way. Memory: the largest
// slice. Errors: as of OpenCheckpoint, WriteShardedSafetensors and WriteBundleIndex; nothing that was there is overwritten (AlreadyExists).
absl::StatusOr<Exchanged> ExportCheckpoint(FileSystem& files, const ExportOptions& options);

// Makes a bundle, of the prefix `to`, of another program's: a bundle (directory or prefix), a .safetensors file, or a model.safetensors.index.json with the
// files that it names. InvalidArgument: two of these files have a tensor of one name. Others: as above.
absl::StatusOr<Exchanged> ImportCheckpoint(FileSystem& files, const std::string& from, const std::string& to);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_EXCHANGE_H_
