// A part of a checkpoint with a table in it, written and read as a parameter server does, without
// the network and the coordinator. Beside it, in turns: as many bytes, written to a file and
// synced, or read from one.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "bench/parameter_server.h"
#include "bench/rounds.h"
#include "bench/tables.h"
#include "formats/tensor_bundle.h"
#include "ps_server/checkpoint/bundle_files.h"
#include "ps_server/core/frozen_shards.h"
#include "ps_server/core/table_files.h"

ABSL_FLAG(int64_t, checkpoint_rows, 10'000'000, "rows of the table in the checkpoint");

namespace divvy::bench {
namespace {

constexpr int64_t kWidth = 16, kRowsAtATime = 65'536;
constexpr CheckpointId kCheckpoint{Epoch(1), 1};

std::shared_ptr<Shard> MakeShard() {
  ShardSpec spec = WholeVariable(1, {kTableBuckets, kWidth});
  spec.table = TableOptions();
  spec.optimizer = kTableOptimizer;
  return *Shard::Create(spec, 1, /*block_bytes=*/1 << 20, nullptr);
}

void Fill(TableShard& table) {
  const std::vector<float> gradients(kRowsAtATime * kWidth, 0.01f);
  const int64_t rows = absl::GetFlag(FLAGS_checkpoint_rows);
  for (int64_t first = 0; first < rows; first += kRowsAtATime) {
    std::vector<int64_t> some;
    for (int64_t row = first; row < std::min(rows, first + kRowsAtATime); ++row)
      some.push_back(row);
    const std::vector<TableKey> keys = KeysOf(some);
    for (const TableShard::Piece& piece : table.PiecesOf(keys))
      table.With(piece.segment, [&](TableSegment& segment) {
        segment.ApplyGradients(piece.Of(keys), gradients.data() + piece.begin * kWidth,
                               StepOf(kTableOptimizer, 0), {1, 1});
      });
  }
}

class Bench {
 public:
  explicit Bench(const std::string& directory)
      : directory_(directory + "/bench_tables"),
        prefix_(absl::StrCat(directory_, "/", kCheckpoint.name())),
        plain_(directory_ + "/plain") {
    DIVVY_CHECK(files_.CreateDirectory(directory_).ok());
    Clean();
  }
  ~Bench() {
    Clean();
    files_.Remove(directory_).IgnoreError();
  }

  absl::Status Run() {
    const std::shared_ptr<Shard> shard = MakeShard();
    Fill(*shard->table());
    absl::Status status;
    const Contender write{"write a checkpoint", [&] { status.Update(Write(shard)); },
                          [this] { Clean(); }};
    const Contender plain_write{"a file, written and synced", [&] { status.Update(WritePlain()); },
                                [this] { Clean(); }};
    // The first run tells how many bytes there are.
    RETURN_IF_ERROR(Write(shard));
    RETURN_IF_ERROR(files_.Stat(BundleDataFile(prefix_, 0, 1)).status());
    bytes_ = files_.Stat(BundleDataFile(prefix_, 0, 1))->size_bytes;
    Print(write, plain_write);
    Clean();
    RETURN_IF_ERROR(Write(shard));
    RETURN_IF_ERROR(WritePlain());
    Print({"restore a checkpoint", [&] { status.Update(Restore()); }, [this] { LeaveTheCache(); }},
          {"a file, read", [&] { status.Update(ReadPlain()); }, [this] { LeaveTheCache(); }});
    return status;
  }

