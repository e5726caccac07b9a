// Parses any bytes as the URI of a certificate: a URI that names a task has only one spelling. Then
// takes the bytes as a request to the HTTP server, which gets an answer whatever it is.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "rpc/authorization.h"
#include "rpc/http_server.h"

namespace divvy {
namespace {

void Try(absl::string_view bytes) {
  if (const auto id = ParseRoleUri(bytes)) {
    fuzz::Require(
        absl::StrCat("spiffe://", id->domain, "/", id->task.role, "/", id->task.index) == bytes,
        "a second way to write a task");
  }
  const auto page = [](absl::string_view path) {
    fuzz::Require(path.find_first_of(" ?\r\n") == path.npos, "a path that is none");
    return HttpPage{200, "text/plain", std::string(path)};
  };
  if (const auto answer = HttpAnswer(bytes, page)) {
    fuzz::Require(absl::StrContains(bytes, "\r\n\r\n") && absl::StartsWith(*answer, "HTTP/1.1 "),
                  "an answer that is none");
  }
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
