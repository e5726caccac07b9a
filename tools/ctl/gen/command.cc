#include "tools/ctl/gen/command.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/config_json.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/gen/generate.h"

// Flags that other commands have, too.
ABSL_DECLARE_FLAG(int, workers);
ABSL_DECLARE_FLAG(bool, evaluator);

// Flags of gen alone. A bool is given without a value, which no std::optional can be.
ABSL_FLAG(bool, monitoring, false,
          absl::StrCat(divvy::gen::KindsThatUse("monitoring"),
                       ": add Prometheus with Divvy's alerts, in the image of "
                       "deploy/prometheus/build"));
#define DIVVY_GEN_FLAG(type, name, field, kinds, meaning) \
  ABSL_FLAG(std::optional<type>, name, std::nullopt,      \
            absl::StrCat(divvy::gen::KindsThatUse(#name), ": ", meaning));
#include "tools/ctl/gen/flags.inc"

namespace divvy {
namespace {

gen::GenOptions OptionsFromFlags() {
  gen::GenOptions options;
  options.ps = NumPsFromFlags();
  options.workers = absl::GetFlag(FLAGS_workers);
  options.evaluator = absl::GetFlag(FLAGS_evaluator);
  options.monitoring = absl::GetFlag(FLAGS_monitoring);
#define DIVVY_GEN_FLAG(type, name, field, kinds, meaning) \
  options.field = absl::GetFlag(FLAGS_##name);
#include "tools/ctl/gen/flags.inc"
  return options;
}

std::string KindNames() {
  return absl::StrJoin(gen::kKinds, ", ", [](std::string* out, gen::Kind kind) {
    absl::StrAppend(out, gen::KindName(kind));
  });
}

}  // namespace

int GenCommand(const std::vector<std::string>& args) {
  const std::optional<gen::Kind> kind = args.empty() ? std::nullopt : gen::ParseKind(args[0]);
  if (!kind) {
    return Misuse(absl::StrCat("gen: ",
                               args.empty() ? "the kind of file is missing"
                                            : absl::StrCat("unknown kind ", ShowText(args[0])),
                               ": wanted one of ", KindNames(), ", then -- ./program ARGS"));
  }
  gen::GenOptions options = OptionsFromFlags();
  options.command.assign(args.begin() + 1, args.end());
  const absl::StatusOr<std::string> text = gen::Generate(*kind, options);
  if (!text.ok()) return Misuse(text.status().message());
  std::fputs(text->c_str(), stdout);
  return EXIT_SUCCESS;
}

}  // namespace divvy
