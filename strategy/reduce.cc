#include "strategy/reduce.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/element.h"
#include "kernels/elements.h"
#include "ops/backends.h"
#include "strategy/device_sums.h"

namespace divvy::internal {
namespace {

// ---- elements -----------------------------------------------------------------------------------

template <typename Visit>
absl::Status Dispatch(DType dtype, Visit visit) {
  return DispatchDType(
      dtype, visit,
      absl::InvalidArgumentError(absl::StrCat("tensors do not hold ", DTypeName(dtype))));
}

absl::StatusOr<Tensor> CopyOf(const Tensor& value) {
  ASSIGN_OR_RETURN(Tensor copy, Tensor::Uninitialized(value.dtype(), value.shape()));
  if (value.size_bytes() > 0)
    std::memcpy(copy.fresh_data<char>(), value.data(), value.size_bytes());
  return copy;
}

// ---- where values lie ---------------------------------------------------------------------------

bool IsSlices(const Nest& value) { return value.kind() == Nest::Kind::kIndexedSlices; }

// Moves `values` to `device`. Copies to the CPU run in parallel.
absl::StatusOr<std::vector<Tensor>> AllOn(Device device, absl::Span<const Tensor> values) {
  if (device == Device{}) return ToHost(values);
  std::vector<Tensor> there;
  for (const Tensor& value : values) {
    ASSIGN_OR_RETURN(Tensor moved, value.To(device));
    there.push_back(std::move(moved));
  }
  return there;
}

enum class Part : uint8_t { kDense, kRows, kIds };

absl::StatusOr<Nest> MapTensors(const Nest& value,
                                const std::function<Tensor(const Tensor& tensor, Part part)>& map) {
  return value.MapLeaves([&](const Nest& leaf) -> absl::StatusOr<Nest> {
    if (leaf.kind() == Nest::Kind::kTensor) return Nest(map(*leaf.tensor(), Part::kDense));
    if (!IsSlices(leaf)) return leaf;
    const IndexedSlices slices = *leaf.indexed_slices();
    return Nest(
        IndexedSlices{map(slices.ids, Part::kIds), map(slices.rows, Part::kRows), slices.num_rows});
  });
}

// Returns `values` with the tensors for which `moves` is true on `device`.
absl::StatusOr<std::vector<Nest>> Moved(
    absl::Span<const Nest> values, Device device,
    const std::function<bool(const Tensor& tensor, Part part)>& moves) {
  std::vector<Tensor> tensors;
  for (const Nest& value : values) {
    const auto collect = [&](const Tensor& tensor, Part part) {
      if (moves(tensor, part)) tensors.push_back(tensor);
      return tensor;
    };
    RETURN_IF_ERROR(MapTensors(value, collect).status());
  }
  std::vector<Nest> moved(values.begin(), values.end());
  const auto is_there = [=](const Tensor& tensor) { return tensor.device() == device; };
  if (std::all_of(tensors.begin(), tensors.end(), is_there)) return moved;
  ASSIGN_OR_RETURN(tensors, AllOn(device, tensors));
  size_t next = 0;
  for (Nest& value : moved) {
    ASSIGN_OR_RETURN(value, MapTensors(value, [&](const Tensor& tensor, Part part) {
                       return moves(tensor, part) ? tensors[next++] : tensor;
                     }));
  }
  return moved;
}

// ---- what may be reduced ------------------------------------------------------------------------

absl::Status Differ(absl::string_view what, int replica, absl::string_view first,
                    absl::string_view other) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": replica 0 has ", first, ", replica ", replica, " has ", other));
}

absl::Status CheckReducible(ReduceOp op, DType dtype) {
  if (dtype == DType::kBool)
    return absl::InvalidArgumentError("bool cannot be reduced; cast it to a number first");
  if (op == ReduceOp::kMean && !IsFloating(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("the MEAN of ", DTypeName(dtype),
                                                   " values is not ", DTypeName(dtype),
                                                   "; cast to float32 or float64 first"));
  }
  return absl::OkStatus();
}

