#include "tools/ctl/doctor/checks.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/report/format.h"
#include "tools/ctl/task_text.h"

namespace divvy::doctor {
namespace {

using Findings = std::vector<Finding>;

constexpr absl::Duration kMostClockDifference = absl::Seconds(5);
constexpr absl::Duration kLongWait = absl::Minutes(1);
constexpr absl::Duration kCertificateEndsSoon = absl::Hours(24 * 7);
constexpr double kMostOfBudget = 0.9, kLeastOfDisk = 0.05;
constexpr int kMissedCheckpoints = 3;
// As `divvyctl gen` gives to containers with GPUs.
constexpr uint64_t kLeastSharedMemory = uint64_t{1} << 30;

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<int64_t>(bytes)); }

// "ps 1 (ps-1:2222)"
std::string NameOf(const TaskFacts& task) {
  return absl::StrCat(task.status.ok() ? TaskName(task.task) : task.name, " (", task.address, ")");
}

std::string Text(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

template <typename Function>
void ForEachAnswer(const Facts& facts, const Function& function) {
  for (const TaskFacts& task : facts.tasks) {
    if (task.status.ok()) function(task);
  }
}

// ---- the cluster --------------------------------------------------------------------------------

Findings Config(const Facts& facts) {
  Findings findings;
  if (!facts.config) return findings;
  for (const std::string& problem : facts.config->problems)
    findings.push_back({absl::StrCat(facts.config->source, " is wrong: ", problem),
                        "no task starts with it (exit code 78)",
                        "change it; `divvyctl config` shows what each task makes of it"});
  return findings;
}

Findings Unreachable(const Facts& facts) {
  Findings findings;
  for (const TaskFacts& task : facts.tasks) {
    if (task.status.ok()) continue;
    findings.push_back({absl::StrCat(NameOf(task), " does not answer"),
                        std::string(task.status.message()),
                        "start it, or see in its log why it has ended; then `divvyctl health "
                        "--addr=" +
                            task.address + "`"});
  }
  return findings;
}

Findings WrongTask(const Facts& facts) {
  Findings findings;
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    if (task.name == "?" || task.name.empty() || task.name == TaskName(task.task)) return;
    findings.push_back({absl::StrCat("at ", task.address, " is ", TaskName(task.task),
                                     ", and TF_CONFIG has ", task.name, " there"),
                        "tasks that look for one find the other, and are refused",
                        "give both tasks and this command the same TF_CONFIG"});
  });
  return findings;
}

Findings WrongJob(const Facts& facts) {
  Findings findings;
  const TaskFacts* const chief = facts.Chief();
  if (chief == nullptr || chief->task.job_id() == 0) return findings;
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    // 0: it has not met a coordinator yet.
    if (task.task.job_id() == 0 || task.task.job_id() == chief->task.job_id()) return;
    findings.push_back(
        {absl::StrCat(NameOf(task), " belongs to job ",
                      absl::StrFormat("%016x", task.task.job_id()), ", and the coordinator to ",
                      absl::StrFormat("%016x", chief->task.job_id())),
         "it refuses the coordinator, because it holds the state of another job",
         "end it (SIGTERM) and start it again, if that job is over; else give one of the jobs "
         "other addresses"});
  });
  return findings;
}

Findings OtherBuild(const Facts& facts) {
  std::map<std::string, std::vector<std::string>> tasks_of;
  ForEachAnswer(
      facts, [&](const TaskFacts& task) { tasks_of[task.task.build()].push_back(NameOf(task)); });
  if (tasks_of.size() < 2) return {};
  const std::string all = absl::StrJoin(tasks_of, "; ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first.empty() ? "no build" : entry.first, ": ",
                    absl::StrJoin(entry.second, ", "));
  });
  return {{absl::StrCat("tasks run ", tasks_of.size(), " builds"), all,
           "start all tasks with the same binary"}};
}

Findings Clocks(const Facts& facts) {
  Findings findings;
  const auto add = [&findings](const std::string& whose, absl::Duration ahead) {
    if (absl::AbsDuration(ahead) < kMostClockDifference) return;
    findings.push_back(
        {absl::StrCat("the clock of ", whose, " is ", Text(absl::AbsDuration(ahead)), " ",
                      ahead > absl::ZeroDuration() ? "ahead of" : "behind", " this machine's"),
         "certificates look expired or not yet valid, and the ages of checkpoints "
         "and the times in logs are wrong",
         "start a time service on both machines (`timedatectl set-ntp true`)"});
  };
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    if (task.clock_ahead) add(NameOf(task), *task.clock_ahead);
  });
  if (facts.checkpoints && facts.checkpoints->writable.ok())
    add("the file server of " + facts.checkpoints->path, facts.checkpoints->clock_ahead);
  return findings;
}

// ---- the job ------------------------------------------------------------------------------------

Findings Stalled(const Facts& facts) {
  if (!facts.progress || facts.progress->finished_steps > 0) return {};
  return {{absl::StrCat("no step has finished for ", Text(facts.progress->watched)),
           "steps wait or run, and none ends. A single step may take that long",
           "`divvyctl top` shows what each task waits for; end a worker that hangs (SIGTERM)"}};
}

