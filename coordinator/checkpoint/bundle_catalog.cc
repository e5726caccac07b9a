#include "coordinator/checkpoint/bundle_catalog.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "coordinator/checkpoint/exchange.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "coordinator/core/store.h"
#include "formats/tensor_bundle.h"
#include "protocol/error.h"
#include "wire/job_state.h"

namespace divvy {
namespace {

// int64 []: the version of kJobTensor and of the input of its layout's hash.
constexpr char kFormatTensor[] = "_divvy/format";
// Raise it when an older reader would misread the new form.
constexpr int64_t kFormat = 2, kOldestFormat = 1;
// The owner of the directory, from its first commit on: "job 1f2e3d".
constexpr char kJobFile[] = "job";

// The file of a bundle: "ckpt-3-17.index" -> its id and "index".
struct BundleFile {
  CheckpointId checkpoint;
  std::string suffix;
};

std::optional<BundleFile> ParseFile(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits('.', 1));
  const auto checkpoint = CheckpointOf(parts.first);
  if (!checkpoint || parts.second.empty()) return std::nullopt;
  return BundleFile{*checkpoint, std::string(parts.second)};
}

bool IsIndex(const BundleFile& file) { return file.suffix == "index"; }

BundleSlice ToBundle(const SavedSlice& slice, int file) {
  return {
      slice.tensor, slice.dtype,  slice.full_shape, slice.first_row, slice.first_row + slice.rows,
      file,         slice.offset, slice.size_bytes, slice.masked_crc};
}

// Gives the slices of tables their places: behind those with smaller first buckets.
void PlaceTableRows(std::vector<std::vector<SavedSlice>>& parts) {
  std::map<std::string, std::vector<SavedSlice*>> tensors;
  for (auto& part : parts) {
    for (SavedSlice& slice : part) {
      if (slice.first_bucket) tensors[slice.tensor].push_back(&slice);
    }
  }
  for (auto& [name, slices] : tensors) {
    std::sort(slices.begin(), slices.end(), [](const SavedSlice* a, const SavedSlice* b) {
      return *a->first_bucket < *b->first_bucket;
    });
    int64_t rows = 0;
    for (SavedSlice* const slice : slices) {
      slice->first_row = rows;
      rows += slice->rows;
    }
    for (SavedSlice* const slice : slices) slice->full_shape = slice->full_shape.WithRows(rows);
  }
}

// WriteBundleIndex finds slices that do not fit together. CheckComplete finds slices that are
// missing, and names the ps that had to write them.
absl::Status CheckComplete(const Layout& layout,
                           const std::vector<std::vector<SavedSlice>>& parts) {
  std::set<std::pair<size_t, std::string>> saved;
  for (size_t ps = 0; ps < parts.size(); ++ps) {
    for (const SavedSlice& slice : parts[ps]) saved.emplace(ps, slice.tensor);
  }
  for (const auto& [id, variable] : layout.variables()) {
    if (variable.spec.table) continue;  // a part without rows has no slice
    std::vector<std::string> names = {variable.spec.name};
    for (size_t i = 0; i < variable.slots.size(); ++i)
      names.push_back(variable.SlotName(static_cast<int>(i)));
    for (int part = 0; part < variable.num_shards(); ++part) {
      if (variable.ShardShape(part).num_elements() == 0) continue;
      for (const std::string& name : names) {
        if (saved.count({static_cast<size_t>(variable.ps[part]), name}) == 0)
          return absl::DataLossError(
              absl::StrCat("ps ", variable.ps[part], " has written nothing of \"", name, "\""));
      }
    }
  }
  return absl::OkStatus();
}

absl::string_view BytesOf(const int64_t& number) {
  return absl::string_view(reinterpret_cast<const char*>(&number), sizeof number);
}

// The error for a checkpoint of another version. REQUIRES: the bytes are verified, because damage
// could otherwise look like another version.
absl::Status OfAnotherVersion(const std::string& prefix, absl::string_view why) {
  return MakeError(Reason::kVersionMismatch,
                   absl::StrCat(prefix, " was written by another version of Divvy, this is ",
                                kVersion, ": ", why,
                                ". Start all tasks in the version that wrote it; or move the "
                                "variables to a new job with divvyctl "
                                "checkpoint export"));
}

absl::Status CheckFormat(const BundleReader& reader) {
  if (reader.index().Find(kFormatTensor) == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Tensor tensor, reader.ReadTensor(kFormatTensor));
  ASSIGN_OR_RETURN(const int64_t format, tensor.scalar<int64_t>());
  if (format >= kOldestFormat && format <= kFormat) return absl::OkStatus();
  return OfAnotherVersion(reader.prefix(),
                          absl::StrCat("it has format ", format, ", and ", kOldestFormat, " to ",
                                       kFormat, " are read"));
}

class BundleCatalog : public CheckpointCatalog {
 public:
  BundleCatalog(FileSystem& files, std::string directory)
      : files_(files), directory_(std::move(directory)) {}

  absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId> below) override;
  absl::Status Commit(const JobState& state,
                      const std::vector<std::vector<SavedSlice>>& parts) override;
  absl::Status Collect(int keep, CheckpointId base, CheckpointId below,
                       std::vector<CheckpointId>& removed) override;
  absl::Status Export(CheckpointId checkpoint, const std::string& path,
                      const ExportOptions& wanted) override;

 private:
  std::string PathOf(absl::string_view name) const { return absl::StrCat(directory_, "/", name); }
  enum class Claim : uint8_t { kLook, kMake };
  absl::Status CheckOwner(Claim claim);
  void SetOwn(JobId job) {
    MutexLock lock(mu_);
    own_ = job;
  }
  absl::Status WriteState(const JobState& state, int num_files, std::vector<BundleSlice>& slices);
  absl::StatusOr<std::string> NameOfExport(CheckpointId checkpoint, const std::string& directory);
  absl::StatusOr<std::map<CheckpointId, std::vector<BundleFile>>> FilesByCheckpoint();
  absl::Status Remove(CheckpointId checkpoint, const std::vector<BundleFile>& of_it);

  FileSystem& files_;
  const std::string directory_;
  Mutex mu_;
  // The job that this catalog belongs to. Nullopt: not known yet.
  std::optional<JobId> own_ DIVVY_GUARDED_BY(mu_);
};

// Two jobs that begin in the same empty directory would remove and rename each other's files. So
// the first job that commits writes its id into the directory.
absl::Status BundleCatalog::CheckOwner(Claim claim) {
  std::string own;
  {
    MutexLock lock(mu_);
    if (own_) own = absl::StrCat("job ", absl::Hex(own_->value()), "\n");
  }
  const absl::StatusOr<std::string> owner = files_.ReadFile(PathOf(kJobFile));
  if (!absl::IsNotFound(owner.status())) RETURN_IF_ERROR(owner);
  if (owner.ok() && *owner == own) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> checkpoints,
                   ListCheckpoints(files_, directory_));
  // The directory of a job that died before its first checkpoint is free.
  const bool is_free = !owner.ok() || checkpoints.empty();
  if (is_free)
    return claim == Claim::kMake ? files_.ReplaceFile(PathOf(kJobFile), own) : absl::OkStatus();
  return MakeError(
      Reason::kWrongJob,
      absl::StrCat(PathOf(kJobFile), " says that the checkpoints in ", directory_, " are of ",
                   absl::CHexEscape(absl::StripTrailingAsciiWhitespace(*owner)),
                   own.empty()
                       ? ""
                       : absl::StrCat(", and this is ", absl::StripTrailingAsciiWhitespace(own)),
                   ": give each job a --checkpoint_dir of its own"));
}

absl::StatusOr<std::optional<JobState>> BundleCatalog::Newest(std::optional<CheckpointId> below) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> checkpoints,
                   ListCheckpoints(files_, directory_));
  absl::Status damage;
  for (const CheckpointId checkpoint : checkpoints) {
    if (below && !(checkpoint < *below)) continue;
    absl::StatusOr<JobState> state = ReadJobState(files_, directory_, checkpoint);
    if (state.ok()) {
      // A job does not continue from the checkpoint of another job.
      SetOwn(state->job);
      return std::optional<JobState>(*std::move(state));
    }
    if (!IsUnreadable(state.status())) return state.status();
    DIVVY_LOG(ERROR) << state.status().message() << ". Looking for an older checkpoint";
    damage.Update(state.status());
  }
  if (!damage.ok())
    return absl::DataLossError(
        absl::StrCat("no checkpoint in ", directory_, " can be read: ", damage.message()));
  return std::optional<JobState>();
}

