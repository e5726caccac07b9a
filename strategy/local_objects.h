// Objects that a worker keeps between steps.
#ifndef DIVVY_STRATEGY_LOCAL_OBJECTS_H_
#define DIVVY_STRATEGY_LOCAL_OBJECTS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace divvy {

// What WorkerContext::Local and ReplicaContext::Local keep. Thread-safe, but the objects are the
// caller's business. An object lives as long as this map: nothing is ever taken out.
class LocalObjects {
 public:
  // The object of type T under `key`, made by `make` at first use. REQUIRES: `make` does not return
  // null and does not call this map; it may run twice when two threads ask at once, and then one
  // result is dropped.
  template <typename T>
  T& Get(absl::string_view key, const std::function<std::unique_ptr<T>()>& make) {
    const Key full(std::string(key), typeid(T));
    if (void* object = Find(full)) return *static_cast<T*>(object);
    return *static_cast<T*>(Keep(full, std::shared_ptr<T>(make())));
  }

 private:
  using Key = std::pair<std::string, std::type_index>;
  void* Find(const Key& key) {
    MutexLock lock(mu_);
    const auto it = objects_.find(key);
    return it == objects_.end() ? nullptr : it->second.get();
  }
  void* Keep(const Key& key, std::shared_ptr<void> object) {
    MutexLock lock(mu_);
    return objects_.emplace(key, std::move(object)).first->second.get();
  }

  Mutex mu_;
  std::map<Key, std::shared_ptr<void>> objects_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_LOCAL_OBJECTS_H_
