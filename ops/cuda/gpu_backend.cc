#include "ops/cuda/gpu_backend.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ops/data_errors.h"
#include "tensor/copies_ahead.h"

namespace divvy::internal {
namespace {

static_assert(static_cast<int>(cuda::Element::kFloat64) == static_cast<int>(DType::kFloat64) &&
              Shape::kMaxRank == cuda::Array::kMaxRank);

// A tensor without elements has no memory, and there is nothing to do for it.
bool IsEmpty(const Tensor& y) { return y.size_bytes() == 0; }

// The bad data that a device found. A fault that was copied while it was being written may lack
// some of its fields.
std::string TextOf(const cuda::Fault& fault) {
  const bool in_matrix = fault.kind == cuda::Fault::kLabelOutOfRange ||
                         fault.kind == cuda::Fault::kProbabilityOutOfRange;
  if (fault.in.num_dims < (in_matrix ? 2 : 1) || fault.in.size() == 0)
    return "an id or a label is out of range";
  const auto dtype = static_cast<DType>(fault.in.element);
  const Shape shape(absl::MakeConstSpan(fault.in.dims, static_cast<size_t>(fault.in.num_dims)));
  if (fault.kind == cuda::Fault::kIdOutOfRange)
    return IdOutOfRange(fault.value, fault.position, dtype, shape);
  double number;
  std::memcpy(&number, &fault.value, sizeof(number));
  if (fault.kind == cuda::Fault::kProbabilityOutOfRange)
    return ProbabilityOutOfRange(number, fault.position, dtype, shape);
  if (fault.kind == cuda::Fault::kLabelNotInUnit)
    return LabelNotInUnit("SigmoidCrossEntropy", number, fault.position, shape);
  return LabelOutOfRange(fault.value, fault.position, dtype, shape);
}

}  // namespace

// ---- operands of a computation ----

// The error with the name of the operation that met it. The text lives as long as the process,
// since the device keeps it until someone asks for it. An error that already names an operation is
// not changed.
const char* GpuBackend::Blamed(absl::FunctionRef<std::string()> operation,
                               const char* error) const {
  MutexLock lock(mu_);
  const auto known = kept_.find(error);
  return (known != kept_.end() ? known : kept_.insert(absl::StrCat(operation(), ": ", error)).first)
      ->c_str();
}

// With `synchronous_`, an error is recorded with the operation's name. The next caller that asks
// the device gets it, as without `synchronous_`.
void GpuBackend::Told(int device, absl::FunctionRef<std::string()> operation) const {
  transfers_.Told(device);
  if (!synchronous_) return;
  const cuda::Transfers::Look look(transfers_, device);
  const char* const error = math_.Synchronize(device);
  if (error == nullptr) return;
  math_.Note(device, absl::string_view(error) == cuda::kOutOfMemory ? cuda::kOutOfMemory
                                                                    : Blamed(operation, error));
}

void GpuBackend::Told(const char* operation, const Tensor& result,
                      std::initializer_list<const Tensor*> operands) const {
  Told(result.device().index, [&] {
    const std::string from = absl::StrJoin(
        operands, ", ",
        [](std::string* out, const Tensor* operand) { absl::StrAppend(out, operand->ToString()); });
    return absl::StrCat(operation, " of ", from, " to ", result.ToString());
  });
}

void* GpuBackend::AddressOf(const Tensor& tensor) const {
  transfers_.Arrive(tensor.device().index, tensor.data());
  return const_cast<void*>(tensor.data());
}

const int64_t* GpuBackend::IdsOf(const Tensor& ids) const {
  return static_cast<const int64_t*>(AddressOf(ids));
}

cuda::Array GpuBackend::ArrayOf(const Tensor& tensor) const {
  cuda::Array array;
  array.data = AddressOf(tensor);
  array.element = static_cast<cuda::Element>(tensor.dtype());
  array.num_dims = tensor.shape().rank();
  for (int axis = 0; axis < array.num_dims; ++axis) array.dims[axis] = tensor.shape().dim(axis);
  return array;
}

// A scalar of the CPU becomes an argument of the kernel, so it needs no memory and no copy.
cuda::Array GpuBackend::ArrayOrNumberOf(const Tensor& tensor) const {
  if (tensor.device().kind == Device::Kind::kGpu) return ArrayOf(tensor);
  cuda::Array number;
  number.element = static_cast<cuda::Element>(tensor.dtype());
  switch (tensor.dtype()) {
    case DType::kFloat64: number.value = *tensor.data_as<double>(); break;
    case DType::kFloat16: number.value = tensor.data_as<Half>()->ToFloat(); break;
    case DType::kBFloat16: number.value = tensor.data_as<BFloat16>()->ToFloat(); break;
    default: number.value = *tensor.data_as<float>(); break;
  }
  return number;
}

cuda::RowListArrays GpuBackend::ArraysOf(const RowLists& lists) const {
  return {IdsOf(lists.row_splits), lists.weights ? AddressOf(*lists.weights) : nullptr,
          lists.divisors ? AddressOf(*lists.divisors) : nullptr};
}

// ---- memory ----

GpuBackend::GpuBackend(cuda::DeviceMath& math, int64_t limit_bytes,
                       const cuda::TransferOptions& transfers, bool synchronous)
    : math_(math),
      limit_bytes_(limit_bytes),
      synchronous_(synchronous),
      in_use_(math.num_devices()),
      failures_(math.num_devices()),
      transfers_(math, transfers) {
  const auto trim = [](void* self, int device) {
    DropCopiesAhead({Device::Kind::kGpu, device});
    static_cast<GpuBackend*>(self)->transfers_.Trim(device);
  };
  math_.SetReclaim(trim, this);
}

GpuBackend::~GpuBackend() { math_.SetReclaim(nullptr, nullptr); }

absl::Status GpuBackend::Reserve(Device device, int64_t bytes) {
  if (limit_bytes_ == 0) return absl::OkStatus();
  MutexLock lock(mu_);
  InUse& in_use = in_use_[device.index];
  if (bytes > limit_bytes_ - in_use.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        device.ToString(), " (", math_.name(device.index), "): tensors have ", in_use.bytes,
        " bytes, and ", bytes, " more would exceed --gpu_memory_bytes=", limit_bytes_,
        ": raise it, or make the batch smaller"));
  }
  in_use.bytes += bytes;
  return absl::OkStatus();
}

