// bazel run //bench:checkpoint [-- --mb=1024 --rounds=5 --rows=16 --format=json DIRECTORY]
//
// Checkpoints of one large variable over two parameter servers of this process, in DIRECTORY
// (default: the working directory; the files are removed at the end):
//   writing    SaveCheckpoint, compared with writing as many bytes to two new files at once and
//              syncing them. The last two checkpoints and sets of files are kept
//   restoring  RestoreLatest, compared with reading two files of as many bytes at once into new
//              memory. Both read from the disk, not from the operating system's cache
//   training   steps while a checkpoint is written, compared with the same steps without a
//              checkpoint; also the time for which the cut held commits
// A step adds to a dense variable of 1 MB and to --rows rows of the large variable. The first write
// to a block during a checkpoint copies the block.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/rounds.h"
#include "program/embedded.h"
#include "strategy/step.h"

ABSL_FLAG(int64_t, mb, 256, "size of the large variable, in units of 1e6 bytes");
ABSL_FLAG(int, rows, 16, "rows of the large variable that a step writes to");

namespace divvy::bench {
namespace {

constexpr int kServers = 2;
constexpr int64_t kWidth = 256;  // elements of a row
constexpr int kStepsAtATime = 50;

int64_t Rows() { return absl::GetFlag(FLAGS_mb) * 1'000'000 / (kWidth * 4); }
double Bytes() { return static_cast<double>(Rows() * kWidth * 4); }

VariableSpec Table() {
  VariableSpec spec{"table", {Rows(), kWidth}, Constant{1}};
  spec.partitioner = FixedShardsPartitioner{kServers};
  return spec;
}
const VariableSpec kDense{"dense", {1000, kWidth}};

absl::Status TrainStep(WorkerContext& worker, int64_t rows, int64_t table_rows, int64_t seed) {
  ASSIGN_OR_RETURN(Variable dense, worker.strategy().FindVariable("dense"));
  ASSIGN_OR_RETURN(const Tensor now, dense.Read());
  RETURN_IF_ERROR(dense.AssignAdd(now));
  if (rows == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Variable table, worker.strategy().FindVariable("table"));
  Random random(static_cast<uint64_t>(seed));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows; ++i)
    ids.push_back(static_cast<int64_t>(random.Below(static_cast<uint64_t>(table_rows))));
  ASSIGN_OR_RETURN(
      const Tensor values,
      Tensor::Copy<float>({rows, kWidth},
                          std::vector<float>(static_cast<size_t>(rows * kWidth), 1.0f)));
  IndexedSlices slices{Tensor::Vector<int64_t>(absl::MakeConstSpan(ids)), values, table_rows};
  return table.ScatterRows(Variable::Scatter::kAdd, slices);
}
const Step kTrain("bench/checkpoint/train", TrainStep);

// Runs `body(0)` to `body(n - 1)` at once, and waits for all of them.
void AtOnce(Executor& executor, int n, const std::function<void(int)>& body) {
  struct State {
    Mutex mu;
    CondVar over;
    int left;
  };
  const auto state = std::make_shared<State>();
  state->left = n;
  for (int i = 0; i < n; ++i) {
    executor.PostBlocking("bench", [state, &body, i] {
      body(i);
      MutexLock lock(state->mu);
      if (--state->left == 0) state->over.NotifyAll();
    });
  }
  MutexLock lock(state->mu);
  state->over.Wait(state->mu, [&state] { return state->left == 0; });
}

class Bench {
 public:
  explicit Bench(const std::string& directory)
      : directory_(directory + "/bench_checkpoint"), executor_(2) {
    DIVVY_CHECK(FileSystem::Real().CreateDirectory(directory_).ok());
    const std::string half(static_cast<size_t>(Bytes() / kServers), 'x');
    for (std::string& bytes : halves_) bytes = half;
  }
  ~Bench() {
    for (const std::string& name : Files()) DIVVY_CHECK(FileSystem::Real().Remove(Path(name)).ok());
    DIVVY_CHECK(FileSystem::Real().Remove(directory_).ok());
  }

