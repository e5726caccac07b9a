#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/named_registry.h"
#include "data/dataset.h"
#include "data/distribute.h"
#include "data/recipes.h"

namespace divvy {
namespace {

// The first registration makes it. Never destroyed, so the order of initialisation and destruction
// does not matter.
internal::NamedRegistry<RegisteredDataSource>& Registry() {
  static auto& registry = *new internal::NamedRegistry<RegisteredDataSource>("data source");
  return registry;
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
  const std::string name = source.name;
  Registry().Add(name, std::move(source));
}

absl::StatusOr<const RegisteredDataSource*> DataSourceRegistry::Get(absl::string_view name) {
  return Registry().Get(name);
}

std::vector<std::string> DataSourceRegistry::Names() { return Registry().names(); }

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
  std::vector<std::string> problems = Registry().problems();
  for (const std::string& name : Names()) {
    if (Registry().Find(name)->options.policy == AutoShardPolicy::kHint)
      problems.push_back(absl::StrCat(
          "data source ", Quoted(name),
          " has AutoShardPolicy::kHint, which is not supported: call Dataset::Shard and set kOff"));
  }
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

}  // namespace divvy
