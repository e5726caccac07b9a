// Parameter servers whose answers a test chooses.
#ifndef DIVVY_WORKER_CORE_TESTING_FAKE_PARAMETER_SERVERS_H_
#define DIVVY_WORKER_CORE_TESTING_FAKE_PARAMETER_SERVERS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "kernels/write_op.h"
#include "protocol/clients.h"
#include "variables/layout.h"

namespace divvy {

// One parameter server. It keeps float32 shards, applies whole assigns, and counts every commit
// once. Before it obeys requests, it gives the error answers that the test has set. Thread-safe.
class FakePs : public Sends<FakePs, ParameterClient> {
 public:
  explicit FakePs(Executor& executor) : executor_(executor) {}

  // The next requests of this kind get these answers; later ones are obeyed. RefusePulls replaces
  // the answers that are left, RefuseCommits adds to them.
  void RefusePulls(std::vector<absl::Status> answers) {
    MutexLock lock(mu_);
    pull_answers_.assign(answers.begin(), answers.end());
  }
  void RefuseCommits(std::vector<absl::Status> answers) {
    MutexLock lock(mu_);
    commit_answers_.insert(commit_answers_.end(), answers.begin(), answers.end());
  }
  // From now on all requests, or only commits, wait. Release obeys the waiting ones.
  void Hold() {
    MutexLock lock(mu_);
    holding_ = holding_commits_ = true;
  }
  void HoldCommits() {
    MutexLock lock(mu_);
    holding_commits_ = true;
  }
  void Release() {
    std::vector<Task> held;
    {
      MutexLock lock(mu_);
      holding_ = holding_commits_ = false;
      held.swap(held_);
    }
    for (Task& task : held) executor_.Post(std::move(task));
  }

  void Set(ShardKey shard, Tensor values) {
    MutexLock lock(mu_);
    shards_[shard] = std::move(values);
    ++versions_[shard];
  }
  std::vector<PullRequest> pulls() const {
    MutexLock lock(mu_);
    return pulls_;
  }
  std::vector<CommitRequest> commits() const {  // all that arrived, with refused and repeated ones
    MutexLock lock(mu_);
    return commits_;
  }
  std::set<EntryId> applied() const {
    MutexLock lock(mu_);
    return applied_;
  }

  void Send(PullRequest request, ResultCallback<PullReply> done) {
    {
      MutexLock lock(mu_);
      pulls_.push_back(request);
    }
    Answer(/*commit=*/false,
           [this, request = std::move(request), done = std::move(done)] { DoPull(request, done); });
  }
  void Send(CommitRequest request, ResultCallback<CommitReply> done) {
    {
      MutexLock lock(mu_);
      commits_.push_back(request);
    }
    Answer(/*commit=*/true, [this, request = std::move(request), done = std::move(done)] {
      DoCommit(request, done);
    });
  }
  // Workers make no other calls.
  template <typename Request>
  void Send(Request, ResultCallback<ReplyTo<Request>>) {}

 private:
  void Answer(bool commit, Task task) {
    MutexLock lock(mu_);
    if (commit ? holding_commits_ : holding_) return held_.push_back(std::move(task));
    executor_.Post(std::move(task));
  }

  static absl::Status TakeAnswer(std::deque<absl::Status>& answers) {
    if (answers.empty()) return absl::OkStatus();
    absl::Status answer = answers.front();
    answers.pop_front();
    return answer;
  }

  void DoPull(const PullRequest& request, const ResultCallback<PullReply>& done) {
    PullReply reply;
    absl::Status refused;
    {
      MutexLock lock(mu_);
      refused = TakeAnswer(pull_answers_);
      for (const PullPart& part : request.parts)
        reply.parts.push_back({RowsOf(part), versions_[part.shard], false});
    }
    refused.ok() ? done(std::move(reply)) : done(refused);
  }

  Tensor RowsOf(const PullPart& part) DIVVY_REQUIRES(mu_) {
    const Tensor& shard = shards_[part.shard];
    if (!part.rows) return shard;
    const auto rows = *part.rows->values<int64_t>();
    const int64_t width =
        shard.shape().dim(0) == 0 ? 0 : shard.shape().num_elements() / shard.shape().dim(0);
    std::vector<float> values;
    for (const int64_t row : rows) {
      for (int64_t i = 0; i < width; ++i) values.push_back(shard.data_as<float>()[row * width + i]);
    }
    return *Tensor::Copy<float>(Shape{static_cast<int64_t>(rows.size()), width}, values);
  }