absl::Status CheckAlike(absl::Span<const Tensor> values) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i].dtype() != values[0].dtype() || values[i].shape() != values[0].shape()) {
      return Differ("the replicas' tensors must agree", static_cast<int>(i), values[0].ToString(),
                    values[i].ToString());
    }
  }
  return absl::OkStatus();
}

// One flag for each axis: whether it is reduced.
absl::StatusOr<std::vector<bool>> Reduced(const Shape& shape, const Axes& axes) {
  std::vector<bool> reduced(shape.rank(), false);
  for (int axis : axes.values()) {
    const int from_left = axis < 0 ? axis + shape.rank() : axis;
    if (from_left < 0 || from_left >= shape.rank()) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", axis, " is outside a tensor of shape ", shape.ToString()));
    }
    if (reduced[from_left])
      return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is named twice"));
    reduced[from_left] = true;
  }
  return reduced;
}

// ---- sums ---------------------------------------------------------------------------------------

// sum += values, for one row of n elements.
template <typename T>
void AddRow(T* sum, const T* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    sum[i] = Element<T>::Store(Element<T>::Load(sum[i]) + Element<T>::Load(values[i]));
}

// The sum of one tensor over its reduced axes. Strides that are 0 along the reduced axes give each
// element's place in the result. Floating sums are computed in double, so that long axes keep their
// precision.
template <typename T>
void SumInto(const Tensor& value, absl::Span<const int64_t> strides, T* out, int64_t out_size) {
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  std::vector<Sum> sums(out_size, Sum{});
  std::vector<int64_t> index(value.shape().rank(), 0);
  const T* in = value.data_as<T>();
  int64_t to = 0;
  for (int64_t i = 0; i < value.shape().num_elements(); ++i) {
    sums[to] += static_cast<Sum>(Element<T>::Load(in[i]));
    for (int axis = value.shape().rank() - 1; axis >= 0; --axis) {
      to += strides[axis];
      if (++index[axis] < value.shape().dim(axis)) break;
      to -= strides[axis] * value.shape().dim(axis);
      index[axis] = 0;
    }
  }
  for (int64_t i = 0; i < out_size; ++i)
    out[i] = Element<T>::Store(static_cast<typename Element<T>::Computed>(sums[i]));
}

absl::StatusOr<Tensor> SumOverAxes(const Tensor& value, const std::vector<bool>& reduced) {
  std::vector<int64_t> kept_dims;
  for (int axis = 0; axis < value.shape().rank(); ++axis) {
    if (!reduced[axis]) kept_dims.push_back(value.shape().dim(axis));
  }
  ASSIGN_OR_RETURN(Tensor sum, Tensor::Uninitialized(value.dtype(), Shape(kept_dims)));
  std::vector<int64_t> strides(value.shape().rank(), 0);
  int64_t stride = 1;
  for (int axis = value.shape().rank() - 1; axis >= 0; --axis) {
    if (reduced[axis]) continue;
    strides[axis] = stride;
    stride *= value.shape().dim(axis);
  }
  RETURN_IF_ERROR(Dispatch(value.dtype(), [&](auto t) {
    using T = decltype(t);
    SumInto<T>(value, strides, sum.fresh_data<T>(), sum.shape().num_elements());
    return absl::OkStatus();
  }));
  return sum;
}

// The elementwise sum of tensors of one dtype and shape, divided by `divisor`.
absl::StatusOr<Tensor> AddAll(absl::Span<const Tensor> values, double divisor) {
  RETURN_IF_ERROR(CheckAlike(values));
  ASSIGN_OR_RETURN(Tensor sum, CopyOf(values[0]));
  const int64_t n = sum.shape().num_elements();
  for (const Tensor& value : values.subspan(1))
    ApplyElements(WriteOp::kAdd, sum.dtype(), sum.fresh_data<char>(), value.data(), n);
  if (divisor != 1) DivideElements(sum.dtype(), sum.fresh_data<char>(), n, divisor);
  return sum;
}