// Prefetched copies are worth less than memory that is needed now, so they are dropped. They are
// not dropped for another prefetched copy. Meanwhile other copies may have begun and taken the
// freed memory, so this repeats as long as there are any.
template <typename Get>
absl::StatusOr<void*> GpuBackend::Obtain(Device device, int64_t bytes, Get get) {
  absl::StatusOr<void*> data = TryToObtain(device, bytes, get);
  if (!absl::IsResourceExhausted(data.status()) || TravelScope::Now() == Travel::kIfRoom)
    return data;
  bool let_go = true;
  while (let_go && absl::IsResourceExhausted(data.status())) {
    let_go = DropCopiesAhead(device);
    data = TryToObtain(device, bytes, get);
  }
  return data;
}

template <typename Get>
absl::StatusOr<void*> GpuBackend::TryToObtain(Device device, int64_t bytes, Get get) {
  if (device.index < 0 || device.index >= math_.num_devices()) {
    return absl::NotFoundError(absl::StrCat("there is no ", device.ToString(),
                                            ": this process uses ", math_.num_devices(), " GPUs"));
  }
  RETURN_IF_ERROR(Reserve(device, bytes));
  void* const data = get();
  if (limit_bytes_ > 0) {
    MutexLock lock(mu_);
    InUse& in_use = in_use_[device.index];
    data != nullptr ? static_cast<void>(in_use.blocks.emplace(data, bytes))
                    : static_cast<void>(in_use.bytes -= bytes);
  }
  if (data == nullptr) return NoMemory(device.index, bytes);
  return data;
}

