// What a computation reads its variables from.
#ifndef DIVVY_OPS_VARIABLE_READER_H_
#define DIVVY_OPS_VARIABLE_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace divvy {

// One variable, whole or some of its rows.
struct ReadRequest {
  std::string name;
  // int64 [n]: these rows only, in this order, repeated where an id is
  std::optional<Tensor> ids;
  // filled in, on device(): the variable's shape, or [n] + the shape of a row
  Tensor value;
  // filled in: rows of the whole variable (1 for rank 0); what a gradient by rows is measured
  // against
  int64_t num_rows = 0;
};

// The seam between a tape and the variables: ReplicaContext is one, a test gives a map. Used on one
// thread.
class VariableReader {
 public:
  virtual ~VariableReader() = default;
  // Fetches all requests in one go: one message to each ps. Blocks until all are there; on an error
  // none of the values means anything. NotFound: no such variable. InvalidArgument: an id outside
  // [0, num_rows), ids that are no int64, or rows of a variable of rank 0. A reader may have more
  // (VariableStore's are in strategy/variable_store.h): a tape hands each to every Var that waits
  // for it.
  virtual absl::Status Read(absl::Span<ReadRequest> requests) = 0;
  // Where the values arrive and the computation runs.
  virtual Device device() const = 0;
  // What random operations (Dropout) draw from: the same on every attempt of a step, another for
  // each step and replica.
  virtual uint64_t seed() const { return 0; }
};

}  // namespace divvy

#endif  // DIVVY_OPS_VARIABLE_READER_H_
