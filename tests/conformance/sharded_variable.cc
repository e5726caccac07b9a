#include "tests/conformance/sharded_variable.h"

#include <map>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "strategy/reduce.h"

namespace divvy::conformance {

ShardedVariable::ShardedVariable(std::string name, Tensor whole, const Json& shards)
    : whole_(std::move(whole)) {
  layout_.id = VariableId(1);
  layout_.spec.name = std::move(name);
  layout_.spec.dtype = whole_.dtype();
  layout_.spec.shape = whole_.shape();
  layout_.offsets = {0};
  for (const Json& rows : shards) {
    layout_.ps.push_back(static_cast<int>(layout_.ps.size()));
    layout_.offsets.push_back(layout_.offsets.back() + rows.get<int64_t>());
  }
}

// The answer of a parameter server: the whole shard, or the requested rows of it.
absl::StatusOr<PullPartReply> ShardedVariable::Answer(const PullPart& part) const {
  PullPartReply reply;
  ASSIGN_OR_RETURN(reply.values, whole_.Rows(layout_.offsets[part.shard.part],
                                             layout_.offsets[part.shard.part + 1]));
  if (!part.rows) return reply;
  std::vector<Tensor> rows;
  ASSIGN_OR_RETURN(absl::Span<const int64_t> ids, part.rows->values<int64_t>());
  for (int64_t id : ids) {
    ASSIGN_OR_RETURN(Tensor row, reply.values.Rows(id, id + 1));
    rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    ASSIGN_OR_RETURN(reply.values, reply.values.Rows(0, 0));
  } else {
    ASSIGN_OR_RETURN(reply.values, internal::GatherTensors(rows, 0));
  }
  return reply;
}

absl::StatusOr<Tensor> ShardedVariable::Rows(const Tensor& ids) const {
  const VariableRead read{layout_.spec.name, ids};
  const std::shared_ptr<const Layout> layout = Layout::Empty()->With(layout_);
  RETURN_IF_ERROR(CheckRead(*layout, read));
  const PullPlan plan(*layout, {read});
  std::map<int, PullReply> replies;
  for (const auto& [ps, parts] : plan.parts()) {
    for (const PullPart& part : parts) {
      ASSIGN_OR_RETURN(PullPartReply reply, Answer(part));
      replies[ps].parts.push_back(std::move(reply));
    }
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> values, plan.Assemble(replies));
  return values[0];
}

absl::Status ShardedReader::Read(absl::Span<ReadRequest> requests) {
  for (ReadRequest& request : requests) {
    if (!request.ids) return absl::UnimplementedError("this reader knows rows only");
    ASSIGN_OR_RETURN(const Tensor rows, variable_.Rows(*request.ids));
    ASSIGN_OR_RETURN(request.value, rows.To(device_));
    request.num_rows = variable_.layout().rows();
  }
  return absl::OkStatus();
}

}  // namespace divvy::conformance
