#include "rpc/page_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/util/json_util.h"
#include "rpc/findings.h"

namespace divvy {
namespace {

// "1.25", "12.3", "123": three digits, or four that begin with 1,000.
std::string ThreeDigits(double value) {
  return absl::StrFormat("%.*f", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

}  // namespace

std::string HtmlEscaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

// The limits are those at which the digits are rounded to the next unit.
std::string TimeText(absl::Duration time) {
  if (time >= absl::Milliseconds(59'950)) return SpanText(time + absl::Milliseconds(500));
  const double ns = std::max(absl::ToDoubleNanoseconds(time), 0.0);
  if (ns < 999.5) return absl::StrFormat("%.0f ns", ns);
  if (ns < 999.5e3) return ThreeDigits(ns * 1e-3) + " us";
  if (ns < 999.5e6) return ThreeDigits(ns * 1e-6) + " ms";
  return ThreeDigits(ns * 1e-9) + " s";
}

std::string AgoText(absl::Duration ago) {
  return ago < absl::Seconds(1) ? "just now" : absl::StrCat(SpanText(ago), " ago");
}

std::string NameOfTask(v1::Job job, int index) {
  const std::string name = absl::AsciiStrToLower(v1::Job_Name(job));
  switch (job) {
    case v1::CHIEF: return name;
    case v1::PS:
    case v1::WORKER: return absl::StrCat(name, " ", index);
    default: return "?";
  }
}

std::string JsonText(const google::protobuf::Message& message, JsonLines lines) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = lines == JsonLines::kMany;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // It fails on text that is not UTF-8 alone, and protobuf has no such text in a string.
  return google::protobuf::util::MessageToJsonString(message, &json, options).ok() ? json : "{}";
}

}  // namespace divvy
