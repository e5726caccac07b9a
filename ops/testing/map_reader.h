// A VariableReader over a map, for tests.
#ifndef DIVVY_OPS_TESTING_MAP_READER_H_
#define DIVVY_OPS_TESTING_MAP_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/variable_reader.h"

namespace divvy {

// Implements VariableReader and records the calls of Read.
class MapReader : public VariableReader {
 public:
  MapReader() = default;
  explicit MapReader(std::map<std::string, Tensor> variables, Device device = {})
      : variables_(std::move(variables)), device_(device) {}

  absl::Status Read(absl::Span<ReadRequest> requests) override;
  Device device() const override { return device_; }
  uint64_t seed() const override { return seed_; }

  void Set(const std::string& name, Tensor value) {
    variables_.insert_or_assign(name, std::move(value));
  }
  void SetSeed(uint64_t seed) { seed_ = seed; }
  // The names of each call of Read, in order; rows as "table[3]" for three ids.
  const std::vector<std::vector<std::string>>& calls() const { return calls_; }

 private:
  absl::Status ReadOne(ReadRequest& request) const;

  std::map<std::string, Tensor> variables_;  // anywhere
  Device device_;
  uint64_t seed_ = 0;
  std::vector<std::vector<std::string>> calls_;
};

}  // namespace divvy

#endif  // DIVVY_OPS_TESTING_MAP_READER_H_
