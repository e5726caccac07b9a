// Describes the configuration of a training as text, which TensorBoard shows beside the curves.
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

// Describes an optimizer: "Adam: learning_rate 0.001 at step 0, beta1 0.9, beta2 0.999, epsilon
// 1e-07". Numbers that are 0 and options that are off are left out.
std::string DescribeOptimizer(const Optimizer& optimizer);

// Describes the arguments of Fit and the size of the cluster: "model", "optimizer", "data",
// "epochs", "parameter servers", ... Options that were not given are left out.
std::map<std::string, std::string> DescribeFit(const Strategy& strategy, const Model& model,
                                               const Optimizer& optimizer,
                                               const BoundDataSource& data,
                                               const FitOptions& options);

}  // namespace divvy

#endif  // DIVVY_TRAIN_CONFIGURATION_H_