// A failed device has no memory either, and a smaller batch would not help.
absl::Status GpuBackend::NoMemory(int device, int64_t bytes) const {
  const cuda::Transfers::Look look(transfers_, device);
  const char* const error = math_.TakeError(device);
  if (error != nullptr && absl::string_view(error) != cuda::kOutOfMemory)
    return DeviceError(device, error);
  if (const char* const lost = math_.lost(device); lost != nullptr)
    return DeviceError(device, lost);
  return absl::ResourceExhaustedError(
      absl::StrCat(NameOf(device), " has no memory for ", bytes,
                   " bytes more: make the batch smaller, or leave the GPU to one process"));
}

absl::StatusOr<void*> GpuBackend::Allocate(Device device, int64_t bytes) {
  return Obtain(device, bytes,
                [&] { return transfers_.Allocate(device.index, static_cast<size_t>(bytes)); });
}

absl::StatusOr<void*> GpuBackend::Upload(Device device, const void* from, int64_t bytes,
                                         std::shared_ptr<const void> owner) {
  return Obtain(device, bytes, [&] {
    return transfers_.Upload(device.index, from, static_cast<size_t>(bytes), owner);
  });
}

absl::StatusOr<void*> GpuBackend::UploadWhenUsed(Device device, const void* from, int64_t bytes,
                                                 std::shared_ptr<const void> owner) {
  return Obtain(device, bytes, [&] {
    return transfers_.UploadWhenUsed(device.index, from, static_cast<size_t>(bytes), owner);
  });
}

absl::StatusOr<void*> GpuBackend::CopyAcross(Device device, const Download& from) {
  return Obtain(device, from.bytes, [&] { return transfers_.CopyAcross(device.index, from); });
}

void GpuBackend::Free(Device device, void* data) {
  if (limit_bytes_ > 0) {
    MutexLock lock(mu_);
    InUse& in_use = in_use_[device.index];
    const auto block = in_use.blocks.find(data);
    in_use.bytes -= block->second;
    in_use.blocks.erase(block);
  }
  transfers_.Free(device.index, data);
}

// Each device's failure is counted. Of several failures the first is returned, except that a lost
// device goes first, because then the values are not at fault.
absl::Status GpuBackend::Bring(absl::Span<const Download> values) {
  const cuda::Transfers::Found found = transfers_.Bring(values);
  absl::Status status;
  for (const cuda::Transfers::Failure& failure : found.failures) {
    const absl::Status here = failure.error != nullptr ? DeviceError(failure.device, failure.error)
                                                       : FaultError(failure.device, failure.fault);
    if (status.ok() || (absl::IsUnavailable(here) && !absl::IsUnavailable(status))) status = here;
  }
  // Called after the failures are counted, so a thread that then asks for failures finds them.
  transfers_.Settle(found);
  return status;
}

absl::Status GpuBackend::FaultError(int device, const cuda::Fault& fault) const {
  return Counted(device,
                 absl::InvalidArgumentError(absl::StrCat(TextOf(fault), ", on ", NameOf(device))));
}

std::string GpuBackend::NameOf(int device) const {
  return absl::StrCat(Device{Device::Kind::kGpu, device}.ToString(), " (", math_.name(device), ")");
}

absl::Status GpuBackend::DeviceError(int device, absl::string_view error) const {
  const std::string which = NameOf(device);
  if (math_.lost(device) != nullptr) return Counted(device, Lost(device, error));
  if (error != cuda::kOutOfMemory)
    return Counted(device, absl::InternalError(absl::StrCat(which, ": ", error)));
  return Counted(device,
                 absl::ResourceExhaustedError(absl::StrCat(
                     which,
                     " has no memory for the intermediate values of a computation: make the "
                     "batch smaller, or leave the GPU to one process")));
}
// The first error says what happened; later errors only say that it did.
absl::Status GpuBackend::Lost(int device, absl::string_view error) const {
  MutexLock lock(mu_);
  absl::Status& lost = failures_[device].lost;
  if (lost.ok()) {
    lost = absl::UnavailableError(absl::StrCat(NameOf(device), " is lost: ", error,
                                               ". This process cannot use it any more: start the "
                                               "process again. If that happens again, run with "
                                               "DIVVY_GPU_SYNC=1, which names the operation, and "
                                               "look for Xid errors in the kernel's log"));
  }
  return lost;
}

