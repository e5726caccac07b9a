// A variable in shards, read as a worker reads it: cut into parts for each parameter server, and
// put together again.
#ifndef DIVVY_TESTS_CONFORMANCE_SHARDED_VARIABLE_H_
#define DIVVY_TESTS_CONFORMANCE_SHARDED_VARIABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/variable_reader.h"
#include "tensor/tensor.h"
#include "tests/conformance/golden.h"
#include "variables/layout.h"
#include "variables/transfer_plan.h"

namespace divvy::conformance {

class ShardedVariable {
 public:
  // `shards` lists the rows of each shard; every one lies on a ps of its own. REQUIRES: they add up
  // to the rows of `whole`.
  ShardedVariable(std::string name, Tensor whole, const Json& shards);

  const VariableLayout& layout() const { return layout_; }
  // The rows in the order asked for. InvalidArgument: there is no such row.
  absl::StatusOr<Tensor> Rows(const Tensor& ids) const;

 private:
  absl::StatusOr<PullPartReply> Answer(const PullPart& part) const;

  VariableLayout layout_;
  Tensor whole_;
};

// What a tape on `device` reads from, where there is this one variable. Rows only.
class ShardedReader : public VariableReader {
 public:
  ShardedReader(ShardedVariable variable, Device device)
      : variable_(std::move(variable)), device_(device) {}
  absl::Status Read(absl::Span<ReadRequest> requests) override;
  Device device() const override { return device_; }

 private:
  ShardedVariable variable_;
  const Device device_;
};

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_SHARDED_VARIABLE_H_
