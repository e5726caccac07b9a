// What the readers of text have in common. Internal to data/.
#ifndef DIVVY_DATA_TEXT_COLUMNS_H_
#define DIVVY_DATA_TEXT_COLUMNS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy::data_internal {

// The error of a column with a bound, and of ids.
inline absl::Status NotBelow(absl::string_view what, int64_t value, int64_t below,
                             absl::string_view bound) {
  return absl::DataLossError(absl::StrCat(what, value, " is not in [0, ", below,
                                          "): correct the line, or make ", bound,
                                          ", and its table, larger"));
}

// How many rows a block should have at most: not many more than can follow in `bytes_left` bytes of
// records of at least `record_bytes`, and not many MiB. REQUIRES: most >= 1, record_bytes >= 1
inline int64_t RowsInBlock(int64_t most, size_t bytes_left, size_t record_bytes, size_t row_bytes) {
  constexpr size_t kManyBytes = size_t{1} << 20;
  const size_t follow = bytes_left / record_bytes + 1;
  const size_t fit = std::max<size_t>(kManyBytes / std::max<size_t>(row_bytes, 1), 1);
  return std::min(most, static_cast<int64_t>(std::min(follow, fit)));
}

// A column of rows of one dtype and shape that is being filled. Not thread-safe.
class GrowingColumn {
 public:
  // Begins a new column for up to `rows` rows. Errors: as Tensor::Uninitialized.
  absl::Status Begin(DType dtype, const Shape& row_shape, int64_t rows) {
    std::vector<int64_t> dims = {rows};
    dims.insert(dims.end(), row_shape.dims().begin(), row_shape.dims().end());
    row_bytes_ = static_cast<size_t>(row_shape.num_elements() * DTypeSize(dtype));
    ASSIGN_OR_RETURN(tensor_, Tensor::Uninitialized(dtype, Shape(absl::MakeConstSpan(dims))));
    data_ = tensor_.fresh_data<char>();
    return absl::OkStatus();
  }
  // REQUIRES: 0 <= row < the rows of Begin
  char* row(int64_t row) { return data_ + static_cast<size_t>(row) * row_bytes_; }
  template <typename T>
  T* row_as(int64_t at) {
    return reinterpret_cast<T*>(row(at));
  }
  // Ends the column after its first `rows` rows. Errors: as Tensor::Uninitialized.
  absl::StatusOr<Tensor> End(int64_t rows) {
    Tensor full = std::exchange(tensor_, Tensor());
    if (2 * rows >= full.shape().rows()) return full.Rows(0, rows);
    ASSIGN_OR_RETURN(Tensor tensor,
                     Tensor::Uninitialized(full.dtype(), full.shape().WithRows(rows)));
    if (tensor.size_bytes() > 0)
      std::memcpy(tensor.fresh_data<char>(), full.data(), static_cast<size_t>(tensor.size_bytes()));
    return tensor;
  }

 private:
  Tensor tensor_;
  char* data_ = nullptr;
  size_t row_bytes_ = 0;
};

// Ends each column after its first `rows` rows. Returns them by the names of `named`, a vector of
// CsvColumn or ExampleFeature of the same length. Errors: as GrowingColumn::End.
template <typename Named>
absl::StatusOr<Nest> EndColumns(const std::vector<Named>& named,
                                std::vector<GrowingColumn>& growing, int64_t rows) {
  Nest::Dict dict;
  for (size_t i = 0; i < named.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor column, growing[i].End(rows));
    dict.emplace(named[i].name, std::move(column));
  }
  return Nest(std::move(dict));
}

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_TEXT_COLUMNS_H_
