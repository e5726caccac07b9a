// Fuzzes a tf.train.Example with any bytes. What is accepted must be the same after it is written
// and read again.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/example.h"

namespace divvy {
namespace {

// Compares floats by their bits, since NaN is a value like any other.
bool Same(const ExampleValues& a, const ExampleValues& b) {
  const auto* const x = std::get_if<std::vector<float>>(&a);
  const auto* const y = std::get_if<std::vector<float>>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return x->size() == y->size() &&
         (x->empty() || std::memcmp(x->data(), y->data(), x->size() * sizeof(float)) == 0);
}

void Try(absl::string_view bytes) {
  const auto features = ReadExample(bytes);
  if (!features.ok()) return;
  const std::string written = WriteExample(*features);
  const auto again = ReadExample(written);
  fuzz::Require(again.ok() && again->size() == features->size(), "what was written cannot be read");
  for (const auto& [name, values] : *features)
    fuzz::Require(again->count(name) == 1 && Same(values, again->at(name)), "a feature changes");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
