#include "partitioners/partitioner.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

absl::Status AtLeast(absl::string_view partitioner, absl::string_view option, int64_t value,
                     int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(partitioner, ": ", option, " is ", value, "; give at least ", least));
}

absl::Status CheckShape(absl::string_view partitioner, const Shape& shape) {
  if (!shape.status().ok())
    return absl::InvalidArgumentError(absl::StrCat(partitioner, ": ", shape.status().message()));
  if (shape.num_elements() >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(partitioner, ": shape ", shape.ToString(),
                   " has unknown dimensions; a variable needs a fully known shape"));
}

// TensorFlow's MinSize checks the axis (ValueError); its other two partitioners fail with an
// IndexError.
absl::Status CheckAxis(absl::string_view partitioner, const Shape& shape, int axis,
                       absl::StatusCode code) {
  if (axis >= 0 && axis < shape.rank()) return absl::OkStatus();
  return absl::Status(code,
                      absl::StrCat(partitioner, ": no axis ", axis, " in shape ", shape.ToString(),
                                   "; give one of its axes (rank 0 is never cut)"));
}

int64_t ElementBytes(DType dtype, int64_t bytes_per_string) {
  return dtype == DType::kString ? bytes_per_string : DTypeSize(dtype);
}

absl::int128 CeilOfQuotient(absl::int128 numerator, absl::int128 denominator) {
  return (numerator + denominator - 1) / denominator;
}

std::vector<int64_t> OnAxis(const Shape& shape, int axis, int64_t count) {
  std::vector<int64_t> counts(shape.rank(), 1);
  counts[axis] = std::max<int64_t>(count, 1);
  return counts;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> MinSizePartitioner::operator()(const Shape& shape, DType dtype,
                                                                    int axis) const {
  RETURN_IF_ERROR(AtLeast("MinSizePartitioner", "min_shard_bytes", min_shard_bytes, 1));
  RETURN_IF_ERROR(AtLeast("MinSizePartitioner", "max_shards", max_shards, 1));
  RETURN_IF_ERROR(AtLeast("MinSizePartitioner", "bytes_per_string", bytes_per_string, 1));
  RETURN_IF_ERROR(CheckShape("MinSizePartitioner", shape));
  RETURN_IF_ERROR(CheckAxis("MinSizePartitioner", shape, axis, absl::StatusCode::kInvalidArgument));
  // 128 bits: the product of an int64 count of elements and an int64 size cannot overflow.
  const absl::int128 bytes =
      absl::int128(shape.num_elements()) * ElementBytes(dtype, bytes_per_string);
  const absl::int128 wanted =
      std::min(CeilOfQuotient(bytes, min_shard_bytes), absl::int128(max_shards));
  return OnAxis(shape, axis, static_cast<int64_t>(std::min(wanted, absl::int128(shape.dim(axis)))));
}

absl::StatusOr<std::vector<int64_t>> MaxSizePartitioner::operator()(const Shape& shape, DType dtype,
                                                                    int axis) const {
  RETURN_IF_ERROR(AtLeast("MaxSizePartitioner", "max_shard_bytes", max_shard_bytes, 1));
  RETURN_IF_ERROR(AtLeast("MaxSizePartitioner", "max_shards", max_shards, 0));
  RETURN_IF_ERROR(AtLeast("MaxSizePartitioner", "bytes_per_string", bytes_per_string, 1));
  RETURN_IF_ERROR(CheckShape("MaxSizePartitioner", shape));
  RETURN_IF_ERROR(CheckAxis("MaxSizePartitioner", shape, axis, absl::StatusCode::kOutOfRange));
  if (shape.num_elements() == 0) return OnAxis(shape, axis, 1);  // no row has bytes to divide by
  const absl::int128 row_bytes =
      absl::int128(shape.num_elements() / shape.dim(axis)) * ElementBytes(dtype, bytes_per_string);
  const absl::int128 rows_per_shard =
      std::max(absl::int128(max_shard_bytes) / row_bytes, absl::int128(1));
  const int64_t wanted = static_cast<int64_t>(CeilOfQuotient(shape.dim(axis), rows_per_shard));
  return OnAxis(shape, axis, max_shards > 0 ? std::min(wanted, max_shards) : wanted);
}

absl::StatusOr<std::vector<int64_t>> FixedShardsPartitioner::operator()(const Shape& shape,
                                                                        DType dtype,
                                                                        int axis) const {
  RETURN_IF_ERROR(AtLeast("FixedShardsPartitioner", "num_shards", num_shards, 1));
  RETURN_IF_ERROR(CheckShape("FixedShardsPartitioner", shape));
  RETURN_IF_ERROR(CheckAxis("FixedShardsPartitioner", shape, axis, absl::StatusCode::kOutOfRange));
  return OnAxis(shape, axis, std::min(num_shards, shape.dim(axis)));
}

absl::StatusOr<int64_t> ShardsAlongRows(const Shape& shape, absl::Span<const int64_t> counts) {
  const std::string answer = absl::StrCat("the partitioner answered [", absl::StrJoin(counts, ", "),
                                          "] for shape ", shape.ToString(), "; ");
  if (counts.size() != static_cast<size_t>(shape.rank())) {
    return absl::InvalidArgumentError(
        absl::StrCat(answer, "it must give one count for each of the ", shape.rank(), " axes"));
  }
  if (counts[0] < 1)
    return absl::InvalidArgumentError(absl::StrCat(answer, "the first count must be at least 1"));
  for (size_t axis = 1; axis < counts.size(); ++axis) {
    if (counts[axis] != 1)
      return absl::InvalidArgumentError(absl::StrCat(
          answer, "only axis 0 can be cut, so the count of axis ", axis, " must be 1"));
  }
  return std::max<int64_t>(1, std::min(counts[0], shape.dim(0)));
}

absl::StatusOr<int64_t> NumShards(const Partitioner& partitioner, const Shape& shape, DType dtype) {
  if (partitioner == nullptr || shape.rank() == 0) return 1;
  ASSIGN_OR_RETURN(const std::vector<int64_t> counts, partitioner(shape, dtype));
  return ShardsAlongRows(shape, counts);
}

}  // namespace divvy
