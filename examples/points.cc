// Fits a line through points, y = 3 a - 2 b + 1: the program of docs/start/tutorial.md.
#include "absl/flags/flag.h"
#include "divvy.h"

ABSL_FLAG(std::string, data, "points.csv", "CSV with the columns a, b and y");
ABSL_FLAG(int, epochs, 5, "number of passes over the points");

using namespace divvy;

// The model: one layer with two inputs and one output. Every process of the cluster knows it.
const Dense kLine("line", 2, 1);

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var y = Reshape(kLine(tape, batch["x"]), {-1});
  return {SquaredError(y, batch["y"]), {{"rmse", Rmse(y, batch["y"])}}};
}
const Model kPointsModel("points", {kLine}, Forward);

// The data: a and b are one tensor of two numbers. Every fifth line is held out for validation.
absl::StatusOr<Dataset> Points(const InputContext& input, bool training) {
  Dataset points = Dataset::Csv(
      absl::GetFlag(FLAGS_data),
      {{"x", DType::kFloat32, /*hash_buckets=*/0, /*width=*/2}, {"y", DType::kFloat32}});
  points = training ? points.HoldOut(5, 0).Shuffle(1000, input.seed) : points.Shard(5, 0);
  return points.Batch(32);
}
const DataSource kPoints("points", Points);

// Runs on the coordinator.
absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kPointsModel, Adam{0.01});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.validation = kPoints(/*training=*/false);
  if (const auto metrics = trainer.Fit(kPoints(/*training=*/true), options); !metrics.ok())
    return metrics.status();
  return coordinator.Export("points.safetensors", {/*slots=*/false});
}
DIVVY_PROGRAM(Train);
