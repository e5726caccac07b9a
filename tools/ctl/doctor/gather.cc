#include "tools/ctl/doctor/gather.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/path.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "cluster/task_address.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "formats/tensor_bundle.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/peer_certificate.h"
#include "rpc/wall_time.h"
#include "tools/ctl/pause.h"
#include "tools/ctl/survey.h"

namespace divvy::doctor {
namespace {

using StatusSurvey = Survey<v1::GetStatusRequest, v1::TaskStatus>;

// ---- tasks --------------------------------------------------------------------------------------

// The task read its clock at some time during the call, so up to that much is no difference.
std::optional<absl::Duration> ClockAhead(const StatusSurvey::Answer& answer) {
  const std::optional<absl::Time> theirs = WallTimeOf(answer.context);
  if (!answer.status.ok() || !theirs) return std::nullopt;
  const absl::Time began = answer.came - answer.took;
  if (*theirs > answer.came) return *theirs - answer.came;
  return *theirs < began ? *theirs - began : absl::ZeroDuration();
}

std::vector<TaskFacts> Ask(StatusSurvey& survey, const StatusOptions& options) {
  std::vector<TaskFacts> tasks;
  for (const auto& answer : survey.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus)) {
    const auto name = options.names.find(answer->address);
    tasks.push_back({answer->address, name == options.names.end() ? "?" : name->second,
                     answer->status, answer->reply, ClockAhead(*answer)});
  }
  return tasks;
}

const v1::CoordinatorStatus* JobOf(const std::vector<TaskFacts>& tasks) {
  for (const TaskFacts& task : tasks) {
    if (task.status.ok() && task.task.has_coordinator()) return &task.task.coordinator();
  }
  return nullptr;
}

int64_t Finished(const v1::CoordinatorStatus& job) {
  return job.finished_steps() + job.finished_reads();
}

// ---- files --------------------------------------------------------------------------------------

// Absent: the file cannot be seen.
std::optional<absl::Time> DateOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return absl::TimeFromTimespec(info.st_mtim);
}

// Writes a file, and compares its date with this machine's clock.
absl::Status TryToWrite(DirectoryFacts& directory) {
  FileSystem& files = FileSystem::Real();
  const std::string path = absl::StrCat(directory.path, "/.divvyctl-doctor-", ProcessId());
  const absl::Time began = Clock::Real().WallTime();
  absl::Status written = files.ReplaceFile(path, "divvyctl doctor writes and removes this file\n");
  if (const std::optional<absl::Time> date = DateOf(path); written.ok() && date) {
    const absl::Time now = Clock::Real().WallTime();
    // Kernels date files by a clock that advances in ticks.
    constexpr absl::Duration kTick = absl::Milliseconds(20);
    directory.clock_ahead = *date > now             ? *date - now
                            : *date < began - kTick ? *date - began
                                                    : absl::ZeroDuration();
  }
  const absl::Status removed = files.Remove(path);
  if (written.ok()) written = removed;
  return written;
}

// The data files of the checkpoint that are not there. Their names tell how many there are.
std::vector<std::string> MissingFiles(const std::vector<std::string>& names,
                                      const std::string& checkpoint) {
  const std::string beginning = absl::StrCat(checkpoint, ".data-");
  int num_files = 0;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, beginning)) continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(absl::string_view(name).substr(beginning.size()), "-of-");
    int number = 0;
    if (absl::SimpleAtoi(parts.second, &number) && number <= kMaxBundleFiles)
      num_files = std::max(num_files, number);
  }
  if (num_files == 0) return {absl::StrCat(beginning, "*")};
  std::vector<std::string> missing;
  for (int i = 0; i < num_files; ++i) {
    std::string name = BundleDataFile(checkpoint, i, num_files);
    if (std::find(names.begin(), names.end(), name) == names.end())
      missing.push_back(std::move(name));
  }
  return missing;
}

uint64_t SizeOf(const std::string& directory, const std::vector<std::string>& names,
                const std::string& checkpoint) {
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, checkpoint + "."))
      bytes += FileSystem::Real()
                   .Stat(absl::StrCat(directory, "/", name))
                   .value_or(FileInfo())
                   .size_bytes;
  }
  return bytes;
}

bool IsOwn(const struct stat& info) { return info.st_uid == geteuid() && info.st_uid != 0; }

// Only the last component: a missing parent is a volume that is not mounted, or a wrong path.
absl::StatusOr<std::string> MakeDirectory(const std::string& path) {
  const std::string parent = DirectoryOf(path);
  const absl::StatusOr<FileInfo> info = FileSystem::Real().Stat(parent);
  if (!info.ok() || !info->is_directory)
    return absl::NotFoundError(absl::StrCat("there is no directory ", parent,
                                            " either: mount the volume, or correct the path"));
  RETURN_IF_ERROR(FileSystem::Real().CreateDurableDirectory(path));
  return absl::StrCat("made the directory ", path, ": check that this is the shared volume");
}

