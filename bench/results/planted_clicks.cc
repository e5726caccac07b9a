#include "bench/results/planted_clicks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace divvy::results {
namespace {

constexpr double kZipf = 1.05;
// About a quarter is clicked.
constexpr double kUsualLogit = -1.2;
constexpr double kDeviationOfCategory = 0.3, kDeviationOfPair = 0.15;
// From this category of a field on, rare categories tell less: nobody could learn what those tell
// that are seen once.
constexpr double kRare = 100;
constexpr size_t kPairWidth = 4;

// What a number of the model is for: a stream of random numbers of its own.
enum Stream : uint64_t { kOfClicks = 1, kOfHashes, kOfCounts, kOfCategories, kOfPairs };

// Four numbers with mean 0 and deviation 1, uniform, from 64 random bits.
std::array<double, 4> Spread(uint64_t bits) {
  std::array<double, 4> numbers;
  for (size_t i = 0; i < 4; ++i)
    numbers[i] = (static_cast<double>(bits >> (16 * i) & 0xFFFF) / 32767.5 - 1) * std::sqrt(3.0);
  return numbers;
}
double Sum(const std::array<double, 4>& numbers) {
  return numbers[0] + numbers[1] + numbers[2] + numbers[3];
}

// The number of a category, from 0; the first ones are frequent. The law is that of the k-th
// frequent one, made continuous.
int64_t DrawCategory(int64_t categories, double uniform) {
  const double most = std::pow(static_cast<double>(categories) + 1, 1 - kZipf);
  const double k = std::pow(1 + uniform * (most - 1), 1 / (1 - kZipf));
  return std::min(static_cast<int64_t>(k), categories) - 1;
}

int64_t HashOf(int64_t field, int64_t category) {
  return static_cast<int64_t>(
      MixSeeds(MixSeeds(kOfHashes, static_cast<uint64_t>(field)), static_cast<uint64_t>(category)));
}

struct Category {
  int64_t hash;
  // At most 1.
  double telling;
};
Category CategoryOf(int64_t field, int64_t number) {
  return {HashOf(field, number), std::sqrt(std::min(1.0, kRare / static_cast<double>(number + 1)))};
}

double WeightOf(const Category& category) {
  return kDeviationOfCategory / 2 * category.telling *
         Sum(Spread(MixSeeds(kOfCategories, static_cast<uint64_t>(category.hash))));
}

// The dot of two vectors of kPairWidth elements.
double TermOfPair(const Category& one, const Category& other) {
  const auto a = Spread(MixSeeds(kOfPairs, static_cast<uint64_t>(one.hash))),
             b = Spread(MixSeeds(kOfPairs, static_cast<uint64_t>(other.hash)));
  double dot = 0;
  for (size_t i = 0; i < kPairWidth; ++i) dot += a[i] * b[i];
  return kDeviationOfPair / std::sqrt(static_cast<double>(kPairWidth)) * one.telling *
         other.telling * dot;
}

struct Leaves {
  explicit Leaves(int64_t rows)
      : label(*Tensor::Uninitialized(DType::kFloat32, {rows})),
        dense(*Tensor::Uninitialized(DType::kFloat32, {rows, kClickCounts})),
        sparse(*Tensor::Uninitialized(DType::kInt64, {rows, kClickFields})),
        planted(*Tensor::Uninitialized(DType::kFloat32, {rows})) {}
  Tensor label, dense, sparse, planted;
};

// Draws the counts and categories of a click. Returns its logit.
double Draw(Random& random, float* dense, int64_t* sparse) {
  double logit = kUsualLogit;
  for (uint64_t count = 0; count < kClickCounts; ++count) {
    const double value = std::floor(std::exp(4 * random.Uniform() - 0.5));
    // The logarithm has a mean of about 1.7.
    logit += 0.2 * Spread(MixSeeds(kOfCounts, count))[0] * (std::log1p(value) - 1.7);
    *dense++ = static_cast<float>(value);
  }
  Category before{};
  for (int64_t field = 0; field < kClickFields; ++field) {
    const Category category =
        CategoryOf(field, DrawCategory(kClickCategories[field], random.Uniform()));
    logit += WeightOf(category);
    if (field % 2 == 1) logit += TermOfPair(before, category);
    sparse[field] = category.hash;
    before = category;
  }
  return logit;
}

Nest Clicks(int64_t first, int64_t end) {
  Leaves leaves(end - first);
  float* const label = leaves.label.fresh_data<float>();
  float* const dense = leaves.dense.fresh_data<float>();
  auto* const sparse = leaves.sparse.fresh_data<int64_t>();
  float* const planted = leaves.planted.fresh_data<float>();
  for (int64_t i = 0; i < end - first; ++i) {
    Random random(MixSeeds(kOfClicks, static_cast<uint64_t>(first + i)));
    const double logit = Draw(random, dense + i * kClickCounts, sparse + i * kClickFields);
    planted[i] = static_cast<float>(logit);
    label[i] = random.Chance(1 / (1 + std::exp(-logit))) ? 1.0f : 0.0f;
  }
  return {{"label", leaves.label},
          {"dense", leaves.dense},
          {"sparse", leaves.sparse},
          {"planted", leaves.planted}};
}

}  // namespace

Dataset PlantedClicks(int64_t first, int64_t end, int64_t batch_size) {
  if (batch_size < 1 || first < 0 || end <= first) {
    const absl::Status refused = absl::InvalidArgumentError(
        absl::StrCat("planted clicks [", first, ", ", end, ") in batches of ", batch_size,
                     ": give at least one click, in batches of at least 1"));
    return Dataset::Generator(
        [refused](int64_t) -> absl::StatusOr<std::optional<Nest>> { return refused; }, 1);
  }
  return Dataset::Generator(
      [=](int64_t batch) -> absl::StatusOr<std::optional<Nest>> {
        const int64_t begin = first + batch * batch_size;
        return Clicks(begin, std::min(end, begin + batch_size));
      },
      (end - first + batch_size - 1) / batch_size);
}

}  // namespace divvy::results
