// bazel run //bench:recovery [-- --format=json]
//
// Measures what a loss costs, on clusters of real processes (2 ps, 2 workers) that work while one
// of them is SIGKILLed and restarted at once:
//   ps       from the kill to the next finished step. The servers hold 64 MB of variables with
//            Adam, and load them from their checkpoint. The ceiling is a plain read of that
//            checkpoint's files by this process at that time. The measured time includes running
//            the steps since the checkpoint again.
//   worker   from the kill to the moment when its step begins on another worker
//   log      steps per second with --durability=replay and with --durability=checkpoint, in turns:
//            the cost of keeping the redo log while nothing is lost
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "tests/e2e/process_cluster.h"

ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(std::string, program, "bench/recovery_program", "");
ABSL_FLAG(int, kills, 5, "kills of each role");
ABSL_FLAG(int, rounds, 5, "rounds of the step rates; each runs both durabilities once");

namespace divvy::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(120);

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

absl::StatusOr<std::unique_ptr<ProcessCluster>> StartCluster(std::vector<std::string> flags) {
  ProcessClusterOptions options;
  options.program = absl::GetFlag(FLAGS_program);
  options.flags = std::move(flags);
  ASSIGN_OR_RETURN(std::unique_ptr<ProcessCluster> cluster,
                   ProcessCluster::Make(std::move(options)));
  RETURN_IF_ERROR(cluster->StartAll());
  return cluster;
}

absl::StatusOr<absl::Duration> TimeIn(const std::string& line) {
  int64_t nanoseconds = 0;
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (!absl::SimpleAtoi(words.back(), &nanoseconds))
    return absl::InternalError("no time in: " + line);
  return absl::Nanoseconds(nanoseconds);
}

// The first line with `text` in the output of `task` that was printed at or after `then`.
absl::StatusOr<std::string> LineAfter(ProcessCluster& cluster, TaskId task, absl::string_view text,
                                      absl::Duration then) {
  for (;;) {
    ASSIGN_OR_RETURN(std::string line, cluster.WaitForText(task, text, kPatience));
    ASSIGN_OR_RETURN(const absl::Duration at, TimeIn(line));
    if (at >= then) return line;
  }
}

absl::StatusOr<absl::Duration> FirstAfter(ProcessCluster& cluster, TaskId task,
                                          absl::string_view text, absl::Duration then) {
  ASSIGN_OR_RETURN(const std::string line, LineAfter(cluster, task, text, then));
  return TimeIn(line);
}

struct PsLoss {
  double seconds = 0, read_seconds = 0, megabytes = 0;
};

// Reads the files of the newest checkpoint in `directory`, as a plain program would.
absl::Status ReadCheckpoint(const std::string& directory, PsLoss& loss) {
  const absl::Duration began = Clock::Real().Elapsed();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   FileSystem::Real().ListDirectory(directory));
  for (const std::string& name : names) {
    if (!absl::StrContains(name, ".data-")) continue;
    ASSIGN_OR_RETURN(const std::string bytes,
                     FileSystem::Real().ReadFile(absl::StrCat(directory, "/", name)));
    loss.megabytes += static_cast<double>(bytes.size()) / 1e6;
  }
  loss.read_seconds = absl::ToDoubleSeconds(Clock::Real().Elapsed() - began);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PsLoss>> LoseServers(const std::string& directory) {
  const std::string stop = directory + "/stop_ps", checkpoints = directory + "/checkpoints";
  ASSIGN_OR_RETURN(auto cluster,
                   StartCluster({"--stop_file=" + stop, "--checkpoint_dir=" + checkpoints,
                                 "--checkpoint_every=0s"}));
  RETURN_IF_ERROR(cluster->WaitForText(kChiefTask, "saved", kPatience).status());
  std::vector<PsLoss> losses;
  for (int kill = 0; kill < absl::GetFlag(FLAGS_kills); ++kill) {
    cluster->processes().RunFor(absl::Milliseconds(200));
    const TaskId victim = PsTask(kill % 2);
    const absl::Duration began = Clock::Real().Elapsed();
    RETURN_IF_ERROR(cluster->Kill(victim).status());
    RETURN_IF_ERROR(cluster->Start(victim));
    // A step that finished before the kill may be reported after it. The next step needs both
    // servers.
    RETURN_IF_ERROR(cluster->WaitForText(kChiefTask, "steps are run again", kPatience).status());
    ASSIGN_OR_RETURN(const absl::Duration next, FirstAfter(*cluster, kChiefTask, "finished at",
                                                           began + absl::Milliseconds(1)));
    losses.push_back({absl::ToDoubleSeconds(next - began)});
    RETURN_IF_ERROR(ReadCheckpoint(checkpoints, losses.back()));
  }
  RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop, ""));
  RETURN_IF_ERROR(cluster->WaitForAll(kPatience));
  return losses;
}

