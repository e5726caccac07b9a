// Where the rows of a dynamic table lie.
#ifndef DIVVY_VARIABLES_TABLE_KEYS_H_
#define DIVVY_VARIABLES_TABLE_KEYS_H_

#include <cstdint>

namespace divvy {

// A table's keys fall into buckets, and the buckets are cut over the parameter servers as the rows
// of a variable are.
constexpr int64_t kTableBuckets = 65'536;

// Mixes the bits of a key (SplitMix64's finaliser). Different keys give different numbers. Layouts
// and checkpoints depend on it, so it never changes between versions.
constexpr uint64_t MixKey(int64_t key) {
  uint64_t mixed = static_cast<uint64_t>(key) + 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

// The bucket of a key, from its MixKey.
constexpr int64_t BucketOf(uint64_t mixed) {
  return static_cast<int64_t>(mixed % static_cast<uint64_t>(kTableBuckets));
}

// Requests name keys in this order, from their MixKey: by bucket, then by the other bits. Equal
// numbers are of equal keys.
constexpr uint64_t TableOrder(uint64_t mixed) { return mixed << 48 | mixed >> 16; }

// The same order as a signed number, as code that sorts ids needs it.
constexpr int64_t KeyRank(int64_t key) {
  return static_cast<int64_t>(TableOrder(MixKey(key)) ^ uint64_t{1} << 63);
}
constexpr int64_t BucketOfRank(int64_t rank) {
  return static_cast<int64_t>((static_cast<uint64_t>(rank) ^ uint64_t{1} << 63) >> 48);
}

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TABLE_KEYS_H_
