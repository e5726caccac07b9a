// tools/hostile: attacks a job by strangers and by lying members, and prints a table of the
// results.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/e2e/hostile.h"
#include "tools/launch/working_directory.h"

ABSL_FLAG(double, scale, 13,
          "1: some thousand tries in a minute; 13: more than 100,000 in a quarter of an hour");
ABSL_FLAG(uint64_t, seed, 0, "seed of all random choices; 0: a random one, printed");
ABSL_FLAG(std::string, only, "", "run only the kinds whose name contains this");
ABSL_FLAG(std::string, program, "", "counter_program");

namespace divvy {
namespace {

void Say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

int Main() {
  const absl::StatusOr<WorkingDirectory> directory = WorkingDirectory::Make();
  if (!directory.ok()) return Say(directory.status().ToString()), 1;
  HostileOptions options;
  options.program = absl::GetFlag(FLAGS_program);
  options.directory = directory->path();
  options.seed = absl::GetFlag(FLAGS_seed) != 0 ? absl::GetFlag(FLAGS_seed) : EntropySeed();
  options.scale = absl::GetFlag(FLAGS_scale);
  options.only = absl::GetFlag(FLAGS_only);
  options.on_kind = [](const HostileKind& kind) {
    Say(absl::StrCat("hostile: ", kind.name, ": ", kind.tries, " tries"));
  };
  Say(absl::StrCat("hostile: seed ", options.seed));
  const absl::StatusOr<HostileResult> result = RunHostile(options);
  if (!result.ok())
    return Say(absl::StrCat("hostile: ", result.status().message(),
                            "\nFAILED: its directory is kept: ", directory->path())),
           1;
  Say(result->Table());
  for (const std::string& fault : result->Faults()) Say("hostile: " + fault);
  if (!result->Faults().empty())
    return Say(absl::StrCat("FAILED: ", result->Faults().size(), " faults, seed ", options.seed,
                            "; its directory is kept: ", directory->path())),
           1;
  directory->Remove();
  Say(absl::StrCat("PASSED: ", result->tries(), " tries; every counter is ", result->steps,
                   ", the number of scheduled steps"));
  return 0;
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::Main();
}
