// Safetensors, the file format in which the PyTorch community exchanges tensors
// (huggingface.co/docs/safetensors):
//
//   file   = N (8 bytes, little-endian), N bytes of JSON, the bytes of the tensors
//   JSON   = { "name": {"dtype": "F32", "shape": [14, 8], "data_offsets": [begin, end]}, ...,
//              "__metadata__": {"text": "text", ...} }, then optional spaces
//
// Offsets count from the first byte after the JSON. The tensors fill the rest of the file without a
// gap or an overlap. Elements are row-major and little-endian. There is no checksum, so use the
// format to exchange models and formats/tensor_bundle.h to keep them.
//
// A large model is sharded: several such files, each with some of the tensors, and a JSON file that
// says which file has which tensor.
#ifndef DIVVY_FORMATS_SAFETENSORS_H_
#define DIVVY_FORMATS_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file_system.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace divvy {

constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
constexpr absl::string_view kSafetensorsEnd = ".safetensors";  // the end of a file's name

struct SafetensorsTensor {
  std::string name;
  std::string type;             // as in the file: "F32"
  std::optional<DType> dtype;   // nullopt: Divvy does not have this type
  Shape shape;                  // rank 0 if it has too many axes, which `unreadable` says
  std::string unreadable = {};  // the reason why it cannot be read, or ""
  uint64_t begin = 0, end = 0;  // the place of its bytes in the file
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
};

// Decodes the header of a file of `file_bytes` bytes. `json` is the JSON after the first 8 bytes.
// Pure; any bytes may be given. In the result each tensor has as many bytes as its elements need,
// and the tensors fill the file. DataLoss, naming the tensor: this does not hold, a name occurs
// twice, a type is unknown, or it is not JSON.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t file_bytes);

// Reads one file. Thread-safe. Blocks. Uses memory for the header and the results, which are never
// larger than the file.
//
// Errors of all calls. NotFound: there is no such file or tensor. DataLoss: the file is damaged or
// not a safetensors file. InvalidArgument: see each method. Otherwise the file system's error.
class SafetensorsReader {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem& files,
                                                                 const std::string& name);

  const SafetensorsHeader& header() const { return header_; }

  // Reads rows [begin, end) of axis 0 into `out`; a scalar is one row. InvalidArgument: the tensor
  // is not readable, does not have these rows, or `out` has another size than they.
  absl::Status ReadRows(absl::string_view tensor, int64_t begin, int64_t end,
                        absl::Span<char> out) const;
  // Reads a whole tensor, into new memory on the CPU. InvalidArgument: it is not readable, or
  // complex. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> ReadTensor(absl::string_view tensor) const;

 private:
  SafetensorsReader(std::string name, SafetensorsHeader header,
                    std::unique_ptr<RandomAccessFile> file)
      : name_(std::move(name)), header_(std::move(header)), file_(std::move(file)) {}
  absl::StatusOr<const SafetensorsTensor*> Find(absl::string_view tensor) const;

  const std::string name_;
  const SafetensorsHeader header_;
  const std::unique_ptr<RandomAccessFile> file_;
};

// ---- writing

// A tensor to be written.
struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};
using SafetensorsMetadata = std::map<std::string, std::string>;

// Passes the bytes of a tensor to `append`, piece by piece. An error ends the writing and is
// returned from it.
using SafetensorsSource =
    std::function<absl::Status(const SafetensorsSpec& tensor,
                               const std::function<absl::Status(absl::string_view bytes)>& append)>;

// What to do if a file of this name already exists: fail, or replace it.
enum class Existing : uint8_t { kKept, kReplaced };

// Writes one file: to NAME.tmp, which is synced and then renamed. So after a crash the file is
// either complete, or absent, or still the old one. Blocks.
//
// The order of tensors is that of the reference writer: wide elements first, then by name. The data
// begin at a multiple of 8 bytes, so each tensor is aligned.
//
// InvalidArgument: a name occurs twice, is "__metadata__" or is not UTF-8; the format does not have
// a type (complex128, string); or the source passes another number of bytes than the tensor has.
// AlreadyExists: NAME exists, and `existing` is kKept. Otherwise the error of the file system or
// the source.
absl::Status WriteSafetensors(FileSystem& files, const std::string& name,
                              std::vector<SafetensorsSpec> tensors,
                              const SafetensorsMetadata& metadata, const SafetensorsSource& source,
                              Existing existing = Existing::kKept);

// Writes `name`, which is "DIRECTORY/MODEL.safetensors", as one file if it has at most
// `max_shard_bytes`. Otherwise it writes DIRECTORY/MODEL-00001-of-0000N.safetensors and so on, and
// last MODEL.safetensors.index.json, which names them. A tensor is never cut: one that is larger
// than the limit has a file of its own. Returns the names of the files, without the directory.
// Blocks. InvalidArgument: max_shard_bytes < 1, or `name` has another form. Other errors as
// WriteSafetensors.
//
// With kReplaced everything is first written under other names, so there must be room for both
// models. A failure at this stage (such as a full disk) leaves the old model as it was. Then the
// files get their names. If the new model is sharded, an old index is removed before that, so no
// index ever names files of two models. A crash at this moment may leave neither model, and the
// model must be written again. When the new model is complete, the rest of the old one is removed:
// its index, and the files MODEL-... that it named.
absl::StatusOr<std::vector<std::string>> WriteShardedSafetensors(
    FileSystem& files, const std::string& name, std::vector<SafetensorsSpec> tensors,
    const SafetensorsMetadata& metadata, int64_t max_shard_bytes, const SafetensorsSource& source,
    Existing existing = Existing::kKept);

// The files that a MODEL.safetensors.index.json names, sorted and unique. Pure; any bytes may be
// given. DataLoss: it is not such a JSON, or it names a file in another directory.
absl::StatusOr<std::vector<std::string>> ParseSafetensorsIndex(absl::string_view json);

}  // namespace divvy

#endif  // DIVVY_FORMATS_SAFETENSORS_H_