  absl::Status Run();

 private:
  std::vector<std::string> Files() const {
    return FileSystem::Real().ListDirectory(directory_).value();
  }
  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }
  std::string Plain(int set, int i) const { return Path(absl::StrCat("plain", set, "_", i)); }
  absl::StatusOr<std::unique_ptr<EmbeddedCluster>> StartCluster() const;
  void PrepareToWrite();
  void WritePlain();
  void ReadPlain();
  void LeaveTheCache() const;
  void MeasureWriting(Coordinator& coordinator);
  absl::Status MeasureRestoring();
  absl::Status MeasureTraining(EmbeddedCluster& cluster);
  absl::StatusOr<double> StepsPerSecond(Coordinator& coordinator,
                                        const std::function<bool()>& enough);

  const std::string directory_;
  ThreadPoolExecutor executor_;
  std::string halves_[kServers];
  int64_t seed_ = 1;
  int plain_ = 0;  // the newest set of plain files
};

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Bench::StartCluster() const {
  EmbeddedSetup setup;
  setup.options.num_ps = kServers;
  setup.options.num_workers = 2;
  setup.options.checkpoint_dir = directory_;
  setup.coordinator.core.keep_checkpoints = 2;
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedCluster> cluster, EmbeddedCluster::Start(setup));
  for (const VariableSpec& spec : {Table(), kDense})
    RETURN_IF_ERROR(cluster->coordinator().strategy().CreateVariable(spec).status());
  return cluster;
}

// As for a checkpoint: the files get new names, and the set before the last one is removed.
void Bench::PrepareToWrite() {
  ++plain_;
  for (int i = 0; i < kServers && plain_ > 2; ++i)
    DIVVY_CHECK(FileSystem::Real().Remove(Plain(plain_ - 2, i)).ok());
}

void Bench::WritePlain() {
  AtOnce(executor_, kServers, [this](int i) {
    const auto file = FileSystem::Real().OpenForWrite(Plain(plain_, i), WriteMode::kCreateNew);
    DIVVY_CHECK(file.ok() && (*file)->Append(halves_[i]).ok() && (*file)->Sync().ok() &&
                (*file)->Close().ok());
  });
}

void Bench::ReadPlain() {
  AtOnce(executor_, kServers, [this](int i) {
    const auto file = FileSystem::Real().OpenSequential(Plain(plain_, i));
    DIVVY_CHECK(file.ok());
    const size_t size = halves_[i].size();
    const std::unique_ptr<char[]> into(new char[size]);
    for (size_t at = 0; at < size;) {
      const auto got =
          (*file)->Read(absl::MakeSpan(&into[at], std::min<size_t>(size - at, 1 << 20)));
      DIVVY_CHECK(got.ok() && *got > 0);
      at += *got;
    }
  });
}