absl::StatusOr<Tensor> ReduceTensors(ReduceOp op, absl::Span<const Tensor> given,
                                     const Axes& axes) {
  ASSIGN_OR_RETURN(std::vector<Tensor> values, ToHost(given));
  for (const Tensor& value : values) RETURN_IF_ERROR(CheckReducible(op, value.dtype()));
  if (axes.values().empty()) return AddAll(values, op == ReduceOp::kMean ? values.size() : 1);
  double count = 0;
  for (Tensor& value : values) {
    ASSIGN_OR_RETURN(std::vector<bool> reduced, Reduced(value.shape(), axes));
    double elements = 1;
    for (int axis = 0; axis < value.shape().rank(); ++axis)
      elements *= reduced[axis] ? value.shape().dim(axis) : 1;
    count += elements;
    ASSIGN_OR_RETURN(value, SumOverAxes(value, reduced));
  }
  return AddAll(values, op == ReduceOp::kMean ? count : 1);
}

// ---- sparse -------------------------------------------------------------------------------------

// The device on which rows are concatenated: the GPU whose turn it is if all rows are on GPUs, else
// the CPU.
Device GatherDevice(absl::Span<const Tensor> rows, size_t turn) {
  std::vector<Device> devices;
  for (const Tensor& mine : rows) {
    if (mine.size_bytes() == 0) continue;  // needs no copy
    if (mine.device().kind == Device::Kind::kCpu) return Device{};
    devices.push_back(mine.device());
  }
  return devices.empty() ? Device{} : devices[turn % devices.size()];
}

absl::StatusOr<IndexedSlices> ReduceSlices(ReduceOp op, absl::Span<const IndexedSlices> values,
                                           size_t turn) {
  std::vector<Tensor> ids, rows;
  for (IndexedSlices value : values) {
    ASSIGN_OR_RETURN(value.ids, value.ids.To(Device{}));
    RETURN_IF_ERROR(Validate(value));
    if (value.num_rows != values[0].num_rows) {
      return Differ("the replicas' IndexedSlices must be of one tensor",
                    static_cast<int>(ids.size()), absl::StrCat(values[0].num_rows, " rows"),
                    absl::StrCat(value.num_rows, " rows"));
    }
    ids.push_back(value.ids);
    rows.push_back(value.rows);
  }
  IndexedSlices all;
  all.num_rows = values[0].num_rows;
  ASSIGN_OR_RETURN(all.ids, GatherTensors(ids, 0));
  ASSIGN_OR_RETURN(all.rows, GatherTensors(rows, 0, GatherDevice(rows, turn)));
  RETURN_IF_ERROR(CheckReducible(op, all.rows.dtype()));
  if (op == ReduceOp::kMean) {
    ASSIGN_OR_RETURN(all.rows, DeviceSums::CanSum(all.rows)
                                   ? DeviceSums::Quotient(all.rows, values.size())
                                   : AddAll({all.rows}, values.size()));
  }
  // The rows may be copied while others are concatenated.
  all.rows.MarkWritten();
  return all;
}

absl::StatusOr<Nest> ReduceDenseLeaves(ReduceOp op, absl::Span<const Nest> values,
                                       const Axes& axes) {
  std::vector<Tensor> tensors;
  for (const Nest& value : values) {
    if (IsSlices(value)) {
      ASSIGN_OR_RETURN(IndexedSlices slices, value.indexed_slices());
      ASSIGN_OR_RETURN(Tensor dense, ToDense(slices));
      tensors.push_back(std::move(dense));
    } else {
      ASSIGN_OR_RETURN(Tensor tensor, value.tensor());
      tensors.push_back(std::move(tensor));
    }
  }
  ASSIGN_OR_RETURN(Tensor reduced, ReduceTensors(op, tensors, axes));
  return Nest(std::move(reduced));
}

absl::StatusOr<Nest> ReduceSparseLeaves(ReduceOp op, absl::Span<const Nest> values, size_t turn) {
  std::vector<IndexedSlices> all;
  for (const Nest& value : values) {
    ASSIGN_OR_RETURN(IndexedSlices slices, value.indexed_slices());
    all.push_back(std::move(slices));
  }
  ASSIGN_OR_RETURN(IndexedSlices reduced, ReduceSlices(op, all, turn));
  return Nest(std::move(reduced));
}

