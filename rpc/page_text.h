// Text for pages and terminals.
#ifndef DIVVY_RPC_PAGE_TEXT_H_
#define DIVVY_RPC_PAGE_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/divvy.pb.h"

namespace divvy {

// All are pure.

// For HTML: the text may hold markup.
std::string HtmlEscaped(absl::string_view text);
// "12.3 ms", "4.5 s", of nanoseconds.
std::string SecondsText(int64_t ns);
// "chief", "ps 0"
std::string NameOfTask(v1::Job job, int index);

}  // namespace divvy

#endif  // DIVVY_RPC_PAGE_TEXT_H_
