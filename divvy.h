// All that a program includes: the public headers of Divvy, in the order in which they build on
// each other.
#ifndef DIVVY_DIVVY_H_
#define DIVVY_DIVVY_H_

#include "cluster/cluster_resolver.h"
#include "cluster/variable_spec.h"
#include "data/dataset.h"
#include "initializers/initializer.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
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
#include "train/tensor_board.h"
#include "train/trainer.h"

#endif  // DIVVY_DIVVY_H_
