#include "cluster/config_json.h"

#include <cstdint>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace divvy {
namespace {

using Json = nlohmann::json;
using Kind = JsonValue::Kind;

// the most bytes of a text in a message
constexpr size_t kShownBytes = 60;

// Receives the parser's events and builds the tree. A false tells the parser to stop.
class TreeBuilder {
 public:
  bool null() { return Add({Kind::kNull, "null", {}, {}}); }
  bool boolean(bool value) { return Add({Kind::kBool, value ? "true" : "false", {}, {}}); }
  bool number_integer(int64_t value) { return Add({Kind::kInteger, absl::StrCat(value), {}, {}}); }
  bool number_unsigned(uint64_t value) {
    return Add({Kind::kInteger, absl::StrCat(value), {}, {}});
  }
  bool number_float(double, const std::string& written) {
    return Add({Kind::kReal, written, {}, {}});
  }
  bool string(std::string& value) { return Add({Kind::kText, std::move(value), {}, {}}); }
  // JSON has no binary values.
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(Kind::kMap); }
  bool start_array(size_t) { return Open(Kind::kList); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    Frame& frame = open_.back();
    frame.is_repeated = !frame.names.insert(name).second;
    frame.key = std::move(name);
    if (frame.is_repeated) document_.duplicates.push_back(Path());
    return true;
  }
  bool parse_error(size_t position, const std::string& token, const Json::exception& error) {
    error_ =
        absl::StrCat("it is not JSON at byte ", position, Near(token), Hint(token, error.what()));
    return false;
  }

  const std::string& error() const { return error_; }
  JsonDocument& document() { return document_; }

 private:
  // A list or object whose end has not been read yet.
  struct Frame {
    JsonValue value;
    std::set<std::string> names;
    std::string key;
    bool is_repeated = false;
  };

  bool Add(JsonValue value) {
    if (open_.empty()) {
      document_.value = std::move(value);
    } else if (Frame& frame = open_.back(); frame.value.kind == Kind::kList) {
      frame.value.items.push_back(std::move(value));
    } else if (!frame.is_repeated) {
      frame.value.members.emplace_back(frame.key, std::move(value));
    }
    return true;
  }

  bool Open(Kind kind) {
    if (open_.size() == kMaxConfigDepth) {
      error_ = absl::StrCat("it is nested more than ", kMaxConfigDepth, " deep");
      return false;
    }
    open_.emplace_back().value.kind = kind;
    return true;
  }

  bool Close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }

  std::string Path() const {
    std::string path;
    for (const Frame& frame : open_) {
      if (frame.value.kind == Kind::kMap)
        absl::StrAppend(&path, path.empty() ? "" : ".", EscapeText(frame.key));
      if (frame.value.kind == Kind::kList)
        absl::StrAppend(&path, "[", frame.value.items.size(), "]");
    }
    return path;
  }

  static std::string Near(const std::string& token) {
    return token.empty() ? "" : absl::StrCat(", near ", ShowText(token));
  }

  // Hints for the most common mistakes.
  static std::string Hint(const std::string& token, absl::string_view what) {
    if (absl::StrContains(what, "unexpected end of input"))
      return ": it ends too early; did the shell take a part of it?";
    if (absl::EndsWith(token, "'")) return ": names and texts stand in double quotes";
    if (absl::EndsWith(token, "/")) return ": JSON has no comments";
    if (absl::StrContains(what, "; expected end of input"))
      return ": nothing may stand behind the object";
    if (absl::StrContains(what, "UTF-8")) return ": it is not UTF-8";
    if (absl::StrContains(what, "surrogate")) return ": half of a surrogate pair";
    return "";
  }

  std::vector<Frame> open_;
  JsonDocument document_;
  std::string error_;
};

// Refuses texts that the parser would accept.
absl::Status CheckBytes(absl::string_view text) {
  if (text.size() > kMaxConfigBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes; at most ", kMaxConfigBytes, " are read"));
  if (absl::StartsWith(text, "\xEF\xBB\xBF"))
    return absl::InvalidArgumentError(
        "it begins with a byte order mark: save it as UTF-8 without one");
  if (const size_t at = text.find('\0'); at != text.npos)
    return absl::InvalidArgumentError(absl::StrCat("it has a NUL at byte ", at));
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return absl::InvalidArgumentError("it is empty: unset it, or write {}");
  return absl::OkStatus();
}

}  // namespace

const JsonValue* JsonValue::Find(absl::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<JsonDocument> ReadJson(absl::string_view text) {
  if (absl::Status status = CheckBytes(text); !status.ok()) return status;
  TreeBuilder builder;
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.document());
  return absl::InvalidArgumentError(builder.error());
}

std::string QuoteJson(absl::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EscapeText(absl::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (absl::ascii_isprint(c))
      shown += c;
    else
      absl::StrAppend(&shown, "\\x", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
  }
  return shown;
}

std::string ShowText(absl::string_view text) {
  return absl::StrCat("\"", EscapeText(text.substr(0, kShownBytes)),
                      text.size() > kShownBytes ? "...\"" : "\"");
}

std::string ShowJson(const JsonValue& value) {
  switch (value.kind) {
    case Kind::kList: return "a list";
    case Kind::kMap: return "an object";
    case Kind::kText: return ShowText(value.text);
    default: return value.text;
  }
}

std::string ConfigPath(absl::string_view job, int index) {
  return absl::StrCat("cluster.", EscapeText(job), "[", index, "]");
}

}  // namespace divvy