// ---- structures ---------------------------------------------------------------------------------

// Combines nests of one structure into one, leaf by leaf.
struct Joining {
  Mixed mixed;
  std::function<absl::StatusOr<Nest>(absl::Span<const Nest> leaves)> leaf;
};
absl::StatusOr<Nest> JoinAt(const Joining& how, absl::Span<const Nest> values,
                            const std::string& path);

absl::Status At(const std::string& path, const absl::Status& status) {
  return path.empty()
             ? status
             : absl::Status(status.code(), absl::StrCat("at ", path, ": ", status.message()));
}

std::vector<Nest> ChildOfEach(absl::Span<const Nest> values, const std::string& key) {
  std::vector<Nest> children;
  for (const Nest& value : values) children.push_back(value[absl::string_view(key)]);
  return children;
}
std::vector<Nest> ChildOfEach(absl::Span<const Nest> values, size_t index) {
  std::vector<Nest> children;
  for (const Nest& value : values) children.push_back(value[index]);
  return children;
}

bool SameStructure(const Nest& a, const Nest& b, Mixed mixed) {
  const bool leaves = mixed == Mixed::kMakeDense &&
                      (a.kind() == Nest::Kind::kTensor || IsSlices(a)) &&
                      (b.kind() == Nest::Kind::kTensor || IsSlices(b));
  if (leaves) return true;
  if (a.kind() != b.kind() || a.size() != b.size()) return false;
  if (a.dict() == nullptr) return true;
  return std::equal(a.dict()->begin(), a.dict()->end(), b.dict()->begin(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

absl::StatusOr<Nest> JoinChildren(const Joining& how, absl::Span<const Nest> values,
                                  const std::string& path) {
  if (const Nest::Dict* dict = values[0].dict()) {
    Nest::Dict joined;
    for (const auto& [key, unused] : *dict) {
      ASSIGN_OR_RETURN(
          Nest child, JoinAt(how, ChildOfEach(values, key), absl::StrCat(path, "[\"", key, "\"]")));
      joined.emplace(key, std::move(child));
    }
    return Nest(std::move(joined));
  }
  Nest::List joined;
  for (size_t i = 0; i < values[0].size(); ++i) {
    ASSIGN_OR_RETURN(Nest child,
                     JoinAt(how, ChildOfEach(values, i), absl::StrCat(path, "[", i, "]")));
    joined.push_back(std::move(child));
  }
  return Nest(std::move(joined));
}

absl::StatusOr<Nest> JoinAt(const Joining& how, absl::Span<const Nest> values,
                            const std::string& path) {
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(values[i].status());
    if (!SameStructure(values[0], values[i], how.mixed)) {
      return At(path, Differ("the replicas' structures must agree", static_cast<int>(i),
                             values[0].ToString(), values[i].ToString()));
    }
  }
  if (values[0].dict() != nullptr || values[0].list() != nullptr)
    return JoinChildren(how, values, path);
  absl::StatusOr<Nest> joined = how.leaf(values);
  if (!joined.ok()) return At(path, joined.status());
  return joined;
}

// ---- leaves -------------------------------------------------------------------------------------

// Reduces the `turn`-th leaf.
absl::StatusOr<Nest> ReduceLeaf(ReduceOp op, absl::Span<const Nest> values, const Axes& axes,
                                size_t turn) {
  const bool all_sparse = std::all_of(values.begin(), values.end(), IsSlices);
  if (all_sparse && axes.values().empty()) return ReduceSparseLeaves(op, values, turn);
  if (values[0].kind() == Nest::Kind::kTensor || IsSlices(values[0]))
    return ReduceDenseLeaves(op, values, axes);
  if (values[0].kind() != Nest::Kind::kText)
    return absl::InvalidArgumentError(absl::StrCat(values[0].ToString(), " cannot be reduced"));
  for (size_t i = 1; i < values.size(); ++i) {
    if (!BitwiseEqual(values[0], values[i]))
      return Differ("texts must agree", static_cast<int>(i), values[0].ToString(),
                    values[i].ToString());
  }
  return values[0];
}

absl::StatusOr<Nest> GatherLeaf(absl::Span<const Nest> values, int axis, int replica) {
  if (IsSlices(values[0]))
    return absl::UnimplementedError(
        "IndexedSlices have no axis to gather along; gather their ids and their rows");
  std::vector<Tensor> tensors;
  for (const Nest& value : values) {
    ASSIGN_OR_RETURN(Tensor tensor, value.tensor());
    tensors.push_back(std::move(tensor));
  }
  ASSIGN_OR_RETURN(Tensor gathered, GatherTensors(tensors, axis, tensors[replica].device()));
  return Nest(std::move(gathered));
}

// ---- leaves on GPUs -----------------------------------------------------------------------------

// The device of a leaf, if it has tensors; otherwise the CPU.
Device DeviceOf(const Nest& leaf) {
  if (const absl::StatusOr<Tensor> tensor = leaf.tensor(); tensor.ok()) return tensor->device();
  if (const absl::StatusOr<IndexedSlices> slices = leaf.indexed_slices(); slices.ok())
    return slices->rows.device();
  return {};
}

absl::StatusOr<std::vector<Device>> DevicesOfLeaves(const Nest& value) {
  std::vector<Device> devices;
  const auto add = [&](const Nest& leaf) -> absl::StatusOr<Nest> {
    devices.push_back(DeviceOf(leaf));
    return leaf;
  };
  RETURN_IF_ERROR(value.MapLeaves(add).status());
  return devices;
}

// The replicas' values, joined. Leaves that are summed on GPUs still have replica 0's value;
// `number` identifies their sums.
struct HalfReduced {
  Nest joined;
  std::vector<std::optional<size_t>> number;  // by leaf
};

struct Reducing {
  ReduceOp op;
  Axes axes;
  Mixed mixed;
  RowsMeet rows;
};

// Copies the tensors that are reduced on the CPU to the CPU, for all replicas in one wait.
absl::StatusOr<std::vector<Nest>> BroughtToReduce(const Reducing& how,
                                                  absl::Span<const Nest> values) {
  return Moved(values, Device{}, [&](const Tensor& tensor, Part part) {
    if (!how.axes.values().empty() || part == Part::kIds) return true;
    return part == Part::kRows ? how.rows == RowsMeet::kOnCpu : !DeviceSums::CanSum(tensor);
  });
}

absl::StatusOr<HalfReduced> ReduceButOnGpus(const Reducing& how, absl::Span<const Nest> given,
                                            DeviceSums& sums) {
  ASSIGN_OR_RETURN(const std::vector<Nest> values, BroughtToReduce(how, given));
  HalfReduced half;
  const auto reduce = [&](absl::Span<const Nest> leaves) -> absl::StatusOr<Nest> {
    half.number.emplace_back();
    std::vector<Tensor> tensors;
    for (const Nest& leaf : leaves) {
      if (const absl::StatusOr<Tensor> tensor = leaf.tensor(); tensor.ok())
        tensors.push_back(*tensor);
    }
    const bool all_there = tensors.size() == leaves.size() &&
                           std::all_of(tensors.begin(), tensors.end(), DeviceSums::CanSum);
    if (!all_there) return ReduceLeaf(how.op, leaves, how.axes, half.number.size());
    RETURN_IF_ERROR(CheckAlike(tensors));
    half.number.back() = sums.Add(std::move(tensors));
    return leaves[0];
  };
  ASSIGN_OR_RETURN(half.joined, JoinAt({how.mixed, reduce}, values, ""));
  return half;
}

// Returns the joined value with the sums in their places. If `devices` is not empty, leaves that
// the CPU has reduced are moved to them.
absl::StatusOr<Nest> Completed(const HalfReduced& half, absl::Span<const Tensor> sums,
                               absl::Span<const Device> devices) {
  size_t next = 0;
  return half.joined.MapLeaves([&](const Nest& leaf) -> absl::StatusOr<Nest> {
    const size_t i = next++;
    if (half.number[i]) return Nest(sums[*half.number[i]]);
    return devices.empty() ? leaf : MoveTo(leaf, devices[i]);
  });
}

// ---- along one axis -----------------------------------------------------------------------------

// A tensor viewed along one axis, as `outer` times `dim` times `inner_bytes`.
struct AxisView {
  int axis = 0;
  int64_t outer = 1;
  int64_t dim = 0;
  int64_t inner_bytes = 0;
};

absl::StatusOr<AxisView> ViewAlong(const Tensor& value, int axis) {
  const Shape& shape = value.shape();
  if (shape.rank() == 0)
    return absl::InvalidArgumentError(
        "a tensor of rank 0 has no axis to gather along; Reshape it to {1} first");
  if (axis < -shape.rank() || axis >= shape.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " is outside a tensor of shape ", shape.ToString()));
  }
  AxisView view;
  view.axis = axis < 0 ? axis + shape.rank() : axis;
  view.dim = shape.dim(view.axis);
  view.inner_bytes = DTypeSize(value.dtype());
  for (int i = 0; i < view.axis; ++i) view.outer *= shape.dim(i);
  for (int i = view.axis + 1; i < shape.rank(); ++i) view.inner_bytes *= shape.dim(i);
  return view;
}