Findings LongWaits(const Facts& facts) {
  Findings findings;
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    for (const v1::TaskStatus::Wait& wait : task.task.waits()) {
      const absl::Duration since = absl::Nanoseconds(wait.since_ns());
      if (since < kLongWait) continue;
      findings.push_back({absl::StrCat(NameOf(task), " has waited for ", Text(since)), wait.text(),
                          "see docs/operating/operations.md, \"What waits for what\""});
    }
  });
  return findings;
}

Findings FullTables(const Facts& facts) {
  Findings findings;
  const TaskFacts* const chief = facts.Chief();
  if (chief == nullptr) return findings;
  for (const v1::CoordinatorStatus::Table& table : chief->task.coordinator().tables()) {
    if (table.stats().refused() == 0) continue;
    findings.push_back({absl::StrCat("table ", table.name(), " is full"),
                        absl::StrCat(table.stats().refused(), " writes to new keys found no room"),
                        "raise max_rows or --memory_limit_bytes, or add parameter servers "
                        "(`divvyctl resize`)"});
  }
  return findings;
}

Findings Budget(const Facts& facts) {
  Findings findings;
  if (facts.memory_limit_bytes <= 0) return findings;
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    const int64_t used = task.task.ps().memory_bytes();
    if (!task.task.has_ps() ||
        static_cast<double>(used) < kMostOfBudget * static_cast<double>(facts.memory_limit_bytes))
      return;
    findings.push_back({absl::StrCat(NameOf(task), " uses ", FormatBytes(used), " of its ",
                                     FormatBytes(facts.memory_limit_bytes)),
                        "new shards and rows that exceed --memory_limit_bytes are refused",
                        "`divvyctl resize --ps=N` with more servers, or raise the limit"});
  });
  return findings;
}

// ---- checkpoints --------------------------------------------------------------------------------

Findings Directory(const Facts& facts) {
  if (!facts.checkpoints) return {};
  const DirectoryFacts& directory = *facts.checkpoints;
  if (absl::IsNotFound(directory.state))
    return {{absl::StrCat("there is no directory ", directory.path),
             "the coordinator and every parameter server must reach the directory of checkpoints",
             absl::StrCat("`mkdir -p ", directory.path, "`, or mount the volume that has it"),
             Finding::Fix::kMakeDirectory, directory.path}};
  if (!directory.state.ok())
    return {{absl::StrCat("the directory ", directory.path, " cannot be read"),
             std::string(directory.state.message()),
             "give a directory that the tasks' user may read and write"}};
  if (!directory.writable.ok())
    return {{absl::StrCat("nothing can be written to ", directory.path),
             std::string(directory.writable.message()),
             absl::StrCat("run this command as the tasks' user; if it finds the same, `chown` ",
                          directory.path, " to that user, or make room")}};
  return {};
}

Findings Disk(const Facts& facts) {
  if (!facts.checkpoints || !facts.checkpoints->state.ok()) return {};
  const DirectoryFacts& directory = *facts.checkpoints;
  const uint64_t next = directory.checkpoints.empty() ? 0 : directory.checkpoints.front().bytes;
  const auto least =
      static_cast<uint64_t>(kLeastOfDisk * static_cast<double>(directory.total_bytes));
  if (directory.total_bytes == 0 || directory.free_bytes >= std::max(least, next)) return {};
  return {
      {absl::StrCat("the disk of ", directory.path, " is nearly full: ",
                    Bytes(directory.free_bytes), " of ", Bytes(directory.total_bytes), " are free"),
       next > directory.free_bytes ? absl::StrCat("the next checkpoint needs about ", Bytes(next))
                                   : std::string("a checkpoint that does not fit is given up"),
       "make room there, keep fewer checkpoints (--keep), or move the directory"}};
}

Findings Newest(const Facts& facts) {
  if (!facts.checkpoints || facts.checkpoints->checkpoints.empty()) return {};
  const DirectoryFacts::Checkpoint& newest = facts.checkpoints->checkpoints.front();
  if (newest.state.ok()) return {};
  if (!newest.missing_files.empty())
    return {{absl::StrCat("files of ", newest.name, " are not in ", facts.checkpoints->path, ": ",
                          absl::StrJoin(newest.missing_files, ", ")),
             "the parameter servers that wrote them do not share this directory, or somebody "
             "removed the files",
             "mount one volume at this path on the machines of the coordinator and of every "
             "parameter server"}};
  return {{absl::StrCat("the newest checkpoint is damaged: ", newest.name),
           std::string(newest.state.message()),
           absl::StrCat("`divvyctl checkpoint verify ", facts.checkpoints->path,
                        "` shows which are whole; the job takes the newest whole one")}};
}

