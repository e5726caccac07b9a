#include "tests/e2e/hostile_servers.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "tests/e2e/hostile_job.h"
#include "tests/e2e/rogue_server.h"

namespace divvy {
namespace {

const TaskId kReplaced = PsTask(1);

struct Plan {
  Lie lie;
  // Lies at a scale of 1. Fewer are told if one takes longer than a second.
  int64_t tries;
};

std::string NameOf(const Plan& plan) { return absl::StrCat("ps: ", NameOf(plan.lie)); }

std::vector<Plan> PlansOf(const std::string& only) {
  std::vector<Plan> wanted;
  for (const Plan& plan : {Plan{Lie::kOther, 10}, Plan{Lie::kUnfit, 10}, Plan{Lie::kGarbage, 10},
                           Plan{Lie::kHalf, 10}, Plan{Lie::kHuge, 3}, Plan{Lie::kSilent, 1}}) {
    if (absl::StrContains(NameOf(plan), only)) wanted.push_back(plan);
  }
  return wanted;
}

class RogueSiege {
 public:
  explicit RogueSiege(const RogueServerOptions& options)
      : options_(options), job_(JobOf(options)) {}

  absl::Status Run() {
    const std::vector<Plan> plans = PlansOf(options_.only);
    if (plans.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(FileSystem::Real().CreateDirectory(options_.directory));
    RETURN_IF_ERROR(job_.Begin());
    RogueServer::Options rogue;
    rogue.task = CertificateName(kReplaced);
    rogue.backend = job_.cluster().bind_address(kReplaced);
    rogue.seed = options_.seed;
    ASSIGN_OR_RETURN(rogue_, RogueServer::Start(job_.certificates(), std::move(rogue)));
    for (const Plan& plan : plans) RETURN_IF_ERROR(Try(plan));
    return absl::OkStatus();
  }

 private:
  static HostileJob::Options JobOf(const RogueServerOptions& options) {
    HostileJob::Options job;
    job.program = options.program;
    job.directory = options.directory;
    job.seed = options.seed;
    job.flags = {"--reads", "--round=20"};
    job.has_liar = false;
    job.proxied = job.may_end = true;
    return job;
  }

  // Makes the other tasks reach this server by leading all connections to `address`.
  absl::Status LeadTo(const std::string& address) {
    RETURN_IF_ERROR(job_.cluster().proxy(kReplaced).Retarget(address));
    job_.cluster().proxy(kReplaced).CutAll();
    return absl::OkStatus();
  }

  absl::Status Try(const Plan& plan) {
    HostileKind kind;
    kind.name = NameOf(plan);
    const auto wanted = static_cast<int64_t>(static_cast<double>(plan.tries) * options_.scale);
    const int64_t before = rogue_->lies();
    RETURN_IF_ERROR(LeadTo(rogue_->address()));
    rogue_->Tell(plan.lie);
    const auto told = [&] { return rogue_->lies() - before >= wanted; };
    RETURN_IF_ERROR(job_.RunUntil(told, absl::Seconds(1) * options_.scale, kind));
    rogue_->Tell(Lie::kNone);
    kind.tries = kind.outcomes["told"] = rogue_->lies() - before;
    RETURN_IF_ERROR(LeadTo(job_.cluster().bind_address(kReplaced)));
    // The server's claims are believed for as long as it lives, so it is replaced.
    RETURN_IF_ERROR(job_.Replace(kReplaced));
    if (kind.tries == 0) kind.Hang("no task called the lying parameter server");
    RETURN_IF_ERROR(job_.LookAfter(kind, 0));
    options_.on_kind(std::move(kind));
    return absl::OkStatus();
  }

  const RogueServerOptions options_;
  HostileJob job_;
  std::unique_ptr<RogueServer> rogue_;  // destroyed before the job
};

}  // namespace

absl::Status TryRogueServer(const RogueServerOptions& options) { return RogueSiege(options).Run(); }

}  // namespace divvy
