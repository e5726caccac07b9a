// A training in words: what a person looks for beside its curves.
#ifndef DIVVY_TRAIN_CONFIGURATION_H_
#define DIVVY_TRAIN_CONFIGURATION_H_

#include <map>
#include <string>

#include "data/dataset.h"
#include "optimizers/optimizer.h"
#include "strategy/strategy.h"
#include "train/model.h"
#include "train/trainer.h"

namespace divvy {

// "Adam: learning_rate 0.001 at step 0, beta1 0.9, beta2 0.999, epsilon 1e-07". Numbers that are 0
// and options that are off are left out.
std::string DescribeOptimizer(const Optimizer& optimizer);

// What Fit was called with, and on how large a cluster: "model", "optimizer", "data", "epochs",
// "parameter servers", ... What was not given is not there.
std::map<std::string, std::string> DescribeFit(const Strategy& strategy, const Model& model,
                                               const Optimizer& optimizer,
                                               const BoundDataSource& data,
                                               const FitOptions& options);

}  // namespace divvy

#endif  // DIVVY_TRAIN_CONFIGURATION_H_