absl::StatusOr<std::vector<double>> LoseWorkers(const std::string& directory) {
  const std::string stop = directory + "/stop_workers";
  ASSIGN_OR_RETURN(auto cluster, StartCluster({"--stop_file=" + stop, "--work=nap"}));
  std::vector<double> seconds;
  for (int kill = 0; kill < absl::GetFlag(FLAGS_kills); ++kill) {
    const TaskId victim = WorkerTask(kill % 2), other = WorkerTask(1 - kill % 2);
    ASSIGN_OR_RETURN(const std::string line,
                     LineAfter(*cluster, victim, "begun ", Clock::Real().Elapsed()));
    const std::string step = line.substr(0, line.find(" at ") + 4);
    const absl::Duration began = Clock::Real().Elapsed();
    RETURN_IF_ERROR(cluster->Kill(victim).status());
    ASSIGN_OR_RETURN(const absl::Duration again, FirstAfter(*cluster, other, step, began));
    seconds.push_back(absl::ToDoubleSeconds(again - began));
    RETURN_IF_ERROR(cluster->Start(victim));
  }
  RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop, ""));
  RETURN_IF_ERROR(cluster->WaitForAll(kPatience));
  return seconds;
}

absl::StatusOr<double> Rate(const std::string& durability) {
  ASSIGN_OR_RETURN(auto cluster, StartCluster({"--work=rate", "--durability=" + durability}));
  ASSIGN_OR_RETURN(const std::string line, cluster->WaitForText(kChiefTask, "rate ", kPatience));
  RETURN_IF_ERROR(cluster->WaitForAll(kPatience));
  double rate = 0;
  if (!absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &rate))
    return absl::InternalError("no rate in: " + line);
  return rate;
}

struct Rates {
  std::vector<double> replay, checkpoint, ratios;
};

absl::StatusOr<Rates> CompareRates() {
  Rates rates;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    ASSIGN_OR_RETURN(const double replay, Rate("replay"));
    ASSIGN_OR_RETURN(const double checkpoint, Rate("checkpoint"));
    rates.replay.push_back(replay);
    rates.checkpoint.push_back(checkpoint);
    rates.ratios.push_back(replay / checkpoint);
  }
  return rates;
}

void PrintServers(const std::vector<PsLoss>& losses) {
  std::vector<double> seconds, reads;
  for (const PsLoss& loss : losses)
    seconds.push_back(loss.seconds), reads.push_back(loss.read_seconds);
  if (absl::GetFlag(FLAGS_format) == "json") {
    absl::PrintF(
        "{\"bench\": \"recovery\", \"what\": \"a ps killed\", \"unit\": \"/s\", \"rate\": %.3f, "
        "\"ceiling\": \"reading its checkpoint\", \"ceiling_rate\": %.3f, \"ratio\": %.3f, "
        "\"most_s\": %.3f, \"checkpoint_mb\": %.0f}\n",
        1 / Median(seconds), 1 / Median(reads), Median(reads) / Median(seconds),
        *std::max_element(seconds.begin(), seconds.end()), losses[0].megabytes);
    return;
  }
  absl::PrintF(
      "a ps killed and started again: next step finished after %.2f s (median of %d; most %.2f s); "
      "a plain read of its checkpoint (%.0f MB) takes %.2f s\n",
      Median(seconds), seconds.size(), *std::max_element(seconds.begin(), seconds.end()),
      losses[0].megabytes, Median(reads));
}

void PrintWorkers(const std::vector<double>& seconds) {
  const double most = *std::max_element(seconds.begin(), seconds.end());
  if (absl::GetFlag(FLAGS_format) == "json") {
    absl::PrintF(
        "{\"bench\": \"recovery\", \"what\": \"a worker killed\", \"unit\": \"/s\", \"rate\": "
        "%.3f, "
        "\"most_s\": %.3f}\n",
        1 / Median(seconds), most);
    return;
  }
  absl::PrintF(
      "a worker killed: its step begins elsewhere after %.2f s (median of %d; most %.2f s)\n",
      Median(seconds), seconds.size(), most);
}

void PrintRates(const Rates& rates) {
  if (absl::GetFlag(FLAGS_format) == "json") {
    absl::PrintF(
        "{\"bench\": \"recovery\", \"what\": \"steps at durability replay\", \"unit\": \"/s\", "
        "\"rate\": %.0f, \"ceiling\": \"at durability checkpoint\", \"ceiling_rate\": %.0f, "
        "\"ratio\": %.3f}\n",
        Median(rates.replay), Median(rates.checkpoint), Median(rates.ratios));
    return;
  }
  absl::PrintF(
      "steps per second: %.0f at durability replay, %.0f at checkpoint: %.3f of it (medians of %d "
      "rounds in turns)\n",
      Median(rates.replay), Median(rates.checkpoint), Median(rates.ratios), rates.ratios.size());
}

absl::Status Run(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<PsLoss> servers, LoseServers(directory));
  PrintServers(servers);
  ASSIGN_OR_RETURN(const std::vector<double> workers, LoseWorkers(directory));
  PrintWorkers(workers);
  ASSIGN_OR_RETURN(const Rates rates, CompareRates());
  PrintRates(rates);
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  std::string directory = "/tmp/divvy_recovery.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const absl::Status run = divvy::bench::Run(directory);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  if (!run.ok()) std::fprintf(stderr, "recovery: %s\n", std::string(run.message()).c_str());
  return run.ok() ? 0 : 1;
}
