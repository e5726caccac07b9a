#include "examples/planted.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/random.h"

namespace divvy::planted {
namespace {

// A normally distributed number, by the method of Box and Muller.
double Normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
  return radius * std::cos(2 * 3.14159265358979323846 * random.Uniform());
}

// Parameters of the planted model: rows of normally distributed numbers.
class Table {
 public:
  Table(uint64_t seed, int64_t rows, int width, double deviation)
      : width_(static_cast<size_t>(width)), values_(static_cast<size_t>(rows) * width_) {
    Random random(seed);
    for (float& value : values_) value = static_cast<float>(deviation * Normal(random));
  }
  absl::Span<const float> operator[](int64_t row) const {
    return absl::MakeConstSpan(values_).subspan(static_cast<size_t>(row) * width_, width_);
  }
  absl::Span<float> operator[](int64_t row) {
    return absl::MakeSpan(values_).subspan(static_cast<size_t>(row) * width_, width_);
  }

 private:
  size_t width_;
  std::vector<float> values_;
};

double Dot(absl::Span<const float> a, absl::Span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// The standard deviation of the elements of two vectors whose dot has the deviation `deviation`.
double OfElements(double deviation, int width) { return std::sqrt(deviation / std::sqrt(width)); }

void ToUnit(absl::Span<float> point) {
  const double length = std::sqrt(Dot(point, point));
  for (float& x : point) x = static_cast<float>(static_cast<double>(x) / length);
}

// A leaf under construction: rows of records.
template <typename T>
class Column {
 public:
  explicit Column(int64_t rows, int64_t width = 1)
      : tensor_(*Tensor::Uninitialized(DTypeOf<T>::value,
                                       width == 1 ? Shape{rows} : Shape{rows, width})),
        next_(tensor_.fresh_data<T>()) {}
  void Add(T value) { *next_++ = value; }
  void Add(absl::Span<const T> values) { next_ = std::copy(values.begin(), values.end(), next_); }
  Nest Done() const { return Nest(tensor_); }

 private:
  Tensor tensor_;
  T* next_;
};

// Each table and each record has a stream of random numbers of its own.
uint64_t StreamOf(uint64_t seed, uint64_t table) { return MixSeeds(seed, ~table); }
Random RecordRandom(uint64_t seed, int64_t record) {
  return Random(MixSeeds(seed, static_cast<uint64_t>(record)));
}

// OK if all options are above 0; else InvalidArgument with the first option that is not.
absl::Status Above0(std::initializer_list<std::pair<const char*, double>> options) {
  for (const auto& [name, value] : options) {
    if (!(value > 0))
      return absl::InvalidArgumentError(
          absl::StrCat("planted data: ", name, " is ", value, ", must be above 0"));
  }
  return absl::OkStatus();
}

// OK if there is memory for the widest leaf; else ResourceExhausted with the name of the option
// that asks for so many records.
absl::Status RoomFor(const char* name, int64_t records, int64_t width = 1) {
  const absl::Status status = Tensor::Uninitialized(DType::kInt64, {records, width}).status();
  if (status.ok()) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat("planted data: ", name, " is ", records,
                   ", but memory cannot hold so many records: ", status.message()));
}

// ---- Clicks

constexpr int kCounts = 13;
constexpr int kFields = 26;
constexpr int kPairWidth = 4;
constexpr double kUsualLogit = -1.2;  // about a quarter of the impressions is clicked

struct ClickModel {
  explicit ClickModel(const ClicksOptions& options)
      : counts(StreamOf(options.seed, 0), kCounts, 1, 0.2),
        single(StreamOf(options.seed, 1), kFields * options.categories, 1, 0.2),
        paired(StreamOf(options.seed, 2), kFields * options.categories, kPairWidth,
               OfElements(0.35, kPairWidth)) {}

  Table counts;  // weights of the counts' logarithms
  Table single;  // a weight of each category of each field
  Table paired;
};

// A number for category `row` that looks like a hash.
int64_t HashOf(int64_t row) {
  return static_cast<int64_t>(MixSeeds(0, static_cast<uint64_t>(row)) >> 1);
}

// ---- Visits

constexpr int kDimensions = 8;
constexpr double kSharpness = 6;

struct VisitModel {
  explicit VisitModel(const VisitsOptions& options)
      : num_items(options.items),
        users(StreamOf(options.seed, 0), options.users, kDimensions, 1),
        items(StreamOf(options.seed, 1), options.items, kDimensions, 0.7),
        nearest(static_cast<size_t>(options.users), -1) {
    const Table tags(StreamOf(options.seed, 2), options.tags, kDimensions, 1);
    for (int64_t item = 0; item < options.items; ++item) {
      for (size_t d = 0; d < kDimensions; ++d) items[item][d] += tags[item % options.tags][d];
      ToUnit(items[item]);
    }
    for (int64_t user = 0; user < options.users; ++user) {
      ToUnit(users[user]);
      double& most = nearest[static_cast<size_t>(user)];
      for (int64_t item = 0; item < options.items; ++item)
        most = std::max(most, Dot(users[user], items[item]));
    }
  }

  // Draws the item of a visit of `user`, by rejection. The nearest item is accepted always.
  int64_t Draw(int64_t user, Random& random) const {
    while (true) {
      const auto item = static_cast<int64_t>(random.Below(static_cast<uint64_t>(num_items)));
      if (random.Chance(std::exp(
              kSharpness * (Dot(users[user], items[item]) - nearest[static_cast<size_t>(user)]))))
        return item;
    }
  }

  const int64_t num_items;
  Table users, items;           // points
  std::vector<double> nearest;  // of each user, the cosine of the nearest item
};

}  // namespace

