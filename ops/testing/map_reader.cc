#include "ops/testing/map_reader.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {

absl::Status MapReader::Read(absl::Span<ReadRequest> requests) {
  std::vector<std::string>& names = calls_.emplace_back();
  for (ReadRequest& request : requests) {
    names.push_back(request.ids
                        ? absl::StrCat(request.name, "[", request.ids->shape().num_elements(), "]")
                        : request.name);
    RETURN_IF_ERROR(ReadOne(request));
  }
  return absl::OkStatus();
}

absl::Status MapReader::ReadOne(ReadRequest& request) const {
  const auto found = variables_.find(request.name);
  if (found == variables_.end())
    return absl::NotFoundError(absl::StrCat("no variable ", request.name));
  ASSIGN_OR_RETURN(const Tensor table, found->second.To(Device{}));
  request.num_rows = table.shape().rows();
  if (!request.ids) {
    ASSIGN_OR_RETURN(request.value, table.To(device_));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> ids, request.ids->values<int64_t>());
  ASSIGN_OR_RETURN(Tensor rows,
                   Tensor::Uninitialized(table.dtype(),
                                         table.shape().WithRows(static_cast<int64_t>(ids.size()))));
  const int64_t row_bytes = table.shape().row_elements() * DTypeSize(table.dtype());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= request.num_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat(request.name, ": id ", ids[i], " is outside [0, ", request.num_rows, ")"));
    }
    std::memcpy(rows.fresh_data<char>() + i * row_bytes,
                static_cast<const char*>(table.data()) + ids[i] * row_bytes, row_bytes);
  }
  ASSIGN_OR_RETURN(request.value, rows.To(device_));
  return absl::OkStatus();
}

}  // namespace divvy
