// GpuBackend: the GPUs of this process, behind the interfaces of ops/ and tensor/.
#ifndef DIVVY_OPS_CUDA_GPU_BACKEND_H_
#define DIVVY_OPS_CUDA_GPU_BACKEND_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "ops/backend.h"
#include "ops/collectives.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/transfers.h"
#include "tensor/device_memory.h"

namespace divvy::internal {

// Translates operations on tensors into calls of a device's library. Devices compute
// asynchronously: the next Bring from a device returns InvalidArgument for an id or a label out of
// range, and an error if an operation found too little memory for its own work.
class GpuBackend : public Backend, public DeviceMemory, public Collectives {
 public:
  // `limit_bytes` limits the memory of each device for tensors; 0: no limit. `synchronous` waits
  // for the device after each operation, so that an error names the operation that caused it, with
  // dtypes and shapes. This is slow. REQUIRES: the devices of `math` do not change any more.
  explicit GpuBackend(cuda::DeviceMath& math, int64_t limit_bytes = 0,
                      const cuda::TransferOptions& transfers = {}, bool synchronous = false);
  ~GpuBackend() override;

  // ResourceExhausted also means that the limit is reached.
  absl::StatusOr<void*> Allocate(Device device, int64_t bytes) override;
  void Free(Device device, void* data) override;
  absl::StatusOr<void*> Upload(Device device, const void* from, int64_t bytes,
                               std::shared_ptr<const void> owner) override;
  absl::StatusOr<void*> UploadWhenUsed(Device device, const void* from, int64_t bytes,
                                       std::shared_ptr<const void> owner) override;
  absl::StatusOr<void*> CopyAcross(Device device, const Download& from) override;
  absl::Status Bring(absl::Span<const Download> values) override;
  std::shared_ptr<const DeviceMark> Mark(Device device) override;
  DeviceFailures FindFailures(Device device) override;
  void* AllocateHost(int64_t bytes) override;
  void FreeHost(void* data) override;

  // Frees the device's memory that is cached and unused.
  void Trim(int device) const { transfers_.Trim(device); }

  int64_t limit_bytes() const { return limit_bytes_; }
  // The bytes of a device that tensors hold, if there is a limit; else 0.
  int64_t bytes_in_use(int device) const {
    MutexLock lock(mu_);
    return in_use_[device].bytes;
  }

  absl::StatusOr<std::vector<Tensor>> AllReduce(absl::Span<const Tensor> values) const override;

