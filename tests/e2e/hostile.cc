#include "tests/e2e/hostile.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/executor.h"
#include "base/status_macros.h"
#include "tests/e2e/hostile_files.h"
#include "tests/e2e/hostile_frames.h"
#include "tests/e2e/hostile_job.h"
#include "tests/e2e/hostile_liar.h"
#include "tests/e2e/hostile_members.h"
#include "tests/e2e/hostile_probes.h"
#include "tests/e2e/hostile_servers.h"
#include "tests/e2e/hostile_strangers.h"

namespace divvy {
namespace {

// Runs one kind of attack after another, and checks the job after each.
class Siege {
 public:
  explicit Siege(const HostileOptions& options)
      : options_(options), job_({options.program, options.directory, options.seed}) {}

  absl::StatusOr<HostileResult> Run() {
    RETURN_IF_ERROR(job_.Begin());
    RETURN_IF_ERROR(liar_.Start(options_.seed));
    for (const std::vector<HostileAttack>& attacks :
         {strangers_.Attacks(), probes_.Attacks(), members_.Attacks(), frames_.Attacks(),
          liar_.Attacks(), frames_.LastAttacks()}) {
      for (const HostileAttack& attack : attacks) RETURN_IF_ERROR(Try(attack));
    }
    RETURN_IF_ERROR(TryFiles());
    RETURN_IF_ERROR(TryServers());
    const absl::Status ended = job_.End(result_);
    if (!ended.ok())
      return absl::InternalError(absl::StrCat(absl::StrJoin(result_.Faults(), "\n"), "\n",
                                              result_.Table(), ended.message()));
    return std::move(result_);
  }

 private:
  bool Wanted(const std::string& name) const { return absl::StrContains(name, options_.only); }

  // The attack runs on a thread of its own. This thread reads the tasks' output, so that no task
  // blocks on a full pipe.
  absl::Status Try(const HostileAttack& attack) {
    if (!Wanted(attack.name)) return absl::OkStatus();
    HostileKind kind;
    kind.name = attack.name;
    const auto tries = static_cast<int64_t>(static_cast<double>(attack.tries) *
                                            (1 + (options_.scale - 1) * attack.grows));
    std::atomic<bool> done = false;
    hostile_thread_.PostBlocking("hostile", [&] { attack.run(kind, tries), done = true; });
    while (!done) job_.cluster().processes().RunFor(absl::Milliseconds(20));
    RETURN_IF_ERROR(job_.LookAfter(kind, attack.burst_bytes));
    Keep(std::move(kind));
    return absl::OkStatus();
  }

  absl::Status TryFiles() {
    HostileKind kind;
    kind.name = "odd files and directories";
    if (!Wanted(kind.name)) return absl::OkStatus();
    RETURN_IF_ERROR(TryOddFiles(options_.program, options_.directory,
                                static_cast<int64_t>(8 * options_.scale), job_.random(), kind));
    Keep(std::move(kind));
    return absl::OkStatus();
  }

  absl::Status TryServers() {
    RogueServerOptions rogue;
    rogue.program = options_.program;
    rogue.directory = options_.directory + "/rogue";
    rogue.seed = options_.seed;
    rogue.scale = options_.scale;
    rogue.only = options_.only;
    rogue.on_kind = [this](HostileKind kind) { Keep(std::move(kind)); };
    return TryRogueServer(rogue);
  }

  void Keep(HostileKind kind) {
    options_.on_kind(kind);
    result_.kinds.push_back(std::move(kind));
  }

  const HostileOptions options_;
  HostileJob job_;
  Strangers strangers_{job_};
  Probes probes_{job_};
  Members members_{job_};
  Frames frames_{job_};
  Liar liar_{job_};
  HostileResult result_;
  ThreadPoolExecutor hostile_thread_{1};  // the last member, so it is joined first
};

}  // namespace

absl::StatusOr<HostileResult> RunHostile(const HostileOptions& options) {
  return Siege(options).Run();
}

}  // namespace divvy