Shape WithDim(const Shape& shape, int axis, int64_t dim) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[axis] = dim;
  return Shape(dims);
}

absl::Status CheckGatherable(absl::Span<const Tensor> values, int axis) {
  for (size_t i = 1; i < values.size(); ++i) {
    const bool alike = values[i].dtype() == values[0].dtype() &&
                       values[i].shape().rank() == values[0].shape().rank() &&
                       WithDim(values[i].shape(), axis, 0) == WithDim(values[0].shape(), axis, 0);
    if (!alike) {
      return Differ(absl::StrCat("the replicas' tensors may differ along axis ", axis, " only"),
                    static_cast<int>(i), values[0].ToString(), values[i].ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Nest> ReduceNests(ReduceOp op, absl::Span<const Nest> values, const Axes& axes,
                                 Mixed mixed, RowsMeet rows) {
  DeviceSums sums(op);
  ASSIGN_OR_RETURN(const HalfReduced half, ReduceButOnGpus({op, axes, mixed, rows}, values, sums));
  if (sums.size() == 0) return half.joined;
  ASSIGN_OR_RETURN(const std::vector<Tensor> here, std::move(sums).OnCpu());
  return Completed(half, here, {});
}

absl::StatusOr<std::vector<Nest>> AllReduceNests(ReduceOp op, absl::Span<const Nest> values,
                                                 const CommunicationOptions& options) {
  DeviceSums sums(op, options);
  ASSIGN_OR_RETURN(const HalfReduced half,
                   ReduceButOnGpus({op, kNoAxis, Mixed::kRefuse, RowsMeet::kOnGpus}, values, sums));
  ASSIGN_OR_RETURN(std::vector<std::vector<Tensor>> of_replica, std::move(sums).OnEachGpu());
  of_replica.resize(values.size());
  std::vector<Nest> reduced;
  for (size_t replica = 0; replica < values.size(); ++replica) {
    ASSIGN_OR_RETURN(const std::vector<Device> devices, DevicesOfLeaves(values[replica]));
    ASSIGN_OR_RETURN(Nest mine, Completed(half, of_replica[replica], devices));
    reduced.push_back(std::move(mine));
  }
  return reduced;
}

absl::StatusOr<std::vector<Nest>> AllGatherNests(absl::Span<const Nest> values, int axis) {
  std::vector<Nest> gathered;
  std::vector<Device> before;
  for (size_t replica = 0; replica < values.size(); ++replica) {
    RETURN_IF_ERROR(values[replica].status());
    ASSIGN_OR_RETURN(const std::vector<Device> devices, DevicesOfLeaves(values[replica]));
    // The replica has the same devices as the one before, so it gets the same result.
    if (replica > 0 && devices == before) {
      gathered.push_back(gathered.back());
      continue;
    }
    before = devices;
    const auto gather = [&](absl::Span<const Nest> leaves) {
      return GatherLeaf(leaves, axis, static_cast<int>(replica));
    };
    ASSIGN_OR_RETURN(Nest mine, JoinAt({Mixed::kRefuse, gather}, values, ""));
    gathered.push_back(std::move(mine));
  }
  return gathered;
}

absl::StatusOr<Tensor> GatherTensors(absl::Span<const Tensor> given, int axis, Device device) {
  ASSIGN_OR_RETURN(AxisView first, ViewAlong(given[0], axis));
  RETURN_IF_ERROR(CheckGatherable(given, first.axis));
  ASSIGN_OR_RETURN(const std::vector<Tensor> values, AllOn(device, given));
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(device));
  int64_t dim = 0;
  for (const Tensor& value : values) dim += value.shape().dim(first.axis);
  ASSIGN_OR_RETURN(Tensor gathered,
                   Tensor::Uninitialized(values[0].dtype(),
                                         WithDim(values[0].shape(), first.axis, dim), device));
  char* out = gathered.fresh_data<char>();
  for (const Tensor& value : values) {
    const int64_t bytes = value.shape().dim(first.axis) * first.inner_bytes;
    backend->CopyBlocks(device, value.data(), bytes, out, dim * first.inner_bytes, bytes,
                        first.outer);
    out += value.size_bytes() == 0 ? 0 : bytes;
  }
  return gathered;
}

absl::StatusOr<Tensor> SliceAxis(const Tensor& value, int axis, int64_t begin, int64_t end) {
  ASSIGN_OR_RETURN(AxisView view, ViewAlong(value, axis));
  if (begin < 0 || begin > end || end > view.dim) {
    return absl::InvalidArgumentError(absl::StrCat("[", begin, ", ", end, ") is outside axis ",
                                                   axis, " of ", value.shape().ToString()));
  }
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(value.device()));
  ASSIGN_OR_RETURN(Tensor slice, Tensor::Uninitialized(
                                     value.dtype(), WithDim(value.shape(), view.axis, end - begin),
                                     value.device()));
  const int64_t bytes = (end - begin) * view.inner_bytes;
  if (bytes * view.outer == 0) return slice;
  backend->CopyBlocks(
      value.device(), static_cast<const char*>(value.data()) + begin * view.inner_bytes,
      view.dim * view.inner_bytes, slice.fresh_data<char>(), bytes, bytes, view.outer);
  return slice;
}

absl::StatusOr<Tensor> ToDense(const IndexedSlices& given) {
  IndexedSlices slices = given;
  ASSIGN_OR_RETURN(slices.ids, given.ids.To(Device{}));
  RETURN_IF_ERROR(Validate(slices));
  if (slices.num_rows == IndexedSlices::kAnyId)
    return absl::InvalidArgumentError(
        "IndexedSlices: rows of a dynamic table have no dense form; reduce them as they are");
  ASSIGN_OR_RETURN(Tensor rows, slices.rows.To(Device{}));
  ASSIGN_OR_RETURN(absl::Span<const int64_t> ids, slices.ids.values<int64_t>());
  ASSIGN_OR_RETURN(Tensor dense,
                   Tensor::Zeros(rows.dtype(), rows.shape().WithRows(slices.num_rows)));
  const int64_t width = rows.shape().row_elements();
  RETURN_IF_ERROR(Dispatch(rows.dtype(), [&](auto t) -> absl::Status {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, bool>) {
      return CheckReducible(ReduceOp::kSum, DType::kBool);
    } else {
      for (size_t i = 0; i < ids.size(); ++i)
        AddRow(dense.fresh_data<T>() + ids[i] * width, rows.data_as<T>() + i * width, width);
      return absl::OkStatus();
    }
  }));
  return dense;
}

absl::StatusOr<Nest> MoveTo(const Nest& value, Device device) {
  const auto moves = [=](const Tensor&, Part part) {
    return part != Part::kIds || device == Device{};
  };
  ASSIGN_OR_RETURN(const std::vector<Nest> moved, Moved({value}, device, moves));
  return moved[0];
}

}  // namespace divvy::internal
