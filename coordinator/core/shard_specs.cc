#include "coordinator/core/shard_specs.h"

namespace divvy {

ShardSpec ShardSpecOf(const VariableLayout& variable, int slot, int part,
                      const Initializer& initializer) {
  ShardSpec shard;
  shard.key = {variable.id, static_cast<uint8_t>(slot), static_cast<uint16_t>(part)};
  shard.first_row = variable.offsets[part];
  shard.initializer = initializer;
  if (slot == 0) {
    shard.name = variable.spec.name;
    shard.dtype = variable.spec.dtype;
    shard.shape = variable.ShardShape(part);
    shard.full_shape = variable.spec.shape;
    shard.table = variable.spec.table;
    if (shard.table) {
      shard.initializer = variable.spec.initializer;
      shard.optimizer = variable.spec.optimizer;
    }
  } else {
    const SlotSpec& spec = variable.slots[slot - 1];
    shard.name = variable.SlotName(slot - 1);
    shard.dtype = spec.dtype();
    shard.shape = spec.ShapeFor(variable.ShardShape(part));
    shard.full_shape = spec.ShapeFor(variable.spec.shape);
  }
  return shard;
}

std::map<int, std::vector<ShardSpec>> ShardSpecsOf(const VariableLayout& variable,
                                                   const Initializer& initializer) {
  std::map<int, std::vector<ShardSpec>> shards;
  for (int part = 0; part < variable.num_shards(); ++part) {
    std::vector<ShardSpec>& on_ps = shards[variable.ps[part]];
    on_ps.push_back(ShardSpecOf(variable, 0, part, initializer));
    for (size_t i = 0; i < variable.slots.size(); ++i) {
      on_ps.push_back(ShardSpecOf(variable, static_cast<int>(i) + 1, part,
                                  Constant{variable.slots[i].initial_value}));
    }
  }
  return shards;
}

void AppendShards(const std::map<int, std::vector<ShardSpec>>& more,
                  std::map<int, std::vector<ShardSpec>>& all) {
  for (const auto& [ps, shards] : more) all[ps].insert(all[ps].end(), shards.begin(), shards.end());
}

}  // namespace divvy
