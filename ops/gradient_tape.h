// Reading variables, recording what is computed from them, and differentiating it.
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

// How a list of looked-up rows e with weights w (1 where none are given) becomes one row, as
// tf.nn.embedding_lookup_sparse has it. A divisor of 0 gives zeros.
enum class Combiner {
  kSum,    // sum(w e)
  kMean,   // sum(w e) / sum(w)
  kSqrtN,  // sum(w e) / sqrt(sum(w^2))
};

struct LookupOptions {
  // > 0: clip each looked-up row to this l2 norm, before combining; the stored row is unchanged
  std::optional<float> max_norm;
  // LookupSparse: drop ids < 0, and weights <= 0 unless kSum; an empty list gives default_id's row,
  // else zeros (tf.nn.safe_embedding_lookup_sparse).
  bool safe = false;
  std::optional<int64_t> default_id;  // >= 0; with safe alone
};

// Records operations as they run (define by run) and differentiates them once. One thread; lives on
// the stack of a replica function.
//
//   GradientTape tape(replica);
//   // asked for together, fetched together
//   Var kernel = tape.Read("kernel"), bias = tape.Read("bias");
//   Var losses = SoftmaxCrossEntropy(MatMul(batch["image"], kernel) + bias, batch["label"]);
//   RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
//
// READS ARE COALESCED: Read and Lookup return at once; the first operation that needs a value (or a
// shape) fetches everything still pending with one VariableReader::Read, one message to each ps.
// Look up first, compute after, and a step costs one round trip. Mind the order of evaluation: in
// MatMul(x, tape.Read(k)) + tape.Read(b) the product may run before `b` is asked for. A variable
// read whole has one value within a step, however often it is read; a lookup fetches its rows each
// time. An error of the reader is the error of every Var that was pending.
class GradientTape {
 public:
  enum class Mode {
    kTraining,
    kInference,  // nothing is kept; Gradient is FailedPrecondition
  };
  // REQUIRES: `variables` outlives the tape.
  explicit GradientTape(VariableReader& variables, Mode mode = Mode::kTraining);
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;
  ~GradientTape();

  // Of a tape that is not named (GradientTape(replica).Read("kernel")) nothing can be asked: what
  // it gave would outlive it.

  // The whole variable.
  Var Read(absl::string_view variable) &;
  Var Read(absl::string_view variable) && = delete;  // name the tape: a Var must not outlive it
  // Will be read: makes them pending now, so that they leave with the next fetch. Model does it for
  // all its layers.
  void Prefetch(absl::Span<const std::string> variables);
  // Rows of a table: ids of any shape and integer dtype -> ids.shape + row shape. Failed with
  // InvalidArgument: an id that the table has no row for, ids that are no integers, options out of
  // their range, or `safe` (which is LookupSparse's). No ids: [0] + row shape.
  Var Lookup(absl::string_view table, const Var& ids, const LookupOptions& options = {}) &;
  Var Lookup(absl::string_view table, const Var& ids,
             const LookupOptions& options = {}) && = delete;
  // Lists of ids (SparseIds as a Nest), each combined to one row -> [batch] + row shape: always one
  // row for each list, zeros for an empty one (TensorFlow leaves out those at the end). Weights are
  // constants. Errors as Lookup's, and those of Validate(SparseIds).
  Var LookupSparse(absl::string_view table, const Nest& sparse_ids, Combiner combiner,
                   const LookupOptions& options = {}) &;
  Var LookupSparse(absl::string_view table, const Nest& sparse_ids, Combiner combiner,
                   const LookupOptions& options = {}) && = delete;
  // A leaf of your own; its gradient comes back under `name`. Failed with InvalidArgument: the name
  // was watched or read before.
  Var Watch(absl::string_view name, Tensor value) &;
  Var Watch(absl::string_view name, Tensor value) && = delete;
  // An operation of your own (tf.custom_gradient): given its value, `backward` maps the output's
  // gradient (its shape and dtype) to one gradient for each input, each of the input's shape and
  // dtype. Called at most once, by Gradient, on its thread; what it gives for inputs that need none
  // is ignored. A wrong number or shape is InvalidArgument from Gradient.
  Var Record(Tensor value, std::vector<Var> inputs,
             std::function<absl::StatusOr<std::vector<Tensor>>(const Tensor& gradient)> backward) &;
  Var Record(Tensor value, std::vector<Var> inputs,
             std::function<absl::StatusOr<std::vector<Tensor>>(const Tensor& gradient)>
                 backward) && = delete;

  // d target / d everything read or watched that target depends on (what it does not depend on has
  // no entry). A table's gradient is IndexedSlices with the ids as they were asked for, duplicates
  // kept. InvalidArgument: target is not a scalar (rank 0) of a dtype that is computed with.
  // FailedPrecondition: called twice (the first call frees the recording), inference mode, or a
  // lookup in a variable that was also read whole. A failed target: its reason.
  absl::StatusOr<Gradients> Gradient(const Var& target);
  // Gradient(scale * ReduceSum(target)) for a target of any shape, without computing that sum: a
  // training step that reports its losses one by one needs none. Errors as Gradient's.
  absl::StatusOr<Gradients> GradientOfSum(const Var& target, double scale = 1);
  Mode mode() const { return mode_; }

 private:
  std::unique_ptr<internal::TapeState> state_;
  Mode mode_;
};

}  // namespace divvy

#endif  // DIVVY_OPS_GRADIENT_TAPE_H_
