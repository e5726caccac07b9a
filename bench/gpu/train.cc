// bazel run --config=cuda //bench/gpu:train [-- --format=json]
//
// Examples a second of training with a Trainer in an embedded cluster of one worker and one
// parameter server. Each step pulls, computes on the first GPU, and commits. The models are those
// of mnist_mlp and examples/dlrm.cc, at several batch sizes. The ceiling is the forward and
// backward products of the same batches by cuBLAS alone; without a usable GPU there is no ceiling.
// bench/gpu/torch_peer.py does the same work in PyTorch. With --gpus=all the program exits with 78
// if there is no GPU.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "base/status_macros.h"
#include "bench/gpu/device_ceilings.h"
#include "bench/gpu/train_work.h"
#include "bench/rounds.h"
#include "divvy.h"
#include "ops/cuda/gpus.h"

ABSL_FLAG(int64_t, steps, 500,
          "steps of a pass; a round measures one pass, so use enough steps to make the beginning "
          "and the end of a pass negligible");

ABSL_FLAG(int64_t, largest, 4096, "the largest batch; lower it on devices that the host simulates");

namespace divvy::bench {
namespace {

void ShowMemory(const std::string& name, int64_t bytes) {
  Comparison memory;
  memory.figure = "device memory, " + name;
  memory.rate = static_cast<double>(bytes);
  Show("gpu_train", memory, {"MB", 1e6});
}

// Resets the peak, so that it does not include the memory of earlier works.
void ForgetMemory(DeviceCeilings& ceilings) {
  TrimGpuMemory();
  ceilings.Synchronize();
  ceilings.TakePeakBytes();
}

// `ceilings` is null if there are none.
absl::Status Measure(Trainer& trainer, DeviceCeilings* ceilings, const TrainWork& work) {
  const int64_t steps = absl::GetFlag(FLAGS_steps);
  const auto examples = static_cast<double>(work.batch * steps);
  absl::Status status;
  const Contender figure{work.name, [&] { status.Update(trainer.Fit(work.data).status()); }};
  if (ceilings == nullptr) {
    const Comparison alone = MeasureAlone(figure, examples);
    RETURN_IF_ERROR(status);
    Show("gpu_train", alone, {"examples/s"});
    return absl::OkStatus();
  }
  ForgetMemory(*ceilings);
  const Contender ceiling{
      "its products by cuBLAS alone",
      [&] { ceilings->Multiply(Precision::kFloat32, work.products, static_cast<int>(steps)); }};
  const Comparison comparison = Compare(figure, ceiling, examples);
  RETURN_IF_ERROR(status);
  Show("gpu_train", comparison, {"examples/s"});
  if (const std::optional<int64_t> bytes = ceilings->TakePeakBytes()) ShowMemory(work.name, *bytes);
  return absl::OkStatus();
}

absl::Status Train(Coordinator& coordinator) {
  if (absl::GetFlag(FLAGS_steps) < 1)
    return absl::InvalidArgumentError("--steps must be at least 1");
  std::string why;
  const std::unique_ptr<DeviceCeilings> ceilings = DeviceCeilings::Open(why);
  if (ceilings == nullptr) std::fprintf(stderr, "measured without a ceiling: %s\n", why.c_str());
  for (const TrainModel& model : TrainModels(absl::GetFlag(FLAGS_steps))) {
    Trainer trainer(coordinator, model.model, model.optimizer);
    for (const TrainWork& work : model.works) {
      if (work.batch <= absl::GetFlag(FLAGS_largest))
        RETURN_IF_ERROR(Measure(trainer, ceilings.get(), work));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