// Drops the files from the operating system's cache, so that the next read is from the disk.
void Bench::LeaveTheCache() const {
  for (const std::string& name : Files()) {
    const int file = open(Path(name).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

void ShowThroughput(const Comparison& comparison, const CpuMeter& figure, const CpuMeter& ceiling) {
  Show("checkpoint", comparison, {"MB/s", 1e6},
       {{"cpu_s_per_gb", figure.SecondsPerRun() / Bytes() * 1e9},
        {"ceiling_cpu_s_per_gb", ceiling.SecondsPerRun() / Bytes() * 1e9}});
}

void Bench::MeasureWriting(Coordinator& coordinator) {
  CpuMeter figure, ceiling;
  const Contender save{"writing",
                       figure.Metered([&] { DIVVY_CHECK(coordinator.SaveCheckpoint().ok()); })};
  const Contender plain{"two files, written and synced", ceiling.Metered([this] { WritePlain(); }),
                        [this] { PrepareToWrite(); }};
  ShowThroughput(Compare(save, plain, Bytes()), figure, ceiling);
}

absl::Status Bench::MeasureRestoring() {
  CpuMeter figure, ceiling;
  absl::Status status;
  std::unique_ptr<EmbeddedCluster> cluster;
  const auto prepare = [&] {
    cluster = nullptr;
    auto started = StartCluster();
    status.Update(started.status());
    if (started.ok()) cluster = *std::move(started);
    LeaveTheCache();
  };
  const Contender restore{"restoring", figure.Metered([&] {
                            if (cluster != nullptr)
                              status.Update(cluster->coordinator().RestoreLatest().status());
                          }),
                          prepare};
  const Contender plain{"two files, read", ceiling.Metered([this] { ReadPlain(); }),
                        [this] { LeaveTheCache(); }};
  const Comparison comparison = Compare(restore, plain, Bytes());
  RETURN_IF_ERROR(status);
  ShowThroughput(comparison, figure, ceiling);
  return absl::OkStatus();
}

absl::StatusOr<double> Bench::StepsPerSecond(Coordinator& coordinator,
                                             const std::function<bool()>& enough) {
  const absl::Duration began = Clock::Real().Elapsed();
  int64_t steps = 0;
  for (; !enough(); steps += kStepsAtATime) {
    for (int i = 0; i < kStepsAtATime; ++i) {
      RETURN_IF_ERROR(
          coordinator
              .Schedule(kTrain, static_cast<int64_t>(absl::GetFlag(FLAGS_rows)), Rows(), seed_++)
              .status());
    }
    RETURN_IF_ERROR(coordinator.Join());
  }
  return static_cast<double>(steps) / absl::ToDoubleSeconds(Clock::Real().Elapsed() - began);
}

// Each round trains without a checkpoint for as long as the previous round's checkpoint took.
absl::Status Bench::MeasureTraining(EmbeddedCluster& cluster) {
  Coordinator& coordinator = cluster.coordinator();
  absl::Duration takes = absl::Seconds(1);
  std::vector<double> before, meanwhile, ratios;
  for (int round = 0; round <= Rounds(); ++round) {
    const absl::Duration end = Clock::Real().Elapsed() + takes;
    ASSIGN_OR_RETURN(const double calm,
                     StepsPerSecond(coordinator, [end] { return Clock::Real().Elapsed() >= end; }));
    const absl::Duration began = Clock::Real().Elapsed();
    const auto saved = std::make_shared<std::atomic<bool>>(false);
    executor_.PostBlocking("save", [saved, &coordinator] {
      DIVVY_CHECK(coordinator.SaveCheckpoint().ok());
      *saved = true;
    });
    ASSIGN_OR_RETURN(const double busy,
                     StepsPerSecond(coordinator, [&saved] { return saved->load(); }));
    takes = Clock::Real().Elapsed() - began;
    if (round == 0) continue;  // warms up
    before.push_back(calm), meanwhile.push_back(busy), ratios.push_back(busy / calm);
  }
  const Comparison comparison{"steps meanwhile", "steps without a checkpoint",
                              Median(meanwhile), Median(before),
                              Median(ratios),    meanwhile};
  Show("checkpoint", comparison, {"/s"},
       {{"longest_hold_ms",
         absl::ToDoubleMilliseconds(cluster.coordinator().Snapshot().longest_hold)}});
  return absl::OkStatus();
}

absl::Status Bench::Run() {
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<EmbeddedCluster> cluster, StartCluster());
    RETURN_IF_ERROR(cluster->coordinator().RestoreLatest().status());
    MeasureWriting(cluster->coordinator());
    RETURN_IF_ERROR(MeasureTraining(*cluster));
  }
  return MeasureRestoring();
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  divvy::bench::ShowText(absl::StrFormat(
      "%d MB over %d parameter servers, %d cores; medians of %d rounds in turns",
      absl::GetFlag(FLAGS_mb), divvy::bench::kServers, divvy::NumCores(), divvy::bench::Rounds()));
  const absl::Status run = divvy::bench::Bench(arguments.size() > 1 ? arguments[1] : ".").Run();
  if (!run.ok()) std::fprintf(stderr, "%s\n", run.ToString().c_str());
  return run.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
