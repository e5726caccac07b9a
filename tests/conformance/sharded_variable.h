// A variable in shards, read as a worker reads it: the read is cut into parts for the parameter
// servers, and the answers are put together.
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
  // `shards` lists the number of rows of each shard. Each shard is on a ps of its own. REQUIRES:
  // the numbers add up to the rows of `whole`.
  ShardedVariable(std::string name, Tensor whole, const Json& shards);

  const VariableLayout& layout() const { return layout_; }
  // The rows in the order of `ids`. InvalidArgument: there is no such row.
  absl::StatusOr<Tensor> Rows(const Tensor& ids) const;

 private:
  absl::StatusOr<PullPartReply> Answer(const PullPart& part) const;

  VariableLayout layout_;
  Tensor whole_;
};

// Lets a tape on `device` read this one variable, by rows only.
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
