// The program whose tasks tests/e2e/recovery_bench.cc kills. Coordinator and workers print events
// with their times, "... at NANOSECONDS", on the clock that all processes of a Linux machine share.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(std::string, work, "train",
          "train: short steps on small variables, beside large ones; nap: steps of 300 ms; rate: "
          "many short steps, and their rate");
ABSL_FLAG(int64_t, megabytes, 64, "size of the large variables, which use Adam");
ABSL_FLAG(int, steps, 5'000, "steps of a rate measurement");
ABSL_FLAG(std::string, stop_file, "", "the program runs until this file exists");

namespace divvy::bench {
namespace {

constexpr int64_t kVariableBytes = int64_t{4} << 20;
const VariableSpec kSmall{"recovery/small", {16}, Zeros(), Adam{0.001}};

void Say(const std::string& what) {
  std::printf("%s at %lld\n", what.c_str(),
              static_cast<long long>(absl::ToInt64Nanoseconds(Clock::Real().Elapsed())));
  std::fflush(stdout);
}

absl::Status Train(WorkerContext& worker) {
  const auto in_replica = [](ReplicaContext& replica) -> absl::Status {
    Gradients gradients;
    gradients.Set(kSmall.name, *Tensor::Copy<float>(Shape{16}, std::vector<float>(16, 1e-3f)));
    return replica.ApplyGradients(gradients);
  };
  return worker.strategy().Run(in_replica).status();
}
const Step kTrain("recovery/train", Train);

absl::Status Nap(WorkerContext&, int64_t number) {
  Say(absl::StrCat("begun ", number));
  Mutex mu;
  CondVar nothing;
  MutexLock lock(mu);
  nothing.WaitFor(mu, absl::Milliseconds(300), [] { return false; });
  return absl::OkStatus();
}
const Step kNap("recovery/nap", Nap);

bool IsAskedToStop() { return FileSystem::Real().Stat(absl::GetFlag(FLAGS_stop_file)).ok(); }

absl::Status TrainUntilStopped(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.SaveCheckpoint().status());
  Say("saved");
  while (!IsAskedToStop()) {
    ASSIGN_OR_RETURN(const auto step, coordinator.Schedule(kTrain));
    RETURN_IF_ERROR(step.Fetch());
    Say("finished");
  }
  return absl::OkStatus();
}

absl::Status NapUntilStopped(Coordinator& coordinator) {
  for (int64_t number = 0; !IsAskedToStop(); number += 4) {
    for (int64_t i = 0; i < 4; ++i)
      RETURN_IF_ERROR(coordinator.Schedule(kNap, number + i).status());
    RETURN_IF_ERROR(coordinator.Join());
  }
  return absl::OkStatus();
}

absl::Status MeasureRate(Coordinator& coordinator) {
  const int steps = absl::GetFlag(FLAGS_steps);
  for (int round = 0; round < 2; ++round) {  // the first round warms up
    const absl::Duration began = Clock::Real().Elapsed();
    for (int i = 0; i < steps; ++i) RETURN_IF_ERROR(coordinator.Schedule(kTrain).status());
    RETURN_IF_ERROR(coordinator.Join());
    if (round == 1)
      std::printf("rate %.1f\n", steps / absl::ToDoubleSeconds(Clock::Real().Elapsed() - began));
  }
  return absl::OkStatus();
}

absl::Status Run(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kSmall).status());
  if (absl::GetFlag(FLAGS_work) == "rate") return MeasureRate(coordinator);
  if (absl::GetFlag(FLAGS_work) == "nap") return NapUntilStopped(coordinator);
  for (int64_t i = 0; i < (absl::GetFlag(FLAGS_megabytes) << 20) / kVariableBytes; ++i) {
    const VariableSpec spec{
        absl::StrCat("recovery/large", i), {kVariableBytes / 4 / 256, 256}, Zeros(), Adam{0.001}};
    RETURN_IF_ERROR(coordinator.strategy().CreateVariable(spec).status());
  }
  return TrainUntilStopped(coordinator);
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Run);