// The coordinator's newest checkpoint must be in the directory.
Findings NotShared(const Facts& facts) {
  const TaskFacts* const chief = facts.Chief();
  if (!facts.checkpoints || !facts.checkpoints->state.ok() || chief == nullptr) return {};
  const std::string& last = chief->task.coordinator().last_checkpoint();
  const auto& there = facts.checkpoints->checkpoints;
  if (last.empty() ||
      std::any_of(there.begin(), there.end(), [&](const auto& one) { return one.name == last; }))
    return {};
  return {
      {absl::StrCat("the coordinator's checkpoint ", last, " is not in ", facts.checkpoints->path),
       "this machine does not see the directory that the coordinator writes to",
       "give the --checkpoint_dir of the job, and mount the same volume here"}};
}

Findings OldCheckpoint(const Facts& facts) {
  const TaskFacts* const chief = facts.Chief();
  if (!facts.checkpoints || facts.checkpoints->checkpoints.empty() || chief == nullptr ||
      facts.checkpoint_every <= absl::ZeroDuration())
    return {};
  const v1::CoordinatorStatus& job = chief->task.coordinator();
  const DirectoryFacts::Checkpoint& newest = facts.checkpoints->checkpoints.front();
  const int64_t uncovered = job.finished_steps() - job.durable_steps();
  if (uncovered <= 0 || newest.age < kMissedCheckpoints * facts.checkpoint_every) return {};
  return {{absl::StrCat("the newest checkpoint, ", newest.name, ", is ", Text(newest.age), " old"),
           absl::StrCat("a loss now would cost ", uncovered, " steps"),
           "`divvyctl checkpoint save`: it makes one, or says why it cannot"}};
}

// ---- certificates -------------------------------------------------------------------------------

Findings Certificates(const Facts& facts) {
  Findings findings;
  if (!facts.certificates) return findings;
  for (const std::string& problem : facts.certificates->problems)
    findings.push_back(
        {problem, "no task accepts it",
         "`divvyctl certs` makes certificates; with --add for a task that has none"});
  return findings;
}

Findings CertificateEnd(const Facts& facts) {
  if (!facts.certificates || !facts.certificates->end) return {};
  const absl::Duration left = *facts.certificates->end - facts.now;
  // One that is over is a problem of the files.
  if (left <= absl::ZeroDuration() || left > kCertificateEndsSoon) return {};
  return {{absl::StrCat(facts.certificates->cert, " ends in ", Text(left)),
           "then every connection of this task is refused",
           "put a new certificate in its place: tasks read it within a minute"}};
}

Findings OpenKey(const Facts& facts) {
  if (!facts.certificates || !facts.certificates->key_mode ||
      (*facts.certificates->key_mode & S_IRWXO) == 0)
    return {};
  const std::string& key = facts.certificates->key;
  return {{absl::StrCat("every user of this machine may use the key ", key),
           absl::StrFormat("its mode is %04o; who has the key can play this task",
                           *facts.certificates->key_mode & 07777),
           absl::StrCat("`chmod o-rwx ", key, "`"), Finding::Fix::kCloseKey, key}};
}

// ---- the machine --------------------------------------------------------------------------------

Findings BlasThreads(const Facts& facts) {
  const MachineFacts& machine = facts.machine;
  const int wanted = facts.blas_threads * std::max(1, machine.workers);
  if (wanted <= machine.cores) return {};
  return {{absl::StrCat("workers of this machine want ", wanted, " threads, and it has ",
                        machine.cores, " cores"),
           absl::StrCat("--blas_threads=", facts.blas_threads, " for each of ",
                        std::max(1, machine.workers), " workers: the threads wait for each other"),
           "leave --blas_threads out: then each worker takes its part of the cores"}};
}

Findings SharedMemory(const Facts& facts) {
  if (!facts.machine.has_gpus || facts.machine.shm_bytes >= kLeastSharedMemory) return {};
  return {{absl::StrCat("/dev/shm has ", Bytes(facts.machine.shm_bytes)),
           "GPUs of one machine exchange values there",
           "give the container more: `--shm-size=1g`, or what `divvyctl gen` prints"}};
}

constexpr Check kChecks[] = {
    {"config", Config},
    {"unreachable", Unreachable},
    {"wrong task", WrongTask},
    {"wrong job", WrongJob},
    {"other build", OtherBuild},
    {"clocks", Clocks},
    {"stalled", Stalled},
    {"long waits", LongWaits},
    {"full tables", FullTables},
    {"budget", Budget},
    {"directory", Directory},
    {"disk", Disk},
    {"newest checkpoint", Newest},
    {"not shared", NotShared},
    {"old checkpoint", OldCheckpoint},
    {"certificates", Certificates},
    {"certificate's end", CertificateEnd},
    {"open key", OpenKey},
    {"BLAS threads", BlasThreads},
    {"shared memory", SharedMemory},
};

}  // namespace

absl::Span<const Check> AllChecks() { return kChecks; }

std::vector<Finding> Examine(const Facts& facts) {
  std::vector<Finding> findings;
  for (const Check& check : AllChecks()) {
    for (Finding& finding : check.run(facts)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace divvy::doctor
