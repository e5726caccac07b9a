// write_events DIRECTORY: writes event files as a restarted training does, for tensorboard_test.py.
#include <cmath>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "strategy/summary_writer.h"
#include "tensor/tensor.h"

namespace divvy {
namespace {

// Writes a loss of 1 / step, and "train/odd" at every odd step.
absl::Status WriteSteps(SummaryWriter& summaries, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    RETURN_IF_ERROR(summaries.Scalars("train", step, {{"loss", 1.0 / static_cast<double>(step)}}));
    if (step % 2 == 1)
      RETURN_IF_ERROR(summaries.Scalars("train", step, {{"train/odd", static_cast<double>(step)}}));
  }
  return absl::OkStatus();
}

// Cuts the last record, as a process does that dies in the middle of a write.
absl::Status CutLastRecord(const std::string& directory) {
  FileSystem& files = FileSystem::Real();
  ASSIGN_OR_RETURN(const auto names, files.ListDirectory(directory));
  const std::string name = absl::StrCat(directory, "/", names.back());
  ASSIGN_OR_RETURN(const std::string bytes, files.ReadFile(name));
  return files.ReplaceFile(name, absl::string_view(bytes).substr(0, bytes.size() - 7));
}

// What the plugins besides "scalars" and "text" show.
absl::Status WriteOthers(const std::string& directory) {
  SummaryWriter summaries(absl::StrCat(directory, "/others"));
  for (const int64_t step : {1, 2}) {
    const float shift = static_cast<float>(step);
    RETURN_IF_ERROR(summaries.Histogram(
        "train", step, "weights/w", Tensor::Vector<float>({shift, shift + 0.5f, shift + 2}), 4));
  }
  RETURN_IF_ERROR(summaries.Histogram("train", 1, "same", Tensor::Vector<int64_t>({7, 7}), 3));
  RETURN_IF_ERROR(summaries.Histogram("train", 1, "none", Tensor(), 3));
  ASSIGN_OR_RETURN(const Tensor gray, Tensor::Copy<uint8_t>({2, 1, 2, 1}, {0, 255, 10, 20}));
  RETURN_IF_ERROR(summaries.Image("train", 1, "gray", gray));
  ASSIGN_OR_RETURN(const Tensor color, Tensor::Copy<float>({1, 2, 3}, {0, 0.5, 1, 1, 0, 0.25}));
  RETURN_IF_ERROR(summaries.Image("train", 1, "color", color));
  RETURN_IF_ERROR(summaries.Scalars("train", 5, {{"loss", 0.125}}));
  RETURN_IF_ERROR(summaries.Scalars("worker/0", 5, {{"steps_per_second", 20}}));
  return summaries.HParams("", 0, {{"adam", true}, {"rate", 0.5}, {"shape", "wide"}});
}

absl::Status WriteAll(const std::string& directory) {
  RETURN_IF_ERROR(WriteOthers(directory));
  {
    SummaryWriter summaries(directory);
    RETURN_IF_ERROR(
        summaries.Text("train", 0, "configuration", "| | |\n|---|---|\n| epochs | 2 |\n"));
    RETURN_IF_ERROR(WriteSteps(summaries, 1, 100));
    RETURN_IF_ERROR(
        summaries.Scalars("validation", 100, {{"loss", std::nan("")}, {"accuracy", 0.5}}));
    RETURN_IF_ERROR(summaries.Scalars("cut", 1, {{"loss", 1}}));
    RETURN_IF_ERROR(summaries.Scalars("cut", 2, {{"loss", 2}}));
  }
  RETURN_IF_ERROR(CutLastRecord(absl::StrCat(directory, "/cut")));
  SummaryWriter again(directory);  // restarted from the checkpoint of step 59
  return WriteSteps(again, 60, 120);
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  const absl::Status status =
      argc == 2 ? divvy::WriteAll(argv[1]) : absl::InvalidArgumentError("write_events DIRECTORY");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
