// NamedRegistry: holds objects that register themselves by name before main begins, such as steps,
// data sources and models.
#ifndef DIVVY_BASE_NAMED_REGISTRY_H_
#define DIVVY_BASE_NAMED_REGISTRY_H_

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/linker_hint.h"
#include "base/mutex.h"

namespace divvy::internal {

// Entries of type T by name. Entries are never removed. Thread-safe; holds its lock only for a
// lookup. Create it with `new` and never destroy it, because objects with static storage register
// themselves in any order.
template <typename T>
class NamedRegistry {
 public:
  // `kind` names an entry in messages, as in "step".
  explicit NamedRegistry(const char* kind) : kind_(kind) {}

  // Adds an entry; never fails. If several entries have one name, Find returns the first and
  // problems() reports them.
  void Add(const std::string& name, T entry) {
    MutexLock lock(mu_);
    by_name_[name].push_back(std::move(entry));
  }
  // The entry, or null if there is none. The pointer stays valid forever.
  const T* Find(absl::string_view name) const {
    MutexLock lock(mu_);
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &found->second.front();
  }
  // As Find. NotFound: there is no such entry. The message lists the existing ones, and says why
  // the linker may have left this one out.
  absl::StatusOr<const T*> Get(absl::string_view name) const {
    if (const T* const found = Find(name)) return found;
    const std::vector<std::string> all = names();
    const auto quote = [](std::string* out, const std::string& known) {
      absl::StrAppend(out, "\"", known, "\"");
    };
    return absl::NotFoundError(absl::StrCat(
        "this program has no ", kind_, " \"", name, "\"; it has ",
        all.empty() ? absl::StrCat("no ", kind_, " at all") : absl::StrJoin(all, ", ", quote), "; ",
        kLinkerHint));
  }
  // All names, each once, sorted.
  std::vector<std::string> names() const {
    MutexLock lock(mu_);
    std::vector<std::string> names;
    for (const auto& [name, entries] : by_name_) names.push_back(name);
    return names;
  }
  // The problems with names, each with its fix. Empty if there are none.
  std::vector<std::string> problems() const {
    MutexLock lock(mu_);
    std::vector<std::string> problems;
    for (const auto& [name, entries] : by_name_) {
      if (name.empty())
        problems.push_back(absl::StrCat("a ", kind_, " has an empty name: give it one"));
      if (entries.size() > 1) {
        problems.push_back(absl::StrCat("this program has ", entries.size(), " ", kind_,
                                        "s named \"", name, "\": give each a name of its own"));
      }
    }
    return problems;
  }

 private:
  const char* const kind_;
  mutable Mutex mu_;
  // Neither a map nor a deque moves its entries when it grows.
  std::map<std::string, std::deque<T>, std::less<>> by_name_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::internal

#endif  // DIVVY_BASE_NAMED_REGISTRY_H_
