// A workload that several benchmarks use: mnist_mlp's model (784-512-10, batches of 64) over
// synthetic images in memory, so that no file is needed.
#ifndef DIVVY_BENCH_MLP_WORK_H_
#define DIVVY_BENCH_MLP_WORK_H_

#include "bench/direct_mlp.h"
#include "divvy.h"

namespace divvy::bench {

constexpr int kMlpPixels = 784, kMlpHidden = 512, kMlpClasses = 10, kMlpBatch = 64,
              kMlpBatches = 100;
constexpr int kMlpExamples = kMlpBatch * kMlpBatches;  // of one pass
constexpr float kMlpLearningRate = 1e-3f;              // of Adam

// Makes the images. Without this call the first use makes them, and its time would include that.
void PrepareMlpImages();

// The model and one pass over the data, as in a program.
const Model& MlpModel();
BoundDataSource MlpData();

// The same arithmetic straight down: one pass, each product on so many threads of OpenBLAS. Returns
// the last batch's loss.
float TrainMlpDirectly(DirectMlp& mlp, int threads);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_MLP_WORK_H_
