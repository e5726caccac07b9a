// How many stars will a user give to a film? Each has a bias and a few factors; a rating is their
// sum and dot. Trains on ratings as MovieLens-100k has them, or on planted ones, whose noise no
// model can beat, and prints the error beside that floor.
#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "examples/planted.h"

ABSL_FLAG(std::string, data, "",
          "files as MovieLens-100k's u.data: user, item, rating and time, parted by tabs; a glob. "
          "Empty: planted ratings");
ABSL_FLAG(int64_t, ratings, 300'000, "how many are planted");
ABSL_FLAG(int64_t, batch_size, 512, "ratings a replica takes in a step");
ABSL_FLAG(int, epochs, 20, "at most so many passes over the ratings");
ABSL_FLAG(float, l2, 0.02, "how much large factors cost");

using namespace divvy;

// Ids count from 1. For larger data, larger tables: they are cut over the parameter servers, and
// only the rows that a batch names travel.
constexpr int64_t kUsers = 944, kItems = 1683, kFactors = 8;

const Embedding kUserBias("user/bias", kUsers, 1, {}, Zeros());
const Embedding kItemBias("item/bias", kItems, 1, {}, Zeros());
const Embedding kUserFactors("user/factors", kUsers, kFactors, {}, RandomNormal{0, 0.1f});
const Embedding kItemFactors("item/factors", kItems, kFactors, {}, RandomNormal{0, 0.1f});

bool Planted() { return absl::GetFlag(FLAGS_data).empty(); }

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  // The look-ups first: they leave together, in one message to each parameter server.
  Var user_bias = kUserBias(tape, batch["user"]), item_bias = kItemBias(tape, batch["item"]);
  Var user = kUserFactors(tape, batch["user"]), item = kItemFactors(tape, batch["item"]);
  Var stars = Reshape(user_bias + item_bias, {-1}) + ReduceSum(user * item, 1) + 3.5f;
  Var size = ReduceSum(Square(user) + Square(item), 1) * absl::GetFlag(FLAGS_l2);
  ModelOutput output = {SquaredError(stars, batch["rating"]) + size,
                        {{"rmse", Rmse(stars, batch["rating"])}}};
  if (Planted()) output.metrics.emplace("floor", Rmse(batch["planted"], batch["rating"]));
  return output;
}
const Model kFactorization("factorization", {kUserBias, kItemBias, kUserFactors, kItemFactors},
                           Forward);

// Made once in a process, not once in a pass.
Nest PlantedRatings() {
  static const Nest& ratings = *new Nest(planted::Ratings({absl::GetFlag(FLAGS_ratings)}));
  return ratings;
}

// Every tenth rating is held out.
absl::StatusOr<Dataset> Ratings(const InputContext& input, bool training) {
  CsvColumn user{"user", DType::kInt64}, item{"item", DType::kInt64};
  user.below = kUsers;
  item.below = kItems;
  Dataset ratings = Planted()
                        ? Dataset::FromTensorSlices(PlantedRatings())
                        : Dataset::Csv(absl::GetFlag(FLAGS_data),
                                       {user, item, {"rating"}, {"time", DType::kInt64}}, '\t');
  ratings = training ? ratings.HoldOut(10, 0).Shuffle(10'000, input.seed) : ratings.Shard(10, 0);
  return ratings.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kRatings("ratings", Ratings);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kFactorization, Adam{5e-3});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.validation = kRatings(/*training=*/false);
  options.callbacks = {std::make_shared<EarlyStopping>("validation/rmse", /*patience=*/1)};
  ASSIGN_OR_RETURN(auto metrics, trainer.Fit(kRatings(/*training=*/true), options));
  const double rmse = metrics["validation/rmse"], floor = metrics["validation/floor"];
  absl::PrintF("held out: rmse %.4f", rmse);
  if (Planted()) absl::PrintF("  noise floor %.4f  ratio %.3f", floor, rmse / floor);
  absl::PrintF("\n");
  return absl::OkStatus();
}
DIVVY_PROGRAM(Train);
