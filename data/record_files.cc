#include "data/record_files.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/files.h"
#include "data/progress.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

// Records are numbered as they are read. Every kMarkDistance-th one leaves a mark, from which later
// records can be reached again.
class RecordFilesIterator : public BlockIterator {
 public:
  RecordFilesIterator(std::string pattern, WorkerShare share, std::unique_ptr<RecordReader> reader,
                      const DataEnvironment& environment)
      : files_(FilesOf(environment)),
        clock_(ClockOf(environment)),
        pattern_(std::move(pattern)),
        share_(share),
        reader_(std::move(reader)) {}

 private:
  static constexpr int64_t kMarkDistance = 256;
  struct Mark {
    size_t file;
    TextPosition at;
  };

  absl::StatusOr<std::shared_ptr<const Block>> BlockAt(int64_t position, int64_t step,
                                                       int64_t most) override {
    if (size_ && position >= *size_) return nullptr;
    RETURN_IF_ERROR(Open());
    RETURN_IF_ERROR(JumpTowards(position));
    // Skipping a line takes less time than reading the clock.
    constexpr int64_t kTicksPerLook = 1024;
    Progress progress(clock_, kTicksPerLook);
    while (next_ < position) {
      ASSIGN_OR_RETURN(const bool skipped, SkipOne());
      if (!skipped) return nullptr;
      progress.Tick([&] {
        return absl::StrCat("skipped ", next_, " records on the way to record ", position,
                            ", now at ", names_[file_], " (file ", file_ + 1, " of ", names_.size(),
                            "),");
      });
    }
    return ReadSome(step, most);
  }

  std::optional<int64_t> KnownSize() override { return size_; }

  absl::Status Open() {
    if (!names_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<std::string> all, ExpandFiles(files_, pattern_));
    std::vector<std::string> names;
    for (size_t i = static_cast<size_t>(share_.index); i < all.size();
         i += static_cast<size_t>(share_.num_shards))
      names.push_back(all[i]);
    if (names.empty())
      return absl::NotFoundError(absl::StrCat(pattern_, " has no file for worker ", share_.index));
    RETURN_IF_ERROR(OpenFile(names, 0));
    names_ = std::move(names);
    return absl::OkStatus();
  }

  absl::Status OpenFile(const std::vector<std::string>& names, size_t file) {
    ASSIGN_OR_RETURN(std::string text,
                     ReadDecompressed(files_, clock_, names[file], [this](absl::string_view bytes) {
                       return reader_->IsPlain(bytes);
                     }));
    TextPosition at;
    const absl::Status begun = reader_->Begin(text, at);
    if (!begun.ok()) return WithContext(begun, names[file]);
    text_ = std::move(text);
    file_ = file;
    at_ = at;
    return absl::OkStatus();
  }

  // Moves to the last mark at or before `position`, if it is closer than the current record.
  absl::Status JumpTowards(int64_t position) {
    if (marks_.empty()) return absl::OkStatus();
    const int64_t mark =
        std::min(position / kMarkDistance, static_cast<int64_t>(marks_.size()) - 1);
    if (next_ <= position && mark * kMarkDistance <= next_) return absl::OkStatus();
    const Mark& to = marks_[static_cast<size_t>(mark)];
    if (to.file != file_) RETURN_IF_ERROR(OpenFile(names_, to.file));
    at_ = to.at;
    next_ = mark * kMarkDistance;
    return absl::OkStatus();
  }

  // Moves to the next file, after the last record of this one. False: there is no other file.
  absl::StatusOr<bool> NextFile() {
    if (file_ + 1 == names_.size()) {
      size_ = next_;
      return false;
    }
    RETURN_IF_ERROR(OpenFile(names_, file_ + 1));
    return true;
  }

  void LeaveMark() {
    if (next_ == static_cast<int64_t>(marks_.size()) * kMarkDistance)
      marks_.push_back({file_, at_});
  }

