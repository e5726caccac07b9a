// Safetensors, the file that PyTorch's world exchanges tensors in
// (huggingface.co/docs/safetensors):
//
//   file   = N (8 bytes, little endian), N bytes of JSON, the bytes of the tensors
//   JSON   = { "name": {"dtype": "F32", "shape": [14, 8], "data_offsets": [begin, end]}, ...,
//          "__metadata__": {"text": "text", ...} }, spaces behind it
//
// Offsets count from the first byte behind the JSON. The tensors fill the rest of the file, without
// a gap, an overlap or a byte that is none's. Elements are row-major and little endian. There is no
// checksum: to exchange, not to keep (that is formats/tensor_bundle.h).
//
// A large model is cut: several such files, each with some of the tensors, and a JSON file that
// says which tensor is where.
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
constexpr absl::string_view kSafetensorsEnd = ".safetensors";  // of a file's name

struct SafetensorsTensor {
  std::string name;
  std::string type;             // as in the file: "F32"
  std::optional<DType> dtype;   // nullopt: one that Divvy lacks
  Shape shape;                  // rank 0 where `unreadable` says that it has too many axes
  std::string unreadable = {};  // why its elements cannot be read, "" if they can
  uint64_t begin = 0, end = 0;  // in the file
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
};

// The header of a file of `file_bytes` bytes, of which `json` stands behind the first 8. Pure and
// total: any bytes. In what it returns the tensors have as many bytes as their elements need and
// fill the file. DataLoss, naming the tensor: not so, a name that stands twice, a type that nobody
// knows, not JSON.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t file_bytes);

// Reads one file. Thread-safe. Blocks. Memory: the header, and what the caller asks for, which is
// no more than the file has. Errors of all calls: NotFound, no such file or tensor. DataLoss:
// damaged, or no safetensors file. InvalidArgument: as said there. Others: the file system's.
class SafetensorsReader {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem& files,
                                                                 const std::string& name);

  const SafetensorsHeader& header() const { return header_; }

  // Rows [begin, end) of axis 0; a scalar is one row. InvalidArgument: not readable, rows that it
  // has not, or `out` is not as large as they are.
  absl::Status ReadRows(absl::string_view tensor, int64_t begin, int64_t end,
                        absl::Span<char> out) const;
  // InvalidArgument: not readable, or complex. ResourceExhausted: no memory.
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

// Hands the bytes of a tensor, piece by piece, to `append`; an error ends the writing.
using SafetensorsSource =
    std::function<absl::Status(const SafetensorsSpec& tensor,
                               const std::function<absl::Status(absl::string_view bytes)>& append)>;

// What becomes of a file that stands under the name already.
enum class Existing : uint8_t { kKept, kReplaced };

// Writes one file: under another name first (NAME.tmp), synced, then renamed, so after a crash it
// is whole or not there, or still the one that it was to replace. The tensors stand as the
// reference writer puts them, those of wide elements first, then by name, and begin at a multiple
// of 8 bytes: each is aligned. InvalidArgument: a name that stands twice, is "__metadata__" or no
// UTF-8; a type that the format lacks (complex128, string); a source that hands another number of
// bytes than the tensor has. AlreadyExists: NAME exists, and is kept. Others: the file system's and
// the source's.
absl::Status WriteSafetensors(FileSystem& files, const std::string& name,
                              std::vector<SafetensorsSpec> tensors,
                              const SafetensorsMetadata& metadata, const SafetensorsSource& source,
                              Existing existing = Existing::kKept);

// Writes `name`, "DIRECTORY/MODEL.safetensors", or, if that were larger than `max_shard_bytes`,
// DIRECTORY/MODEL-00001-of-0000N.safetensors and the rest, and last MODEL.safetensors.index.json,
// which names them. A tensor is never cut: a larger one has a file of its own. Returns the names of
// the files, without the directory. InvalidArgument: max_shard_bytes < 1, another name. Others: as
// above.
//
// kReplaced. All is written under other names first, so there must be room for both models, and
// what fails meanwhile (a full disk) leaves the former one as it was. Then the names are taken: of
// a model that is cut, behind its former index, so none ever names files of two models; a crash in
// that moment may leave neither, and it is to be written again. When the new one stands, what only
// the former one had goes: its index, and the files MODEL-... that it named.
absl::StatusOr<std::vector<std::string>> WriteShardedSafetensors(
    FileSystem& files, const std::string& name, std::vector<SafetensorsSpec> tensors,
    const SafetensorsMetadata& metadata, int64_t max_shard_bytes, const SafetensorsSource& source,
    Existing existing = Existing::kKept);

// The files that a MODEL.safetensors.index.json names, sorted, each once. Pure and total. DataLoss:
// no such JSON, or a file in another directory.
absl::StatusOr<std::vector<std::string>> ParseSafetensorsIndex(absl::string_view json);

}  // namespace divvy

#endif  // DIVVY_FORMATS_SAFETENSORS_H_
