// VariableReader: the interface through which a computation reads variables.
#ifndef DIVVY_OPS_VARIABLE_READER_H_
#define DIVVY_OPS_VARIABLE_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace divvy {

// A request for one variable, as a whole or some of its rows.
struct ReadRequest {
  std::string name;
  // int64 [n]: read only these rows, in this order. An id may occur more than once. nullopt: read
  // the whole variable.
  std::optional<Tensor> ids;
  // Output, on device(): the variable's shape, or [n] + the shape of a row.
  Tensor value;
  // Output: the number of rows of the whole variable (1 for rank 0). A gradient by rows needs it as
  // IndexedSlices::num_rows.
  int64_t num_rows = 0;
};

// The interface between a tape and the variables. ReplicaContext implements it; a test uses a map
// (ops/testing/map_reader.h). Used on one thread.
class VariableReader {
 public:
  virtual ~VariableReader() = default;
  // Fetches all requests together, with one message to each ps. Blocks until all values are there.
  // After an error no value is meaningful.
  //
  // NotFound: there is no such variable. InvalidArgument: an id is outside [0, num_rows), ids are
  // not int64, or rows of a variable of rank 0 were asked for. An implementation may return other
  // errors (strategy/variable_store.h lists those of VariableStore). The tape passes an error on to
  // every Var that waits for these values.
  virtual absl::Status Read(absl::Span<ReadRequest> requests) = 0;
  // The device on which values arrive and the computation runs.
  virtual Device device() const = 0;
  // The seed of random operations (Dropout). It is the same on every attempt of a step, and differs
  // between steps and replicas.
  virtual uint64_t seed() const { return 0; }
};

}  // namespace divvy

#endif  // DIVVY_OPS_VARIABLE_READER_H_
