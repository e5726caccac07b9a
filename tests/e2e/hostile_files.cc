#include "tests/e2e/hostile_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "tests/e2e/process_cluster.h"
#include "wire/testing/conversion.h"

namespace divvy {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kUntilChiefEnds = absl::Seconds(30);
constexpr int kMostLives = 3;
constexpr char kWithinMemory[] = "ulimit -v 4194304; exec \"$@\"";  // KiB

// A job of one parameter server, one worker and a chief on a directory, over loopback.
class SmallJob {
 public:
  SmallJob(std::string program, std::string directory, int64_t steps)
      : program_(std::move(program)), directory_(std::move(directory)), steps_(steps) {}

  // Returns how the chief ended; nullopt if it did not end and was killed. Restarts a chief that
  // asks for it.
  absl::StatusOr<std::optional<ExitStatus>> Run() {
    ProcessClusterOptions options;
    options.program = program_;
    options.num_ps = options.num_workers = 1;
    options.flags = {absl::StrCat("--steps=", steps_), "--round=20", "--descents=1"};
    ASSIGN_OR_RETURN(cluster_, ProcessCluster::Make(std::move(options)));
    for (const TaskId& task : cluster_->tasks()) {
      if (!(task == kChiefTask)) RETURN_IF_ERROR(Start(task));
    }
    std::optional<ExitStatus> status = ExitStatus{exit_codes::kTryAgain, 0};
    for (int life = 0; life < kMostLives && status && status->code() == exit_codes::kTryAgain;
         ++life) {
      RETURN_IF_ERROR(Start(kChiefTask));
      const absl::StatusOr<ExitStatus> ended = cluster_->WaitForExit(kChiefTask, kUntilChiefEnds);
      status = ended.ok() ? std::make_optional(*ended) : std::nullopt;
    }
    return status;
  }
  // Names another task that ended by a signal; empty if there is none.
  std::string Crash() {
    for (const TaskId& task : {PsTask(0), WorkerTask(0)}) {
      const absl::StatusOr<ExitStatus> status = cluster_->WaitForExit(task, absl::ZeroDuration());
      if (status.ok() && status->signal != 0)
        return absl::StrCat(ToString(task), " ", status->ToString());
    }
    return "";
  }
  std::string LastLines() const { return cluster_->processes().LastLines(); }
  const std::string& output() const { return cluster_->output(kChiefTask); }

 private:
  absl::Status Start(TaskId task) {
    LifeOptions life;
    life.flags = {absl::StrCat("--checkpoint_dir=", directory_, "/checkpoints")};
    if (task == kChiefTask)
      life.flags.insert(life.flags.end(), {absl::StrCat("--state_dir=", directory_, "/state"),
                                           "--checkpoint_every=20ms"});
    ChildOptions child = cluster_->OptionsOf(task, life);
    child.command.insert(child.command.begin(), {"/bin/sh", "-c", kWithinMemory, "sh"});
    return cluster_->processes().Start(ToString(task), child);
  }

