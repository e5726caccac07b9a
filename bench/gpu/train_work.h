// What bench/gpu/train.cc trains: mnist_mlp's model and examples/dlrm.cc's, over made-up data that
// is drawn once in a process.
#ifndef DIVVY_BENCH_GPU_TRAIN_WORK_H_
#define DIVVY_BENCH_GPU_TRAIN_WORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu/device_ceilings.h"
#include "divvy.h"

namespace divvy::bench {

// A size of batch of a model.
struct TrainWork {
  std::string name;  // that of bench/gpu/torch_peer.py
  int64_t batch;
  // `steps` batches, ready made: to open it draws nothing
  BoundDataSource data;
  // Of a step.
  std::vector<Product> products;
};

struct TrainModel {
  const Model& model;
  Adam optimizer;
  std::vector<TrainWork> works;
};

// Each model with its sizes of batch; a pass over a work's data is `steps` steps. One Trainer
// trains all works of a model, whose variables are the coordinator's from its first use on. The
// first call draws the data. REQUIRES: steps >= 1.
std::vector<TrainModel> TrainModels(int64_t steps);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_TRAIN_WORK_H_
