#include "tools/ctl/doctor/checks.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/number_text.h"
#include "tools/ctl/task_text.h"

namespace divvy::doctor {
namespace {

using Findings = std::vector<Finding>;

constexpr absl::Duration kMostClockDifference = absl::Seconds(5);
constexpr absl::Duration kLongWait = absl::Minutes(1);
// As --step_deadline has it: until then a step may simply be long.
constexpr absl::Duration kLongStep = absl::Minutes(10);
constexpr absl::Duration kCertificateEndsSoon = absl::Hours(24 * 7);
constexpr double kMostOfBudget = 0.9, kLeastOfDisk = 0.05;
constexpr int kMissedCheckpoints = 3;
// As `divvyctl gen` gives to containers with GPUs.
constexpr uint64_t kLeastSharedMemory = uint64_t{1} << 30;

std::string Bytes(uint64_t bytes) { return BytesText(static_cast<int64_t>(bytes)); }

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

// "step train on worker 3": the coordinator waits for a worker that computes.
bool IsStepOnWorker(const v1::TaskStatus::Wait& wait) {
  return absl::StartsWith(wait.text(), "step ") && absl::StrContains(wait.text(), " on worker ");
}

// The age of the oldest step counts its time in the queue. So nothing is said while a worker runs a
// step that may still end.
Findings Stalled(const Facts& facts) {
  const TaskFacts* const chief = facts.Chief();
  if (!facts.progress || facts.progress->finished_steps > 0 || chief == nullptr) return {};
  const auto oldest = absl::Nanoseconds(chief->task.coordinator().oldest_step_ns());
  const auto& waits = chief->task.waits();
  const bool runs = std::any_of(waits.begin(), waits.end(), [](const auto& wait) {
    return IsStepOnWorker(wait) && absl::Nanoseconds(wait.since_ns()) < kLongStep;
  });
  if (oldest < kLongStep || runs) return {};
  return {{absl::StrCat("no step finished within ", Text(facts.progress->watched),
                        ", and the oldest is ", Text(oldest), " old"),
           "steps wait or run, and none ends",
           "`divvyctl top` shows what the coordinator waits for; end a worker that hangs "
           "(SIGTERM)"}};
}

// What kinds of findings mean, and what mends them.
std::pair<const char*, const char*> MeaningOf(v1::TaskStatus::Finding::Kind kind) {
  switch (kind) {
    case v1::TaskStatus::Finding::MEMORY_FORECAST:
      return {"new shards and rows that exceed --memory_limit_bytes are refused",
              "`divvyctl resize --ps=N` with more servers, max_rows for the tables, or a higher "
              "limit"};
    case v1::TaskStatus::Finding::HOT_PS:
      return {"the steps of the whole job wait for this server",
              "`divvyctl rebalance`, or a partitioner that cuts its variables into more shards"};
    case v1::TaskStatus::Finding::STRAGGLER:
      return {"the end of an epoch waits for this worker",
              "look at the load of its machine (`divvyctl doctor` there), or replace the worker"};
    case v1::TaskStatus::Finding::INPUT_BOUND:
      return {"more or faster workers do not help",
              "let its datasets prefetch (Prefetch, Map with parallel_calls), or put the data on a "
              "faster disk"};
    default:
      return {"the coordinator has found this in the samples of the last minutes",
              "see docs/operating/operations.md, \"The status page\""};
  }
}

Findings FoundByCoordinator(const Facts& facts) {
  Findings findings;
  const TaskFacts* const chief = facts.Chief();
  if (chief == nullptr) return findings;
  for (const v1::TaskStatus::Finding& found : chief->task.findings()) {
    v1::TaskStatus whose;
    whose.set_job(found.job());
    whose.set_index(found.index());
    const auto [why, mend] = MeaningOf(found.kind());
    findings.push_back({absl::StrCat(TaskName(whose), ": ", found.text()), why, mend});
  }
  return findings;
}

Findings LongWaits(const Facts& facts) {
  Findings findings;
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    for (const v1::TaskStatus::Wait& wait : task.task.waits()) {
      const absl::Duration since = absl::Nanoseconds(wait.since_ns());
      if (since < kLongWait || IsStepOnWorker(wait)) continue;
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
    findings.push_back({absl::StrCat("table ", table.name(), " has been full"),
                        absl::StrCat(table.stats().refused(), " writes to new keys found no room"),
                        "raise max_rows or --memory_limit_bytes, or add parameter servers "
                        "(`divvyctl resize`)"});
  }
  return findings;
}

Findings Budget(const Facts& facts) {
  Findings findings;
  ForEachAnswer(facts, [&](const TaskFacts& task) {
    const int64_t used = task.task.ps().memory_bytes();
    const int64_t limit = task.task.ps().memory_limit_bytes();
    if (limit <= 0 || static_cast<double>(used) < kMostOfBudget * static_cast<double>(limit))
      return;
    findings.push_back(
        {absl::StrCat(NameOf(task), " uses ", BytesText(used), " of its ", BytesText(limit)),
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
             absl::StrCat("mount the volume that has it; `mkdir ", directory.path,
                          "` if that is a new directory of a shared volume"),
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

// A coordinator may begin with an old checkpoint. It owes the next one when steps have run for an
// interval.
Findings OldCheckpoint(const Facts& facts) {
  const TaskFacts* const chief = facts.Chief();
  if (!facts.checkpoints || facts.checkpoints->checkpoints.empty() || chief == nullptr) return {};
  const v1::CoordinatorStatus& job = chief->task.coordinator();
  const absl::Duration limit =
      kMissedCheckpoints * absl::Nanoseconds(job.checkpoints().interval_ns());
  const DirectoryFacts::Checkpoint& newest = facts.checkpoints->checkpoints.front();
  const int64_t uncovered = job.finished_steps() - job.durable_steps();
  // No limit: checkpoints are made only on request and at the end.
  if (limit <= absl::ZeroDuration() || uncovered <= 0 || newest.age < limit ||
      chief->task.state() != "running" || absl::Nanoseconds(chief->task.state_ns()) < limit)
    return {};
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
  Finding finding{absl::StrCat("every user of this machine may use the key ", key),
                  absl::StrFormat("its mode is %04o; who has the key can play this task",
                                  *facts.certificates->key_mode & 07777),
                  absl::StrCat("`chmod o-rwx ", key,
                               "`, and make a new key, because others may have read this one")};
  if (facts.certificates->key_is_own) {
    finding.fix = Finding::Fix::kCloseKey;
    finding.path = key;
  }
  return {finding};
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
    {"found by the coordinator", FoundByCoordinator},
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
