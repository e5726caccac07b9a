// A JSON reader for configuration. It reads the whole text, and refuses what a reader would have to
// guess.
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
  // kText: the decoded text. Other scalars: as written, "true", "-1", "1e3".
  std::string text;
  // kList
  std::vector<JsonValue> items;
  // kMap: in the order of the text; of a duplicate key the first value
  std::vector<std::pair<std::string, JsonValue>> members;

  // nullptr if there is no such key
  const JsonValue* Find(absl::string_view key) const;
};

struct JsonDocument {
  JsonValue value;
  // paths of duplicate keys within one object: "cluster.worker"
  std::vector<std::string> duplicates;
};

// Accepts any bytes. InvalidArgument, with the place and the reason: not JSON, more than
// kMaxConfigBytes, nested deeper than kMaxConfigDepth, not UTF-8, a byte order mark, a NUL, or
// anything after the value.
absl::StatusOr<JsonDocument> ReadJson(absl::string_view text);

// The text as a JSON string, with its quotes. Bytes that are not UTF-8 are replaced.
std::string QuoteJson(absl::string_view text);

// A value for a message: `null`, `7`, `"text"` (cut if it is long), `a list`, `an object`.
std::string ShowJson(const JsonValue& value);
std::string ShowText(absl::string_view text);
// The text on one line of ASCII, whatever bytes it has: other bytes become \xNN.
std::string EscapeText(absl::string_view text);

// The key of a task in TF_CONFIG, for a message: `cluster.worker[3]`.
std::string ConfigPath(absl::string_view job, int index);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CONFIG_JSON_H_
