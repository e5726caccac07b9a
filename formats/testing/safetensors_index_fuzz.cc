// Fuzzes the index of a sharded safetensors model with any bytes. The files that it names must be
// beside it.
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/safetensors.h"

namespace divvy {
namespace {

void Try(absl::string_view bytes) {
  const auto files = ParseSafetensorsIndex(bytes);
  if (!files.ok()) return;
  for (const std::string& file : *files)
    fuzz::Require(!file.empty() && !absl::StrContains(file, '/') && file != "..",
                  "a file elsewhere");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
