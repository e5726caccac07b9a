// MovieLens-100k: biased matrix factorisation. A rating is the sum of a constant, a bias of the
// user, a bias of the film, and the dot of their factors.
#include <vector>

#include "absl/flags/flag.h"
#include "base/status_macros.h"
#include "bench/results/measures.h"
#include "bench/results/result.h"
#include "divvy.h"

ABSL_FLAG(int64_t, batch_size, 256, "ratings per replica and step");
ABSL_FLAG(int, epochs, 60, "passes over the ratings");
ABSL_FLAG(double, learning_rate, 0.01, "the rate of SGD for a single rating");
ABSL_FLAG(float, l2, 0.1, "penalty on large biases and factors, for each rating");

namespace divvy::results {
namespace {

// Ids count from 1. The constant is learned, and begins near the mean.
constexpr int64_t kUsers = 944, kItems = 1683, kFactors = 64;
constexpr float kLowest = 1, kHighest = 5;

struct Offset : Layer {
  // Every rating of a batch moves it, so it needs a smaller rate than the factors.
  Offset() { variables = {{"offset", Shape{1}, Constant{3.5}, Sgd{0.05}}}; }
  Var operator()(GradientTape& tape) const { return tape.Read(variables[0].name); }
};

const Offset kOffset;
const Embedding kUserBias("user/bias", kUsers, 1, {}, Zeros());
const Embedding kItemBias("item/bias", kItems, 1, {}, Zeros());
const Embedding kUserFactors("user/factors", kUsers, kFactors, {}, RandomNormal{0, 0.1f});
const Embedding kItemFactors("item/factors", kItems, kFactors, {}, RandomNormal{0, 0.1f});
const ExampleCounter kCounter;

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  // The lookups come first, so that one message to each parameter server has all of them.
  const Var user_bias = kUserBias(tape, batch["user"]), item_bias = kItemBias(tape, batch["item"]);
  const Var user = kUserFactors(tape, batch["user"]), item = kItemFactors(tape, batch["item"]);
  const Var biases = Reshape(user_bias + item_bias, {-1});
  const Var stars = biases + ReduceSum(user * item, 1) + kOffset(tape);
  const Var sizes = ReduceSum(Square(user) + Square(item), 1) +
                    Reshape(Square(user_bias) + Square(item_bias), {-1});
  const Var losses = (SquaredError(stars, batch["rating"]) + sizes * absl::GetFlag(FLAGS_l2)) * 0.5;
  return {kCounter(tape, losses),
          {{"rmse", Rmse(stars, batch["rating"])}},
          {{"stars", stars}, {"rating", batch["rating"]}}};
}
const Model kModel("movielens",
                   {kOffset, kUserBias, kItemBias, kUserFactors, kItemFactors, kCounter}, Forward);

absl::StatusOr<Dataset> Ratings(const InputContext& input, bool to_train) {
  const auto read = [](const std::string& file) {
    CsvColumn user{"user", DType::kInt64}, item{"item", DType::kInt64};
    user.below = kUsers;
    item.below = kItems;
    return Dataset::Csv(file, {user, item, {"rating"}, {"time", DType::kInt64}}, '\t');
  };
  Dataset ratings =
      PartOf(read(absl::GetFlag(FLAGS_train)), read(absl::GetFlag(FLAGS_test)), to_train);
  if (to_train) ratings = ratings.Shuffle(100'000, input.seed);
  return ratings.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kRatings("ratings", Ratings);

absl::Status Train(Coordinator& coordinator) {
  const int epochs = absl::GetFlag(FLAGS_epochs);
  ASSIGN_OR_RETURN(const Counts expected,
                   CountPasses(kRatings(/*to_train=*/true), "rating", epochs));
  // A step takes the mean over its batch. With this factor, it moves as far as one rating after
  // another would. Towards the end the rate falls to 0, so that the noise of SGD fades out.
  const double rate =
      absl::GetFlag(FLAGS_learning_rate) * static_cast<double>(absl::GetFlag(FLAGS_batch_size));
  Trainer trainer(coordinator, kModel, Sgd{PolynomialDecay{rate, expected.steps, 0}});
  FitOptions options;
  options.epochs = epochs;
  RETURN_IF_ERROR(trainer.Fit(kRatings(/*to_train=*/true), options).status());
  ASSIGN_OR_RETURN(const Outputs outputs, trainer.Predict(kRatings(/*to_train=*/false)));
  ASSIGN_OR_RETURN(const std::vector<float> stars, ValuesOf(outputs, "stars"));
  ASSIGN_OR_RETURN(const std::vector<float> ratings, ValuesOf(outputs, "rating"));
  ASSIGN_OR_RETURN(const double rmse, RootMeanSquare(stars, ratings, kLowest, kHighest));
  return PrintResult(coordinator, "movielens", {{"rmse", rmse}}, expected);
}

}  // namespace
}  // namespace divvy::results

DIVVY_PROGRAM(divvy::results::Train);