absl::Status BundleCatalog::Commit(const JobState& state,
                                   const std::vector<std::vector<SavedSlice>>& parts) {
  std::vector<BundleSlice> slices;
  std::vector<std::vector<SavedSlice>> placed = parts;
  PlaceTableRows(placed);
  for (size_t file = 0; file < parts.size(); ++file) {
    for (const SavedSlice& slice : placed[file])
      slices.push_back(ToBundle(slice, static_cast<int>(file)));
  }
  RETURN_IF_ERROR(CheckComplete(*state.layout, parts));
  SetOwn(state.job);
  RETURN_IF_ERROR(CheckOwner(Claim::kMake));
  const int num_files = static_cast<int>(parts.size()) + 1;
  RETURN_IF_ERROR(WriteState(state, num_files, slices));
  const std::string prefix = PathOf(state.checkpoint.name());
  const absl::Status written = WriteBundleIndex(files_, prefix, num_files, slices);
  if (!written.ok() && files_.Stat(BundleIndexFile(prefix)).ok()) {
    return absl::AbortedError(absl::StrCat("it is not known whether ", prefix,
                                           " will survive a crash: ", written.message()));
  }
  RETURN_IF_ERROR(written);
  const absl::Status hinted = NameNewest(files_, directory_, state.checkpoint.name());
  // The file is only a hint. The checkpoint exists without it.
  if (!hinted.ok()) DIVVY_LOG(WARNING) << hinted.message();
  return absl::OkStatus();
}

// Writes the coordinator's own data file, which is the last of the checkpoint.
absl::Status BundleCatalog::WriteState(const JobState& state, int num_files,
                                       std::vector<BundleSlice>& slices) {
  const std::string job = wire::EncodeJobState(state);
  if (const absl::Status readable = wire::DecodeJobState(job).status(); !readable.ok()) {
    return absl::InternalError(absl::StrCat(
        "the job state that was just encoded cannot be decoded: ", readable.message()));
  }
  ASSIGN_OR_RETURN(
      const auto writer,
      BundleDataWriter::Create(files_, PathOf(state.checkpoint.name()), num_files - 1, num_files));
  const int64_t bytes = static_cast<int64_t>(job.size());
  ASSIGN_OR_RETURN(slices.emplace_back(),
                   writer->Append(kJobTensor, DType::kUInt8, Shape{bytes}, 0, bytes, job));
  ASSIGN_OR_RETURN(slices.emplace_back(),
                   writer->Append(kFormatTensor, DType::kInt64, Shape(), 0, 1, BytesOf(kFormat)));
  ASSIGN_OR_RETURN(slices.emplace_back(),
                   writer->Append(kFinishedStepsTensor, DType::kInt64, Shape(), 0, 1,
                                  BytesOf(state.finished_steps)));
  return writer->Finish();
}

absl::StatusOr<std::map<CheckpointId, std::vector<BundleFile>>> BundleCatalog::FilesByCheckpoint() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.ListDirectory(directory_));
  std::map<CheckpointId, std::vector<BundleFile>> by_checkpoint;
  for (const std::string& name : names) {
    if (const auto file = ParseFile(name)) by_checkpoint[file->checkpoint].push_back(*file);
  }
  return by_checkpoint;
}

absl::Status BundleCatalog::Collect(int keep, CheckpointId base, CheckpointId below,
                                    std::vector<CheckpointId>& removed) {
  RETURN_IF_ERROR(CheckOwner(Claim::kLook));
  ASSIGN_OR_RETURN(const auto by_checkpoint, FilesByCheckpoint());
  int kept = 0;
  for (auto it = by_checkpoint.rbegin(); it != by_checkpoint.rend(); ++it) {
    const auto& [checkpoint, of_it] = *it;
    const bool committed = std::any_of(of_it.begin(), of_it.end(), IsIndex);
    const bool wanted = checkpoint == base || (committed && kept < std::max(keep, 2));
    // A checkpoint with an impossible epoch cannot be loaded, so it does not count.
    kept += committed && wanted && CanBe(checkpoint.epoch);
    // A Commit of this id, or of a later one, may be under way.
    if (wanted || !(checkpoint < below)) continue;
    RETURN_IF_ERROR(Remove(checkpoint, of_it));
    removed.push_back(checkpoint);
  }
  return absl::OkStatus();
}

