// The initial values of variables.
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

// Each parameter server evaluates an initializer for its own rows. A value depends only on (job
// seed, seed, global row) and never on the sharding; fans are those of the whole variable. (In
// TensorFlow values and fans depend on the number of shards.)
//
// With seed 0 the seed follows from the variable's name, so two variables of one shape differ. The
// distributions are those of tf.keras.initializers. Random ones need a floating dtype. Initializers
// are plain values; Validate checks them when a variable is created.
//
// Constant: the same value for every element.
struct Constant {
  float value = 0;
};
// Uniformly distributed in [low, high).
struct RandomUniform {
  float low = -0.05f;
  float high = 0.05f;
  uint64_t seed = 0;
};
// Normally distributed.
struct RandomNormal {
  float mean = 0;
  float stddev = 0.05f;  // >= 0
  uint64_t seed = 0;
};
// Normally distributed; values more than two standard deviations from the mean do not occur.
struct TruncatedNormal {
  float mean = 0;
  float stddev = 0.05f;  // >= 0; of the distribution before the cut
  uint64_t seed = 0;
};
// A random distribution with mean 0 and variance scale / max(1, fan). kTruncatedNormal has this
// variance after the cut.
//
// Fan in is the product of all dimensions but the last. Fan out is the product of all but the last
// two, times the last. For rank 1 both are the length; for rank 0 both are 1.
struct VarianceScaling {
  enum class Fan { kIn, kOut, kAverage } fan = Fan::kIn;
  enum class Distribution {
    kUniform,
    kTruncatedNormal
  } distribution = Distribution::kTruncatedNormal;
  float scale = 1;  // > 0
  uint64_t seed = 0;
};
// The identity matrix times `gain`, for rank 2: `gain` on the diagonal, else 0. The matrix need not
// be square.
struct Identity {
  float gain = 1;
};
// A matrix (rank 2) whose rows or columns, whichever are fewer, are orthogonal and have norm `gain`
// (Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural
// networks", 2014). It cannot be evaluated row by row: the coordinator computes the whole matrix
// and sends it.
struct Orthogonal {
  float gain = 1;
  uint64_t seed = 0;
};
// Values from a function of the program. The coordinator calls it block by block and sends the
// values. The function returns a Tensor of `num_rows` rows with the variable's dtype and row shape
// (for rank 0: the value).
//
// Blocks are asked for in order, on a thread of the program. A block has up to 16 MiB, but at least
// one row. If the variable is restored from a checkpoint instead, at most the first block is asked
// for. An error of the function, or InvalidArgument for another dtype or shape, fails the creation
// of the variable. If RestoreLatest was still to decide then, the first call that uses variables
// returns the error.
//
//   FromRows{[&words](int64_t first, int64_t n) { return words.Rows(first, first + n); }}
struct FromRows {
  std::function<absl::StatusOr<Tensor>(int64_t first_row, int64_t num_rows)> rows;
};
// Any initializer. A Tensor is the whole value of the variable, with its dtype and shape; the
// coordinator sends it.
using Initializer =
    std::variant<Constant, RandomUniform, RandomNormal, TruncatedNormal, VarianceScaling, Identity,
                 Orthogonal, FromRows, Tensor>;  // Tensor: the whole value

// The constants 0 and 1.
Constant Zeros();
Constant Ones();
// For tanh, sigmoid and softmax: variance 2 / (fan in + fan out) (Glorot and Bengio, "Understanding
// the difficulty of training deep feedforward neural networks", 2010).
VarianceScaling GlorotUniform(uint64_t seed = 0);
VarianceScaling GlorotNormal(uint64_t seed = 0);
// For ReLU: variance 2 / fan in (He et al., "Delving deep into rectifiers", 2015).
VarianceScaling HeUniform(uint64_t seed = 0);
VarianceScaling HeNormal(uint64_t seed = 0);
// Variance 1 / fan in (LeCun et al., "Efficient backprop", 1998).
VarianceScaling LecunUniform(uint64_t seed = 0);
VarianceScaling LecunNormal(uint64_t seed = 0);

// The inputs of initial values besides the initializer's own options.
struct InitializerContext {
  uint64_t job_seed = 0;
  std::string name;  // of the variable
  Shape shape;       // of the whole variable, not of the requested rows
};

// Whether a parameter server can evaluate the initializer for its rows alone. True for all but
// Orthogonal, FromRows and Tensor, whose values the coordinator sends.
bool EvaluatedPerRow(const Initializer& initializer);

// Checks an initializer for a variable of this shape and dtype. InvalidArgument, naming the
// initializer and the fix: an option is not finite or out of its range; the shape is invalid,
// unknown or of the wrong rank; a Tensor has another dtype or shape; a FromRows is empty; or
// `dtype` cannot hold the value or the distribution.
absl::Status Validate(const Initializer& initializer, const Shape& shape, DType dtype);

// Fills `out` with rows [first_row, first_row + num_rows) of a float32 variable, row-major. Rank 0
// is one row of one element. The result has the same bits however the rows are cut into calls.
// Thread-safe and pure, except that FromRows calls its function. Orthogonal computes the whole
// matrix in each call, so call it once for all rows.
//
// The numbers come from Philox4x32-10: the key from (job seed, the variable's seed), the counter
// (global row, column / 4), one 32-bit word for each element. Normal distributions use the inverse
// distribution function in double.
//
// InvalidArgument: as Validate; rows outside the shape; or `out` has the wrong size. Otherwise the
// error of a FromRows function.
absl::Status FillRows(const Initializer& initializer, const InitializerContext& context,
                      int64_t first_row, int64_t num_rows, absl::Span<float> out);

// As FillRows, for any dtype that tensors hold: a Tensor with these rows (rank 0: the value).
// Distributions are evaluated in float32 and converted.
absl::StatusOr<Tensor> InitialRows(const Initializer& initializer,
                                   const InitializerContext& context, DType dtype,
                                   int64_t first_row, int64_t num_rows);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_INITIALIZER_H_