  void Unary(UnaryOp op, const Tensor& x, Tensor& y) const override;
  void UnaryGradient(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                     Tensor& dx) const override;
  void UnaryGradientAndSums(UnaryOp op, const Tensor& kept, const Tensor& gradient, Tensor& dx,
                            Tensor& sums) const override;
  void Binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const override;
  void AddThen(UnaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const override;
  void Broadcast(const Tensor& x, double scale, Tensor& y) const override;
  void SumTo(const Tensor& x, double scale, Tensor& y) const override;
  void MaxTo(const Tensor& x, Tensor& y) const override;
  absl::StatusOr<std::vector<double>> SumsOfSquares(absl::Span<const Tensor> values) const override;
  void Dropout(uint64_t key, double rate, const Tensor& x, Tensor& y) const override;
  void MatMul(const MatMulArgs& args, const Tensor& a, const Tensor& b, Tensor& c) const override;
  void Softmax(const Tensor& x, Tensor& y) const override;
  void SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const override;
  void Normalize(Norm norm, double epsilon, const Tensor& x, Tensor& y) const override;
  void NormalizeGradient(Norm norm, double epsilon, const Tensor& x, const Tensor& gradient,
                         Tensor& dx) const override;
  void Conv2D(const Window2D& window, const Tensor& x, const Tensor& kernel,
              Tensor& y) const override;
  void Conv2DInputGradient(const Window2D& window, const Tensor& kernel, const Tensor& gradient,
                           Tensor& dx) const override;
  void Conv2DKernelGradient(const Window2D& window, const Tensor& x, const Tensor& gradient,
                            Tensor& dkernel) const override;
  void MaxPool(const Window2D& window, const Tensor& x, Tensor& y) const override;
  void MaxPoolGradient(const Window2D& window, const Tensor& x, const Tensor& y,
                       const Tensor& gradient, Tensor& dx) const override;
  absl::Status SoftmaxCrossEntropy(const Tensor& logits, const Tensor& labels, Tensor& loss,
                                   Tensor& softmax) const override;
  void SoftmaxCrossEntropyGradient(const Tensor& labels, const Tensor& gradient,
                                   Tensor& softmax) const override;
  absl::Status SigmoidCrossEntropy(const Tensor& logits, const Tensor& labels,
                                   Tensor& loss) const override;
  void SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                   const Tensor& gradient, Tensor& dx) const override;
  void Cast(const Tensor& x, Tensor& y) const override;
  void CopyBlocks(Device device, const void* from, int64_t from_stride, void* to, int64_t to_stride,
                  int64_t block_bytes, int64_t rows) const override;
  void Zero(Tensor& y) const override;
  void Permute(const Tensor& x, absl::Span<const int> axes, Tensor& y) const override;
  absl::Status GatherRows(const Tensor& x, const Tensor& ids, Tensor& y) const override;
  void ScatterAddRows(const Tensor& ids, const Tensor& rows, Tensor& y) const override;
  absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices) const override;
  void LowerTriangles(const Tensor& x, Tensor& y) const override;
  void SymmetricFromTriangles(const Tensor& y, Tensor& x) const override;
  void CombineRows(const RowLists& lists, const Tensor& x, Tensor& y) const override;
  void SpreadRows(const RowLists& lists, const Tensor& y, Tensor& x) const override;
  void ClipRows(const Tensor& x, double max_norm, Tensor& y) const override;
  void ClipRowsGradient(const Tensor& x, double max_norm, const Tensor& gradient,
                        Tensor& dx) const override;

 private:
  // The blocks of a device that tensors hold, if there is a limit.
  struct InUse {
    int64_t bytes = 0;
    std::map<void*, int64_t> blocks;
  };
  std::string NameOf(int device) const;  // "GPU:0 (NVIDIA H200)"
  // The status for an error of the device: ResourceExhausted, Unavailable if the device is lost, or
  // Internal with the device's own words. Also counts the failure.
  absl::Status DeviceError(int device, absl::string_view error) const;
  absl::Status FaultError(int device, const cuda::Fault& fault) const;
  absl::Status Lost(int device, absl::string_view error) const;
  absl::Status NoMemory(int device, int64_t bytes) const;
  absl::Status Counted(int device, const absl::Status& failure) const;
  absl::Status Reserve(Device device, int64_t bytes);
  // Reserves `bytes` of a device's memory, and allocates them by calling `get`.
  template <typename Get>
  absl::StatusOr<void*> Obtain(Device device, int64_t bytes, Get get);
  template <typename Get>
  absl::StatusOr<void*> TryToObtain(Device device, int64_t bytes, Get get);

  const char* Blamed(absl::FunctionRef<std::string()> operation, const char* error) const;
  // Call it after each operation that was issued to a device.
  void Told(int device, absl::FunctionRef<std::string()> operation) const;
  void Told(const char* operation, const Tensor& result,
            std::initializer_list<const Tensor*> operands) const;

  // Every address for a computation on the device comes from one of these: if the tensor is still
  // being copied, they make the device wait for it.
  void* AddressOf(const Tensor& tensor) const;
  const int64_t* IdsOf(const Tensor& ids) const;
  cuda::Array ArrayOf(const Tensor& tensor) const;
  cuda::Array ArrayOrNumberOf(const Tensor& tensor) const;
  cuda::RowListArrays ArraysOf(const RowLists& lists) const;

  cuda::DeviceMath& math_;
  const int64_t limit_bytes_;
  const bool synchronous_;
  mutable Mutex mu_;
  std::vector<InUse> in_use_ DIVVY_GUARDED_BY(mu_);
  mutable std::vector<DeviceFailures> failures_ DIVVY_GUARDED_BY(mu_);
  mutable std::set<std::string> kept_ DIVVY_GUARDED_BY(mu_);  // texts of errors; few, never freed
  mutable cuda::Transfers transfers_;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CUDA_GPU_BACKEND_H_
