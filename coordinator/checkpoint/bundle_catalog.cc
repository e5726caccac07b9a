#include "coordinator/checkpoint/bundle_catalog.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/exchange.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "formats/tensor_bundle.h"
#include "wire/job_state.h"

namespace divvy {
namespace {

constexpr char kJobTensor[] = "_divvy/job";  // uint8 [n]: a serialized JobState

// The file of a bundle: "ckpt-3-17.index" -> its id and "index".
struct BundleFile {
  CheckpointId checkpoint;
  std::string suffix;
};

std::optional<BundleFile> ParseFile(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(name, absl::MaxSplits('.', 1));
  const auto checkpoint = CheckpointOf(parts.first);
  if (!checkpoint || parts.second.empty()) return std::nullopt;
  return BundleFile{*checkpoint, std::string(parts.second)};
}

bool IsIndex(const BundleFile& file) { return file.suffix == "index"; }

BundleSlice ToBundle(const SavedSlice& slice, int file) {
  return {slice.tensor, slice.dtype, slice.full_shape, slice.first_row, slice.first_row + slice.rows, file, slice.offset, slice.size_bytes, slice.masked_crc};
}

// WriteBundleIndex finds what is there and does not fit; this, what is not there.
absl::Status CheckComplete(const Layout& layout, const std::vector<BundleSlice>& slices) {
  std::set<std::string> saved;
  for (const BundleSlice& slice : slices) saved.insert(slice.tensor);
  for (const auto& [id, variable] : layout.variables()) {
    if (variable.spec.shape.num_elements() == 0) continue;
    std::vector<std::string> names = {variable.spec.name};
    for (size_t i = 0; i < variable.slots.size(); ++i) names.push_back(variable.SlotName(static_cast<int>(i)));
    for (const std::string& name : names) {
      if (saved.count(name) == 0) return absl::DataLossError(absl::StrCat("no server has written \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

class BundleCatalog : public CheckpointCatalog {
 public:
  BundleCatalog(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId> below) override;
  absl::Status Commit(const JobState& state, const std::vector<std::vector<SavedSlice>>& parts) override;
  absl::Status Collect(int keep, CheckpointId base, CheckpointId below) override;
  absl::Status Export(CheckpointId checkpoint, const std::string& path) override;

 private:
  std::string PathOf(absl::string_view name) const { return absl::StrCat(directory_, "/", name); }
  absl::Status WriteState(const JobState& state, int num_files, std::vector<BundleSlice>& slices);
  absl::StatusOr<std::string> NameOfExport(CheckpointId checkpoint, const std::string& directory);
  absl::StatusOr<std::map<CheckpointId, std::vector<BundleFile>>> FilesByCheckpoint();
  absl::Status Remove(CheckpointId checkpoint, const std::vector<BundleFile>& of_it);

  FileSystem& files_;
  const std::string directory_;
};

absl::StatusOr<std::optional<JobState>> BundleCatalog::Newest(std::optional<CheckpointId> below) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> checkpoints, ListCheckpoints(files_, directory_));
  absl::Status damage;
  for (const CheckpointId checkpoint : checkpoints) {
    if (below && !(checkpoint < *below)) continue;
    absl::StatusOr<JobState> state = ReadJobState(files_, directory_, checkpoint);
    if (state.ok()) return std::optional<JobState>(*std::move(state));
    if (!absl::IsDataLoss(state.status())) return state.status();
    DIVVY_LOG(ERROR) << state.status().message() << ". Looking for an older checkpoint";
    damage.Update(state.status());
  }
  if (!damage.ok()) return absl::DataLossError(absl::StrCat("no checkpoint in ", directory_, " can be read: ", damage.message()));
  return std::optional<JobState>();
}

absl::Status BundleCatalog::Commit(const JobState& state, const std::vector<std::vector<SavedSlice>>& parts) {
  std::vector<BundleSlice> slices;
  for (size_t file = 0; file < parts.size(); ++file) {
    for (const SavedSlice& slice : parts[file]) slices.push_back(ToBundle(slice, static_cast<int>(file)));
  }
  RETURN_IF_ERROR(CheckComplete(*state.layout, slices));
  const int num_files = static_cast<int>(parts.size()) + 1;
  RETURN_IF_ERROR(WriteState(state, num_files, slices));
  const std::string prefix = PathOf(state.checkpoint.name());
  const absl::Status written = WriteBundleIndex(files_, prefix, num_files, slices);
  if (!written.ok() && files_.Stat(BundleIndexFile(prefix)).ok()) {
    return absl::AbortedError(absl::StrCat("nobody knows whether ", prefix, " will survive a crash: ", written.message()));
  }
  RETURN_IF_ERROR(written);
  const absl::Status hinted = NameNewest(files_, directory_, state.checkpoint.name());
  if (!hinted.ok()) DIVVY_LOG(WARNING) << hinted.message();  // a hint: the checkpoint is there all the same
  return absl::OkStatus();
}

// The coordinator's own data file, the last one.
absl::Status BundleCatalog::WriteState(const JobState& state, int num_files, std::vector<BundleSlice>& slices) {
  const std::string job = wire::EncodeJobState(state);
  if (const absl::Status readable = wire::DecodeJobState(job).status(); !readable.ok()) {
    return absl::InternalError(absl::StrCat("the job's state could not be read again: ", readable.message()));
  }
  ASSIGN_OR_RETURN(const auto writer, BundleDataWriter::Create(files_, PathOf(state.checkpoint.name()), num_files - 1, num_files));
  const int64_t bytes = static_cast<int64_t>(job.size());
  ASSIGN_OR_RETURN(slices.emplace_back(), writer->Append(kJobTensor, DType::kUInt8, Shape{bytes}, 0, bytes, job));
  const absl::string_view steps(reinterpret_cast<const char*>(&state.finished_steps), sizeof(state.finished_steps));
  ASSIGN_OR_RETURN(slices.emplace_back(), writer->Append(kFinishedStepsTensor, DType::kInt64, Shape(), 0, 1, steps));
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

absl::Status BundleCatalog::Collect(int keep, CheckpointId base, CheckpointId below) {
  ASSIGN_OR_RETURN(const auto by_checkpoint, FilesByCheckpoint());
  int kept = 0;
  for (auto it = by_checkpoint.rbegin(); it != by_checkpoint.rend(); ++it) {
    const auto& [checkpoint, of_it] = *it;
    const bool committed = std::any_of(of_it.begin(), of_it.end(), IsIndex);
    const bool wanted = checkpoint == base || (committed && kept < std::max(keep, 2));
    kept += committed && wanted;
    if (!wanted && checkpoint < below) RETURN_IF_ERROR(Remove(checkpoint, of_it));  // others may be being written
  }
  return absl::OkStatus();
}

// With the job's id, which no two jobs share: a program that begins anew counts its checkpoints anew, and may export into the same directory. And none that
// goes on from that directory takes it for one of its checkpoints.
absl::StatusOr<std::string> BundleCatalog::NameOfExport(CheckpointId checkpoint, const std::string& directory) {
  ASSIGN_OR_RETURN(const JobState state, ReadJobState(files_, directory_, checkpoint));
  const absl::StatusOr<JobState> there = ReadJobState(files_, directory, checkpoint);
  if (there.ok() && there->job == state.job)
    return absl::AlreadyExistsError(absl::StrCat(directory, " is the --checkpoint_dir, where this job's checkpoints stand: export to another directory"));
  return absl::StrCat(checkpoint.name(), "-", absl::Hex(state.job.value(), absl::kZeroPad16));
}

absl::Status BundleCatalog::Export(CheckpointId checkpoint, const std::string& path) {
  const bool is_bundle = !absl::EndsWith(path, kSafetensorsEnd);
  std::string name;
  if (is_bundle) {
    ASSIGN_OR_RETURN(name, NameOfExport(checkpoint, path));
  }
  ExportOptions options;
  options.from = PathOf(checkpoint.name());
  options.to = is_bundle ? absl::StrCat(path, "/", name) : path;
  options.format = is_bundle ? ExchangeFormat::kBundle : ExchangeFormat::kSafetensors;
  options.existing = Existing::kReplaced;
  ASSIGN_OR_RETURN(const Exchanged exported, ExportCheckpoint(files_, options));
  for (const std::string& what : exported.left_out) DIVVY_LOG(WARNING) << path << " has not got " << what;
  return is_bundle ? OfDisk(NameNewest(files_, path, name)) : absl::OkStatus();
}

// The index first, and for good: data without an index is nothing, an index without data is a damaged checkpoint.
absl::Status BundleCatalog::Remove(CheckpointId checkpoint, const std::vector<BundleFile>& of_it) {
  for (const BundleFile& file : of_it) {
    if (!IsIndex(file)) continue;
    RETURN_IF_ERROR(files_.Remove(PathOf(absl::StrCat(checkpoint.name(), ".", file.suffix))));
    RETURN_IF_ERROR(files_.SyncDirectory(directory_));
  }
  for (const BundleFile& file : of_it) {
    if (!IsIndex(file)) RETURN_IF_ERROR(files_.Remove(PathOf(absl::StrCat(checkpoint.name(), ".", file.suffix))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(FileSystem& files, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(directory));
  std::vector<CheckpointId> checkpoints;
  for (const std::string& name : names) {
    if (const auto file = ParseFile(name); file && IsIndex(*file)) checkpoints.push_back(file->checkpoint);
  }
  std::sort(checkpoints.rbegin(), checkpoints.rend());
  return checkpoints;
}

absl::StatusOr<JobState> ReadJobState(FileSystem& files, const std::string& directory, CheckpointId checkpoint) {
  const std::string prefix = absl::StrCat(directory, "/", checkpoint.name());
  ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(files, prefix));
  const absl::StatusOr<Tensor> job = reader->ReadTensor(kJobTensor);
  if (absl::IsNotFound(job.status())) return absl::DataLossError(absl::StrCat(prefix, " has no ", kJobTensor, ": it is no checkpoint that Divvy made"));
  RETURN_IF_ERROR(job.status());
  absl::StatusOr<JobState> state = wire::DecodeJobState(std::string(job->data_as<char>(), static_cast<size_t>(job->size_bytes())));
  if (!state.ok()) return absl::DataLossError(absl::StrCat(prefix, ", ", kJobTensor, ": ", state.status().message()));
  if (state->checkpoint != checkpoint)
    return absl::DataLossError(absl::StrCat(prefix, " says that it is ", state->checkpoint.name(), ": its files were renamed"));
  return state;
}

absl::StatusOr<std::unique_ptr<CheckpointCatalog>> OpenBundleCatalog(FileSystem& files, const std::string& directory) {
  RETURN_IF_ERROR(files.CreateDurableDirectory(directory));
  return std::unique_ptr<CheckpointCatalog>(std::make_unique<BundleCatalog>(files, directory));
}

}  // namespace divvy
