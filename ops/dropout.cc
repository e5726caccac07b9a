// Dropout, which uses the tape's seed.
#include "base/random.h"
#include "ops/operation.h"
#include "ops/tape_state.h"

namespace divvy {
namespace {

using internal::GradientList;
using internal::InvalidOperands;
using internal::TapeState;

absl::StatusOr<Var> TryDropout(const Var& x, float rate, uint64_t seed) {
  ASSIGN_OR_RETURN(const internal::Backend* backend, internal::Prepare("Dropout", {x}));
  const Tensor& value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckComputedWith("Dropout", value));
  if (!(rate >= 0 && rate < 1))
    return InvalidOperands("Dropout", "the rate is ", rate, "; it must be in [0, 1)");
  TapeState* tape = x.node()->tape != nullptr ? x.node()->tape : TapeState::Innermost();
  if (tape == nullptr)
    return absl::FailedPreconditionError(
        "Dropout: no GradientTape lives on this thread, and Dropout needs its seed and mode");
  if (!tape->records() || rate == 0) return x;
  const uint64_t key =
      MixSeeds(MixSeeds(tape->variables().seed(), seed), seed == 0 ? tape->NextDraw() : 0);
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(value));
  backend->Dropout(key, rate, value, y);
  return internal::Result(
      std::move(y), {x},
      [backend, key, rate](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient));
        backend->Dropout(key, rate, gradient, dx);
        return GradientList{std::move(dx)};
      });
}

}  // namespace

Var Dropout(const Var& x, float rate, uint64_t seed) {
  return internal::OrFailed(TryDropout(x, rate, seed));
}

}  // namespace divvy
