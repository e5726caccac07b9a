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

// What is read as a row must be what is read as a map.
void TryRow(absl::string_view bytes,
            const absl::StatusOr<std::map<absl::string_view, ExampleValues>>& features) {
  std::vector<ExampleColumn> columns;
  std::vector<std::vector<char>> memory;
  if (features.ok()) {
    for (const auto& [name, values] : *features) {
      const auto* const floats = std::get_if<std::vector<float>>(&values);
      const auto* const ints = std::get_if<std::vector<int64_t>>(&values);
      if (floats == nullptr && ints == nullptr) continue;
      const size_t count = floats != nullptr ? floats->size() : ints->size();
      columns.push_back(
          {std::string(name),
           floats != nullptr ? ExampleColumn::Type::kFloat : ExampleColumn::Type::kInt64, count});
      memory.emplace_back(count * (floats != nullptr ? sizeof(float) : sizeof(int64_t)));
    }
  }
  std::vector<char*> to;
  for (std::vector<char>& values : memory) to.push_back(values.data());
  if (!ExampleRowReader(columns).Read(bytes, to)) return;
  fuzz::Require(features.ok(), "a row of a record that is bad");
  for (size_t i = 0; i < columns.size(); ++i) {
    const ExampleValues& values = features->at(columns[i].name);
    const void* const wanted = columns[i].type == ExampleColumn::Type::kFloat
                                   ? static_cast<const void*>(std::get<2>(values).data())
                                   : std::get<3>(values).data();
    fuzz::Require(memory[i].empty() || std::memcmp(wanted, to[i], memory[i].size()) == 0,
                  "a row with other values");
  }
}

void Try(absl::string_view bytes) {
  const auto features = ReadExample(bytes);
  TryRow(bytes, features);
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
