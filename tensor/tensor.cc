#include "tensor/tensor.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memory_pool.h"
#include "base/sanitizer.h"
#include "base/status_macros.h"
#include "tensor/device_memory.h"

namespace divvy {

namespace {

constexpr size_t kAlignment = 64;
// The alignment of small tensors that share one copy; a GPU's memory has the same alignment.
constexpr int64_t kPartAlignment = 256;
// From this size on, memory of the CPU comes from the pool of DeviceMemory if there is one.
constexpr int64_t kPooledBytes = 64 << 10;

#ifdef DIVVY_SANITIZER
// The sanitizers check blocks of the C library: use after free, and access beyond the end.
constexpr bool kKeepsHostMemory = false;
#else
constexpr bool kKeepsHostMemory = true;
#endif

// Owned memory and where it came from: DeviceMemory, else MemoryPool if `pooled_bytes` is not 0,
// else the C library.
struct Block {
  void* data = nullptr;
  DeviceMemory* memory = nullptr;
  size_t pooled_bytes = 0;
};

}  // namespace

// Memory that several handles may share. Owned memory is aligned for vector loads.
struct Tensor::Buffer {
  Buffer(Block block, Device device, std::function<void()> release)
      : block(block), device(device), release(std::move(release)) {}
  ~Buffer() {
    if (release) {
      release();
    } else if (block.pooled_bytes > 0) {
      MemoryPool::Process().Return(block.data, block.pooled_bytes);
    } else if (block.memory == nullptr) {
      std::free(block.data);
    } else if (device.kind == Device::Kind::kCpu) {
      block.memory->FreeHost(block.data);
    } else {
      block.memory->Free(device, block.data);
    }
  }
  bool borrowed() const { return static_cast<bool>(release); }
  // The address in the origin that corresponds to `there`. Null: there is no origin.
  const char* OriginOf(const void* there) const {
    return origin == nullptr || there == nullptr
               ? nullptr
               : origin_data +
                     (static_cast<const char*>(there) - static_cast<const char*>(block.data));
  }

