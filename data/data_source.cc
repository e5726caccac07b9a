#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/linker_hint.h"
#include "base/mutex.h"
#include "data/dataset.h"
#include "data/distribute.h"
#include "data/recipes.h"

namespace divvy {
namespace {

struct Registered {
  Mutex mu;
  // Never taken out again.
  std::map<std::string, std::vector<std::unique_ptr<const RegisteredDataSource>>, std::less<>>
      by_name DIVVY_GUARDED_BY(mu);
};

// Made by the first registration, never destroyed: no order of initialisation or destruction
// matters.
Registered& Registry() {
  static Registered& registered = *new Registered;
  return registered;
}

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

absl::StatusOr<Dataset> OpenPart(const RegisteredDataSource& source, const Nest& args,
                                 const InputContext& context) {
  const internal::InputScope scope(context, source.options.policy);
  ASSIGN_OR_RETURN(const Dataset dataset, source.open(context, args));
  return internal::AutoShard(dataset, source.options.policy, context);
}

}  // namespace

void DataSourceRegistry::Add(RegisteredDataSource source) {
  Registered& registry = Registry();
  MutexLock lock(registry.mu);
  auto& sources = registry.by_name[source.name];
  sources.push_back(std::make_unique<const RegisteredDataSource>(std::move(source)));
}

absl::StatusOr<const RegisteredDataSource*> DataSourceRegistry::Get(absl::string_view name) {
  {
    Registered& registry = Registry();
    MutexLock lock(registry.mu);
    const auto found = registry.by_name.find(name);
    if (found != registry.by_name.end()) return found->second.front().get();
  }
  const std::vector<std::string> names = Names();
  const std::string known = names.empty() ? "there are none in this program"
                                          : absl::StrCat("there are ", absl::StrJoin(names, ", "));
  return absl::NotFoundError(
      absl::StrCat("no data source is named ", Quoted(name), "; ", known, "; ", kLinkerHint));
}

std::vector<std::string> DataSourceRegistry::Names() {
  Registered& registry = Registry();
  MutexLock lock(registry.mu);
  std::vector<std::string> names;
  for (const auto& entry : registry.by_name) names.push_back(entry.first);
  return names;
}

absl::StatusOr<InputOptions> DataSourceRegistry::Options(absl::string_view name) {
  ASSIGN_OR_RETURN(const RegisteredDataSource* source, Get(name));
  return source->options;
}

absl::StatusOr<Dataset> DataSourceRegistry::Open(const BoundDataSource& source,
                                                 const InputContext& context) {
  ASSIGN_OR_RETURN(const RegisteredDataSource* registered, Get(source.name()));
  absl::StatusOr<Dataset> dataset = OpenPart(
      *registered, source.args(), internal::WithPipelines(context, registered->options.policy));
  if (!dataset.ok())
    return data_internal::WithContext(dataset.status(),
                                      absl::StrCat("data source ", Quoted(source.name())));
  return dataset;
}

absl::Status DataSourceRegistry::Validate() {
  Registered& registry = Registry();
  MutexLock lock(registry.mu);
  std::vector<std::string> problems;
  for (const auto& [name, sources] : registry.by_name) {
    if (name.empty()) problems.push_back("a data source has no name");
    for (const auto& source : sources) {
      if (source->options.policy == AutoShardPolicy::kHint)
        problems.push_back(absl::StrCat(
            "data source ", Quoted(name),
            " has AutoShardPolicy::kHint: say where to shard with Dataset::Shard, and kOff"));
    }
    if (sources.size() > 1)
      problems.push_back(absl::StrCat(sources.size(), " data sources are named ", Quoted(name),
                                      ": give each a name of its own"));
  }
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

}  // namespace divvy
