// Reads any bytes as a vocabulary's file. What is loaded has an id for each token, and is the same
// after it is saved and loaded again.
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "base/testing/in_memory_file_system.h"
#include "data/vocabulary.h"

namespace divvy {
namespace {

void Try(absl::string_view bytes) {
  InMemoryFileSystem files;
  const DataEnvironment environment{&files, nullptr};
  fuzz::Require(files.ReplaceFile("f", bytes).ok(), "a file of the test");
  VocabularyOptions options;
  if (bytes.size() % 2 == 1) options.mask_token = "";
  options.num_oov_indices = static_cast<int64_t>(bytes.size() % 3);
  const absl::StatusOr<Vocabulary> words = Vocabulary::Load("f", options, environment);
  if (!words.ok()) return;
  // A token that no line can hold is refused.
  const bool is_saved = words->Save("g", environment).ok();
  const absl::StatusOr<Vocabulary> again = Vocabulary::Load("g", options, environment);
  fuzz::Require(is_saved == again.ok(), "what was saved cannot be loaded");
  for (int64_t id = words->num_special(); id < words->size(); ++id) {
    const std::string token = *words->Token(id);
    fuzz::Require(*words->Id(token) == id, "a token has another id");
    if (is_saved) fuzz::Require(*again->Token(id) == token, "a token changes");
  }
  fuzz::Require(!is_saved || again->size() == words->size(), "the number of tokens changes");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
