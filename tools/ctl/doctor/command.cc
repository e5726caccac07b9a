#include "tools/ctl/doctor/command.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/status_macros.h"
#include "task/task_flags.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/doctor/checks.h"
#include "tools/ctl/doctor/gather.h"
#include "tools/ctl/doctor/report.h"
#include "wire/text.h"

ABSL_DECLARE_FLAG(std::string, addr);

// A flag of tasks that a check compares with, and that divvyctl does not have otherwise.
ABSL_FLAG(int, blas_threads, 0, "doctor: that of the workers of this machine");
ABSL_FLAG(bool, fix, false,
          "doctor: make a missing directory of checkpoints in one that exists, and take rights to "
          "your own key from other users; nothing else is changed");

namespace divvy {
namespace {

using doctor::Facts;
using doctor::Finding;

// How long to watch whether steps finish.
constexpr absl::Duration kPatience = absl::Seconds(20);

absl::Status LookAtCluster(const ClusterConfigSources& sources, Facts& facts) {
  facts.config = doctor::LookAtConfig(sources);
  if (facts.config && !facts.config->problems.empty() && absl::GetFlag(FLAGS_addr).empty())
    return absl::OkStatus();
  if (!facts.config && absl::GetFlag(FLAGS_addr).empty()) return absl::OkStatus();
  // Without good certificates no task would answer.
  if (facts.certificates && !facts.certificates->problems.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const StatusOptions options, TasksFromFlags());
  facts.tasks = doctor::LookAtTasks(options, kPatience, facts.progress);
  return absl::OkStatus();
}

// An error is a misuse.
absl::StatusOr<Facts> LookAround() {
  Facts facts;
  facts.now = Clock::Real().WallTime();
  facts.blas_threads = absl::GetFlag(FLAGS_blas_threads);
  ASSIGN_OR_RETURN(const ClusterConfigSources sources, ClusterSourcesFromFlags());
  ASSIGN_OR_RETURN(const std::optional<TlsFiles> tls, TlsFilesFromFlags());
  facts.machine = doctor::LookAtMachine(doctor::WorkersOnThisHost(sources));
  if (tls) facts.certificates = doctor::LookAtCertificates(*tls);
  RETURN_IF_ERROR(LookAtCluster(sources, facts));
  // After the tasks, so that the directory has each checkpoint that the coordinator has told.
  if (const std::string directory = CheckpointDirFromFlags(); !directory.empty())
    facts.checkpoints = doctor::LookAtDirectory(directory);
  return facts;
}

// Prints what was done. False: the finding stays.
bool IsMended(const Finding& finding) {
  if (!absl::GetFlag(FLAGS_fix) || finding.fix == Finding::Fix::kNone) return false;
  const absl::StatusOr<std::string> done = doctor::Mend(finding);
  std::printf("   done: %s\n",
              wire::Escaped(done.ok() ? *done : std::string(done.status().message())).c_str());
  return done.ok() && finding.fix != Finding::Fix::kMakeDirectory;
}

}  // namespace

int DoctorCommand(const std::vector<std::string>& args) {
  if (!args.empty()) return Misuse("doctor takes flags only");
  const absl::StatusOr<Facts> facts = LookAround();
  if (!facts.ok()) return Misuse(absl::StrCat("doctor: ", facts.status().message()));
  int found = 0, mended = 0;
  for (const Finding& finding : doctor::Examine(*facts)) {
    std::fputs(doctor::TextOf(finding, ++found).c_str(), stdout);
    mended += IsMended(finding);
  }
  std::printf("%s; looked at %s\n",
              found == 0 ? "nothing is wrong"
                         : absl::StrCat(found, found == 1 ? " finding" : " findings",
                                        mended == 0 ? "" : absl::StrCat(", ", mended, " mended"))
                               .c_str(),
              doctor::LookedAt(*facts).c_str());
  return found == mended ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace divvy
