#include "variables/variable_table.h"

namespace divvy {

void VariableTable::Put(VariableLayout variable) {
  const VariableLayout* const before = Find(variable.id);
  if (before != nullptr && before->spec.name != variable.spec.name)
    by_name_.Erase(absl::string_view(before->spec.name));
  const auto shared = std::make_shared<const VariableLayout>(std::move(variable));
  by_id_.Put(shared);
  by_name_.Put(shared);
}

void VariableTable::Erase(VariableId id) {
  const VariableLayout* const variable = Find(id);
  if (variable == nullptr) return;
  by_name_.Erase(absl::string_view(variable->spec.name));
  by_id_.Erase(id);
}

}  // namespace divvy