// The name contains the job's id, which no two jobs share. So a program that begins anew, and
// counts its checkpoints from the start, may export into the same directory. The form of the name
// also keeps a program from mistaking an export for one of its checkpoints.
absl::StatusOr<std::string> BundleCatalog::NameOfExport(CheckpointId checkpoint,
                                                        const std::string& directory) {
  ASSIGN_OR_RETURN(const JobState state, ReadJobState(files_, directory_, checkpoint));
  const absl::StatusOr<JobState> there = ReadJobState(files_, directory, checkpoint);
  if (there.ok() && there->job == state.job)
    return absl::AlreadyExistsError(absl::StrCat(directory,
                                                 " is the --checkpoint_dir, where this job's "
                                                 "checkpoints stand: export to another directory"));
  return absl::StrCat(checkpoint.name(), "-", absl::Hex(state.job.value(), absl::kZeroPad16));
}

absl::Status BundleCatalog::Export(CheckpointId checkpoint, const std::string& path,
                                   const ExportOptions& wanted) {
  const bool is_bundle = !absl::EndsWith(path, kSafetensorsEnd);
  std::string name;
  if (is_bundle) {
    ASSIGN_OR_RETURN(name, NameOfExport(checkpoint, path));
  }
  ExchangeOptions options;
  options.slots = wanted.slots;
  options.timeout = wanted.timeout;
  options.from = PathOf(checkpoint.name());
  options.to = is_bundle ? absl::StrCat(path, "/", name) : path;
  options.format = is_bundle ? ExchangeFormat::kBundle : ExchangeFormat::kSafetensors;
  options.existing = Existing::kReplaced;
  ASSIGN_OR_RETURN(const Exchanged exported, ExportCheckpoint(files_, options));
  for (const std::string& what : exported.left_out)
    DIVVY_LOG(WARNING) << path << " does not contain " << what;
  return is_bundle ? OfDisk(NameNewest(files_, path, name)) : absl::OkStatus();
}

// The index is removed first, and the removal is synced. Data without an index is ignored, but an
// index without data is a damaged checkpoint.
absl::Status BundleCatalog::Remove(CheckpointId checkpoint, const std::vector<BundleFile>& of_it) {
  for (const BundleFile& file : of_it) {
    if (!IsIndex(file)) continue;
    RETURN_IF_ERROR(files_.Remove(PathOf(absl::StrCat(checkpoint.name(), ".", file.suffix))));
    RETURN_IF_ERROR(files_.SyncDirectory(directory_));
  }
  for (const BundleFile& file : of_it) {
    if (!IsIndex(file))
      RETURN_IF_ERROR(files_.Remove(PathOf(absl::StrCat(checkpoint.name(), ".", file.suffix))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(FileSystem& files,
                                                          const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(directory));
  std::vector<CheckpointId> checkpoints;
  for (const std::string& name : names) {
    if (const auto file = ParseFile(name); file && IsIndex(*file))
      checkpoints.push_back(file->checkpoint);
  }
  std::sort(checkpoints.rbegin(), checkpoints.rend());
  return checkpoints;
}

absl::StatusOr<JobState> ReadJobState(FileSystem& files, const std::string& directory,
                                      CheckpointId checkpoint) {
  const std::string prefix = absl::StrCat(directory, "/", checkpoint.name());
  // The job continues in an epoch above this one, and that epoch must be possible.
  if (!CanBe(checkpoint.epoch))
    return absl::DataLossError(absl::StrCat(prefix, " is of epoch ", checkpoint.epoch.value(),
                                            ", which no coordinator can have begun: remove it"));
  ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(files, prefix));
  const absl::StatusOr<Tensor> job = reader->ReadTensor(kJobTensor);
  if (absl::IsNotFound(job.status()))
    return absl::DataLossError(
        absl::StrCat(prefix, " has no ", kJobTensor, ": it is no checkpoint that Divvy made"));
  RETURN_IF_ERROR(job.status());
  RETURN_IF_ERROR(CheckFormat(*reader));
  absl::StatusOr<JobState> state = wire::DecodeJobState(
      std::string(job->data_as<char>(), static_cast<size_t>(job->size_bytes())));
  if (!state.ok())
    return OfAnotherVersion(prefix, absl::StrCat(kJobTensor, ": ", state.status().message()));
  if (state->checkpoint != checkpoint)
    return absl::DataLossError(absl::StrCat(prefix, " says that it is ", state->checkpoint.name(),
                                            ": its files were renamed"));
  return state;
}

absl::StatusOr<std::unique_ptr<CheckpointCatalog>> OpenBundleCatalog(FileSystem& files,
                                                                     const std::string& directory) {
  RETURN_IF_ERROR(files.CreateDurableDirectory(directory));
  return std::unique_ptr<CheckpointCatalog>(std::make_unique<BundleCatalog>(files, directory));
}

}  // namespace divvy