absl::Status GpuBackend::Counted(int device, const absl::Status& failure) const {
  if (failure.ok()) return failure;
  MutexLock lock(mu_);
  ++failures_[device].count;
  failures_[device].last = failure;
  return failure;
}

// The failures of a device come with any of its values. No value need be copied if everything that
// was computed has been waited for, since the failures came with that wait. A failure that another
// thread has taken from the device will have been counted by that thread.
DeviceFailures GpuBackend::FindFailures(Device device) {
  if (!transfers_.IsSettled(device.index)) {
    cuda::Fault value;
    Bring({Download{device, math_.fault_on(device.index), &value, sizeof(value)}}).IgnoreError();
  } else {
    const cuda::Transfers::Look look(transfers_, device.index);
    if (const char* const error = math_.TakeError(device.index); error != nullptr)
      DeviceError(device.index, error).IgnoreError();
  }
  transfers_.AwaitLooks(device.index);
  if (const char* const lost = math_.lost(device.index); lost != nullptr)
    Lost(device.index, lost).IgnoreError();
  MutexLock lock(mu_);
  return failures_[device.index];
}

std::shared_ptr<const DeviceMark> GpuBackend::Mark(Device device) {
  return transfers_.Mark(device.index);
}

void* GpuBackend::AllocateHost(int64_t bytes) {
  return transfers_.TakeHost(static_cast<size_t>(bytes));
}

void GpuBackend::FreeHost(void* data) { transfers_.host_memory().Return(data); }

// ---- several devices ----

absl::StatusOr<std::vector<Tensor>> GpuBackend::AllReduce(absl::Span<const Tensor> values) const {
  std::vector<Tensor> sums;
  std::vector<int> devices;
  for (const Tensor& value : values) devices.push_back(value.device().index);
  const int count = static_cast<int>(devices.size());
  const cuda::Array first = ArrayOf(values[0]);
  // Checked before memory is allocated for the results.
  if (!math_.CanAllReduce(devices.data(), count, first.element)) return sums;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Tensor& value : values) {
    ASSIGN_OR_RETURN(Tensor sum,
                     Tensor::Uninitialized(value.dtype(), value.shape(), value.device()));
    from.push_back(AddressOf(value));
    to.push_back(sum.fresh_data<void>());
    sums.push_back(std::move(sum));
  }
  MutexLock lock(transfers_.together());
  if (!math_.AllReduce(devices.data(), count, from.data(), to.data(), first.element, first.size()))
    sums.clear();
  // A collective ends when all devices have reached it, so nothing here may wait for one of them.
  for (const int device : devices) transfers_.Told(device);
  return sums;
}

// ---- arithmetic ----

void GpuBackend::Unary(UnaryOp op, const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Unary(y.device().index, op, ArrayOf(x), ArrayOf(y));
  Told("Unary", y, {&x});
}

void GpuBackend::UnaryGradient(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                               Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.UnaryGradient(dx.device().index, op, ArrayOf(kept), ArrayOf(gradient), ArrayOf(dx));
  Told("UnaryGradient", dx, {&kept, &gradient});
}

void GpuBackend::UnaryGradientAndSums(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                                      Tensor& dx, Tensor& sums) const {
  if (IsEmpty(dx)) return Zero(sums);
  math_.UnaryGradientAndSums(dx.device().index, op, ArrayOf(kept), ArrayOf(gradient), ArrayOf(dx),
                             ArrayOf(sums));
  Told("UnaryGradientAndSums", dx, {&kept, &gradient});
}

