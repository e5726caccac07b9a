// The workloads of bench/gpu/train.cc: the models of mnist_mlp and examples/dlrm.cc, over random
// data that is drawn once in a process.
#ifndef DIVVY_BENCH_GPU_TRAIN_WORK_H_
#define DIVVY_BENCH_GPU_TRAIN_WORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu/device_ceilings.h"
#include "divvy.h"

namespace divvy::bench {

// One batch size of a model.
struct TrainWork {
  std::string name;  // as in bench/gpu/torch_peer.py
  int64_t batch;
  // `steps` batches. Opening it draws no random numbers.
  BoundDataSource data;
  // The products of a step.
  std::vector<Product> products;
};

struct TrainModel {
  const Model& model;
  Adam optimizer;
  std::vector<TrainWork> works;
};

// Each model with its batch sizes. A pass over a work's data has `steps` steps. Use one Trainer for
// all works of a model, because its variables exist from its first use on. The first call draws the
// data. REQUIRES: steps >= 1.
std::vector<TrainModel> TrainModels(int64_t steps);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_TRAIN_WORK_H_
