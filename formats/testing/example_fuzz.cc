// Fuzzes a tf.train.Example with any bytes. What is accepted must be the same after it is written
// and read again.
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
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

// The column of all values of a feature, and the bytes of memory of a value. nullopt: a feature
// without a type.
std::optional<std::pair<ExampleColumn, size_t>> ColumnOf(absl::string_view name,
                                                         const ExampleValues& values) {
  const std::string of_name(name);
  if (const auto* const texts = std::get_if<std::vector<absl::string_view>>(&values))
    return {{{of_name, ExampleColumn::Type::kBytes, texts->size()}, sizeof(absl::string_view)}};
  if (const auto* const floats = std::get_if<std::vector<float>>(&values))
    return {{{of_name, ExampleColumn::Type::kFloat, floats->size()}, sizeof(float)}};
  if (const auto* const ints = std::get_if<std::vector<int64_t>>(&values))
    return {{{of_name, ExampleColumn::Type::kInt64, ints->size()}, sizeof(int64_t)}};
  return std::nullopt;
}

// Whether memory that a row was read into has these values.
bool Holds(const std::vector<char>& memory, const ExampleValues& values) {
  if (memory.empty()) return true;
  if (const auto* const texts = std::get_if<std::vector<absl::string_view>>(&values)) {
    std::vector<absl::string_view> read(texts->size());
    std::memcpy(static_cast<void*>(read.data()), memory.data(), memory.size());
    return read == *texts;
  }
  const void* const wanted = std::holds_alternative<std::vector<float>>(values)
                                 ? static_cast<const void*>(std::get<2>(values).data())
                                 : std::get<3>(values).data();
  return std::memcmp(wanted, memory.data(), memory.size()) == 0;
}

// What is read as a row must be what is read as a map.
void TryRow(absl::string_view bytes,
            const absl::StatusOr<std::map<absl::string_view, ExampleValues>>& features) {
  std::vector<ExampleColumn> columns;
  std::vector<std::vector<char>> memory;
  if (features.ok()) {
    for (const auto& [name, values] : *features) {
      const auto column = ColumnOf(name, values);
      if (!column) continue;
      columns.push_back(column->first);
      memory.emplace_back(column->first.count * column->second);
    }
  }
  std::vector<char*> to;
  for (std::vector<char>& values : memory) to.push_back(values.data());
  if (!ExampleRowReader(columns).Read(bytes, to)) return;
  fuzz::Require(features.ok(), "a row of a record that is bad");
  for (size_t i = 0; i < columns.size(); ++i)
    fuzz::Require(Holds(memory[i], features->at(columns[i].name)), "a row with other values");
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