void GpuBackend::Binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Binary(y.device().index, op, ArrayOrNumberOf(a), ArrayOrNumberOf(b), ArrayOf(y));
  Told("Binary", y, {&a, &b});
}

void GpuBackend::AddThen(UnaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.AddThen(y.device().index, op, ArrayOrNumberOf(a), ArrayOrNumberOf(b), ArrayOf(y));
  Told("AddThen", y, {&a, &b});
}

void GpuBackend::Broadcast(const Tensor& x, double scale, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Broadcast(y.device().index, ArrayOrNumberOf(x), scale, ArrayOf(y));
  Told("Broadcast", y, {&x});
}

void GpuBackend::SumTo(const Tensor& x, double scale, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.SumTo(y.device().index, ArrayOf(x), scale, ArrayOf(y));
  Told("SumTo", y, {&x});
}

void GpuBackend::MaxTo(const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.MaxTo(y.device().index, ArrayOf(x), ArrayOf(y));
  Told("MaxTo", y, {&x});
}

absl::StatusOr<std::vector<double>> GpuBackend::SumsOfSquares(
    absl::Span<const Tensor> values) const {
  std::vector<double> sums(values.size());
  if (values.empty()) return sums;
  const int device = values[0].device().index;
  auto* const there =
      static_cast<double*>(transfers_.Allocate(device, sums.size() * sizeof(double)));
  if (there == nullptr) return DeviceError(device, cuda::kOutOfMemory);
  for (size_t i = 0; i < values.size(); ++i) {
    if (IsEmpty(values[i])) {
      math_.Zero(device, there + i, sizeof(double));
    } else {
      math_.SumOfSquares(device, ArrayOf(values[i]), there + i);
    }
  }
  const cuda::Transfers::Look look(transfers_, device);
  const char* const error = math_.CopyOut(device, sums.data(), there, sums.size() * sizeof(double));
  transfers_.Free(device, there);
  if (error != nullptr) return DeviceError(device, error);
  return sums;
}

void GpuBackend::Dropout(uint64_t key, double rate, const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Dropout(y.device().index, key, rate, ArrayOf(x), ArrayOf(y));
  Told("Dropout", y, {&x});
}

void GpuBackend::MatMul(const MatMulArgs& args, const Tensor& a, const Tensor& b, Tensor& c) const {
  if (IsEmpty(c)) return;
  math_.MatMul(c.device().index, args, ArrayOf(a), ArrayOf(b), ArrayOf(c));
  Told("MatMul", c, {&a, &b});
}

void GpuBackend::Softmax(const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Softmax(y.device().index, ArrayOf(x), ArrayOf(y));
  Told("Softmax", y, {&x});
}

void GpuBackend::SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.SoftmaxGradient(dx.device().index, ArrayOf(y), ArrayOf(gradient), ArrayOf(dx));
  Told("SoftmaxGradient", dx, {&y, &gradient});
}

void GpuBackend::Normalize(Norm norm, double epsilon, const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Normalize(y.device().index, norm, epsilon, ArrayOf(x), ArrayOf(y));
  Told("Normalize", y, {&x});
}

void GpuBackend::NormalizeGradient(Norm norm, double epsilon, const Tensor& x,
                                   const Tensor& gradient, Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.NormalizeGradient(dx.device().index, norm, epsilon, ArrayOf(x), ArrayOf(gradient),
                          ArrayOf(dx));
  Told("NormalizeGradient", dx, {&x, &gradient});
}

void GpuBackend::Conv2D(const Window2D& window, const Tensor& x, const Tensor& kernel,
                        Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Conv2D(y.device().index, window, ArrayOf(x), ArrayOf(kernel), ArrayOf(y));
  Told("Conv2D", y, {&x, &kernel});
}

