#include "tools/ctl/status.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/config_json.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/page_text.h"
#include "tools/ctl/survey.h"
#include "tools/ctl/task_text.h"
#include "wire/text.h"

namespace divvy {
namespace {

using StatusSurvey = Survey<v1::GetStatusRequest, v1::TaskStatus>;
using Answer = StatusSurvey::Answer;

constexpr int kLeastWidth = 24;  // of the addresses' column

int WidthOf(const StatusOptions& options) {
  size_t width = kLeastWidth;
  for (const std::string& address : options.addresses) width = std::max(width, address.size());
  return static_cast<int>(width);
}

// "?" if TF_CONFIG does not name the address.
std::string NameOf(const StatusOptions& options, const std::string& address) {
  const auto found = options.names.find(address);
  return found == options.names.end() ? "?" : found->second;
}

void PrintRow(const Answer& answer, const StatusOptions& options) {
  const int width = WidthOf(options);
  if (!answer.status.ok()) {
    absl::PrintF("%-10s %-*s %-10s %s\n", NameOf(options, answer.address), width, answer.address,
                 "no answer", wire::Escaped(answer.status.message()));
    return;
  }
  const v1::TaskStatus& status = answer.reply;
  absl::PrintF("%-10s %-*s %-10s epoch %d  %s\n", TaskName(status), width, answer.address,
               wire::Escaped(status.state()), status.epoch(), wire::Escaped(Figures(status)));
  for (const std::string& line : TableLines(status.coordinator()))
    absl::PrintF("%-10s   %s\n", "", wire::Escaped(line));
  for (const v1::TaskStatus::Wait& wait : status.waits()) {
    const absl::Duration since = absl::Trunc(absl::Nanoseconds(wait.since_ns()), absl::Seconds(1));
    if (since > absl::ZeroDuration())
      absl::PrintF("%-10s   since %s: %s\n", "", absl::FormatDuration(since),
                   wire::Escaped(wait.text()));
  }
}

v1::Status ErrorOf(const absl::Status& status) {
  v1::Status error;
  error.set_code(static_cast<int>(status.code()));
  error.set_message(std::string(status.message()));
  return error;
}

void PrintJson(const Answer& answer, const StatusOptions& options) {
  const std::string json =
      answer.status.ok() ? JsonText(answer.reply) : JsonText(ErrorOf(answer.status));
  absl::PrintF(
      "{\"address\":%s,\"task\":%s,\"%s\":%s}\n", QuoteJson(answer.address),
      QuoteJson(answer.status.ok() ? TaskName(answer.reply) : NameOf(options, answer.address)),
      answer.status.ok() ? "status" : "error", json);
}

}  // namespace

int ShowStatus(const StatusOptions& options) {
  StatusSurvey survey(options.addresses, options.credentials, options.timeout);
  bool all = true;
  for (const auto& answer : survey.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus)) {
    all = all && answer->status.ok();
    options.json ? PrintJson(*answer, options) : PrintRow(*answer, options);
  }
  return all ? 0 : 1;
}

}  // namespace divvy