  const std::string program_, directory_;
  const int64_t steps_;
  std::unique_ptr<ProcessCluster> cluster_;
};

std::vector<std::string> FilesOf(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void Write(const std::string& path, const std::string& bytes) {
  FileSystem::Real().ReplaceFile(path, bytes).IgnoreError();
}

// Damages the file at `path`. Returns a description of the damage.
std::string MakeOdd(const std::string& path, Random& random) {
  const std::string bytes = FileSystem::Real().ReadFile(path).value_or("");
  const uint64_t oddity = random.Below(11);
  if (oddity == 0) return Write(path, wire::testing::Mutated(bytes, random)), "changed";
  if (oddity == 1) return Write(path, bytes.substr(0, random.Below(bytes.size() + 1))), "cut short";
  if (oddity == 2)
    return Write(path, std::string(1 + random.Below(5000), static_cast<char>(random.Next()))),
           "filled with one byte";
  if (oddity == 3)
    return truncate(path.c_str(), off_t{64} << 30) == 0 ? "64 GiB long, with nothing in it"
                                                        : "as it was";
  unlink(path.c_str());
  switch (oddity) {
    case 4: return symlink("/dev/zero", path.c_str()) == 0 ? "a link to /dev/zero" : "gone";
    case 5: return symlink(path.c_str(), path.c_str()) == 0 ? "a link to itself" : "gone";
    case 6: return symlink("/etc/hostname", path.c_str()) == 0 ? "a link to another file" : "gone";
    case 7: return mkfifo(path.c_str(), 0600) == 0 ? "a pipe" : "gone";
    case 8: return mkdir(path.c_str(), 0700) == 0 ? "a directory" : "gone";
    case 9: return symlink("/dev/full", path.c_str()) == 0 ? "a link to /dev/full" : "gone";
    default: return "gone";
  }
}

// Adds a damaged file under a new name, similar to an existing one: a newer checkpoint, or a stray
// part.
std::string AddOdd(const std::vector<std::string>& files, Random& random) {
  const std::string& like = files[random.Below(files.size())];
  std::string path = like;
  const size_t digit = path.find_last_of("0123456789");
  if (digit != std::string::npos && digit > path.rfind('/'))
    path[digit] = static_cast<char>('0' + random.Below(10));
  if (path == like) path += ".old";
  Write(path, FileSystem::Real().ReadFile(like).value_or(""));
  return absl::StrCat("a new one, ", MakeOdd(path, random), " (",
                      fs::path(path).filename().string(), ")");
}

class OddFiles {
 public:
  OddFiles(const std::string& program, const std::string& directory, Random& random,
           HostileKind& kind)
      : program_(program),
        good_(directory + "/good"),
        copy_(directory + "/copy"),
        random_(random),
        kind_(kind) {}

  absl::Status MakeGood() {
    fs::create_directories(good_);
    SmallJob job(program_, good_, 60);
    ASSIGN_OR_RETURN(const std::optional<ExitStatus> status, job.Run());
    return status && status->ok()
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat("the undamaged job failed: ", job.LastLines()));
  }

  absl::Status Try() {
    fs::remove_all(copy_);
    fs::copy(good_, copy_, fs::copy_options::recursive);
    const std::vector<std::string> files = FilesOf(copy_);
    const std::string& chosen = files[random_.Below(files.size())];
    const std::string oddity =
        random_.Chance(0.2)
            ? AddOdd(files, random_)
            : absl::StrCat(fs::path(chosen).filename().string(), " ", MakeOdd(chosen, random_));
    SmallJob job(program_, copy_, 120);
    ASSIGN_OR_RETURN(const std::optional<ExitStatus> status, job.Run());
    Judge(oddity, status, job);
    return absl::OkStatus();
  }

 private:
  void Judge(const std::string& oddity, const std::optional<ExitStatus>& status, SmallJob& job) {
    kind_.Note(status ? absl::StrCat("exit ", status->code()) : "no end");
    if (!status) return kind_.Hang(absl::StrCat(oddity, job.LastLines()));
    if (status->signal != 0)
      kind_.Crash(absl::StrCat(oddity, ": the chief ", status->ToString(), job.LastLines()));
    if (const std::string crash = job.Crash(); !crash.empty())
      kind_.Crash(absl::StrCat(oddity, ": ", crash, job.LastLines()));
    // The program compares every element with its expected value.
    if (absl::StrContains(job.output(), ", wanted "))
      kind_.WrongAccept(absl::StrCat(oddity, ": ", job.output()));
  }

  const std::string program_, good_, copy_;
  Random& random_;
  HostileKind& kind_;
};

}  // namespace

absl::Status TryOddFiles(const std::string& program, const std::string& directory, int64_t tries,
                         Random& random, HostileKind& kind) {
  OddFiles odd(program, directory, random, kind);
  RETURN_IF_ERROR(odd.MakeGood());
  for (int64_t i = 0; i < tries; ++i) RETURN_IF_ERROR(odd.Try());
  return absl::OkStatus();
}

}  // namespace divvy