void GpuBackend::Conv2DInputGradient(const Window2D& window, const Tensor& kernel,
                                     const Tensor& gradient, Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.Conv2DInputGradient(dx.device().index, window, ArrayOf(kernel), ArrayOf(gradient),
                            ArrayOf(dx));
  Told("Conv2DInputGradient", dx, {&kernel, &gradient});
}

void GpuBackend::Conv2DKernelGradient(const Window2D& window, const Tensor& x,
                                      const Tensor& gradient, Tensor& dkernel) const {
  if (IsEmpty(dkernel)) return;
  math_.Conv2DKernelGradient(dkernel.device().index, window, ArrayOf(x), ArrayOf(gradient),
                             ArrayOf(dkernel));
  Told("Conv2DKernelGradient", dkernel, {&x, &gradient});
}

void GpuBackend::MaxPool(const Window2D& window, const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.MaxPool(y.device().index, window, ArrayOf(x), ArrayOf(y));
  Told("MaxPool", y, {&x});
}

void GpuBackend::MaxPoolGradient(const Window2D& window, const Tensor& x, const Tensor& y,
                                 const Tensor& gradient, Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.MaxPoolGradient(dx.device().index, window, ArrayOf(x), ArrayOf(y), ArrayOf(gradient),
                        ArrayOf(dx));
  Told("MaxPoolGradient", dx, {&x, &y, &gradient});
}

absl::Status GpuBackend::SoftmaxCrossEntropy(const Tensor& logits, const Tensor& labels,
                                             Tensor& loss, Tensor& softmax) const {
  if (IsEmpty(loss)) return absl::OkStatus();
  math_.SoftmaxCrossEntropy(loss.device().index, ArrayOf(logits), ArrayOf(labels), ArrayOf(loss),
                            ArrayOf(softmax));
  Told("SoftmaxCrossEntropy", loss, {&logits, &labels});
  return absl::OkStatus();
}

void GpuBackend::SoftmaxCrossEntropyGradient(const Tensor& labels, const Tensor& gradient,
                                             Tensor& softmax) const {
  if (IsEmpty(softmax)) return;
  math_.SoftmaxCrossEntropyGradient(softmax.device().index, ArrayOf(labels), ArrayOf(gradient),
                                    ArrayOf(softmax));
  Told("SoftmaxCrossEntropyGradient", softmax, {&labels, &gradient});
}

absl::Status GpuBackend::SigmoidCrossEntropy(const Tensor& logits, const Tensor& labels,
                                             Tensor& loss) const {
  if (IsEmpty(loss)) return absl::OkStatus();
  math_.SigmoidCrossEntropy(loss.device().index, ArrayOf(logits), ArrayOf(labels), ArrayOf(loss));
  Told("SigmoidCrossEntropy", loss, {&logits, &labels});
  return absl::OkStatus();
}

void GpuBackend::SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                             const Tensor& gradient, Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.SigmoidCrossEntropyGradient(dx.device().index, ArrayOf(logits), ArrayOf(labels),
                                    ArrayOf(gradient), ArrayOf(dx));
  Told("SigmoidCrossEntropyGradient", dx, {&logits, &labels, &gradient});
}

// ---- movement of elements, and rows ----

void GpuBackend::Cast(const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Cast(y.device().index, ArrayOf(x), ArrayOf(y));
  Told("Cast", y, {&x});
}

void GpuBackend::CopyBlocks(Device device, const void* from, int64_t from_stride, void* to,
                            int64_t to_stride, int64_t block_bytes, int64_t rows) const {
  if (block_bytes == 0 || rows == 0) return;
  for (const void* const data : {from, static_cast<const void*>(to)})
    transfers_.Arrive(device.index, data);
  math_.CopyBlocks(device.index, from, from_stride, to, to_stride, block_bytes, rows);
  Told(device.index,
       [&] { return absl::StrCat("a copy of ", rows, " blocks of ", block_bytes, " bytes"); });
}

void GpuBackend::Zero(Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Zero(y.device().index, AddressOf(y), static_cast<size_t>(y.size_bytes()));
  Told("Zero", y, {});
}