  absl::StatusOr<bool> SkipOne() {
    LeaveMark();
    while (!reader_->Skip(text_, at_)) {
      ASSIGN_OR_RETURN(const bool more, NextFile());
      if (!more) return false;
    }
    ++next_;
    return true;
  }

  // Reads the next records of one file, each `step`-th; null at the end of all files.
  absl::StatusOr<std::shared_ptr<const Block>> ReadSome(int64_t step, int64_t most) {
    while (true) {
      ASSIGN_OR_RETURN(std::shared_ptr<const Block> block, ReadRows(step, most));
      if (block != nullptr) return block;
      LeaveMark();
      Element element = reader_->Read(text_, at_);
      if (!element.ok() || element->has_value()) ++next_;
      if (!element.ok()) return WithContext(element.status(), names_[file_]);
      if (element->has_value()) return Block::OfElement(**std::move(element));
      ASSIGN_OR_RETURN(const bool more, NextFile());
      if (!more) return nullptr;
    }
  }

  // Skips `count` records. False: this file has no more.
  bool SkipInFile(int64_t count) {
    for (; count > 0; --count) {
      LeaveMark();
      if (!reader_->Skip(text_, at_)) return false;
      ++next_;
    }
    return true;
  }

  // Reads good records into columns. Null: the next is bad, or there is none in this file, or the
  // reader makes no columns.
  absl::StatusOr<std::shared_ptr<const Block>> ReadRows(int64_t step, int64_t most) {
    const int64_t room = reader_->BeginRows(most, text_.size() - at_.offset);
    int64_t rows = 0;
    for (; rows < room; ++rows) {
      if (rows > 0 && !SkipInFile(step - 1)) break;
      TextPosition behind = at_;
      if (!reader_->ReadRow(text_, behind, rows)) break;
      LeaveMark();
      at_ = behind;
      ++next_;
    }
    if (rows == 0) return nullptr;
    ASSIGN_OR_RETURN(Nest columns, reader_->EndRows(rows));
    std::shared_ptr<const Block> block = Block::OfRows(std::move(columns), rows, layout_);
    layout_ = block->layout();
    return block;
  }

  FileSystem& files_;
  const Clock& clock_;
  const std::string pattern_;
  const WorkerShare share_;  // of the files
  const std::unique_ptr<RecordReader> reader_;
  std::vector<std::string> names_;  // empty before the first file has been opened
  std::string text_;                // of names_[file_]
  size_t file_ = 0;
  // The position in text_ of record next_, or of the space before it.
  TextPosition at_;
  int64_t next_ = 0;
  std::vector<Mark> marks_;  // marks_[i]: of record i * kMarkDistance
  std::optional<int64_t> size_;
  std::shared_ptr<const BlockLayout> layout_;  // of the last block
};

class RecordFiles : public DescribedRecipe {
 public:
  RecordFiles(std::string files, WorkerShare share, MakeRecordReader make_reader)
      : files_(std::move(files)), share_(share), make_reader_(std::move(make_reader)) {}

  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const override {
    return std::make_unique<RecordFilesIterator>(files_, share_, make_reader_(), environment);
  }
  absl::StatusOr<std::optional<int64_t>> CountFiles(
      const DataEnvironment& environment) const override {
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     ExpandFiles(FilesOf(environment), files_));
    return static_cast<int64_t>(names.size());
  }
  Recipe SomeFiles(WorkerShare share) const override {
    return std::make_shared<RecordFiles>(files_, share, make_reader_);
  }

 private:
  const std::string files_;
  const WorkerShare share_;
  const MakeRecordReader make_reader_;
};

}  // namespace

Recipe RecordFilesRecipe(std::string files, MakeRecordReader make_reader) {
  return std::make_shared<RecordFiles>(std::move(files), WorkerShare{}, std::move(make_reader));
}

}  // namespace divvy::data_internal
