#include "worker/core/element_digest.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/crc32c.h"
#include "base/random.h"

namespace divvy {
namespace {

// The most values of a floating-point tensor that count. The limit bounds the time that a worker
// spends on them at the begin of each pass.
constexpr int64_t kMostFloats = int64_t{1} << 20;

class Digester {
 public:
  void Add(const Nest& nest) {
    switch (nest.kind()) {
      case Nest::Kind::kTensor: return AddTensor(*nest.tensor());
      case Nest::Kind::kText: return AddBytes(*nest.text());
      case Nest::Kind::kIndexedSlices: {
        const IndexedSlices slices = *nest.indexed_slices();
        AddTensor(slices.ids);
        return AddTensor(slices.rows);
      }
      case Nest::Kind::kList:
        for (const Nest& child : *nest.list()) Add(child);
        return Mix(nest.size());
      case Nest::Kind::kDict:
        for (const auto& [key, child] : *nest.dict()) {
          AddBytes(key);
          Add(child);
        }
        return Mix(nest.size());
      case Nest::Kind::kHandle:
      case Nest::Kind::kFailed: return;
    }
  }
  ElementDigest digest() const { return digest_; }

 private:
  void Mix(uint64_t value) { digest_.exact = MixSeeds(digest_.exact, value); }
  void AddBytes(absl::string_view bytes) {
    Mix(bytes.size());
    Mix(Crc32c(bytes));
  }
  void AddTensor(const Tensor& tensor) {
    Mix(static_cast<uint64_t>(tensor.dtype()));
    for (int axis = 0; axis < tensor.shape().rank(); ++axis)
      Mix(static_cast<uint64_t>(tensor.shape().dim(axis)));
    if (tensor.device().kind != Device::Kind::kCpu) return;
    switch (tensor.dtype()) {
      case DType::kFloat32:
        return AddFloats<float>(tensor, [](float value) { return static_cast<double>(value); });
      case DType::kFloat64: return AddFloats<double>(tensor, [](double value) { return value; });
      case DType::kFloat16:
        return AddFloats<Half>(tensor,
                               [](Half value) { return static_cast<double>(value.ToFloat()); });
      case DType::kBFloat16:
        return AddFloats<BFloat16>(
            tensor, [](BFloat16 value) { return static_cast<double>(value.ToFloat()); });
      default: return AddBytes({tensor.data_as<char>(), static_cast<size_t>(tensor.size_bytes())});
    }
  }

  template <typename T>
  void AddFloats(const Tensor& tensor, double (*to_double)(T)) {
    const T* const values = tensor.data_as<T>();
    const int64_t count = std::min(tensor.shape().num_elements(), kMostFloats);
    for (int64_t i = 0; i < count; ++i) {
      const double value = to_double(values[i]);
      const uint64_t place = MixSeeds(++floats_, 1);
      if (!std::isfinite(value) || std::abs(value) > 1e290) {  // so that no sum overflows
        Mix(place);
        continue;
      }
      const double weight = static_cast<double>(place >> 11) * 0x1.0p-52 - 1;  // in [-1, 1)
      digest_.projection += weight * value;
      digest_.magnitude += std::abs(value);
    }
  }

  ElementDigest digest_;
  uint64_t floats_ = 0;
};

}  // namespace

ElementDigest DigestOf(const Nest& element) {
  Digester digester;
  digester.Add(element);
  return digester.digest();
}

}  // namespace divvy
