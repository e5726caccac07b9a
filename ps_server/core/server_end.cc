#include "ps_server/core/server_end.h"

#include <utility>

#include "base/exit_codes.h"

namespace divvy {

void ServerEnd::Begin(int code, std::string why) {
  if (!exit_) exit_ = Exit{code, std::move(why)};
}

bool ServerEnd::StartDrain() {
  if (draining_ || exit_) return false;
  draining_ = true;
  return true;
}

void ServerEnd::CompleteDrain() { Begin(exit_codes::kDrained, "asked to end"); }

std::optional<ServerEnd::Exit> ServerEnd::TakeExit() {
  if (!exit_ || std::exchange(taken_, true)) return std::nullopt;
  return exit_;
}

}  // namespace divvy