void GpuBackend::Permute(const Tensor& x, absl::Span<const int> axes, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.Permute(y.device().index, ArrayOf(x), axes.data(), ArrayOf(y));
  Told("Permute", y, {&x});
}

absl::Status GpuBackend::GatherRows(const Tensor& x, const Tensor& ids, Tensor& y) const {
  if (IsEmpty(y)) return absl::OkStatus();
  math_.GatherRows(y.device().index, ArrayOf(x), IdsOf(ids), ArrayOf(y));
  Told("GatherRows", y, {&x, &ids});
  return absl::OkStatus();
}

void GpuBackend::ScatterAddRows(const Tensor& ids, const Tensor& rows, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.ScatterAddRows(y.device().index, IdsOf(ids), ArrayOf(rows), ArrayOf(y));
  Told("ScatterAddRows", y, {&ids, &rows});
}

absl::StatusOr<IndexedSlices> GpuBackend::SumDuplicates(const IndexedSlices& slices) const {
  const int64_t n = slices.ids.shape().num_elements();
  if (n == 0) return slices;
  const Device device = slices.rows.device();
  ASSIGN_OR_RETURN(const Tensor ids, slices.ids.To(device));
  ASSIGN_OR_RETURN(Tensor unique, Tensor::Uninitialized(DType::kInt64, {n + 1}, device));
  ASSIGN_OR_RETURN(Tensor sums,
                   Tensor::Uninitialized(slices.rows.dtype(), slices.rows.shape(), device));
  math_.SumDuplicates(device.index, IdsOf(ids), ArrayOf(slices.rows), unique.fresh_data<int64_t>(),
                      ArrayOf(sums));
  Told("SumDuplicates", sums, {&ids, &slices.rows});
  ASSIGN_OR_RETURN(const Tensor here, unique.To(Device{}));
  const int64_t count = here.data_as<int64_t>()[n];
  IndexedSlices summed{{}, {}, slices.num_rows};
  ASSIGN_OR_RETURN(summed.ids, here.Rows(0, count));
  ASSIGN_OR_RETURN(summed.rows, sums.Rows(0, count));
  return summed;
}

void GpuBackend::LowerTriangles(const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.LowerTriangles(y.device().index, ArrayOf(x), ArrayOf(y));
  Told("LowerTriangles", y, {&x});
}

void GpuBackend::SymmetricFromTriangles(const Tensor& y, Tensor& x) const {
  if (IsEmpty(x)) return;
  math_.SymmetricFromTriangles(x.device().index, ArrayOf(y), ArrayOf(x));
  Told("SymmetricFromTriangles", x, {&y});
}

void GpuBackend::CombineRows(const RowLists& lists, const Tensor& x, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.CombineRows(y.device().index, ArraysOf(lists), ArrayOf(x), ArrayOf(y));
  Told("CombineRows", y, {&x});
}

void GpuBackend::SpreadRows(const RowLists& lists, const Tensor& y, Tensor& x) const {
  if (IsEmpty(x)) return;
  math_.SpreadRows(x.device().index, ArraysOf(lists), ArrayOf(y), ArrayOf(x));
  Told("SpreadRows", x, {&y});
}

void GpuBackend::ClipRows(const Tensor& x, double max_norm, Tensor& y) const {
  if (IsEmpty(y)) return;
  math_.ClipRows(y.device().index, ArrayOf(x), max_norm, ArrayOf(y));
  Told("ClipRows", y, {&x});
}

void GpuBackend::ClipRowsGradient(const Tensor& x, double max_norm, const Tensor& gradient,
                                  Tensor& dx) const {
  if (IsEmpty(dx)) return;
  math_.ClipRowsGradient(dx.device().index, ArrayOf(x), max_norm, ArrayOf(gradient), ArrayOf(dx));
  Told("ClipRowsGradient", dx, {&x, &gradient});
}

}  // namespace divvy::internal
