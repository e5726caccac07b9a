// Objects that a worker keeps between steps.
#ifndef DIVVY_STRATEGY_LOCAL_OBJECTS_H_
#define DIVVY_STRATEGY_LOCAL_OBJECTS_H_

#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>

#include "absl/strings/string_view.h"

namespace divvy {

// The objects of WorkerContext::Local and ReplicaContext::Local. The map is thread-safe; the
// objects are as thread-safe as their types. Objects are never removed: each lives as long as this
// map.
class LocalObjects {
 public:
  LocalObjects();
  ~LocalObjects();
  LocalObjects(const LocalObjects&) = delete;
  LocalObjects& operator=(const LocalObjects&) = delete;

  // The object of type T under `key`; `make` creates it at first use. REQUIRES: `make` does not
  // return null and does not call this map. If two threads ask at once, `make` may run twice; one
  // result is then dropped.
  template <typename T>
  T& Get(absl::string_view key, const std::function<std::unique_ptr<T>()>& make) {
    const Key full(std::string(key), typeid(T));
    if (void* object = Find(full)) return *static_cast<T*>(object);
    return *static_cast<T*>(Keep(full, std::shared_ptr<T>(make())));
  }

 private:
  using Key = std::pair<std::string, std::type_index>;
  struct State;
  void* Find(const Key& key);
  void* Keep(const Key& key, std::shared_ptr<void> object);

  const std::unique_ptr<State> state_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_LOCAL_OBJECTS_H_
