#include "ops/cuda/testing/tensor_program.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tensor/device_memory.h"

namespace divvy::internal {

Tensor Filled(int64_t n, float value) {
  Tensor filled = *Tensor::Uninitialized(DType::kFloat32, Shape{n});
  std::fill_n(filled.fresh_data<float>(), n, value);
  return filled;
}

bool AllAre(const Tensor& tensor, float value) {
  const absl::Span<const float> values = *tensor.values<float>();
  return std::all_of(values.begin(), values.end(), [=](float x) { return x == value; });
}

void TensorProgram::Run(int steps) {
  for (int i = 0; i < steps; ++i) {
    switch (random_.Below(10)) {
      case 0:
      case 1: Upload(); break;
      case 8: UploadIntegers(); break;
      case 9: UseIntegers(); break;
      case 2: CopyAcross(); break;
      case 3: Forget(); break;
      case 4: Bring(); break;
      default: Add(); break;
    }
    if (random_.Chance(0.3) && !there_.empty()) Any().tensor.MarkWritten();
  }
  Bring();
}

// Some sizes are in pinned memory of the host, some are copied in pieces, some are small.
int64_t TensorProgram::AnySize() {
  return std::vector<int64_t>{5, 700, 20'000, 20'000,
                              1'500'000}[random_.Below(random_.Chance(0.03) ? 5 : 4)];
}

void TensorProgram::Upload() {
  const auto value = static_cast<float>(random_.Below(1000));
  Tensor here = Filled(AnySize(), value);
  there_.push_back({*here.To(AnyDevice()), value});
  (*here.mutable_values<float>())[0] = -1;  // no device sees it
}

void TensorProgram::UploadIntegers() {
  const auto value = static_cast<int64_t>(random_.Below(1000));
  // Of a size that was used before, or of another size.
  const int64_t n =
      random_.Chance(0.3) ? AnySize() : 10'000 + static_cast<int64_t>(random_.Below(50'000));
  Tensor here = Tensor::Vector<int64_t>(std::vector<int64_t>(static_cast<size_t>(n), value));
  const TravelScope scope(random_.Chance(0.8) ? Travel::kIntegersWhenUsed : Travel::kNow);
  integers_.push_back({*here.To(AnyDevice()), static_cast<float>(value)});
  (*here.mutable_values<int64_t>())[0] = -1;  // no device sees it
}

// Some integers are dropped before they are used; some are used again, or on another device.
void TensorProgram::UseIntegers() {
  if (integers_.empty()) return;
  const auto chosen =
      integers_.begin() + static_cast<std::ptrdiff_t>(random_.Below(integers_.size()));
  if (random_.Chance(0.5)) {
    const Tensor from = random_.Chance(0.3) ? *chosen->tensor.To(AnyDevice()) : chosen->tensor;
    Tensor used = *Tensor::Uninitialized(DType::kFloat32, from.shape(), from.device());
    backend_.Cast(from, used);
    there_.push_back({std::move(used), chosen->value});
  }
  if (random_.Chance(0.5)) integers_.erase(chosen);
}

void TensorProgram::CopyAcross() {
  if (there_.empty()) return;
  const Value from = Any();
  there_.push_back({*from.tensor.To(AnyDevice()), from.value});
}

void TensorProgram::Add() {
  if (there_.empty()) return;
  const Value a = Any(), b = Any();
  if (a.tensor.device() != b.tensor.device() || a.tensor.shape() != b.tensor.shape()) return;
  Tensor sum = *Tensor::Uninitialized(DType::kFloat32, a.tensor.shape(), a.tensor.device());
  backend_.Binary(BinaryOp::kAdd, a.tensor, b.tensor, sum);
  there_.push_back({std::move(sum), a.value + b.value});
}

void TensorProgram::Forget() {
  if (!there_.empty())
    there_.erase(there_.begin() + static_cast<std::ptrdiff_t>(random_.Below(there_.size())));
}

void TensorProgram::Bring() {
  std::vector<Tensor> some;
  std::vector<float> values;
  for (const Value& value : there_) {
    if (random_.Chance(0.5)) continue;
    some.push_back(value.tensor);
    values.push_back(value.value);
  }
  const absl::StatusOr<std::vector<Tensor>> here = ToHost(some);
  ASSERT_TRUE(here.ok()) << here.status();
  for (size_t i = 0; i < some.size(); ++i)
    ASSERT_TRUE(AllAre((*here)[i], values[i])) << some[i].ToString() << " of " << values[i];
}

}  // namespace divvy::internal
