#include "cluster/registrar.h"

#include <utility>

namespace divvy {

std::shared_ptr<Registrar> Registrar::Create(Options options, std::shared_ptr<CoordinatorClient> coordinator, Executor& executor,
                                             std::function<void(int)> on_over) {
  return std::shared_ptr<Registrar>(new Registrar(std::move(options), std::move(coordinator), executor, std::move(on_over)));
}

Registrar::Registrar(Options options, std::shared_ptr<CoordinatorClient> coordinator, Executor& executor, std::function<void(int)> on_over)
    : options_(std::move(options)), coordinator_(std::move(coordinator)), executor_(executor), on_over_(std::move(on_over)), backoff_(options_.seed) {}

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
  coordinator_->Register(options_.request, [weak = weak_from_this(), generation](absl::StatusOr<RegisterReply> reply) {
    if (auto self = weak.lock()) self->OnReply(generation, reply);
  });
}

void Registrar::OnReply(uint64_t generation, const absl::StatusOr<RegisterReply>& reply) {
  absl::Duration delay;
  bool over = false;
  {
    MutexLock lock(mu_);
    if (over_ || generation != generation_) return;
    if (reply.ok()) {
      over = over_ = reply->over.has_value();
      backoff_.Reset();
      delay = options_.every;
    } else {
      delay = backoff_.Next();
    }
  }
  if (over) return on_over_(*reply->over);
  SendAfter(delay, generation);
}

void Registrar::SendAfter(absl::Duration delay, uint64_t generation) {
  executor_.PostAfter(delay, [weak = weak_from_this(), generation] {
    if (auto self = weak.lock()) self->Send(generation);
  });
}

}  // namespace divvy
