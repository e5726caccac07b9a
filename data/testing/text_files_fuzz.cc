// Reads any bytes as a file of a dataset (CSV, libsvm, Criteo's logs, IDX, text). A pass over it
// must end, with elements or an error. The first byte selects the format.
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "base/testing/in_memory_file_system.h"
#include "data/dataset.h"

namespace divvy {
namespace {

Dataset DatasetOf(int kind) {
  switch (kind) {
    case 0: return Dataset::Csv("f", {{"x"}, {"y", DType::kInt64}});
    case 1: return Dataset::Libsvm("f");
    case 2: return Dataset::CriteoTsv("f");
    case 3: return Dataset::Idx("f", "f");
    case 4:
      return Dataset::Csv("f", {CsvColumn::Text("hashed", TextKeys::Hashed("hashed")),
                                CsvColumn::Text("word", *Vocabulary::FromTokens({"cat", "dog"})),
                                {"text", DType::kString}});
    default:
      return Dataset::TextLines("f").Map(
          TextsToKeys({{"", TextKeys::Hashed("word", 1000), Tokenizer::Words()}}));
  }
}

void Try(absl::string_view bytes) {
  if (bytes.empty()) return;
  InMemoryFileSystem files;
  const auto file = files.OpenForWrite("f", WriteMode::kReplace);
  fuzz::Require(file.ok() && (*file)->Append(bytes.substr(1)).ok() && (*file)->Close().ok(),
                "a file of the test");
  const DataEnvironment environment{&files, nullptr};
  const auto iterator = DatasetOf(bytes[0] & 7).Iterate(environment);
  for (size_t elements = 0;; ++elements) {
    const auto element = iterator->Next();
    if (!element.ok() || !element->has_value()) return;
    fuzz::Require(elements <= bytes.size(), "more elements than bytes");
  }
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
