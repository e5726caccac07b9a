// GradientTape: reads variables, records the operations on them, and differentiates the result.
#ifndef DIVVY_OPS_GRADIENT_TAPE_H_
#define DIVVY_OPS_GRADIENT_TAPE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/gradients.h"
#include "ops/var.h"
#include "ops/variable_reader.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy {

namespace internal {
class TapeState;
}  // namespace internal

// How a list of looked-up rows e with weights w is combined into one row, as in
// tf.nn.embedding_lookup_sparse. Without weights every w is 1. A divisor of 0 gives zeros.
enum class Combiner {
  kSum,    // sum(w e)
  kMean,   // sum(w e) / sum(w)
  kSqrtN,  // sum(w e) / sqrt(sum(w^2))
};

// Options of Lookup and LookupSparse. The defaults change nothing.
struct LookupOptions {
  // Clips each looked-up row to this l2 norm before rows are combined; must be > 0. The stored row
  // does not change.
  std::optional<float> max_norm;
  // LookupSparse only: drops ids < 0, and weights <= 0 unless the combiner is kSum. An empty list
  // gives the row of default_id, or zeros without one (tf.nn.safe_embedding_lookup_sparse).
  bool safe = false;
  std::optional<int64_t> default_id;  // >= 0; only with `safe`
};

// Records operations while they run, and differentiates the recording once. A tape lives on the
// stack of a replica function and belongs to one thread.
//
//   GradientTape tape(replica);
//   // Asked for together, so fetched together.
//   Var kernel = tape.Read("kernel"), bias = tape.Read("bias");
//   Var losses = SoftmaxCrossEntropy(MatMul(batch["image"], kernel) + bias, batch["label"]);
//   RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
//
// READS ARE COALESCED. Read and Lookup return at once. The first operation that needs a value or a
// shape fetches everything that is pending: one VariableReader::Read, which sends one message to
// each ps, and blocks. So do all lookups first and compute afterwards; a step then costs one round
// trip. Mind the order of evaluation: in MatMul(x, tape.Read(k)) + tape.Read(b) the product may run
// before `b` is asked for.
//
// A variable that is read whole has one value within a step, however often it is read. A lookup
// fetches its rows each time. An error of the reader becomes the error of every Var that was
// pending.
class GradientTape {
 public:
  enum class Mode {
    kTraining,
    kInference,  // records nothing; Gradient returns FailedPrecondition
  };
  // Values are read from `variables` and computed on its device. REQUIRES: `variables` outlives the
  // tape.
  explicit GradientTape(VariableReader& variables, Mode mode = Mode::kTraining);
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;
  ~GradientTape();

  // Read, Lookup, LookupSparse, Watch and Record do not compile on a temporary tape, such as
  // GradientTape(replica).Read("kernel"), because the returned Var would outlive the tape.

  // The whole variable. Returns at once; the Var is pending until something needs it. An error of
  // the fetch, such as NotFound, makes the Var failed.
  Var Read(absl::string_view variable) &;
  Var Read(absl::string_view variable) && = delete;  // name the tape: a Var must not outlive it
  // Announces that these variables will be read: they become pending now, so the next fetch
  // includes them. Model calls it for the variables of all its layers.
  void Prefetch(absl::Span<const std::string> variables);
  // Rows of a table (a variable): ids of any shape and integer dtype -> ids.shape + row shape. Zero
  // ids give [0] + row shape. The result is failed with InvalidArgument if the table has no row for
  // an id, ids are not integers, an option is out of its range, or `safe` is set (only LookupSparse
  // has it).
  Var Lookup(absl::string_view table, const Var& ids, const LookupOptions& options = {}) &;
  Var Lookup(absl::string_view table, const Var& ids,
             const LookupOptions& options = {}) && = delete;
  // Lists of ids (SparseIds as a Nest), each combined into one row -> [batch] + row shape. There is
  // always one row for each list, with zeros for an empty list (TensorFlow omits empty lists at the
  // end). Weights are constants. Errors as for Lookup, and those of Validate(SparseIds).
  Var LookupSparse(absl::string_view table, const Nest& sparse_ids, Combiner combiner,
                   const LookupOptions& options = {}) &;
  Var LookupSparse(absl::string_view table, const Nest& sparse_ids, Combiner combiner,
                   const LookupOptions& options = {}) && = delete;
  // Makes `value` a leaf, so that Gradient returns its gradient under `name`. The result is failed
  // with InvalidArgument if the name was watched or read before.
  Var Watch(absl::string_view name, Tensor value) &;
  Var Watch(absl::string_view name, Tensor value) && = delete;
  // Records an operation of your own (tf.custom_gradient) with the result `value`. `backward` maps
  // the gradient of the result (with its shape and dtype) to one gradient for each input, with the
  // input's shape and dtype. It is called at most once, by Gradient, on the thread of Gradient.
  // Gradients for inputs that need none are ignored. If it returns the wrong number of gradients or
  // a wrong shape, Gradient returns InvalidArgument.
  Var Record(Tensor value, std::vector<Var> inputs,
             std::function<absl::StatusOr<std::vector<Tensor>>(const Tensor& gradient)> backward) &;
  Var Record(Tensor value, std::vector<Var> inputs,
             std::function<absl::StatusOr<std::vector<Tensor>>(const Tensor& gradient)>
                 backward) && = delete;

  // The derivatives of `target` with respect to every variable that was read and every value that
  // was watched. A variable on which `target` does not depend has no entry. The gradient of a table
  // is IndexedSlices with the ids as they were asked for, duplicates included.
  //
  // InvalidArgument: `target` is not a scalar (rank 0) of a dtype that arithmetic takes, or it was
  // recorded on another tape. FailedPrecondition: the second call (the first frees the recording),
  // inference mode, or a lookup in a variable that was also read whole. If `target` is failed: its
  // reason.
  absl::StatusOr<Gradients> Gradient(const Var& target);
  // The same as Gradient(scale * ReduceSum(target)), for a target of any shape, but the sum is not
  // computed. For a training step that reports its losses one by one and needs no sum. Errors as
  // Gradient.
  absl::StatusOr<Gradients> GradientOfSum(const Var& target, double scale = 1);
  // The mode that the tape was made with.
  Mode mode() const { return mode_; }
  // The seed of the step's random operations: the same on every attempt of a step, and another one
  // in each step and replica. Derive several seeds from it with MixSeeds (base/random.h).
  uint64_t seed() const;

 private:
  std::unique_ptr<internal::TapeState> state_;
  Mode mode_;
};

}  // namespace divvy

#endif  // DIVVY_OPS_GRADIENT_TAPE_H_