absl::StatusOr<std::string> CloseKey(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    return absl::PermissionDeniedError(
        absl::StrCat("cannot see ", path, ": ", std::strerror(errno)));
  if (!IsOwn(info))
    return absl::PermissionDeniedError(absl::StrCat(
        "did not change ", path, ": run this command as its owner, who must not be root"));
  const mode_t mode = info.st_mode & 07777 & ~static_cast<mode_t>(S_IRWXO);
  if (chmod(path.c_str(), mode) != 0)
    return absl::PermissionDeniedError(
        absl::StrCat("cannot change the mode of ", path, ": ", std::strerror(errno)));
  return absl::StrFormat("set the mode of %s to %04o; make a new key, too", path, mode);
}

void LookAtNewest(const std::string& directory, const std::vector<std::string>& names,
                  DirectoryFacts::Checkpoint& newest) {
  const std::string prefix = absl::StrCat(directory, "/", newest.name);
  const auto reader = BundleReader::Open(FileSystem::Real(), prefix);
  newest.state = reader.ok() ? FinishedStepsOf(**reader).status() : reader.status();
  newest.missing_files = MissingFiles(names, newest.name);
  newest.bytes = SizeOf(directory, names, newest.name);
  if (const std::optional<absl::Time> date = DateOf(BundleIndexFile(prefix)))
    newest.age = Clock::Real().WallTime() - *date;
}

}  // namespace

std::optional<ConfigFacts> LookAtConfig(const ClusterConfigSources& sources) {
  if (sources.empty()) return std::nullopt;
  const ClusterExamination examination = ExamineCluster(sources);
  return ConfigFacts{examination.source, examination.problems};
}

std::vector<TaskFacts> LookAtTasks(const StatusOptions& options, absl::Duration patience,
                                   std::optional<ProgressFacts>& progress) {
  StatusSurvey survey(options.addresses, options.credentials, options.timeout);
  std::vector<TaskFacts> tasks = Ask(survey, options);
  const v1::CoordinatorStatus* job = JobOf(tasks);
  progress.reset();
  if (job == nullptr || job->queued() + job->in_flight() == 0) return tasks;
  int64_t before = Finished(*job);
  absl::Duration start = Clock::Real().Elapsed();
  const absl::Duration end = start + 3 * patience;
  progress.emplace();
  while (progress->finished_steps == 0 && progress->watched < patience) {
    Pause(absl::Seconds(1));
    tasks = Ask(survey, options);
    job = JobOf(tasks);
    if (job == nullptr || job->queued() + job->in_flight() == 0) {
      progress.reset();
      break;
    }
    const absl::Duration now = Clock::Real().Elapsed();
    // The number falls when the coordinator is started again, or goes back to a checkpoint.
    if (Finished(*job) < before && now < end) {
      before = Finished(*job);
      start = now;
    }
    progress->watched = now - start;
    progress->finished_steps = std::max<int64_t>(0, Finished(*job) - before);
  }
  return tasks;
}

DirectoryFacts LookAtDirectory(const std::string& path) {
  DirectoryFacts directory;
  directory.path = path.size() > 1 ? std::string(absl::StripSuffix(path, "/")) : path;
  const absl::StatusOr<std::vector<std::string>> names = FileSystem::Real().ListDirectory(path);
  directory.state = names.status();
  if (!names.ok()) return directory;
  directory.writable = TryToWrite(directory);
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) == 0) {
    directory.free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
    directory.total_bytes = uint64_t{disk.f_blocks} * disk.f_frsize;
  }
  const auto prefixes = CheckpointPrefixes(FileSystem::Real(), directory.path);
  if (!prefixes.ok()) return directory;
  for (const std::string& prefix : *prefixes) {
    directory.checkpoints.emplace_back();
    directory.checkpoints.back().name = BaseNameOf(prefix);
  }
  LookAtNewest(directory.path, *names, directory.checkpoints.front());
  return directory;
}

CertificateFacts LookAtCertificates(const TlsFiles& files) {
  CertificateFacts facts;
  facts.cert = files.cert;
  facts.key = files.key;
  if (const absl::Status status = CheckTlsFiles(files); !status.ok())
    facts.problems = absl::StrSplit(status.message(), "; ");
  facts.end = EndOfCertificate(files.cert);
  struct stat info;
  if (stat(files.key.c_str(), &info) == 0) {
    facts.key_mode = info.st_mode;
    facts.key_is_own = IsOwn(info);
  }
  return facts;
}

MachineFacts LookAtMachine(int workers) {
  MachineFacts machine;
  machine.cores = NumCores();
  machine.workers = workers;
  struct stat info;
  machine.has_gpus = stat("/dev/nvidiactl", &info) == 0;
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) == 0) machine.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  return machine;
}

int WorkersOnThisHost(const ClusterConfigSources& sources) {
  const ClusterConfig config = ExamineCluster(sources).config;
  const std::string own = OwnAddress(config);
  const auto host = [](absl::string_view address) { return address.substr(0, address.rfind(':')); };
  int workers = 0;
  for (const auto& [job, tasks] : TrainingCluster(config)) {
    for (const auto& [index, address] : tasks)
      workers += job == "worker" && !own.empty() && host(address) == host(own);
  }
  return workers;
}

absl::StatusOr<std::string> Mend(const Finding& finding) {
  switch (finding.fix) {
    case Finding::Fix::kMakeDirectory: return MakeDirectory(finding.path);
    case Finding::Fix::kCloseKey: return CloseKey(finding.path);
    case Finding::Fix::kNone: break;
  }
  return absl::InvalidArgumentError("nothing that this command may mend");
}

}  // namespace divvy::doctor
