#include "rpc/page_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace divvy {

std::string HtmlEscaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string SecondsText(int64_t ns) {
  const double seconds = static_cast<double>(ns) * 1e-9;
  return seconds < 1 ? absl::StrFormat("%.3g ms", seconds * 1e3)
                     : absl::StrFormat("%.3g s", seconds);
}

std::string NameOfTask(v1::Job job, int index) {
  const std::string name = absl::AsciiStrToLower(v1::Job_Name(job));
  return job == v1::CHIEF ? name : absl::StrCat(name, " ", index);
}

}  // namespace divvy
