// Planted data follows its distributions, and is the same in every process.
#include "examples/planted.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::planted {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::vector<T> Values(const Nest& leaf) {
  const Tensor tensor = *leaf.tensor();
  const absl::Span<const T> values = *tensor.values<T>();
  return {values.begin(), values.end()};
}

double Mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Deviation(const std::vector<float>& values) {
  const double mean = Mean(values);
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

template <typename T>
std::set<T> Distinct(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// The first `rows` rows of every leaf.
Nest Head(const Nest& data, int64_t rows) {
  Dataset head = Dataset::FromTensorSlices(data).Take(rows).Batch(rows);
  return **head.Iterate()->Next();
}

// ---- ratings

TEST(RatingsTest, ScatterAroundWhatTheModelSaysByTheNoise) {
  RatingsOptions options;
  options.ratings = 100'000;
  for (const double noise : {0.5, 1.0}) {
    options.noise = noise;
    const Nest ratings = Ratings(options);
    EXPECT_NEAR(Rmse(ratings["planted"], ratings["rating"])->value(), noise, 0.01 * noise);
  }
}

TEST(RatingsTest, HaveTheDeviationsThatAreToldForTheModel) {
  const Nest ratings = Ratings();
  EXPECT_NEAR(Mean(Values<float>(ratings["planted"])), 3.5, 0.1);
  EXPECT_NEAR(Deviation(Values<float>(ratings["planted"])),
              std::sqrt(0.4 * 0.4 + 0.4 * 0.4 + 0.6 * 0.6), 0.05);
  EXPECT_EQ(ratings["rating"].tensor()->shape(), Shape({300'000}));
}

TEST(RatingsTest, NameEveryUserAndItemCountedFromOne) {
  const Nest ratings = Ratings();
  const std::set<int64_t> users = Distinct(Values<int64_t>(ratings["user"])),
                          items = Distinct(Values<int64_t>(ratings["item"]));
  EXPECT_EQ(users.size(), 943u);
  EXPECT_EQ(*users.begin(), 1);
  EXPECT_EQ(*users.rbegin(), 943);
  EXPECT_EQ(items.size(), 1682u);
  EXPECT_EQ(*items.rbegin(), 1682);
}

// ---- clicks

TEST(ClicksTest, HappenAsOftenAsTheirLogitsSay) {
  ClicksOptions options;
  options.impressions = 100'000;
  const Nest clicks = Clicks(options);
  const std::vector<float> logits = Values<float>(clicks["planted"]),
                           labels = Values<float>(clicks["label"]);
  // The sums of probabilities and of clicks, for impressions with about the same logit.
  std::map<int, std::pair<double, double>> by_logit;
  std::map<int, double> count;
  for (size_t i = 0; i < logits.size(); ++i) {
    const int bin = static_cast<int>(std::floor(logits[i]));
    by_logit[bin].first += 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    by_logit[bin].second += static_cast<double>(labels[i]);
    ++count[bin];
  }
  for (const auto& [bin, sums] : by_logit) {
    EXPECT_NEAR(sums.second, sums.first, 4 * std::sqrt(sums.first) + 1)
        << count[bin] << " impressions with logits from " << bin;
  }
  EXPECT_THAT(Distinct(labels), ::testing::ElementsAre(0.0f, 1.0f));
  EXPECT_NEAR(Mean(labels), 0.27, 0.06);
}

TEST(ClicksTest, CannotBeToldBySingleFieldsAsWellAsByPairs) {
  ClicksOptions options;
  options.impressions = 100'000;
  const Nest clicks = Clicks(options);
  const double ceiling = Auc(clicks["planted"], clicks["label"])->value(),
               additive = Auc(clicks["additive"], clicks["label"])->value();
  EXPECT_NEAR(ceiling, 0.836, 0.01);
  EXPECT_LT(additive, 0.9 * ceiling);
}

TEST(ClicksTest, HaveTheFormOfCriteosLogs) {
  ClicksOptions options;
  options.impressions = 20'000;
  options.categories = 10;
  const Nest clicks = Clicks(options);
  EXPECT_EQ(clicks["dense"].tensor()->shape(), Shape({20'000, 13}));
  EXPECT_EQ(clicks["sparse"].tensor()->shape(), Shape({20'000, 26}));
  const std::vector<int64_t> sparse = Values<int64_t>(clicks["sparse"]);
  std::map<int64_t, int> of_first_field;
  for (size_t i = 0; i < sparse.size(); i += 26) ++of_first_field[sparse[i]];
  EXPECT_EQ(of_first_field.size(), 10u);
  int most = 0;
  for (const auto& [hash, count] : of_first_field) most = std::max(most, count);
  // A category of at most c is drawn with probability sqrt((c + 1) / 10).
  EXPECT_NEAR(most, 20'000 * std::sqrt(0.1), 300);
  EXPECT_EQ(Distinct(sparse).size(), 260u);
  EXPECT_GE(*Distinct(sparse).begin(), 0);
  for (const float count : Values<float>(clicks["dense"]))
    ASSERT_TRUE(count >= 0 && count == std::floor(count)) << count;
}

// ---- visits

TEST(VisitsTest, ArePointsOnTheSphereOfUsersAndItems) {
  VisitsOptions options;
  options.visits = 20'000;
  const Nest visits = Visits(options);
  const std::vector<float> users = Values<float>(visits["planted"]["user"]),
                           items = Values<float>(visits["planted"]["item"]);
  const std::vector<int64_t> ids = Values<int64_t>(visits["item"]),
                             tags = Values<int64_t>(visits["tag"]);
  ASSERT_EQ(users.size(), 8u * 20'000);
  double cosines = 0;
  for (size_t i = 0; i < users.size(); i += 8) {
    EXPECT_NEAR(std::inner_product(&users[i], &users[i] + 8, &users[i], 0.0), 1, 1e-5);
    EXPECT_NEAR(std::inner_product(&items[i], &items[i] + 8, &items[i], 0.0), 1, 1e-5);
    cosines += std::inner_product(&users[i], &users[i] + 8, &items[i], 0.0);
    EXPECT_EQ(tags[i / 8], ids[i / 8] % 40);
  }
  // The mean cosine of unrelated points is 0.
  EXPECT_GT(cosines / 20'000, 0.4);
}

TEST(VisitsTest, GoToItemsInProportionToTheirWeights) {
  VisitsOptions options;
  options.visits = 100'000;
  options.users = 1;
  options.items = 4;
  options.tags = 4;
  const Nest visits = Visits(options);
  const std::vector<float> users = Values<float>(visits["planted"]["user"]),
                           items = Values<float>(visits["planted"]["item"]);
  const std::vector<int64_t> ids = Values<int64_t>(visits["item"]);
  std::map<int64_t, double> weights, counts;
  for (size_t i = 0; i < ids.size(); ++i) {
    weights[ids[i]] =
        std::exp(6 * std::inner_product(&users[8 * i], &users[8 * i] + 8, &items[8 * i], 0.0));
    ++counts[ids[i]];
  }
  double total = 0;
  for (const auto& [id, weight] : weights) total += weight;
  ASSERT_GE(weights.size(), 2u);
  for (const auto& [id, weight] : weights)
    EXPECT_NEAR(counts[id], 100'000 * weight / total, 5 * std::sqrt(counts[id]) + 50)
        << "item " << id;
}

// ---- all of them

TEST(PlantedTest, TheSameOptionsGiveTheSameBitsAndAnotherSeedOthers) {
  RatingsOptions ratings;
  ClicksOptions clicks;
  VisitsOptions visits;
  ratings.ratings = clicks.impressions = visits.visits = 500;
  const Nest first_ratings = Ratings(ratings), first_clicks = Clicks(clicks),
             first_visits = Visits(visits);
  EXPECT_TRUE(BitwiseEqual(Ratings(ratings), first_ratings));
  EXPECT_TRUE(BitwiseEqual(Clicks(clicks), first_clicks));
  EXPECT_TRUE(BitwiseEqual(Visits(visits), first_visits));
  ratings.seed = clicks.seed = visits.seed = 2;
  for (const auto& [name, other, first] : {std::tuple("rating", Ratings(ratings), first_ratings),
                                           std::tuple("sparse", Clicks(clicks), first_clicks),
                                           std::tuple("item", Visits(visits), first_visits)}) {
    EXPECT_FALSE(BitwiseEqual(other[name], first[name])) << name;
  }
}

TEST(PlantedTest, LongerDataBeginsWithTheShorter) {
  RatingsOptions ratings;
  ClicksOptions clicks;
  VisitsOptions visits;
  ratings.ratings = clicks.impressions = visits.visits = 100;
  const Nest short_ratings = Ratings(ratings), short_clicks = Clicks(clicks),
             short_visits = Visits(visits);
  ratings.ratings = clicks.impressions = visits.visits = 300;
  EXPECT_TRUE(BitwiseEqual(Head(Ratings(ratings), 100), short_ratings));
  EXPECT_TRUE(BitwiseEqual(Head(Clicks(clicks), 100), short_clicks));
  EXPECT_TRUE(BitwiseEqual(Head(Visits(visits), 100), short_visits));
}

TEST(PlantedTest, AnOptionThatIsNotAboveZeroIsNamed) {
  RatingsOptions ratings;
  ratings.ratings = 0;
  ClicksOptions clicks;
  clicks.categories = -3;
  VisitsOptions visits;
  visits.tags = 0;
  const std::vector<std::pair<Nest, std::string>> cases = {
      {Ratings(ratings), "ratings is 0, must be above 0"},
      {Clicks(clicks), "categories is -3"},
      {Visits(visits), "tags is 0"}};
  for (const auto& [failed, message] : cases) {
    EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(failed.status().message(), HasSubstr(message));
    EXPECT_EQ(Dataset::FromTensorSlices(failed).Iterate()->Next().status(), failed.status());
  }
}

TEST(PlantedTest, MoreRecordsThanMemoryHoldsAreAnErrorWithTheOptionsName) {
  // The number of bytes overflows, so nothing is allocated.
  constexpr int64_t kTooMany = int64_t{1} << 61;
  RatingsOptions ratings;
  ratings.ratings = kTooMany;
  ClicksOptions clicks;
  clicks.impressions = kTooMany;
  VisitsOptions visits;
  visits.visits = kTooMany;
  const std::vector<std::pair<Nest, std::string>> cases = {
      {Ratings(ratings), "ratings is 2305843009213693952"},
      {Clicks(clicks), "impressions is"},
      {Visits(visits), "visits is"}};
  for (const auto& [failed, message] : cases) {
    EXPECT_EQ(failed.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(failed.status().message(), HasSubstr(message));
  }
}

std::vector<std::string> TextsOf(const Dataset& dataset) {
  std::vector<std::string> texts;
  const auto pass = dataset.Iterate();
  for (;;) {
    const auto element = pass->Next();
    EXPECT_TRUE(element.ok()) << element.status();
    if (!element.ok() || !element->has_value()) return texts;
    texts.push_back(*(*element)->text());
  }
}

TEST(SentencesTest, EachHasFrequentAndRareWordsOfOneTopic) {
  SentencesOptions options;
  options.sentences = 500;
  options.topics = 3;
  options.words = 7;
  options.length = 4;
  std::map<std::string, int> counts;
  for (const std::string& text : TextsOf(Sentences(options))) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    ASSERT_EQ(words.size(), 4) << text;
    for (const std::string& word : words) {
      EXPECT_EQ(word.substr(0, word.find("word")), words[0].substr(0, words[0].find("word")));
      ++counts[word];
    }
  }
  EXPECT_EQ(counts.size(), 3 * 7);
  EXPECT_GT(counts["topic2word0"], 2 * counts["topic2word6"]);
}

TEST(SentencesTest, AreTheSameInEveryPassAndALongerDataSetBeginsWithTheShorter) {
  SentencesOptions options;
  options.sentences = 20;
  std::vector<std::string> longer = TextsOf(Sentences(options));
  EXPECT_EQ(TextsOf(Sentences(options)), longer);
  options.sentences = 10;
  longer.resize(10);
  EXPECT_EQ(TextsOf(Sentences(options)), longer);
  options.seed = 2;
  EXPECT_NE(TextsOf(Sentences(options)), longer);
}

TEST(SentencesTest, AnOptionThatIsNotAboveZeroIsNamed) {
  SentencesOptions none, wordless;
  none.sentences = -1;
  wordless.words = 0;
  for (const auto& [options, message] :
       {std::pair(none, "sentences is -1, must be above 0"), std::pair(wordless, "words is 0")}) {
    const absl::Status refused = Sentences(options).Iterate()->Next().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace divvy::planted
