#include "program/embedded.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "ops/blas_threads.h"
#include "program/forwarding_coordinator.h"
#include "program/one_checkpoint.h"
#include "protocol/error.h"
#include "ps_server/checkpoint/bundle_files.h"
#include "ps_server/service/build.h"

namespace divvy {
namespace {

std::string Address(Role role, int index) {
  return absl::StrCat("embedded:", RoleName(role), "/", index);
}

absl::Status Together(const std::vector<std::string>& problems) {
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

absl::Status Check(const EmbeddedSetup& setup) {
  std::vector<std::string> problems;
  if (absl::Status options = setup.options.Validate(); !options.ok())
    problems.push_back(std::string(options.message()));
  if (setup.blas_threads < 0)
    problems.push_back(
        absl::StrCat("--blas_threads is ", setup.blas_threads, ", wanted at least 0"));
  for (std::string& problem : setup.worker.pulls.Problems()) problems.push_back(std::move(problem));
  if (absl::Status registered = CheckRegistrations(); !registered.ok())
    problems.push_back(std::string(registered.message()));
  return Together(problems);
}

// Checks a list of GPUs before any GPU is opened: whether they can be divided among the workers.
absl::Status CheckGpus(const EmbeddedOptions& options) {
  GpuChoice choice;
  std::string error;
  if (!AbslParseFlag(options.gpus, &choice, &error))
    return absl::InvalidArgumentError(absl::StrCat("gpus is \"", options.gpus, "\": ", error));
  if (choice.kind != GpuChoice::Kind::kListed || options.num_workers < 1) return absl::OkStatus();
  return GpusPerWorker(choice, static_cast<int>(choice.listed.size()), options.num_workers,
                       std::max(0, options.replicas_per_worker))
      .status();
}

// REQUIRES: CheckGpus returned OK.
GpuOptions GpusOf(const EmbeddedSetup& setup) {
  GpuOptions gpus{{}, setup.options.gpu_memory_bytes, setup.gpu_math};
  std::string error;
  AbslParseFlag(setup.options.gpus, &gpus.choice, &error);
  return gpus;
}

// A task of a real cluster would exit. Here the core is destroyed together with the cluster.
void IgnoreExit(int, const std::string&) {}

}  // namespace

// At least two threads, so that a ps' blocking task and a message never wait for each other.
EmbeddedCluster::EmbeddedCluster(const EmbeddedSetup& setup,
                                 std::vector<std::vector<Device>> replica_devices)
    : setup_(setup),
      replica_devices_(std::move(replica_devices)),
      executor_(std::max(2, NumCores())),
      network_(executor_),
      store_(executor_),
      ps_(setup.options.num_ps),
      workers_(setup.options.num_workers) {}

EmbeddedCluster::~EmbeddedCluster() {
  // The roles first stop sending. Then the threads end, also those that run step functions. Only
  // then are objects destroyed.
  if (coordinator_.core != nullptr) coordinator_.core->Abandon();
  for (BuiltWorker& worker : workers_) {
    if (worker.core != nullptr) worker.core->Abandon();
  }
  executor_.Stop();
}

absl::Status CheckRegistrations() {
  absl::Status steps = StepRegistry::Validate();
  const absl::Status sources = DataSourceRegistry::Validate();
  if (steps.ok() || sources.ok()) return steps.ok() ? sources : steps;
  return absl::InvalidArgumentError(absl::StrCat(steps.message(), "; ", sources.message()));
}

absl::Status EmbeddedOptions::Validate() const {
  std::vector<std::string> problems;
  if (num_ps < 1) problems.push_back(absl::StrCat("num_ps is ", num_ps, ", wanted at least 1"));
  if (num_workers < 1)
    problems.push_back(absl::StrCat("num_workers is ", num_workers, ", wanted at least 1"));
  if (replicas_per_worker < 0) {
    problems.push_back(absl::StrCat("replicas_per_worker is ", replicas_per_worker,
                                    ", wanted at least 1, or 0 for one on each GPU"));
  }
  if (gpu_memory_bytes < 0)
    problems.push_back(absl::StrCat("gpu_memory_bytes is ", gpu_memory_bytes,
                                    ", wanted at least 0 (0: no limit)"));
  for (const absl::Status& status : {CheckGpus(*this), strategy.problem}) {
    if (!status.ok()) problems.push_back(std::string(status.message()));
  }
  return Together(problems);
}

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::Start(
    const EmbeddedSetup& setup) {
  RETURN_IF_ERROR(Check(setup));
  ASSIGN_OR_RETURN(std::vector<std::vector<Device>> devices,
                   OpenReplicaDevices(GpusOf(setup), setup.options.replicas_per_worker,
                                      setup.options.num_workers));
  const int replicas = setup.options.num_workers * static_cast<int>(devices[0].size());
  SetBlasThreads(setup.blas_threads > 0 ? setup.blas_threads : std::max(1, NumCores() / replicas));
  std::unique_ptr<EmbeddedCluster> cluster(new EmbeddedCluster(setup, std::move(devices)));
  RETURN_IF_ERROR(cluster->OpenCheckpoints());
  for (int i = 0; i < setup.options.num_ps; ++i) RETURN_IF_ERROR(cluster->StartPs(i));
  for (int i = 0; i < setup.options.num_workers; ++i) RETURN_IF_ERROR(cluster->StartWorker(i));
  RETURN_IF_ERROR(cluster->StartCoordinator());
  return cluster;
}

absl::Status EmbeddedCluster::OpenCheckpoints() {
  const std::string& directory = setup_.options.checkpoint_dir;
  if (directory.empty()) return absl::OkStatus();
  if (setup_.only) {
    checkpoint_files_ = FilesOfOneCheckpoint(FileSystem::Real(), directory);
    catalog_ = CatalogOfOneCheckpoint(FileSystem::Real(), directory, *setup_.only);
    return absl::OkStatus();
  }
  checkpoint_files_ = MakeBundleFiles(FileSystem::Real(), directory);
  ASSIGN_OR_RETURN(catalog_, OpenBundleCatalog(FileSystem::Real(), directory));
  return absl::OkStatus();
}

absl::Status EmbeddedCluster::StartPs(int index) {
  ParameterServerOptions options = setup_.ps;
  options.index = index;
  options.incarnation = Incarnation(EntropySeed());
  options.address = Address(Role::kPs, index);
  options.checkpoint_files = checkpoint_files_.get();
  ASSIGN_OR_RETURN(ps_[index],
                   BuildPs(std::move(options), executor_, network_.coordinator(), IgnoreExit));
  network_.Add(Address(Role::kPs, index), ps_[index]);
  return absl::OkStatus();
}

absl::Status EmbeddedCluster::StartWorker(int index) {
  WorkerOptions options = setup_.worker;
  options.index = index;
  options.incarnation = Incarnation(EntropySeed());
  options.address = Address(Role::kWorker, index);
  ASSIGN_OR_RETURN(
      workers_[index],
      BuildWorker(std::move(options), replica_devices_[index],
                  {executor_, network_, network_.coordinator().get(),
                   EmbeddedClusterResolver(setup_.options.num_ps, setup_.options.num_workers,
                                           std::string(RoleName(Role::kWorker)), index),
                   setup_.options.strategy.communication},
                  [this](int exit_code, const std::string& why) { OnWorkerExit(exit_code, why); }));
  network_.Add(Address(Role::kWorker, index), workers_[index].core);
  return absl::OkStatus();
}

// A worker that has to be restarted to get its GPUs back is part of this process. So the program
// ends, and its launcher restarts it. Before there is a coordinator, a worker runs no step and so
// loses no GPU.
void EmbeddedCluster::OnWorkerExit(int exit_code, const std::string& why) {
  if (exit_code == exit_codes::kTryAgain && coordinator_.core != nullptr)
    coordinator_.core->Fail(MakeError(Reason::kDeviceLost, why));
}

absl::Status EmbeddedCluster::StartCoordinator() {
  CoordinatorSetup setup = setup_.coordinator;
  setup.strategy = setup_.options.strategy;
  setup.resolver = EmbeddedClusterResolver(setup_.options.num_ps, setup_.options.num_workers);
  setup.replicas_per_worker = static_cast<int>(replica_devices_[0].size());
  CoordinatorOptions& core = setup.core;
  core.checkpoints = catalog_.get();
  core.incarnation = Incarnation(EntropySeed());
  core.job_seed = setup_.options.seed;
  for (int i = 0; i < setup_.options.num_ps; ++i)
    core.ps_addresses.push_back(Address(Role::kPs, i));
  for (int i = 0; i < setup_.options.num_workers; ++i)
    core.worker_addresses[i] = Address(Role::kWorker, i);
  core.min_workers = setup_.options.num_workers;
  ASSIGN_OR_RETURN(coordinator_, BuildCoordinator(std::move(setup), executor_, network_, store_));
  network_.SetCoordinator(coordinator_.core);
  return coordinator_.calls->WaitUntilReady();
}

void EmbeddedCluster::KillWorker(int index) {
  if (workers_[index].core == nullptr) return;
  workers_[index].core->Abandon();
  network_.Add(Address(Role::kWorker, index), std::weak_ptr<WorkerCore>());
  dead_.push_back(std::move(workers_[index]));
  workers_[index] = BuiltWorker();
}

absl::Status EmbeddedCluster::RestartWorker(int index) {
  KillWorker(index);
  return StartWorker(index);
}

void EmbeddedCluster::KillPs(int index) {
  CutPs(index);
  ps_[index] = nullptr;
}

absl::Status EmbeddedCluster::RestartPs(int index) {
  KillPs(index);
  return StartPs(index);
}

std::map<std::string, int64_t> EmbeddedCluster::Sizes() const {
  std::map<std::string, int64_t> sizes = coordinator_.core->Sizes();
  const auto most = [&sizes](const char* name, size_t size) {
    sizes[name] = std::max(sizes[name], static_cast<int64_t>(size));
  };
  for (int ps = 0; ps < static_cast<int>(ps_.size()); ++ps) {
    const ParameterServerSnapshot snapshot = InspectPs(ps);
    most("ps: remembered entries", snapshot.remembered.size());
    most("ps: queued and running commits", snapshot.queued + snapshot.running);
    most("ps: sessions", snapshot.sessions.size());
    most("ps: shards", snapshot.shards.size());
  }
  for (const BuiltWorker& worker : workers_) {
    const WorkerSnapshot snapshot = worker.core->Inspect();
    most("worker: queued steps", snapshot.queued.size());
    most("worker: iterators", snapshot.resources.size());
    most("worker: unacknowledged messages", snapshot.unacknowledged);
  }
  return sizes;
}

void EmbeddedCluster::CutPs(int index) {
  network_.Add(Address(Role::kPs, index), std::weak_ptr<ParameterServerCore>());
}

void EmbeddedCluster::HealPs(int index) { network_.Add(Address(Role::kPs, index), ps_[index]); }

absl::StatusOr<std::unique_ptr<Coordinator>> StartEmbedded(const EmbeddedOptions& options) {
  EmbeddedSetup setup;
  setup.options = options;
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedCluster> cluster, EmbeddedCluster::Start(setup));
  return std::unique_ptr<Coordinator>(
      std::make_unique<ForwardingCoordinator<Coordinator, EmbeddedCluster>>(std::move(cluster)));
}

}  // namespace divvy