  void DoCommit(const CommitRequest& request, const ResultCallback<CommitReply>& done) {
    CommitReply reply;
    absl::Status refused;
    {
      MutexLock lock(mu_);
      refused = TakeAnswer(commit_answers_);
      reply.duplicate = refused.ok() && !applied_.insert(request.entry).second;
      if (refused.ok() && !reply.duplicate) Apply(request, reply);
    }
    refused.ok() ? done(std::move(reply)) : done(refused);
  }

  void Apply(const CommitRequest& request, CommitReply& reply) DIVVY_REQUIRES(mu_) {
    std::set<ShardKey> touched;
    for (const CommitPart& part : request.parts) {
      if (part.op == WriteOp::kAssign && !part.rows) shards_[part.shard] = part.values;
      if (touched.insert(part.shard).second) ++versions_[part.shard];
    }
    for (const CommitPart& part : request.parts) reply.versions.push_back(versions_[part.shard]);
  }

  Executor& executor_;
  mutable Mutex mu_;
  bool holding_ DIVVY_GUARDED_BY(mu_) = false, holding_commits_ DIVVY_GUARDED_BY(mu_) = false;
  std::vector<Task> held_ DIVVY_GUARDED_BY(mu_);
  std::deque<absl::Status> pull_answers_ DIVVY_GUARDED_BY(mu_), commit_answers_
      DIVVY_GUARDED_BY(mu_);
  std::map<ShardKey, Tensor> shards_ DIVVY_GUARDED_BY(mu_);
  std::map<ShardKey, uint64_t> versions_ DIVVY_GUARDED_BY(mu_);
  std::vector<PullRequest> pulls_ DIVVY_GUARDED_BY(mu_);
  std::vector<CommitRequest> commits_ DIVVY_GUARDED_BY(mu_);
  std::set<EntryId> applied_ DIVVY_GUARDED_BY(mu_);
};

// Parameter server i has the address "ps<i>". Thread-safe after construction.
class FakeParameterServers : public Dialer {
 public:
  FakeParameterServers(Executor& executor, int num_ps) {
    for (int i = 0; i < num_ps; ++i) ps_.push_back(std::make_shared<FakePs>(executor));
  }
  FakePs& operator[](int index) { return *ps_[index]; }
  std::shared_ptr<FakePs> client(int index) { return ps_[index]; }
  View view() const {
    View view;
    for (int i = 0; i < static_cast<int>(ps_.size()); ++i)
      view.push_back({i, "ps" + std::to_string(i), Incarnation(100 + i)});
    return view;
  }

  // Sets every shard of the layout to zeros.
  void Make(const Layout& layout) {
    for (const auto& [id, variable] : layout.variables()) {
      for (int part = 0; part < variable.num_shards(); ++part) {
        ps_[variable.ps[part]]->Set({id, 0, static_cast<uint16_t>(part)},
                                    *Tensor::Zeros(variable.spec.dtype, variable.ShardShape(part)));
      }
    }
  }

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override {
    int index = 0;
    return absl::SimpleAtoi(address.substr(2), &index) ? ps_.at(index) : nullptr;
  }
  std::shared_ptr<WorkerClient> Worker(const std::string&) override { return nullptr; }

 private:
  std::vector<std::shared_ptr<FakePs>> ps_;
};

// A variable of `rows` rows of `width` float32, cut into parts of equal size on these ps.
inline VariableLayout MakeVariable(uint32_t id, std::string name, int64_t rows, int64_t width,
                                   std::vector<int> ps, std::optional<Optimizer> optimizer = {}) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = std::move(name);
  variable.spec.shape = Shape{rows, width};
  variable.spec.optimizer = std::move(optimizer);
  variable.offsets = {0};
  for (size_t part = 0; part < ps.size(); ++part)
    variable.offsets.push_back(rows * (part + 1) / ps.size());
  variable.ps = std::move(ps);
  return variable;
}

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_TESTING_FAKE_PARAMETER_SERVERS_H_
