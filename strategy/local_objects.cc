#include "strategy/local_objects.h"

#include <map>

#include "base/mutex.h"

namespace divvy {

struct LocalObjects::State {
  Mutex mu;
  std::map<Key, std::shared_ptr<void>> objects DIVVY_GUARDED_BY(mu);
};

LocalObjects::LocalObjects() : state_(std::make_unique<State>()) {}
LocalObjects::~LocalObjects() = default;

void* LocalObjects::Find(const Key& key) {
  MutexLock lock(state_->mu);
  const auto it = state_->objects.find(key);
  return it == state_->objects.end() ? nullptr : it->second.get();
}

void* LocalObjects::Keep(const Key& key, std::shared_ptr<void> object) {
  MutexLock lock(state_->mu);
  return state_->objects.emplace(key, std::move(object)).first->second.get();
}

}  // namespace divvy
