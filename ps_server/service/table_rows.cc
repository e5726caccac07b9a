#include "ps_server/service/table_rows.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "protocol/error.h"
#include "ps_server/core/table/found_rows.h"

namespace divvy {
namespace {

absl::Status CheckAsked(const v1::GetTableRowsRequest& request, int64_t width) {
  const int64_t rows = request.keys_size() > 0 ? request.keys_size() : int64_t{request.top()};
  if (rows < 0)
    return MakeError(Reason::kInvalid, absl::StrCat(rows, " rows are asked for, wanted 0 or more"));
  const auto row_bytes = static_cast<int64_t>(sizeof(float)) * width + 40;
  const int64_t most = std::min(kMostTableRows, kMostTableRowBytes / row_bytes);
  if (rows > most)
    return MakeError(Reason::kInvalid, absl::StrCat(rows, " rows are asked for, and at most ", most,
                                                    " of this table are shown at a time"));
  if (request.by() != v1::GetTableRowsRequest::COUNT &&
      request.by() != v1::GetTableRowsRequest::NORM)
    return MakeError(Reason::kInvalid,
                     "rows are ordered by COUNT or NORM: use the same version of divvyctl");
  return absl::OkStatus();
}

std::vector<FoundRow> Find(const std::vector<std::shared_ptr<TableShard>>& parts,
                           const v1::GetTableRowsRequest& request) {
  if (request.keys_size() == 0) {
    LargestRows largest(static_cast<size_t>(request.top()),
                        request.by() == v1::GetTableRowsRequest::NORM ? LargestRows::By::kNorm
                                                                      : LargestRows::By::kCount);
    for (const auto& part : parts) largest.Look(*part);
    return std::move(largest).Take();
  }
  std::vector<FoundRow> rows;
  const std::vector<int64_t> keys(request.keys().begin(), request.keys().end());
  for (const auto& part : parts) {
    for (FoundRow& row : RowsOf(*part, keys)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

absl::StatusOr<v1::GetTableRowsReply> FindTableRows(const ParameterServerCore& core,
                                                    const v1::GetTableRowsRequest& request) {
  const std::vector<std::shared_ptr<TableShard>> parts = core.PartsOfTable(request.table());
  if (parts.empty())
    return absl::NotFoundError(absl::StrCat(
        "this parameter server has no part of a dynamic table \"", request.table(), "\""));
  RETURN_IF_ERROR(CheckAsked(request, parts[0]->format().width));
  v1::GetTableRowsReply reply;
  for (const FoundRow& row : Find(parts, request)) {
    v1::GetTableRowsReply::Row& out = *reply.add_rows();
    out.set_key(row.key);
    out.set_count(row.count);
    out.set_minute(row.minute);
    out.mutable_values()->Add(row.values.begin(), row.values.end());
  }
  return reply;
}

}  // namespace divvy
