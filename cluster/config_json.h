// JSON as configuration needs it: read whole, and refused where a reader would have to guess.
#ifndef DIVVY_CLUSTER_CONFIG_JSON_H_
#define DIVVY_CLUSTER_CONFIG_JSON_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr int kMaxConfigDepth = 16;

// A plain value.
struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kReal, kText, kList, kMap };
  Kind kind = Kind::kNull;
  // Of kText what it says; of the other scalars as they are written, "true", "-1", "1e3".
  std::string text;
  // kList
  std::vector<JsonValue> items;
  // kMap: in the order of the text; of a key that stands twice the first
  std::vector<std::pair<std::string, JsonValue>> members;

  const JsonValue* Find(absl::string_view key) const;  // nullptr: not there
};

struct JsonDocument {
  JsonValue value;
  // paths of keys that stand twice in one object: "cluster.worker"
  std::vector<std::string> duplicates;
};

// Total: any bytes. InvalidArgument, saying where and why: not JSON, more than kMaxConfigBytes,
// deeper than kMaxConfigDepth, not UTF-8, a byte order mark, a NUL, or anything behind the value.
absl::StatusOr<JsonDocument> ReadJson(absl::string_view text);

// The text as a JSON string, quotes included. What is not UTF-8 is replaced.
std::string QuoteJson(absl::string_view text);

// A value as a message shows it: `null`, `7`, `"text"` (cut where it is long), `a list`, `an
// object`.
std::string ShowJson(const JsonValue& value);
std::string ShowText(absl::string_view text);
// On one line of ASCII, whatever it holds: other bytes as \xNN.
std::string EscapeText(absl::string_view text);

// Where TF_CONFIG names a task, as a message shows it: `cluster.worker[3]`.
std::string ConfigPath(absl::string_view job, int index);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CONFIG_JSON_H_
