#include "strategy/device_sums.h"

#include <map>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/collectives.h"

namespace divvy::internal {
namespace {

// A smaller copy between GPUs takes no less time, because starting it dominates.
constexpr int64_t kBytesPerPack = 4 << 20;

std::vector<int> GpusOf(absl::Span<const Tensor> values) {
  std::vector<int> gpus;
  for (const Tensor& value : values) gpus.push_back(value.device().index);
  return gpus;
}

}  // namespace

absl::StatusOr<Tensor> DeviceSums::Quotient(const Tensor& sum, size_t divisor) {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(sum.device()));
  ASSIGN_OR_RETURN(const Tensor wide,
                   Tensor::Scalar<double>(static_cast<double>(divisor)).To(sum.device()));
  ASSIGN_OR_RETURN(Tensor narrow, Tensor::Uninitialized(sum.dtype(), {}, sum.device()));
  backend->Cast(wide, narrow);
  ASSIGN_OR_RETURN(Tensor quotient, Tensor::Uninitialized(sum.dtype(), sum.shape(), sum.device()));
  backend->Binary(BinaryOp::kDivide, sum, narrow, quotient);
  return quotient;
}

DeviceSums::DeviceSums(ReduceOp op, const CommunicationOptions& options)
    : op_(op),
      bytes_per_pack_(options.bytes_per_pack > 0 ? options.bytes_per_pack : kBytesPerPack),
      collectives_(options.implementation == CommunicationOptions::Implementation::kRing
                       ? nullptr
                       : GpuCollectives()) {}

bool DeviceSums::CanSum(const Tensor& value) {
  return value.device().kind == Device::Kind::kGpu && value.size_bytes() > 0 &&
         IsFloating(value.dtype());
}

size_t DeviceSums::Add(std::vector<Tensor> values) {
  values_.push_back(std::move(values));
  return values_.size() - 1;
}

// Packs tensors in the order of Add, with one open pack for each dtype and set of GPUs.
std::vector<DeviceSums::Pack> DeviceSums::MakePacks() const {
  std::vector<Pack> packs;
  std::map<std::pair<DType, std::vector<int>>, size_t> open;
  for (size_t number = 0; number < values_.size(); ++number) {
    const Tensor& value = values_[number][0];
    const std::pair<DType, std::vector<int>> kind(value.dtype(), GpusOf(values_[number]));
    const auto found = open.find(kind);
    const bool fits =
        found != open.end() &&
        packs[found->second].elements * DTypeSize(value.dtype()) + value.size_bytes() <=
            bytes_per_pack_;
    if (!fits) {
      open[kind] = packs.size();
      packs.emplace_back();
    }
    Pack& pack = packs[open[kind]];
    pack.numbers.push_back(number);
    pack.elements += value.shape().num_elements();
  }
  return packs;
}

absl::StatusOr<Tensor> DeviceSums::Packed(const Pack& pack, size_t replica) const {
  const Tensor& first = values_[pack.numbers[0]][replica];
  if (pack.numbers.size() == 1) return first.Reshape({pack.elements});
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(first.device()));
  ASSIGN_OR_RETURN(Tensor packed,
                   Tensor::Uninitialized(first.dtype(), {pack.elements}, first.device()));
  char* to = packed.fresh_data<char>();
  for (const size_t number : pack.numbers) {
    const Tensor& value = values_[number][replica];
    backend->CopyBlocks(first.device(), value.data(), 0, to, 0, value.size_bytes(), 1);
    to += value.size_bytes();
  }
  return packed;
}

absl::Status DeviceSums::Fill(Pack& pack) const {
  for (size_t replica = 0; replica < values_[pack.numbers[0]].size(); ++replica) {
    ASSIGN_OR_RETURN(Tensor mine, Packed(pack, replica));
    pack.terms.push_back(std::move(mine));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> DeviceSums::SumOf(const Pack& pack, Device device) const {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(device));
  // All copies are started before the first one is waited for.
  std::vector<Tensor> terms;
  for (const Tensor& term : pack.terms) {
    ASSIGN_OR_RETURN(Tensor there, term.To(device));
    terms.push_back(std::move(there));
  }
  Tensor sum = terms[0];
  for (size_t replica = 1; replica < terms.size(); ++replica) {
    ASSIGN_OR_RETURN(Tensor next, Tensor::Uninitialized(sum.dtype(), sum.shape(), device));
    backend->Binary(BinaryOp::kAdd, sum, terms[replica], next);
    sum = std::move(next);
  }
  return op_ == ReduceOp::kMean && terms.size() > 1 ? Quotient(sum, terms.size()) : sum;
}

// Sums the `turn`-th pack, on the GPU whose turn it is.
absl::Status DeviceSums::SumPack(size_t turn, Pack& pack) const {
  ASSIGN_OR_RETURN(pack.sum, SumOf(pack, pack.terms[turn % pack.terms.size()].device()));
  // The sum may be copied while other sums are computed.
  pack.sum.MarkWritten();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> DeviceSums::AllReduced(const Pack& pack) const {
  const std::vector<int> gpus = GpusOf(pack.terms);
  const bool each_has_its_own = std::set<int>(gpus.begin(), gpus.end()).size() == gpus.size();
  if (collectives_ == nullptr || gpus.size() < 2 || !each_has_its_own) return std::vector<Tensor>();
  ASSIGN_OR_RETURN(std::vector<Tensor> sums, collectives_->AllReduce(pack.terms));
  for (Tensor& sum : sums) {
    if (op_ == ReduceOp::kMean) {
      ASSIGN_OR_RETURN(sum, Quotient(sum, sums.size()));
    }
  }
  return sums;
}

absl::Status DeviceSums::Unpack(const Pack& pack, const Tensor& sum,
                                std::vector<Tensor>& by_number) const {
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
    RETURN_IF_ERROR(Fill(packs[i]));
    RETURN_IF_ERROR(SumPack(i, packs[i]));
    packs[i].terms.clear();
    sums.push_back(packs[i].sum);
  }
  ASSIGN_OR_RETURN(sums, ToHost(sums));
  for (size_t i = 0; i < packs.size(); ++i) RETURN_IF_ERROR(Unpack(packs[i], sums[i], by_number));
  return by_number;
}

absl::StatusOr<std::vector<std::vector<Tensor>>> DeviceSums::OnEachGpu() && {
  std::vector<Pack> packs = MakePacks();
  std::vector<std::vector<Tensor>> of_replica(values_.empty() ? 0 : values_[0].size(),
                                              std::vector<Tensor>(values_.size()));
  for (size_t i = 0; i < packs.size(); ++i) {
    RETURN_IF_ERROR(Fill(packs[i]));
    ASSIGN_OR_RETURN(std::vector<Tensor> sums, AllReduced(packs[i]));
    if (sums.empty()) RETURN_IF_ERROR(SumPack(i, packs[i]));
    packs[i].terms.clear();
    for (size_t replica = 0; replica < of_replica.size(); ++replica) {
      ASSIGN_OR_RETURN(const Tensor there,
                       sums.empty()
                           ? packs[i].sum.To(values_[packs[i].numbers[0]][replica].device())
                           : sums[replica]);
      RETURN_IF_ERROR(Unpack(packs[i], there, of_replica[replica]));
    }
  }
  return of_replica;
}

}  // namespace divvy::internal
