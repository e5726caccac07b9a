// The header that a program includes. It includes the public headers of Divvy and nothing else, in
// the order in which they depend on each other. The comments of each header are its contract:
// meaning, shapes, thread safety, blocking and errors.
//
// A function that can fail returns absl::Status or absl::StatusOr. The exceptions are types that
// carry their error to a later call: Var, Nest and Dataset. The macros RETURN_IF_ERROR and
// ASSIGN_OR_RETURN of the examples are in base/status_macros.h. The name of an error code in a
// comment is followed by its cause and, where it is not obvious, by what the caller should do.
#ifndef DIVVY_DIVVY_H_
#define DIVVY_DIVVY_H_

#include "cluster/cluster_resolver.h"
#include "data/cross.h"
#include "data/dataset.h"
#include "data/skip_grams.h"
#include "data/text_keys.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"
#include "initializers/initializer.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/retrieval.h"
#include "optimizers/optimizer.h"
#include "partitioners/partitioner.h"
#include "strategy/coordinator.h"
#include "strategy/metrics.h"
#include "strategy/program.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"
#include "strategy/strategy.h"
#include "strategy/summary_writer.h"
#include "strategy/variable.h"
#include "strategy/warm_start.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"
#include "train/callbacks.h"
#include "train/evaluator.h"
#include "train/model.h"
#include "train/sequential.h"
#include "train/tensor_board.h"
#include "train/top_k.h"
#include "train/trainer.h"
#include "variables/dynamic_table.h"
#include "variables/variable_spec.h"

#endif  // DIVVY_DIVVY_H_
