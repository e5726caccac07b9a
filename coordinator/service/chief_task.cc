#include "coordinator/service/chief_task.h"

#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/process.h"
#include "base/random.h"
#include "base/service_manager.h"
#include "base/status_macros.h"
#include "cluster/cluster_config_resolver.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/checkpoint/job_end.h"
#include "coordinator/service/coordinator_status.h"
#include "coordinator/service/measured_store.h"
#include "coordinator/store/sqlite_store.h"
#include "protocol/error.h"
#include "wire/trace.h"

namespace divvy {
namespace {

constexpr absl::Duration kLinger = absl::Seconds(10);
// The longest time for sending the last answers, so that an operator who asked for a drain learns
// how it ended.
constexpr absl::Duration kLastAnswers = absl::Seconds(1);

absl::Status StillStarting() {
  return MakeError(Reason::kNotReady,
                   "the coordinator is still starting: try again in a few seconds");
}

}  // namespace

// The first 8 bytes of SHA-256 of the name.
std::optional<JobId> JobNamed(const std::string& name) {
  if (name.empty()) return std::nullopt;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest);
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(digest[i]) << (8 * i);
  return JobId(value == 0 ? 1 : value);
}

absl::Status ChiefTaskOptions::Validate() const {
  if (setup.core.rebalancing == Rebalancing::kAuto && checkpoint_dir.empty())
    return absl::InvalidArgumentError(
        "--rebalance=auto moves shards through a checkpoint: give --checkpoint_dir too, or leave "
        "it away");
  std::vector<std::string> problems;
  if (!setup.strategy.problem.ok())
    problems.push_back(std::string(setup.strategy.problem.message()));
  if (NumParameterServers(task.cluster) < 1)
    problems.push_back(
        "the cluster names no parameter servers: list them under cluster.ps, or give --num_ps");
  if (setup.replicas_per_worker < 1)
    problems.push_back(absl::StrCat("--replicas_per_worker is ", setup.replicas_per_worker,
                                    ", wanted at least 1"));
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

ChiefTask::ChiefTask(const ChiefTaskOptions& options)
    : options_(options),
      executor_(std::max(2, NumCores())),
      service_(core_),
      dialer_(executor_, options.task.tls, options.task.shares_memory) {}

ChiefTask::~ChiefTask() {
  if (const auto core = core_.Get()) core->Abandon();
  if (server_ != nullptr) server_->Shutdown(drain_asked_ ? kLastAnswers : absl::ZeroDuration());
  dialer_.Close();
  executor_.Stop();
  // The core must be destroyed before the parts that it uses.
  core_.Reset();
  poll_.Reset();
}

absl::StatusOr<std::unique_ptr<ChiefTask>> ChiefTask::Start(const ChiefTaskOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  // Comes before anything reads the certificates.
  RETURN_IF_ERROR(CheckSecurity(options.task));
  std::unique_ptr<ChiefTask> task(new ChiefTask(options));
  RETURN_IF_ERROR(task->OpenStore());
  RETURN_IF_ERROR(task->OpenCatalog());
  task->FillInCluster();
  RETURN_IF_ERROR(task->Listen());
  RETURN_IF_ERROR(task->StartCore());
  task->server_->SetServing(true);
  return task;
}

absl::Status ChiefTask::OpenStore() {
  std::unique_ptr<Store> store;
  if (options_.state_dir.empty()) {
    store = std::make_unique<MemoryStore>(executor_);
  } else {
    ASSIGN_OR_RETURN(store, SqliteStore::Open(options_.state_dir, executor_));
  }
  store_ = std::make_unique<MeasuredStore>(std::move(store), registry_, Clock::Real());
  return absl::OkStatus();
}

absl::Status ChiefTask::OpenCatalog() {
  if (options_.checkpoint_dir.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<CheckpointCatalog>> catalog =
      OpenBundleCatalog(FileSystem::Real(), options_.checkpoint_dir);
  if (!catalog.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("--checkpoint_dir: ", catalog.status().message()));
  catalog_ = *std::move(catalog);
  options_.setup.core.checkpoints = catalog_.get();
  return absl::OkStatus();
}

void ChiefTask::FillInCluster() {
  const ClusterConfig& cluster = options_.task.cluster;
  const ClusterSpec::Jobs tasks = TrainingCluster(cluster);
  CoordinatorOptions& core = options_.setup.core;
  core.incarnation = Incarnation(EntropySeed());
  core.metrics = &metrics_;
  core.traces = &traces_;
  core.cluster = tasks;
  // Addresses that the cluster does not name are learnt by Register.
  core.ps_addresses.assign(NumParameterServers(cluster), "");
  if (const auto ps = tasks.find("ps"); ps != tasks.end()) {
    for (const auto& [index, address] : ps->second) {
      if (index < static_cast<int>(core.ps_addresses.size())) core.ps_addresses[index] = address;
    }
  }
  if (const auto workers = tasks.find("worker"); workers != tasks.end())
    core.worker_addresses = workers->second;
  if (options_.setup.resolver == nullptr) options_.setup.resolver = ClusterConfigResolver(cluster);
}

absl::Status ChiefTask::Listen() {
  TaskFace face;
  face.status = [this] { return Status(); };
  face.metrics = &registry_;
  face.executor = &executor_;
  face.calls = CallsOfOperators();
  face.traces = [this] { return Traces(); };
  ASSIGN_OR_RETURN(server_,
                   TaskServer::Start(options_.task, {&service_}, nullptr, std::move(face)));
  return absl::OkStatus();
}

// The parts are complete before core_ is set.
v1::TaskStatus ChiefTask::Status() const {
  const auto core = core_.Get();
  if (core == nullptr) return CoordinatorTaskStatus(options_.setup.core, CoordinatorSnapshot(), {});
  v1::TaskStatus status = CoordinatorTaskStatus(
      options_.setup.core, core->Snapshot(),
      parts_.reporter == nullptr ? Reporter::Reached() : parts_.reporter->reached());
  if (const auto poll = poll_.Get()) {
    const auto busiest = core->BusiestOfServers();
    for (v1::TaskStatus& task : poll->Last()) {
      const auto index = static_cast<size_t>(task.index());
      if (task.has_ps() && index < busiest.size() && busiest[index]) {
        task.mutable_ps()->set_busiest_variable(busiest[index]->name);
        task.mutable_ps()->set_busiest_share(busiest[index]->share);
      }
      *status.mutable_coordinator()->add_tasks() = std::move(task);
    }
  }
  return status;
}

v1::GetTracesReply ChiefTask::Traces() const {
  const auto core = core_.Get();
  return wire::ToProto(traces_, core == nullptr ? JobId() : core->job(), Clock::Real().Elapsed(),
                       Clock::Real().WallTime());
}

OperatorCalls ChiefTask::CallsOfOperators() {
  OperatorCalls calls;
  calls.incarnation = options_.setup.core.incarnation;
  calls.save = [this](ResultCallback<v1::RequestCheckpointReply> done) {
    SaveForOperator(std::move(done));
  };
  calls.drain = [this](ResultCallback<v1::DrainReply> done) { DrainForOperator(std::move(done)); };
  calls.resize = [this](int num_ps, ResultCallback<v1::ResizeReply> done) {
    ResizeForOperator(num_ps, std::move(done));
  };
  calls.rebalance = [this](ResultCallback<v1::RebalanceReply> done) {
    RebalanceForOperator(std::move(done));
  };
  return calls;
}

void ChiefTask::SaveForOperator(ResultCallback<v1::RequestCheckpointReply> done) {
  const auto core = core_.Get();
  if (const absl::Status refused =
          RefusalToSave(core == nullptr ? CoordinatorSnapshot() : core->Snapshot());
      !refused.ok())
    return done(refused);
  const auto answer = [weak = std::weak_ptr<CoordinatorCore>(core),
                       done = std::move(done)](const absl::StatusOr<CheckpointId>& saved) {
    const auto core = weak.lock();
    if (!saved.ok()) return done(saved.status());
    done(SavedForOperator(*saved, core == nullptr ? 0 : core->durable_steps()));
  };
  core->SaveCheckpoint(answer, CoordinatorCore::Asker::kOperator);
}

void ChiefTask::DrainForOperator(ResultCallback<v1::DrainReply> done) {
  const auto core = core_.Get();
  if (core == nullptr) return done(StillStarting());
  if (!drain_asked_.exchange(true) && options_.on_drain_asked) options_.on_drain_asked();
  core->Drain([weak = std::weak_ptr<CoordinatorCore>(core), done = std::move(done)] {
    const auto core = weak.lock();
    done(DrainedForOperator(core == nullptr ? CoordinatorSnapshot() : core->Snapshot()));
  });
}

void ChiefTask::ResizeForOperator(int num_ps, ResultCallback<v1::ResizeReply> done) {
  const auto core = core_.Get();
  if (core == nullptr) return done(StillStarting());
  core->Resize(num_ps, [num_ps, done = std::move(done)](const absl::Status& resized) {
    if (!resized.ok()) return done(resized);
    v1::ResizeReply reply;
    reply.set_num_ps(num_ps);
    done(reply);
  });
}

void ChiefTask::RebalanceForOperator(ResultCallback<v1::RebalanceReply> done) {
  const auto core = core_.Get();
  if (core == nullptr) return done(StillStarting());
  core->Rebalance(
      [done = std::move(done)](const absl::StatusOr<CoordinatorCore::Rebalanced>& rebalanced) {
        if (!rebalanced.ok()) return done(rebalanced.status());
        v1::RebalanceReply reply;
        reply.set_before(rebalanced->before);
        reply.set_after(rebalanced->after);
        reply.set_moved(rebalanced->moved);
        reply.set_cut(rebalanced->cut);
        reply.set_changed(rebalanced->changed);
        done(reply);
      });
}

absl::Status ChiefTask::StartCore() {
  absl::StatusOr<BuiltCoordinator> built =
      BuildCoordinator(options_.setup, executor_, dialer_, *store_);
  if (ReasonOf(built.status()) == Reason::kJobOver) {
    // The previous process may have died after it stored the end and before it told the evaluator.
    TellEvaluator(ExitCodeOf(built.status()));
    // systemd takes an exit with 0 before READY=1 for a failure, and would restart the process.
    TellServiceManagerOrWarn("READY=1\nSTATUS=the job has ended");
  }
  RETURN_IF_ERROR(built.status());
  parts_ = *std::move(built);
  core_.Set(std::move(parts_.core));
  StartPoll();
  if (catalog_ != nullptr)
    RETURN_IF_ERROR(RemoveJobEnd(FileSystem::Real(), options_.checkpoint_dir));
  return absl::OkStatus();
}

void ChiefTask::StartPoll() {
  const auto tasks = [weak = std::weak_ptr<CoordinatorCore>(core_.Get())] {
    const auto core = weak.lock();
    return core == nullptr ? std::vector<TaskPoll::Task>() : core->Tasks();
  };
  const auto dial = [this](const TaskPoll::Task& task) -> TaskPoll::Ask {
    return [client = dialer_.StatusOf(task.role, task.index, task.address)](
               ResultCallback<v1::TaskStatus> done) { client->Get(std::move(done)); };
  };
  poll_.Set(std::make_shared<TaskPoll>(tasks, dial, executor_));
  poll_.Get()->Start();
}

void ChiefTask::Drain(std::function<void()> drained) {
  drain_asked_ = true;
  linger_over_->Set(true);
  server_->SetServing(false);
  core_.Get()->Drain(std::move(drained));
}

void ChiefTask::TellEvaluator(int exit_code) {
  if (catalog_ == nullptr) return;
  divvy::TellEvaluator(FileSystem::Real(), options_.checkpoint_dir, exit_code);
}

absl::Status ChiefTask::Finish(absl::Status result) {
  const bool away = AnyTaskAway();
  result = parts_.calls->Finish(std::move(result));
  // If a coordinator ends with a final exit code and was not asked to end, no other coordinator
  // follows. So the job is over for the evaluator, even if the store does not say so.
  const bool is_final = ExitCodeOf(result) < exit_codes::kOfSignal && !drain_asked_;
  if (is_final || core_.Get()->Snapshot().phase == CoordinatorSnapshot::Phase::kOver)
    TellEvaluator(ExitCodeOf(result));
  if (away && ExitCodeOf(result) < exit_codes::kTryAgain) Linger();
  return result;
}

bool ChiefTask::AnyTaskAway() const {
  const CoordinatorSnapshot now = core_.Get()->Snapshot();
  return now.workers_up < now.num_workers || now.ps_up < now.num_ps;
}

void ChiefTask::Linger() {
  executor_.PostAfter(kLinger, [over = linger_over_] { over->Set(true); });
  linger_over_->Wait();
}

}  // namespace divvy
