// Text for pages and terminals.
#ifndef DIVVY_RPC_PAGE_TEXT_H_
#define DIVVY_RPC_PAGE_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "proto/divvy.pb.h"

namespace divvy {

// All are pure.

// For HTML: the text may hold markup.
std::string HtmlEscaped(absl::string_view text);
// Three digits: "50 ns", "1.25 us", "12.3 ms", "45.0 s"; from a minute on as SpanText: "30 min 5
// s". A negative time is "0 ns".
std::string TimeText(absl::Duration time);
// "just now", "25 s ago", of a time before now.
std::string AgoText(absl::Duration ago);
// "chief", "ps 0"; "?" of a role that this build does not know.
std::string NameOfTask(v1::Job job, int index);
// With the names that divvy.proto has, and with all fields. "{}" if it cannot be written.
enum class JsonLines : uint8_t { kOne, kMany };
std::string JsonText(const google::protobuf::Message& message, JsonLines lines = JsonLines::kOne);

}  // namespace divvy

#endif  // DIVVY_RPC_PAGE_TEXT_H_
