// One piece of work, done in several ways: mnist_mlp's model (784-512-10, batches of 64) over
// made-up images in memory, so that no file is needed.
#ifndef DIVVY_BENCH_MLP_WORK_H_
#define DIVVY_BENCH_MLP_WORK_H_

#include "bench/direct_mlp.h"
#include "divvy.h"

namespace divvy::bench {

constexpr int kMlpPixels = 784, kMlpHidden = 512, kMlpClasses = 10, kMlpBatch = 64,
              kMlpBatches = 100;
constexpr int kMlpExamples = kMlpBatch * kMlpBatches;  // of one pass
constexpr float kMlpLearningRate = 1e-3f;              // of Adam

// Makes the images; else the first use does, which should not be timed.
void PrepareMlpImages();

// The model and one pass over the data, as a program has them.
const Model& MlpModel();
BoundDataSource MlpData();

// The same arithmetic straight down: one pass, each product on so many threads of OpenBLAS. Returns
// the last batch's loss.
float TrainMlpDirectly(DirectMlp& mlp, int threads);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_MLP_WORK_H_
