#include "strategy/device_sums.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/collectives.h"

namespace divvy::internal {
namespace {

// Below it a copy between GPUs takes as long as its start does.
constexpr int64_t kBytesPerPack = 4 << 20;

absl::StatusOr<Tensor> Quotient(const Tensor& sum, size_t divisor) {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(sum.device()));
  ASSIGN_OR_RETURN(const Tensor wide, Tensor::Scalar<double>(static_cast<double>(divisor)).To(sum.device()));
  ASSIGN_OR_RETURN(Tensor narrow, Tensor::Uninitialized(sum.dtype(), {}, sum.device()));
  backend->Cast(wide, narrow);
  ASSIGN_OR_RETURN(Tensor quotient, Tensor::Uninitialized(sum.dtype(), sum.shape(), sum.device()));
  backend->Binary(BinaryOp::kDivide, sum, narrow, quotient);
  return quotient;
}

}  // namespace

DeviceSums::DeviceSums(ReduceOp op, const CommunicationOptions& options)
    : op_(op),
      bytes_per_pack_(options.bytes_per_pack > 0 ? options.bytes_per_pack : kBytesPerPack),
      collectives_(options.implementation == CommunicationOptions::Implementation::kRing ? nullptr : GpuCollectives()) {}

bool DeviceSums::CanSum(absl::Span<const Tensor> values) {
  return std::all_of(values.begin(), values.end(),
                     [](const Tensor& value) { return value.device().kind == Device::Kind::kGpu && value.size_bytes() > 0 && IsFloating(value.dtype()); });
}

size_t DeviceSums::Add(std::vector<Tensor> values) {
  values_.push_back(std::move(values));
  return values_.size() - 1;
}

// In the order in which they came, a pack of each dtype at a time.
std::vector<DeviceSums::Pack> DeviceSums::MakePacks() const {
  std::vector<Pack> packs;
  std::map<DType, size_t> open;
  for (size_t number = 0; number < values_.size(); ++number) {
    const Tensor& value = values_[number][0];
    const auto found = open.find(value.dtype());
    const bool fits = found != open.end() && packs[found->second].elements * DTypeSize(value.dtype()) + value.size_bytes() <= bytes_per_pack_;
    if (!fits) {
      open[value.dtype()] = packs.size();
      packs.emplace_back();
    }
    Pack& pack = packs[open[value.dtype()]];
    pack.numbers.push_back(number);
    pack.elements += value.shape().num_elements();
  }
  return packs;
}

absl::StatusOr<Tensor> DeviceSums::Packed(const Pack& pack, size_t replica) const {
  const Tensor& first = values_[pack.numbers[0]][replica];
  if (pack.numbers.size() == 1) return first.Reshape({pack.elements});
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(first.device()));
  ASSIGN_OR_RETURN(Tensor packed, Tensor::Uninitialized(first.dtype(), {pack.elements}, first.device()));
  char* to = packed.fresh_data<char>();
  for (const size_t number : pack.numbers) {
    ASSIGN_OR_RETURN(const Tensor value, values_[number][replica].To(first.device()));
    backend->CopyBlocks(first.device(), value.data(), 0, to, 0, value.size_bytes(), 1);
    to += value.size_bytes();
  }
  return packed;
}

absl::StatusOr<Tensor> DeviceSums::SumOf(const Pack& pack, Device device) const {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(device));
  const size_t num_replicas = values_[pack.numbers[0]].size();
  std::vector<Tensor> terms;  // all on their way before the first is waited for
  for (size_t replica = 0; replica < num_replicas; ++replica) {
    ASSIGN_OR_RETURN(const Tensor packed, Packed(pack, replica));
    ASSIGN_OR_RETURN(Tensor there, packed.To(device));
    terms.push_back(std::move(there));
  }
  Tensor sum = terms[0];
  for (size_t replica = 1; replica < num_replicas; ++replica) {
    ASSIGN_OR_RETURN(Tensor next, Tensor::Uninitialized(sum.dtype(), sum.shape(), device));
    backend->Binary(BinaryOp::kAdd, sum, terms[replica], next);
    sum = std::move(next);
  }
  return op_ == ReduceOp::kMean && num_replicas > 1 ? Quotient(sum, num_replicas) : sum;
}

// The `turn`-th pack, on the GPU whose turn it is.
absl::Status DeviceSums::SumPack(size_t turn, Pack& pack) const {
  const std::vector<Tensor>& replicas = values_[pack.numbers[0]];
  ASSIGN_OR_RETURN(pack.sum, SumOf(pack, replicas[turn % replicas.size()].device()));
  pack.sum.MarkWritten();  // it may travel while others are summed
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> DeviceSums::AllReduced(const Pack& pack) const {
  if (collectives_ == nullptr) return std::vector<Tensor>();
  std::vector<Tensor> packed;
  std::set<int> gpus;
  for (size_t replica = 0; replica < values_[pack.numbers[0]].size(); ++replica) {
    ASSIGN_OR_RETURN(Tensor mine, Packed(pack, replica));
    gpus.insert(mine.device().index);
    packed.push_back(std::move(mine));
  }
  if (gpus.size() < packed.size() || packed.size() < 2) return std::vector<Tensor>();
  ASSIGN_OR_RETURN(std::vector<Tensor> sums, collectives_->AllReduce(packed));
  for (Tensor& sum : sums) {
    if (op_ == ReduceOp::kMean) {
      ASSIGN_OR_RETURN(sum, Quotient(sum, packed.size()));
    }
  }
  return sums;
}

absl::Status DeviceSums::Unpack(const Pack& pack, const Tensor& sum, std::vector<Tensor>& by_number) const {
  int64_t begin = 0;
  for (const size_t number : pack.numbers) {
    const Shape& shape = values_[number][0].shape();
    ASSIGN_OR_RETURN(const Tensor part, sum.Rows(begin, begin + shape.num_elements()));
    ASSIGN_OR_RETURN(by_number[number], part.Reshape(shape));
    begin += shape.num_elements();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> DeviceSums::OnCpu() && {
  std::vector<Pack> packs = MakePacks();
  std::vector<Tensor> sums, by_number(values_.size());
  for (size_t i = 0; i < packs.size(); ++i) {
    RETURN_IF_ERROR(SumPack(i, packs[i]));
    sums.push_back(packs[i].sum);
  }
  ASSIGN_OR_RETURN(sums, ToHost(sums));
  for (size_t i = 0; i < packs.size(); ++i) RETURN_IF_ERROR(Unpack(packs[i], sums[i], by_number));
  return by_number;
}

absl::StatusOr<std::vector<std::vector<Tensor>>> DeviceSums::OnEachGpu() && {
  std::vector<Pack> packs = MakePacks();
  std::vector<std::vector<Tensor>> of_replica(values_.empty() ? 0 : values_[0].size(), std::vector<Tensor>(values_.size()));
  for (size_t i = 0; i < packs.size(); ++i) {
    ASSIGN_OR_RETURN(std::vector<Tensor> sums, AllReduced(packs[i]));
    if (sums.empty()) RETURN_IF_ERROR(SumPack(i, packs[i]));
    for (size_t replica = 0; replica < of_replica.size(); ++replica) {
      ASSIGN_OR_RETURN(const Tensor there, sums.empty() ? packs[i].sum.To(values_[packs[i].numbers[0]][replica].device()) : sums[replica]);
      RETURN_IF_ERROR(Unpack(packs[i], there, of_replica[replica]));
    }
  }
  return of_replica;
}

}  // namespace divvy::internal
