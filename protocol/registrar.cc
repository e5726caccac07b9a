#include "protocol/registrar.h"

#include <optional>
#include <utility>

#include "protocol/error.h"

namespace divvy {
namespace {

// The code with which the task ends; nullopt: the registrar retries.
std::optional<int> EndOf(const absl::StatusOr<RegisterReply>& reply) {
  if (reply.ok()) return reply->over;
  const Reason reason = ReasonOf(reply.status());
  if (!IsFinal(reason)) return std::nullopt;
  return ExitCodeOf(reason);
}

}  // namespace

std::shared_ptr<Registrar> Registrar::Create(Options options,
                                             std::shared_ptr<CoordinatorClient> coordinator,
                                             Executor& executor, OnExit on_over) {
  return std::shared_ptr<Registrar>(
      new Registrar(std::move(options), std::move(coordinator), executor, std::move(on_over)));
}

Registrar::Registrar(Options options, std::shared_ptr<CoordinatorClient> coordinator,
                     Executor& executor, OnExit on_over)
    : options_(std::move(options)),
      coordinator_(std::move(coordinator)),
      executor_(executor),
      on_over_(std::move(on_over)),
      backoff_(options_.seed) {}

void Registrar::OnAttached() {
  MutexLock lock(mu_);
  if (generation_ % 2 == 1) ++generation_;
}

void Registrar::OnDetached() {
  uint64_t generation = 0;
  {
    MutexLock lock(mu_);
    if (generation_ % 2 == 1) return;
    generation = ++generation_;
    backoff_.Reset();
  }
  Send(generation);
}

void Registrar::Send(uint64_t generation) {
  {
    MutexLock lock(mu_);
    if (over_ || generation != generation_) return;
  }
  coordinator_->Call(options_.request,
                     [weak = weak_from_this(), generation](absl::StatusOr<RegisterReply> reply) {
                       if (auto self = weak.lock()) self->OnReply(generation, reply);
                     });
}

void Registrar::OnReply(uint64_t generation, const absl::StatusOr<RegisterReply>& reply) {
  absl::Duration delay;
  const std::optional<int> exit_code = EndOf(reply);
  {
    MutexLock lock(mu_);
    if (over_ || generation != generation_) return;
    over_ = exit_code.has_value();
    if (reply.ok()) {
      backoff_.Reset();
      delay = options_.every;
    } else {
      delay = backoff_.Next();
    }
  }
  if (exit_code) return on_over_(*exit_code, std::string(reply.status().message()));
  SendAfter(delay, generation);
}

void Registrar::SendAfter(absl::Duration delay, uint64_t generation) {
  executor_.PostAfter(delay, [weak = weak_from_this(), generation] {
    if (auto self = weak.lock()) self->Send(generation);
  });
}

}  // namespace divvy
