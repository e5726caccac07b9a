#include "base/vector_level.h"

#include <atomic>

namespace divvy {
namespace {

// An early processor with AVX-512 lowers its clock for vectors of 64 bytes, and gains nothing. All
// without that fault have VNNI.
VectorLevel Detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  if (avx512) return VectorLevel::kAvx512;
  if (avx2) return VectorLevel::kAvx2;
#endif
  return VectorLevel::kBase;
}

std::atomic<VectorLevel>& Level() {
  static std::atomic<VectorLevel> level{BestVectorLevel()};
  return level;
}

}  // namespace

VectorLevel BestVectorLevel() {
  static const VectorLevel best = Detect();
  return best;
}

VectorLevel CurrentVectorLevel() { return Level().load(std::memory_order_relaxed); }

void SetVectorLevel(VectorLevel level) { Level().store(level, std::memory_order_relaxed); }

const char* VectorLevelName(VectorLevel level) {
  switch (level) {
    case VectorLevel::kAvx512: return "avx512";
    case VectorLevel::kAvx2: return "avx2";
    case VectorLevel::kBase: break;
  }
  return "base";
}

}  // namespace divvy
