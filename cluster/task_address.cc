#include "cluster/task_address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr size_t kMaxHostBytes = 253;  // RFC 1035
// the port in examples of TensorFlow, Kubeflow and Vertex
constexpr int kUsualPort = 2222;

template <typename... Words>
absl::Status Refused(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

bool IsDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

bool IsHostCharacter(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

absl::StatusOr<int> PortFrom(absl::string_view text) {
  int port = 0;
  if (!IsDigits(text)) return Refused("its port \"", absl::CHexEscape(text), "\" is no number");
  if (!absl::SimpleAtoi(text, &port) || port < 1 || port > 65535)
    return Refused("its port ", text, " is outside 1 to 65535");
  return port;
}

absl::StatusOr<std::string> NumericHost(absl::string_view host) {
  in_addr parsed;
  if (inet_pton(AF_INET, std::string(host).c_str(), &parsed) != 1)
    return Refused("its host is no IPv4 address: it has four numbers up to 255");
  return std::string(host);
}

absl::StatusOr<std::string> HostFrom(absl::string_view host) {
  if (host.empty()) return Refused("it has no host: write \"host:", kUsualPort, "\"");
  if (host.size() > kMaxHostBytes)
    return Refused("its host has more than ", kMaxHostBytes, " characters");
  const auto odd = std::find_if_not(host.begin(), host.end(), IsHostCharacter);
  if (odd != host.end()) {
    return Refused("its host has the character \"", absl::CHexEscape(absl::string_view(&*odd, 1)),
                   "\"; letters, digits, '-', '_' and '.' are possible");
  }
  if (std::all_of(host.begin(), host.end(),
                  [](char c) { return absl::ascii_isdigit(c) || c == '.'; }))
    return NumericHost(host);
  return absl::AsciiStrToLower(host);
}

absl::StatusOr<std::string> V6From(absl::string_view inside) {
  in6_addr parsed;
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, std::string(inside).c_str(), &parsed) != 1)
    return Refused("there is no IPv6 address in its brackets");
  return absl::StrCat("[", inet_ntop(AF_INET6, &parsed, text, sizeof(text)), "]");
}

absl::Status WithoutBrackets(absl::string_view address) {
  const size_t last = address.rfind(':');
  if (address.find(':') != last)
    return Refused("an IPv6 address stands in brackets: \"[",
                   absl::CHexEscape(address.substr(0, last)), "]:PORT\"");
  return absl::OkStatus();
}

absl::StatusOr<std::string> BracketedAddress(absl::string_view address) {
  const size_t end = address.find(']');
  if (end == address.npos) return Refused("its bracket is not closed");
  ASSIGN_OR_RETURN(const std::string host, V6From(address.substr(1, end - 1)));
  absl::string_view rest = address.substr(end + 1);
  if (!absl::ConsumePrefix(&rest, ":"))
    return Refused("it has no port: write \"", host, ":", kUsualPort, "\"");
  ASSIGN_OR_RETURN(const int port, PortFrom(rest));
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<std::string> SocketAddress(const std::string& path) {
  const auto odd = std::find_if_not(path.begin(), path.end(), [](char c) {
    return absl::ascii_isgraph(c) && c != ',' && c != '"' && c != '\\';
  });
  if (!absl::StartsWith(path, "/"))
    return Refused("the path of a Unix socket begins with /: \"unix:/run/you/ps-0\"");
  if (path.size() > kMaxSocketPath)
    return Refused("its path has ", path.size(), " bytes; a Unix socket's has at most ",
                   kMaxSocketPath);
  if (odd != path.end())
    return Refused("its path has the character \"", absl::CHexEscape(absl::string_view(&*odd, 1)),
                   "\"");
  return absl::StrCat("unix:", path);
}

}  // namespace

std::optional<std::string> SocketPathOf(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return std::nullopt;
  return std::string(address);
}

absl::StatusOr<std::string> NormalizeAddress(absl::string_view address) {
  if (const auto path = SocketPathOf(address)) return SocketAddress(*path);
  absl::ConsumePrefix(&address, "grpc://");
  if (const size_t scheme = address.find("://"); scheme != address.npos)
    return Refused("the only scheme is grpc://, and it may be left out");
  if (absl::StartsWith(address, "[")) return BracketedAddress(address);
  RETURN_IF_ERROR(WithoutBrackets(address));
  const size_t colon = address.find(':');
  ASSIGN_OR_RETURN(const std::string host, HostFrom(address.substr(0, colon)));
  if (colon == address.npos)
    return Refused("it has no port: write \"", host, ":", kUsualPort, "\"");
  ASSIGN_OR_RETURN(const int port, PortFrom(address.substr(colon + 1)));
  return absl::StrCat(host, ":", port);
}

}  // namespace divvy