  const Block block;
  const Device device;
  const std::function<void()> release;
  std::shared_ptr<const DeviceMark> written;  // by std::atomic_load and atomic_store
  // On a GPU, for integers: the buffer that the value was copied from. Null: there is none. The CPU
  // often needs the ids and labels of a batch too, for lookups; it then uses the origin.
  std::shared_ptr<Buffer> origin;
  const char* origin_data = nullptr;
  // The note, and the address of its values. Accessed by std::atomic_load and std::atomic_store.
  std::shared_ptr<const std::pair<const void*, std::shared_ptr<const TensorNote>>> note;
};

namespace {

absl::Status CheckStorable(DType dtype, const Shape& shape) {
  RETURN_IF_ERROR(shape.status());
  if (dtype >= DType::kComplex64)
    return absl::InvalidArgumentError(absl::StrCat("tensors do not hold ", DTypeName(dtype)));
  if (shape.num_elements() < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", shape.ToString(), " has an unknown dimension (-1)"));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SizeBytes(DType dtype, const Shape& shape) {
  int64_t bytes;
  if (__builtin_mul_overflow(shape.num_elements(), DTypeSize(dtype), &bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("a tensor of ", DTypeName(dtype), " ",
                                                     shape.ToString(), " does not fit in memory"));
  }
  return bytes;
}

absl::StatusOr<Block> Allocate(Device device, int64_t bytes, const Tensor& tensor) {
  if (device.kind == Device::Kind::kGpu) {
    ASSIGN_OR_RETURN(DeviceMemory* const memory, GpuMemory());
    ASSIGN_OR_RETURN(void* const there, memory->Allocate(device, bytes));
    return Block{there, memory};
  }
  if (bytes >= kPooledBytes) {
    DeviceMemory* const memory = GpuMemoryIfAny();
    void* const pooled = memory == nullptr ? nullptr : memory->AllocateHost(bytes);
    if (pooled != nullptr) return Block{pooled, memory};
  }
  const size_t size = static_cast<size_t>(bytes);
  const size_t pooled_bytes = kKeepsHostMemory && size >= MemoryPool::kSmallest ? size : 0;
  void* const data =
      pooled_bytes > 0
          ? MemoryPool::Process().Take(pooled_bytes)
          : std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a tensor of ", tensor.ToString(), " (", bytes, " bytes)"));
  return Block{data, nullptr, pooled_bytes};
}

}  // namespace

std::string Device::ToString() const {
  return absl::StrCat(kind == Kind::kCpu ? "CPU:" : "GPU:", index);
}

Tensor::Tensor() = default;

Device Tensor::device() const { return buffer_ == nullptr ? Device{} : buffer_->device; }

absl::StatusOr<Tensor> Tensor::Uninitialized(DType dtype, Shape shape, Device device) {
  RETURN_IF_ERROR(CheckStorable(dtype, shape));
  ASSIGN_OR_RETURN(const int64_t bytes, SizeBytes(dtype, shape));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  // A tensor without elements has no memory, but still a device: computations from this tensor run
  // on that GPU.
  if (bytes == 0) {
    if (device.kind == Device::Kind::kGpu)
      tensor.buffer_ = std::make_shared<Buffer>(Block(), device, [] {});
    return tensor;
  }
  ASSIGN_OR_RETURN(const Block block, Allocate(device, bytes, tensor));
  tensor.buffer_ = std::make_shared<Buffer>(block, device, nullptr);
  tensor.data_ = block.data;
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Zeros(DType dtype, Shape shape) {
  ASSIGN_OR_RETURN(Tensor tensor, Uninitialized(dtype, shape));
  if (tensor.size_bytes() > 0) std::memset(tensor.fresh_data<char>(), 0, tensor.size_bytes());
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Borrow(DType dtype, Shape shape, const void* data, Device device,
                                      std::function<void()> release) {
  RETURN_IF_ERROR(CheckStorable(dtype, shape));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  if (!release) release = [] {};
  tensor.buffer_ =
      std::make_shared<Buffer>(Block{const_cast<void*>(data)}, device, std::move(release));
  if (tensor.size_bytes() > 0) tensor.data_ = data;
  return tensor;
}

template <typename T>
Tensor Tensor::Scalar(T value) {
  return *Copy<T>(Shape(), absl::MakeConstSpan(&value, 1));
}

template <typename T>
Tensor Tensor::Vector(absl::Span<const T> values) {
  return *Copy<T>(Shape{static_cast<int64_t>(values.size())}, values);
}

template <typename T>
absl::StatusOr<Tensor> Tensor::Copy(Shape shape, absl::Span<const T> values) {
  RETURN_IF_ERROR(CheckStorable(DTypeOf<T>::value, shape));
  if (shape.num_elements() != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", shape.ToString(), " wants ",
                                                   shape.num_elements(), " values, not ",
                                                   values.size()));
  }
  ASSIGN_OR_RETURN(Tensor tensor, Uninitialized(DTypeOf<T>::value, shape));
  if (!values.empty())
    std::memcpy(tensor.fresh_data<T>(), values.data(), values.size() * sizeof(T));
  return tensor;
}

absl::Status Tensor::CheckReadable(DType wanted) const {
  if (dtype_ != wanted)
    return absl::InvalidArgumentError(
        absl::StrCat("the tensor is ", ToString(), "; wanted ", DTypeName(wanted)));
  if (device().kind != Device::Kind::kCpu)
    return absl::InvalidArgumentError(
        absl::StrCat("the tensor is on ", device().ToString(), ": use To(Device()) first"));
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<T> Tensor::scalar() const {
  ASSIGN_OR_RETURN(absl::Span<const T> all, values<T>());
  if (all.size() != 1)
    return absl::InvalidArgumentError(absl::StrCat("wanted one element, not ", ToString()));
  return all[0];
}

template <typename T>
absl::StatusOr<absl::Span<const T>> Tensor::values() const {
  RETURN_IF_ERROR(CheckReadable(DTypeOf<T>::value));
  return absl::MakeConstSpan(data_as<T>(), shape_.num_elements());
}

absl::Status Tensor::MakeUnique() {
  if (buffer_ == nullptr) return absl::OkStatus();
  if (buffer_.use_count() == 1 && !buffer_->borrowed()) {
    std::atomic_store(&buffer_->note, {});  // its values are about to change
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor copy, Uninitialized(dtype_, shape_));
  if (copy.data_ != nullptr) std::memcpy(copy.fresh_data<char>(), data_, size_bytes());
  *this = std::move(copy);
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<absl::Span<T>> Tensor::mutable_values() {
  RETURN_IF_ERROR(CheckReadable(DTypeOf<T>::value));
  RETURN_IF_ERROR(MakeUnique());
  return absl::MakeSpan(fresh_data<T>(), shape_.num_elements());
}

absl::StatusOr<Tensor> Tensor::To(Device device) const {
  if (device == this->device()) return *this;
  if (size_bytes() == 0) return Uninitialized(dtype_, shape_, device);
  if (device.kind == Device::Kind::kCpu) {
    ASSIGN_OR_RETURN(std::vector<Tensor> here, ToHost({*this}));
    return std::move(here[0]);
  }
  ASSIGN_OR_RETURN(DeviceMemory* const memory, GpuMemory());
  const bool from_cpu = this->device().kind == Device::Kind::kCpu;
  // Borrowed memory returns to its owner after the copy, so it cannot be an origin.
  const bool has_origin =
      (dtype_ == DType::kInt64 || dtype_ == DType::kInt32) && !buffer_->borrowed();
  absl::StatusOr<void*> data;
  if (!from_cpu) {
    data = memory->CopyAcross(device, {this->device(), data_, nullptr, size_bytes(),
                                       std::atomic_load(&buffer_->written)});
  } else if (has_origin && TravelScope::Now() == Travel::kIntegersWhenUsed) {
    data = memory->UploadWhenUsed(device, data_, size_bytes(), buffer_);
  } else {
    data = memory->Upload(device, data_, size_bytes(), buffer_);
  }
  RETURN_IF_ERROR(data.status());
  Tensor there;
  there.dtype_ = dtype_;
  there.shape_ = shape_;
  there.buffer_ = std::make_shared<Buffer>(Block{*data, memory}, device, nullptr);
  there.data_ = *data;
  if (!has_origin) return there;
  there.buffer_->origin = from_cpu ? buffer_ : buffer_->origin;
  there.buffer_->origin_data = from_cpu ? data_as<char>() : buffer_->OriginOf(data_);
  return there;
}

void Tensor::MarkWritten() const {
  if (device().kind == Device::Kind::kCpu) return;
  if (DeviceMemory* const memory = GpuMemoryIfAny())
    std::atomic_store(&buffer_->written, memory->Mark(device()));
}

absl::StatusOr<std::vector<Tensor>> ToHost(absl::Span<const Tensor> tensors) {
  std::vector<Tensor> here(tensors.begin(), tensors.end());
  std::vector<Download> values;
  for (Tensor& tensor : here) {
    if (tensor.device().kind == Device::Kind::kCpu) continue;
    const Tensor there = tensor;
    if (const char* const origin = there.buffer_->OriginOf(there.data_)) {
      tensor.data_ = origin;
      tensor.buffer_ = there.buffer_->origin;
      continue;
    }
    ASSIGN_OR_RETURN(tensor, Tensor::Uninitialized(there.dtype(), there.shape()));
    if (there.size_bytes() == 0) continue;
    values.push_back({there.device(), there.data(), tensor.fresh_data<void>(), there.size_bytes(),
                      std::atomic_load(&there.buffer_->written)});
  }
  if (values.empty()) return here;
  ASSIGN_OR_RETURN(DeviceMemory* const memory, GpuMemory());
  RETURN_IF_ERROR(memory->Bring(values));
  return here;
}

// The tensor at `offset` of a packed copy, which has this tensor's values.
Tensor Tensor::PartOf(const Tensor& packed, int64_t offset) const {
  Tensor part;
  part.dtype_ = dtype_;
  part.shape_ = shape_;
  part.data_ = static_cast<const char*>(packed.data_) + offset;
  part.buffer_ =
      std::make_shared<Buffer>(Block{const_cast<void*>(part.data_)}, packed.device(), [packed] {});
  if ((dtype_ != DType::kInt64 && dtype_ != DType::kInt32) || buffer_->borrowed()) return part;
  part.buffer_->origin = buffer_;
  part.buffer_->origin_data = data_as<char>();
  return part;
}

absl::StatusOr<std::vector<Tensor>> ToDevice(absl::Span<const Tensor> tensors, Device device) {
  std::vector<Tensor> there(tensors.begin(), tensors.end());
  // The index in `tensors`, and the offset in the packed copy, of each small tensor.
  std::vector<std::pair<size_t, int64_t>> small;
  int64_t packed_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].size_bytes();
    if (device.kind != Device::Kind::kGpu || tensors[i].device().kind != Device::Kind::kCpu ||
        bytes == 0 || bytes >= kPooledBytes)
      continue;
    small.emplace_back(i, packed_bytes);
    packed_bytes += (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  if (small.size() > 1) {
    ASSIGN_OR_RETURN(Tensor pack, Tensor::Uninitialized(DType::kUInt8, {packed_bytes}));
    for (const auto& [i, offset] : small)
      std::memcpy(pack.fresh_data<char>() + offset, tensors[i].data(), tensors[i].size_bytes());
    ASSIGN_OR_RETURN(pack, pack.To(device));
    for (const auto& [i, offset] : small) there[i] = tensors[i].PartOf(pack, offset);
  }
  for (Tensor& tensor : there) {
    ASSIGN_OR_RETURN(tensor, tensor.To(device));
  }
  return there;
}

void Tensor::SetNote(std::shared_ptr<const TensorNote> note) const {
  if (buffer_ == nullptr) return;
  std::atomic_store(
      &buffer_->note,
      std::make_shared<const std::pair<const void*, std::shared_ptr<const TensorNote>>>(
          data_, std::move(note)));
}

std::shared_ptr<const TensorNote> Tensor::note() const {
  if (buffer_ == nullptr) return nullptr;
  const auto noted = std::atomic_load(&buffer_->note);
  return noted != nullptr && noted->first == data_ ? noted->second : nullptr;
}

absl::StatusOr<Tensor> Tensor::Reshape(Shape shape) const {
  RETURN_IF_ERROR(shape.status());
  const int64_t elements = shape_.num_elements();
  std::array<int64_t, Shape::kMaxRank> dims{};
  int64_t known = 1;
  int inferred = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    dims[axis] = shape.dim(axis);
    if (dims[axis] >= 0) {
      known *= dims[axis];
    } else if (inferred >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Reshape to ", shape.ToString(), ": only one dimension may be -1"));
    } else {
      inferred = axis;
    }
  }
  if (inferred >= 0 && known > 0) dims[inferred] = elements / known;
  const Shape wanted =
      inferred >= 0 ? Shape(absl::MakeConstSpan(dims.data(), shape.rank())) : shape;
  if (wanted.num_elements() != elements) {
    return absl::InvalidArgumentError(
        absl::StrCat("Reshape: ", shape_.ToString(), " has ", elements,
                     " elements, which do not fit the shape ", shape.ToString()));
  }
  Tensor result = *this;
  result.shape_ = wanted;
  return result;
}

absl::StatusOr<Tensor> Tensor::Rows(int64_t begin, int64_t end) const {
  if (shape_.rank() == 0)
    return absl::InvalidArgumentError("Rows: a scalar has no axis to take rows from");
  if (begin < 0 || end < begin || end > shape_.dim(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows [", begin, ", ", end, ") of ", shape_.ToString()));
  }
  Tensor result = *this;
  result.shape_ = shape_.WithRows(end - begin);
  const bool bytes = result.size_bytes() > 0;
  result.data_ =
      bytes ? static_cast<const char*>(data_) + begin * shape_.row_elements() * DTypeSize(dtype_)
            : nullptr;
  return result;
}

std::string Tensor::ToString() const {
  return absl::StrCat(DTypeName(dtype_), " ", shape_.ToString());
}

bool BitwiseEqual(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.device().kind != Device::Kind::kCpu || b.device().kind != Device::Kind::kCpu) return false;
  return a.size_bytes() == 0 || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

absl::Status Validate(const IndexedSlices& slices) {
  if (slices.num_rows < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("IndexedSlices: num_rows is ", slices.num_rows, "; it must be at least 0"));
  ASSIGN_OR_RETURN(absl::Span<const int64_t> ids, slices.ids.values<int64_t>());
  if (slices.ids.shape().rank() != 1 || slices.rows.shape().rank() < 1 ||
      slices.rows.shape().dim(0) != slices.ids.shape().dim(0)) {
    return absl::InvalidArgumentError(absl::StrCat("IndexedSlices: ids ", slices.ids.ToString(),
                                                   " and rows ", slices.rows.ToString(),
                                                   " do not fit: want [n] and [n, ...]"));
  }
  if (slices.num_rows == IndexedSlices::kAnyId) return absl::OkStatus();
  for (const int64_t id : ids) {
    if (id < 0 || id >= slices.num_rows)
      return absl::InvalidArgumentError(
          absl::StrCat("IndexedSlices: id ", id, " is outside [0, ", slices.num_rows, ")"));
  }
  return absl::OkStatus();
}

absl::Status ValidateRowSplits(const Tensor& row_splits, int64_t n) {
  ASSIGN_OR_RETURN(absl::Span<const int64_t> splits, row_splits.values<int64_t>());
  if (row_splits.shape().rank() != 1 || splits.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_splits ", row_splits.ToString(), ": want [batch + 1]"));
  }
  bool rising = splits.front() == 0 && splits.back() == n;
  for (size_t i = 1; i < splits.size(); ++i) rising = rising && splits[i - 1] <= splits[i];
  return rising ? absl::OkStatus()
                : absl::InvalidArgumentError(absl::StrCat("row_splits must rise from 0 to ", n));
}

absl::Status Validate(const SparseIds& sparse) {
  ASSIGN_OR_RETURN(absl::Span<const int64_t> ids, sparse.ids.values<int64_t>());
  if (sparse.ids.shape().rank() != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("SparseIds: ids ", sparse.ids.ToString(), ": want [n]"));
  if (const absl::Status status =
          ValidateRowSplits(sparse.row_splits, static_cast<int64_t>(ids.size()));
      !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("SparseIds: ", status.message(), ", for ids ", sparse.ids.ToString()));
  }
  if (sparse.weights && (sparse.weights->dtype() != DType::kFloat32 ||
                         sparse.weights->shape() != sparse.ids.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat("SparseIds: weights ", sparse.weights->ToString(), " do not fit ids ",
                     sparse.ids.ToString(), ": want float32, one for each id"));
  }
  return absl::OkStatus();
}

#define DIVVY_INSTANTIATE(T)                                                   \
  template Tensor Tensor::Scalar<T>(T);                                        \
  template Tensor Tensor::Vector<T>(absl::Span<const T>);                      \
  template absl::StatusOr<Tensor> Tensor::Copy<T>(Shape, absl::Span<const T>); \
  template absl::StatusOr<T> Tensor::scalar<T>() const;                        \
  template absl::StatusOr<absl::Span<const T>> Tensor::values<T>() const;      \
  template absl::StatusOr<absl::Span<T>> Tensor::mutable_values<T>();
DIVVY_INSTANTIATE(bool)
DIVVY_INSTANTIATE(int8_t)
DIVVY_INSTANTIATE(uint8_t)
DIVVY_INSTANTIATE(int32_t)
DIVVY_INSTANTIATE(int64_t)
DIVVY_INSTANTIATE(Half)
DIVVY_INSTANTIATE(BFloat16)
DIVVY_INSTANTIATE(float)
DIVVY_INSTANTIATE(double)
#undef DIVVY_INSTANTIATE

}  // namespace divvy
