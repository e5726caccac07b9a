// Datasets of TFRecord files.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/guarded.h"
#include "base/status_macros.h"
#include "data/record_files.h"
#include "formats/tfrecord.h"

namespace divvy::data_internal {
namespace {

// A parsed record needs several times its size.
constexpr size_t kMaxRecordBytes = size_t{256} << 20;

class TfRecordReader : public RecordReader {
 public:
  explicit TfRecordReader(ParseRecord parse) : parse_(std::move(parse)) {}

  bool IsPlain(absl::string_view bytes) const override { return BeginsTfRecord(bytes); }

  absl::Status Begin(absl::string_view, TextPosition& at) override {
    at = {0, 1};
    return absl::OkStatus();
  }

  bool Skip(absl::string_view file, TextPosition& at) override {
    const auto record = ReadTfRecord(file, at.offset);
    ++at.line;
    return !record.ok() || record->has_value();
  }

  Element Read(absl::string_view file, TextPosition& at) override {
    const TextPosition start = at;
    const auto record = ReadTfRecord(file, at.offset);
    ++at.line;
    if (!record.ok()) return WithContext(record.status(), absl::StrCat("record ", start.line));
    if (!record->has_value()) return std::nullopt;
    if ((*record)->size() > kMaxRecordBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "record ", start.line, ": offset ", start.offset, ": has ", (*record)->size(),
          " bytes, and may have at most ", kMaxRecordBytes, ": write several smaller records"));
    }
    absl::StatusOr<Nest> element = internal::Guarded<absl::StatusOr<Nest>>(
        "the parse function of TfRecord", [&] { return parse_(**record); });
    if (element.ok()) element = NestCodec<Nest>::Decode(*element);
    if (element.ok()) return *std::move(element);
    return WithContext(element.status(),
                       absl::StrCat("record ", start.line, ": offset ", start.offset));
  }

 private:
  const ParseRecord parse_;
};

}  // namespace

Recipe TfRecordRecipe(std::string files, ParseRecord parse) {
  return RecordFilesRecipe(std::move(files), [parse = std::move(parse)] {
    return std::make_unique<TfRecordReader>(parse);
  });
}

}  // namespace divvy::data_internal
