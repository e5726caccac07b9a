#include "optimizers/denormals.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace divvy {

#ifdef __SSE__
namespace {
constexpr uint32_t kFlushToZero = 0x8000;       // results
constexpr uint32_t kDenormalsAreZero = 0x0040;  // operands
}  // namespace

FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}
FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }
#else
FlushDenormals::FlushDenormals() : saved_(0) {}
FlushDenormals::~FlushDenormals() = default;
#endif

}  // namespace divvy
