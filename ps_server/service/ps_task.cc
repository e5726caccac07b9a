#include "ps_server/service/ps_task.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "protocol/error.h"
#include "ps_server/checkpoint/bundle_files.h"
#include "ps_server/service/build.h"
#include "ps_server/service/ps_status.h"
#include "ps_server/service/table_rows.h"
#include "rpc/transport.h"
#include "task/no_coordinator_note.h"

namespace divvy {

absl::Status PsTaskOptions::Validate() const {
  std::vector<std::string> problems;
  if (core.memory_limit_bytes < 1)
    problems.push_back(absl::StrCat("--memory_limit_bytes is ", core.memory_limit_bytes,
                                    ", wanted at least 1, or 0 for any"));
  if (commit_buffer_bytes < 1)
    problems.push_back(
        absl::StrCat("--commit_buffer_bytes is ", commit_buffer_bytes, ", wanted at least 1"));
  if (core.snapshot_buffer_bytes < 1)
    problems.push_back(absl::StrCat("--snapshot_buffer_bytes is ", core.snapshot_buffer_bytes,
                                    ", wanted at least 1"));
  if (pull_buffer_bytes < 1)
    problems.push_back(
        absl::StrCat("--pull_buffer_bytes is ", pull_buffer_bytes, ", wanted at least 1"));
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

namespace {

DataServerOptions DataOptions(const TaskOptions& task) {
  DataServerOptions options;
  options.shares_memory = task.shares_memory;
  return options;
}

}  // namespace

PsTask::PsTask(const PsTaskOptions& options)
    : options_(options),
      executor_(std::max(2, NumCores())),
      commits_(options.commit_buffer_bytes, MemoryBudget::TooLarge::kIsRefused,
               MemoryBudget::Share::kHalf),
      replies_(options.pull_buffer_bytes, MemoryBudget::TooLarge::kTakesAll,
               MemoryBudget::Share::kHalf),
      service_(core_),
      data_(core_, commits_, replies_, metrics_, served_),
      data_server_(data_, DataOptions(options.task)),
      dialer_(executor_, options.task.tls, options.task.shares_memory) {}

PsTask::~PsTask() {
  // Unfinished requests are dropped, as by a killed process.
  core_.Reset();
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  dialer_.Close();
  executor_.Stop();
}

absl::StatusOr<std::unique_ptr<PsTask>> PsTask::Start(const PsTaskOptions& options,
                                                      OnExit on_exit) {
  PrepareDataServing();
  RETURN_IF_ERROR(options.Validate());
  RETURN_IF_ERROR(CheckSecurity(options.task));  // before anything reads the certificates
  std::unique_ptr<PsTask> task(new PsTask(options));
  RETURN_IF_ERROR(task->Listen());
  RETURN_IF_ERROR(task->StartCore(std::move(on_exit)));
  task->server_->SetServing(true);
  return task;
}

absl::Status PsTask::Listen() {
  options_.core.index = options_.task.index;
  options_.core.incarnation = Incarnation(EntropySeed());
  options_.core.cluster = TrainingCluster(options_.task.cluster);
  // gRPC counts the messages of a commit until the commit has been applied.
  options_.task.rpc_memory_bytes += options_.commit_buffer_bytes;
  const auto rows = [this](v1::GetTableRowsRequest request,
                           ResultCallback<v1::GetTableRowsReply> done) {
    FindRows(std::move(request), std::move(done));
  };
  TaskFace face;
  face.status = [this] { return Status(); };
  face.metrics = &registry_;
  face.executor = &executor_;
  face.rows = rows;
  face.traces = [this] { return Traces(); };
  ASSIGN_OR_RETURN(server_,
                   TaskServer::Start(options_.task, {&service_}, &data_server_, std::move(face)));
  return absl::OkStatus();
}

v1::TaskStatus PsTask::Status() const {
  const auto core = core_.Get();
  PsTraffic traffic;
  traffic.pull_rows = metrics_.pull_rows();
  traffic.push_rows = metrics_.push_rows();
  traffic.pull_bytes = metrics_.pull_bytes();
  traffic.push_bytes = metrics_.push_bytes();
  traffic.commit_buffer_bytes = commits_.used_bytes();
  traffic.reply_buffer_bytes = replies_.used_bytes();
  return PsTaskStatus(options_.core,
                      core == nullptr ? ParameterServerSnapshot()
                                      : core->Inspect(ParameterServerCore::Detail::kWithoutValues),
                      traffic);
}

v1::GetTracesReply PsTask::Traces() const {
  const auto core = core_.Get();
  const JobId job =
      core == nullptr ? JobId() : core->Inspect(ParameterServerCore::Detail::kWithoutValues).job;
  return served_.ToProto(job, Clock::Real().Elapsed(), Clock::Real().WallTime());
}

// All rows of a table may have to be looked at.
void PsTask::FindRows(v1::GetTableRowsRequest request, ResultCallback<v1::GetTableRowsReply> done) {
  const auto core = core_.Get();
  if (core == nullptr)
    return done(MakeError(Reason::kNotReady,
                          "the parameter server is still starting: try again in a few seconds"));
  executor_.PostBackground("table rows",
                           [core, request = std::move(request), done = std::move(done)] {
                             done(FindTableRows(*core, request));
                           });
}

absl::Status PsTask::StartCore(OnExit on_exit) {
  ParameterServerOptions options = options_.core;
  options.address = server_->address();
  options.max_commit_bytes = commits_.most_bytes();
  options.max_pull_bytes = replies_.most_bytes();
  if (!options_.checkpoint_dir.empty())
    checkpoint_files_ = MakeBundleFiles(FileSystem::Real(), options_.checkpoint_dir);
  options.checkpoint_files = checkpoint_files_.get();
  const std::string chief = CoordinatorAddress(options_.task.cluster);
  ASSIGN_OR_RETURN(
      std::shared_ptr<ParameterServerCore> core,
      BuildPs(std::move(options), executor_, chief.empty() ? nullptr : dialer_.Coordinator(chief),
              std::move(on_exit)));
  core_.Set(std::move(core));
  if (CoordinatorAddress(options_.task.cluster).empty()) {
    WarnOfNoCoordinator(executor_, options_.task.name(), [this] {
      const auto core = core_.Get();
      return core != nullptr &&
             core->Inspect(ParameterServerCore::Detail::kWithoutValues).epoch == Epoch();
    });
  }
  return absl::OkStatus();
}

void PsTask::Drain() {
  server_->SetServing(false);
  if (const auto core = core_.Get()) core->Drain();
}

}  // namespace divvy
