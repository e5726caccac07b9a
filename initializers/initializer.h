// Initial values of variables.
#ifndef DIVVY_INITIALIZERS_INITIALIZER_H_
#define DIVVY_INITIALIZERS_INITIALIZER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace divvy {

// Evaluated on each parameter server for its own rows: values depend on (job seed, seed, global
// row) and never on the sharding; fans are those of the whole variable. (TensorFlow's depend on the
// number of shards, fans included.) seed 0: from the variable's name, so that two variables of one
// shape differ. The laws are those of tf.keras.initializers; random ones need a floating dtype.
// Plain values, checked by Validate when a variable is created.
struct Constant {
  float value = 0;
};
struct RandomUniform {  // [low, high)
  float low = -0.05f;
  float high = 0.05f;
  uint64_t seed = 0;
};
struct RandomNormal {
  float mean = 0;
  float stddev = 0.05f;  // >= 0
  uint64_t seed = 0;
};
struct TruncatedNormal {  // cut at two standard deviations
  float mean = 0;
  float stddev = 0.05f;  // >= 0; before the cut
  uint64_t seed = 0;
};
// Mean 0 and variance scale / max(1, fan); kTruncatedNormal has that variance after the cut. fan in
// = product of all dimensions but the last, fan out = (product of all but the last two) * last;
// rank 1: both are the length; rank 0: both are 1.
struct VarianceScaling {
  enum class Fan { kIn, kOut, kAverage } fan = Fan::kIn;
  enum class Distribution {
    kUniform,
    kTruncatedNormal
  } distribution = Distribution::kTruncatedNormal;
  float scale = 1;  // > 0
  uint64_t seed = 0;
};
struct Identity {  // rank 2: gain on the diagonal, else 0
  float gain = 1;
};
// Rank 2: rows or columns, whichever are fewer, are orthogonal and have norm gain (Saxe et al.,
// "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks", 2014).
// Not per row: made whole on the coordinator and sent.
struct Orthogonal {
  float gain = 1;
  uint64_t seed = 0;
};
// Asked on the coordinator, block by block, and sent: a Tensor of `num_rows` rows of the variable's
// dtype and row shape (rank 0: the value). Blocks of up to 16 MiB, at least a row, in order, on a
// thread of the program; no more than the first where the variable is restored instead. Its error,
// or InvalidArgument for another dtype or shape, is that of creating the variable; where
// RestoreLatest was still to decide, of the first call that uses variables.
//
//   FromRows{[&words](int64_t first, int64_t n) { return words.Rows(first, first + n); }}
struct FromRows {
  std::function<absl::StatusOr<Tensor>(int64_t first_row, int64_t num_rows)> rows;
};
using Initializer =
    std::variant<Constant, RandomUniform, RandomNormal, TruncatedNormal, VarianceScaling, Identity,
                 Orthogonal, FromRows, Tensor>;  // Tensor: the whole value

Constant Zeros();
Constant Ones();
// For tanh, sigmoid, softmax: variance 2 / (fan in + fan out) (Glorot and Bengio, "Understanding
// the difficulty of training deep feedforward neural networks", 2010).
VarianceScaling GlorotUniform(uint64_t seed = 0);
VarianceScaling GlorotNormal(uint64_t seed = 0);
// For ReLU: variance 2 / fan in (He et al., "Delving deep into rectifiers", 2015).
VarianceScaling HeUniform(uint64_t seed = 0);
VarianceScaling HeNormal(uint64_t seed = 0);
// Variance 1 / fan in (LeCun et al., "Efficient backprop", 1998).
VarianceScaling LecunUniform(uint64_t seed = 0);
VarianceScaling LecunNormal(uint64_t seed = 0);

// What an initializer may depend on besides its own options.
struct InitializerContext {
  uint64_t job_seed = 0;
  std::string name;  // of the variable
  Shape shape;       // the whole variable's, whatever part is asked for
};

// Whether a parameter server can evaluate it for its rows alone: all but Orthogonal, FromRows and
// Tensor, whose values are made elsewhere and sent.
bool EvaluatedPerRow(const Initializer& initializer);

// InvalidArgument, naming the initializer and the fix: an option that is not finite or out of its
// range, a shape that is invalid, unknown or of the wrong rank, a Tensor of another dtype or shape,
// an empty FromRows, or a value or law that `dtype` cannot hold.
absl::Status Validate(const Initializer& initializer, const Shape& shape, DType dtype);

// Rows [first_row, first_row + num_rows) of a float32 variable, row-major, into `out`. Rank 0 is
// one row of one element. The same bits for any way of cutting the rows. Pure (FromRows: as its
// function), thread-safe; Orthogonal makes the whole matrix at each call: ask once. Source of the
// numbers: Philox4x32-10, key from (job seed, the variable's seed), counter (global row, column /
// 4), one 32-bit word for each element; normal laws by the inverse distribution function in double.
// InvalidArgument: as Validate; rows outside the shape; `out` of another size. Else the error of a
// FromRows function.
absl::Status FillRows(const Initializer& initializer, const InitializerContext& context,
                      int64_t first_row, int64_t num_rows, absl::Span<float> out);

// The same for any dtype that tensors hold, as a Tensor with these rows (rank 0: the value). Laws
// are evaluated in float32 and converted.
absl::StatusOr<Tensor> InitialRows(const Initializer& initializer,
                                   const InitializerContext& context, DType dtype,
                                   int64_t first_row, int64_t num_rows);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_INITIALIZER_H_
