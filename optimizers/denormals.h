// FlushDenormals: treats denormal floats as 0 within a scope.
#ifndef DIVVY_OPTIMIZERS_DENORMALS_H_
#define DIVVY_OPTIMIZERS_DENORMALS_H_

#include <cstdint>

namespace divvy {

// While it lives, float arithmetic of *this thread* reads and writes denormals as 0 (SSE: flush to
// zero, denormals are zero). Decaying gradients and slots become denormal, and x86 computes with
// denormals many times slower. TensorFlow's threads do the same. Scopes nest; the destructor
// restores the former setting. Does nothing on processors without SSE. Create and destroy it on one
// thread, for example around each block task of a parameter server:
//
//   FlushDenormals flush;
//   ApplyDense(step, block, gradient);
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_DENORMALS_H_