Nest Ratings(const RatingsOptions& options) {
  absl::Status usable = Above0({{"ratings", options.ratings},
                                {"users", options.users},
                                {"items", options.items},
                                {"factors", options.factors},
                                {"noise", options.noise}});
  if (usable.ok()) usable = RoomFor("ratings", options.ratings);
  if (!usable.ok()) return Nest::Failed(usable);
  const double deviation = OfElements(0.6, options.factors);
  const Table user_bias(StreamOf(options.seed, 0), options.users, 1, 0.4),
      item_bias(StreamOf(options.seed, 1), options.items, 1, 0.4);
  const Table user_factors(StreamOf(options.seed, 2), options.users, options.factors, deviation);
  const Table item_factors(StreamOf(options.seed, 3), options.items, options.factors, deviation);
  Column<int64_t> users(options.ratings), items(options.ratings);
  Column<float> ratings(options.ratings), planted(options.ratings);
  for (int64_t i = 0; i < options.ratings; ++i) {
    Random random = RecordRandom(options.seed, i);
    const auto user = static_cast<int64_t>(random.Below(static_cast<uint64_t>(options.users)));
    const auto item = static_cast<int64_t>(random.Below(static_cast<uint64_t>(options.items)));
    const double expected =
        3.5 + user_bias[user][0] + item_bias[item][0] + Dot(user_factors[user], item_factors[item]);
    users.Add(user + 1);
    items.Add(item + 1);
    planted.Add(static_cast<float>(expected));
    ratings.Add(static_cast<float>(expected + options.noise * Normal(random)));
  }
  return {{"user", users.Done()},
          {"item", items.Done()},
          {"rating", ratings.Done()},
          {"planted", planted.Done()}};
}

Nest Clicks(const ClicksOptions& options) {
  absl::Status usable =
      Above0({{"impressions", options.impressions}, {"categories", options.categories}});
  if (usable.ok()) usable = RoomFor("impressions", options.impressions, kFields);
  if (!usable.ok()) return Nest::Failed(usable);
  const ClickModel model(options);
  Column<float> labels(options.impressions), dense(options.impressions, kCounts),
      planted(options.impressions), additive(options.impressions);
  Column<int64_t> sparse(options.impressions, kFields);
  std::vector<int64_t> rows(kFields);  // of the tables, one for each field
  for (int64_t i = 0; i < options.impressions; ++i) {
    Random random = RecordRandom(options.seed, i);
    double logit = kUsualLogit;
    for (int count = 0; count < kCounts; ++count) {
      const double value = std::floor(std::exp(1.5 * Normal(random)));
      logit += model.counts[count][0] * (std::log1p(value) - 0.8);  // 0.8: about the mean
      dense.Add(static_cast<float>(value));
    }
    for (int field = 0; field < kFields; ++field) {
      const double uniform = random.Uniform();
      rows[static_cast<size_t>(field)] =
          field * options.categories +
          static_cast<int64_t>(static_cast<double>(options.categories) * uniform * uniform);
      logit += model.single[rows[static_cast<size_t>(field)]][0];
      sparse.Add(HashOf(rows[static_cast<size_t>(field)]));
    }
    additive.Add(static_cast<float>(logit));
    for (size_t field = 0; field < kFields; field += 2)
      logit += Dot(model.paired[rows[field]], model.paired[rows[field + 1]]);
    planted.Add(static_cast<float>(logit));
    labels.Add(random.Chance(1 / (1 + std::exp(-logit))) ? 1.0f : 0.0f);
  }
  return {{"label", labels.Done()},
          {"dense", dense.Done()},
          {"sparse", sparse.Done()},
          {"planted", planted.Done()},
          {"additive", additive.Done()}};
}

Nest Visits(const VisitsOptions& options) {
  absl::Status usable = Above0({{"visits", options.visits},
                                {"users", options.users},
                                {"items", options.items},
                                {"tags", options.tags}});
  if (usable.ok()) usable = RoomFor("visits", options.visits, kDimensions);
  if (!usable.ok()) return Nest::Failed(usable);
  const VisitModel model(options);
  Column<int64_t> users(options.visits), items(options.visits), tags(options.visits);
  Column<float> user_points(options.visits, kDimensions), item_points(options.visits, kDimensions);
  for (int64_t i = 0; i < options.visits; ++i) {
    Random random = RecordRandom(options.seed, i);
    const auto user = static_cast<int64_t>(random.Below(static_cast<uint64_t>(options.users)));
    const int64_t item = model.Draw(user, random);
    users.Add(user);
    items.Add(item);
    tags.Add(item % options.tags);
    user_points.Add(model.users[user]);
    item_points.Add(model.items[item]);
  }
  return {{"user", users.Done()},
          {"item", items.Done()},
          {"tag", tags.Done()},
          {"planted", {{"user", user_points.Done()}, {"item", item_points.Done()}}}};
}

Dataset Sentences(const SentencesOptions& options) {
  const absl::Status usable = Above0({{"sentences", options.sentences},
                                      {"topics", options.topics},
                                      {"words", options.words},
                                      {"length", options.length}});
  const auto sentence = [options, usable](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
    if (!usable.ok()) return usable;
    Random random = RecordRandom(options.seed, i);
    const uint64_t topic = random.Below(static_cast<uint64_t>(options.topics));
    std::string text;
    for (int64_t word = 0; word < options.length; ++word) {
      const double uniform = random.Uniform();
      absl::StrAppend(&text, word > 0 ? " " : "", "topic", topic, "word",
                      static_cast<int64_t>(static_cast<double>(options.words) * uniform * uniform));
    }
    return Nest(std::move(text));
  };
  // The one element of bad options is their error.
  return Dataset::Generator(sentence, usable.ok() ? options.sentences : 1);
}

}  // namespace divvy::planted
