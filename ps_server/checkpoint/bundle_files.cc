#include "ps_server/checkpoint/bundle_files.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "formats/tensor_bundle.h"

namespace divvy {
namespace {

class Part : public CheckpointPart {
 public:
  explicit Part(std::unique_ptr<BundleDataWriter> writer) : writer_(std::move(writer)) {}

  absl::Status Append(const ShardSpec& shard, int64_t first_row, int64_t rows,
                      const GivePieces& pieces) override {
    if (rows == 0) return absl::OkStatus();
    RETURN_IF_ERROR(
        writer_->Start(shard.name, shard.dtype, shard.full_shape, first_row, first_row + rows));
    RETURN_IF_ERROR(pieces([this](absl::Span<const char> piece) {
      return writer_->Add(absl::string_view(piece.data(), piece.size()));
    }));
    ASSIGN_OR_RETURN(const BundleSlice slice, writer_->End());
    slices_.push_back({slice.tensor, slice.dtype, slice.shape, slice.begin_row, rows, slice.offset,
                       slice.size_bytes, slice.masked_crc32c});
    if (shard.table) slices_.back().first_bucket = shard.first_row;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SavedSlice>> Finish() override {
    RETURN_IF_ERROR(writer_->Finish());
    return slices_;
  }

 private:
  const std::unique_ptr<BundleDataWriter> writer_;
  std::vector<SavedSlice> slices_;
};

class Values : public CheckpointValues {
 public:
  explicit Values(std::unique_ptr<BundleReader> reader) : reader_(std::move(reader)) {}

  absl::Status Read(const ShardSpec& shard, int64_t first_row, absl::Span<char> out) override {
    if (out.empty()) return absl::OkStatus();
    const BundleTensor* const saved = reader_->index().Find(shard.name);
    if (saved != nullptr && (saved->dtype != shard.dtype || saved->shape != shard.full_shape)) {
      return absl::FailedPreconditionError(
          absl::StrCat(reader_->prefix(), ": \"", shard.name, "\" is ", saved->type, " ",
                       saved->shape.ToString(), ", and not ", DTypeName(shard.dtype), " ",
                       shard.full_shape.ToString()));
    }
    const int64_t row_bytes = shard.full_shape.row_elements() * DTypeSize(shard.dtype);
    return reader_->ReadRows(shard.name, first_row,
                             first_row + static_cast<int64_t>(out.size()) / row_bytes, out);
  }

  absl::StatusOr<int64_t> Rows(const std::string& tensor) override {
    const BundleTensor* const saved = reader_->index().Find(tensor);
    return saved == nullptr ? 0 : saved->shape.rows();
  }

 private:
  const std::unique_ptr<BundleReader> reader_;
};

class BundleFiles : public CheckpointFiles {
 public:
  BundleFiles(FileSystem& files, std::string directory)
      : files_(files), directory_(std::move(directory)) {}

  absl::StatusOr<std::unique_ptr<CheckpointPart>> Create(CheckpointId checkpoint, int file,
                                                         int num_files) override {
    ASSIGN_OR_RETURN(std::unique_ptr<BundleDataWriter> writer,
                     BundleDataWriter::Create(files_, PrefixOf(checkpoint), file, num_files));
    return std::unique_ptr<CheckpointPart>(std::make_unique<Part>(std::move(writer)));
  }
  absl::StatusOr<std::unique_ptr<CheckpointValues>> Open(CheckpointId checkpoint) override {
    ASSIGN_OR_RETURN(std::unique_ptr<BundleReader> reader,
                     BundleReader::Open(files_, PrefixOf(checkpoint)));
    return std::unique_ptr<CheckpointValues>(std::make_unique<Values>(std::move(reader)));
  }

 private:
  std::string PrefixOf(CheckpointId checkpoint) const {
    return absl::StrCat(directory_, "/", checkpoint.name());
  }

  FileSystem& files_;
  const std::string directory_;
};

}  // namespace

std::unique_ptr<CheckpointFiles> MakeBundleFiles(FileSystem& files, std::string directory) {
  return std::make_unique<BundleFiles>(files, std::move(directory));
}

}  // namespace divvy