 private:
  void Print(const Contender& figure, const Contender& ceiling) {
    Show("tables", Compare(figure, ceiling, static_cast<double>(bytes_)), {"MB/s", 1e6},
         {{"mb", static_cast<double>(bytes_) / 1e6}});
  }
  void Clean() {
    const auto names = files_.ListDirectory(directory_);
    for (const std::string& name : *names)
      files_.Remove(absl::StrCat(directory_, "/", name)).IgnoreError();
  }
  absl::Status Write(const std::shared_ptr<Shard>& shard) {
    ShardTable shards;
    shards[shard->spec().key] = shard;
    FrozenShards frozen(shards, /*slice_bytes=*/4 << 20);
    const auto files = MakeBundleFiles(files_, directory_);
    ASSIGN_OR_RETURN(const auto part, files->Create(kCheckpoint, 0, 1));
    for (const ShardSlice& slice : frozen.slices()) {
      ASSIGN_OR_RETURN(const TableImage image, frozen.ReadTable(slice));
      RETURN_IF_ERROR(AppendImage(*shard, slice.first_row, image, *part));
    }
    ASSIGN_OR_RETURN(const std::vector<SavedSlice> saved, part->Finish());
    return WriteIndex(saved);
  }
  // As the coordinator does: the slices of a tensor follow each other.
  absl::Status WriteIndex(const std::vector<SavedSlice>& saved) {
    std::map<std::string, int64_t> rows;
    for (const SavedSlice& slice : saved) rows[slice.tensor] += slice.rows;
    std::map<std::string, int64_t> placed;
    std::vector<BundleSlice> slices;
    for (const SavedSlice& slice : saved) {
      int64_t& first = placed[slice.tensor];
      slices.push_back({slice.tensor, slice.dtype, slice.full_shape.WithRows(rows[slice.tensor]),
                        first, first + slice.rows, 0, slice.offset, slice.size_bytes,
                        slice.masked_crc});
      first += slice.rows;
    }
    return WriteBundleIndex(files_, prefix_, 1, slices);
  }
  absl::Status Restore() {
    const std::shared_ptr<Shard> shard = MakeShard();
    const auto files = MakeBundleFiles(files_, directory_);
    ASSIGN_OR_RETURN(const auto values, files->Open(kCheckpoint));
    TableReader reader(*values, *shard);
    for (int64_t segment = 0; segment < shard->table()->segments(); ++segment)
      RETURN_IF_ERROR(reader.ReadNext().status());
    if (shard->table()->stats().rows == absl::GetFlag(FLAGS_checkpoint_rows))
      return absl::OkStatus();
    return absl::InternalError("rows are missing after the restore");
  }
  absl::Status WritePlain() {
    const std::string piece(1 << 20, 'x');
    ASSIGN_OR_RETURN(const auto file, files_.OpenForWrite(plain_, WriteMode::kCreateNew));
    for (int64_t at = 0; at < bytes_; at += static_cast<int64_t>(piece.size()))
      RETURN_IF_ERROR(file->Append(absl::string_view(piece).substr(
          0, static_cast<size_t>(std::min<int64_t>(bytes_ - at, piece.size())))));
    RETURN_IF_ERROR(file->Sync());
    return file->Close();
  }
  // Into memory that holds all of it, as a restore needs.
  absl::Status ReadPlain() {
    ASSIGN_OR_RETURN(const auto file, files_.OpenSequential(plain_));
    const std::unique_ptr<char[]> into(new char[static_cast<size_t>(bytes_)]);
    for (int64_t at = 0; at < bytes_;) {
      const auto most = static_cast<size_t>(std::min<int64_t>(bytes_ - at, 1 << 20));
      ASSIGN_OR_RETURN(const size_t got, file->Read(absl::MakeSpan(&into[at], most)));
      if (got == 0) return absl::DataLossError("the file is too short");
      at += static_cast<int64_t>(got);
    }
    return absl::OkStatus();
  }
  // The next read is from the disk.
  void LeaveTheCache() {
    const auto names = files_.ListDirectory(directory_);
    for (const std::string& name : *names) {
      const int file = open(absl::StrCat(directory_, "/", name).c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0) continue;
      posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
      close(file);
    }
  }

  FileSystem& files_ = FileSystem::Real();
  const std::string directory_, prefix_, plain_;
  int64_t bytes_ = 0;
};

}  // namespace

absl::Status MeasureCheckpoint(const std::string& directory) { return Bench(directory).Run(); }

}  // namespace divvy::bench
