// Denormal floats off, for as long as a scope lasts.
#ifndef DIVVY_OPTIMIZERS_DENORMALS_H_
#define DIVVY_OPTIMIZERS_DENORMALS_H_

#include <cstdint>

namespace divvy {

// While it lives, float arithmetic of *this thread* takes and gives 0 for denormals (SSE: flush to
// zero, denormals are zero). Gradients and slots that decay make denormals, and x86 computes with
// them many times slower; TensorFlow's threads do the same. Nests; restores what was set before.
// Does nothing on processors without SSE. Make and destroy it on one thread, e.g. around each block
// task of a parameter server:
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
