#include "ops/retrieval.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/testing/gradient_check.h"
#include "ops/testing/map_reader.h"
#include "ops/testing/place.h"

namespace divvy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A matrix in row-major order.
struct Matrix {
  int64_t rows, width;
  std::vector<double> values;
  double operator()(int64_t row, int64_t column) const { return values[row * width + column]; }
  Tensor Here() const { return *Tensor::Copy<double>({rows, width}, values); }
  Var There() const { return divvy::There(Here()); }
};

Matrix RandomMatrix(Random& random, int64_t rows, int64_t width) {
  Matrix matrix{rows, width, std::vector<double>(rows * width)};
  for (double& value : matrix.values) value = random.Uniform() * 3 - 1.5;
  return matrix;
}
Var Doubles(const std::vector<double>& values) { return There(Tensor::Vector<double>(values)); }
Nest Ids(const std::vector<int64_t>& ids) { return Tensor::Vector<int64_t>(ids); }

double Dot(const Matrix& a, int64_t i, const Matrix& b, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < a.width; ++k) sum += a(i, k) * b(j, k);
  return sum;
}

std::vector<double> ValuesOf(const Var& var) {
  const absl::StatusOr<Tensor> value = var.Value();
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return {};
  const Tensor here = *value->To(Device{});
  const absl::StatusOr<absl::Span<const double>> values = here.values<double>();
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? std::vector<double>(values->begin(), values->end()) : std::vector<double>();
}

void ExpectNear(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-10) << i;
}

void ExpectRefused(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

// ---- in-batch softmax ---------------------------------------------------------------------------

// By definition. An empty vector stands for an option that is not given.
std::vector<double> NaiveInBatch(const Matrix& users, const Matrix& items,
                                 const std::vector<int64_t>& ids, const std::vector<double>& log_q,
                                 double temperature) {
  std::vector<double> losses;
  for (int64_t i = 0; i < users.rows; ++i) {
    const auto score = [&](int64_t j) {
      return Dot(users, i, items, j) / temperature - (log_q.empty() ? 0 : log_q[j]);
    };
    double sum = 0;
    for (int64_t j = 0; j < items.rows; ++j) {
      const bool hit = !ids.empty() && j != i && ids[j] == ids[i];
      if (!hit) sum += std::exp(score(j));
    }
    losses.push_back(std::log(sum) - score(i));
  }
  return losses;
}

TEST(InBatchSoftmaxTest, AgreesWithItsDefinitionForEveryCombinationOfOptions) {
  const uint64_t seed = 61;
  SCOPED_TRACE(seed);
  Random random(seed);
  const Matrix users = RandomMatrix(random, 4, 3), items = RandomMatrix(random, 6, 3);
  // Accidental hits within the batch and with an item beyond it. The first two ids are one double.
  const int64_t big = int64_t{1} << 60;
  const std::vector<int64_t> ids = {big, big + 1, big, 7, 7, big + 1};
  const std::vector<double> log_q = {-1, -2, -0.5, -7, -20, -3};
  for (int options_given = 0; options_given < 8; ++options_given) {
    SCOPED_TRACE(options_given);
    InBatchSoftmaxOptions options;
    if (options_given & 1) options.item_ids = Ids(ids);
    if (options_given & 2) options.log_q = Doubles(log_q);
    if (options_given & 4) options.temperature = 0.25f;
    ExpectNear(
        ValuesOf(InBatchSoftmax(users.There(), items.There(), options)),
        NaiveInBatch(users, items, options_given & 1 ? ids : std::vector<int64_t>(),
                     options_given & 2 ? log_q : std::vector<double>(), options.temperature));
  }
}

TEST(InBatchSoftmaxTest, HasTheGradientOfDifferences) {
  Random random(62);
  const Matrix users = RandomMatrix(random, 3, 2), items = RandomMatrix(random, 4, 2);
  EXPECT_EQ(absl::OkStatus(), CheckGradients(
                                  [](GradientTape&, const std::vector<Var>& leaves) {
                                    InBatchSoftmaxOptions options;
                                    options.item_ids = Ids({5, 6, 5, 6});
                                    options.log_q = Doubles({-1, -2, -3, -0.5});
                                    options.temperature = 0.5f;
                                    return InBatchSoftmax(leaves[0], leaves[1], options);
                                  },
                                  {users.Here(), items.Here()}, *TestDevice()));
}

TEST(InBatchSoftmaxTest, AnAccidentalHitHasNoPartInTheGradient) {
  MapReader reader;
  GradientTape tape(reader);
  const Var users = tape.Watch("users", There(*Tensor::Copy<double>({1, 2}, {1, 2})));
  const Var items = tape.Watch("items", There(*Tensor::Copy<double>({2, 2}, {3, 4, 50, 60})));
  InBatchSoftmaxOptions options;
  options.item_ids = Ids({8, 8});
  const Var losses = InBatchSoftmax(users, items, options);
  EXPECT_THAT(ValuesOf(losses), ElementsAre(0));
  const absl::StatusOr<Gradients> gradients = tape.Gradient(ReduceSum(losses));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT(ValuesOf(Var(std::get<Tensor>(gradients->entries().at("users")))), Each(0));
  EXPECT_THAT(ValuesOf(Var(std::get<Tensor>(gradients->entries().at("items")))), Each(0));
}

TEST(InBatchSoftmaxTest, TakesFloatsIdsOfAnyIntegerTypeAndAnEmptyBatch) {
  const Var users = There(*Tensor::Copy<float>({2, 1}, {1, 2}));
  InBatchSoftmaxOptions options;
  options.item_ids = Tensor::Vector<int32_t>({3, 3});
  EXPECT_EQ(InBatchSoftmax(users, users, options).dtype(), DType::kFloat32);
  const Var none = There(*Tensor::Zeros(DType::kFloat32, {0, 4}));
  options.item_ids = Ids({});
  options.log_q = There(*Tensor::Zeros(DType::kFloat32, {0}));
  const Var losses = InBatchSoftmax(none, none, options);
  EXPECT_EQ(losses.status(), absl::OkStatus());
  EXPECT_EQ(losses.shape(), Shape{0});
}

TEST(InBatchSoftmaxTest, RefusesWhatDoesNotFitAndNamesTheFix) {
  Random random(63);
  const Var users = RandomMatrix(random, 3, 2).There(), items = RandomMatrix(random, 4, 2).There();
  const auto refused = [&](const Var& u, const Var& v, const InBatchSoftmaxOptions& options,
                           const std::vector<std::string>& parts) {
    ExpectRefused(InBatchSoftmax(u, v, options).status(), parts);
  };
  refused(items, users, {}, {"InBatchSoftmax", "[4, 2]", "[3, 2]", "items >= batch"});
  refused(users, RandomMatrix(random, 4, 3).There(), {}, {"[3, 2]", "[4, 3]", "[items, width]"});
  refused(users, There(*Tensor::Zeros(DType::kFloat32, {4, 2})), {}, {"of one dtype"});
  refused(There(Tensor::Vector<int64_t>({1})), items, {}, {"InBatchSoftmax", "int64 [1]", "Cast"});
  for (const float temperature : {0.0f, -1.0f, NAN, INFINITY}) {
    InBatchSoftmaxOptions options;
    options.temperature = temperature;
    refused(users, items, options, {"temperature is ", "give one above 0"});
  }
  InBatchSoftmaxOptions ids;
  ids.item_ids = Ids({1, 2, 3});
  refused(users, items, ids, {"item_ids", "int64 [3]", "one id for each item"});
  ids.item_ids = Tensor::Vector<float>({1, 2, 3, 4});
  refused(users, items, ids, {"item_ids", "float32 [4]", "integers of rank 1"});
  ids.item_ids = Nest("a text");
  EXPECT_EQ(InBatchSoftmax(users, items, ids).status().code(), absl::StatusCode::kInvalidArgument);
  InBatchSoftmaxOptions log_q;
  log_q.log_q = Doubles({-1, -2});
  refused(users, items, log_q, {"log_q", "[2]", "one floating-point number for each item"});
  log_q.log_q = There(Tensor::Vector<int64_t>({-1, -1, -1, -1}));
  refused(users, items, log_q, {"log_q", "int64 [4]", "floating-point"});
}

// A GPU takes it: to look at its memory would stop the stream.
TEST(InBatchSoftmaxTest, RefusesAProbabilityInPlaceOfItsLogarithm) {
  const bool is_gpu = TestDevice()->kind == Device::Kind::kGpu;
  Random random(64);
  const Matrix users = RandomMatrix(random, 3, 2);
  for (const double wrong : std::vector<double>{0.25, NAN, -INFINITY}) {
    InBatchSoftmaxOptions options;
    options.log_q = Doubles({-1, wrong, -1});
    const absl::Status status = InBatchSoftmax(users.There(), users.There(), options).status();
    if (is_gpu) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      ExpectRefused(status,
                    {absl::StrCat("log_q of item 1 is ", wrong), "Log(q) with 0 < q <= 1"});
    }
  }
}

// Halves hold these numbers exactly.
TEST(InBatchSoftmaxTest, TakesLogarithmsOfAnyFloatingTypeAndChecksThem) {
  Random random(66);
  const Matrix users = RandomMatrix(random, 3, 2);
  InBatchSoftmaxOptions doubles;
  doubles.log_q = Doubles({-1, -0.5, -3});
  const std::vector<double> wanted =
      ValuesOf(InBatchSoftmax(users.There(), users.There(), doubles));
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    SCOPED_TRACE(DTypeName(dtype));
    InBatchSoftmaxOptions options;
    options.log_q = Cast(Doubles({-1, -0.5, -3}), dtype);
    ExpectNear(ValuesOf(InBatchSoftmax(users.There(), users.There(), options)), wanted);
    if (TestDevice()->kind == Device::Kind::kGpu) continue;
    options.log_q = Cast(Doubles({-1, 0.25, -1}), dtype);
    ExpectRefused(InBatchSoftmax(users.There(), users.There(), options).status(),
                  {"log_q of item 1 is 0.25", "Log(q) with 0 < q <= 1"});
  }
}

TEST(InBatchSoftmaxTest, PassesOnTheReasonOfAFailedOperand) {
  Random random(65);
  const Var fine = RandomMatrix(random, 2, 2).There(), failed = MatMul(fine, Doubles({1}));
  InBatchSoftmaxOptions options;
  options.log_q = failed;
  for (const Var& losses : {InBatchSoftmax(failed, fine), InBatchSoftmax(fine, failed),
                            InBatchSoftmax(fine, fine, options)})
    EXPECT_EQ(losses.status(), failed.status());
}

// ---- drawn candidates ---------------------------------------------------------------------------

std::vector<int64_t> IdsOf(const Nest& ids) {
  const absl::StatusOr<Tensor> tensor = ids.tensor();
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  if (!tensor.ok()) return {};
  const absl::Span<const int64_t> values = *tensor->values<int64_t>();
  return {values.begin(), values.end()};
}
std::vector<double> CountsOf(const Nest& counts) { return ValuesOf(Var(*counts.tensor())); }

TEST(LogUniformCandidatesTest, FollowFromTheSeedAloneAndAreDifferent) {
  const CandidateSample first = LogUniformCandidates(Ids({0}), 50, 1000, 7);
  const std::vector<int64_t> ids = IdsOf(first.ids);
  EXPECT_EQ(ids.size(), 50u);
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 50u);
  EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 1000);
  EXPECT_EQ(IdsOf(LogUniformCandidates(Ids({5, 9}), 50, 1000, 7).ids), ids);
  EXPECT_NE(IdsOf(LogUniformCandidates(Ids({0}), 50, 1000, 8).ids), ids);
  // They never change: a job that resumes under another version draws the same.
  EXPECT_THAT(IdsOf(LogUniformCandidates(Ids({}), 5, 1000, 1).ids),
              ElementsAre(467, 56, 102, 25, 4));
}

TEST(LogUniformCandidatesTest, FollowTheLawOfTheHeader) {
  // One class a sample, so that none is refused: frequencies are the law itself.
  constexpr int64_t kClasses = 6;
  constexpr int kSamples = 60'000;
  std::vector<double> drawn(kClasses);
  for (int i = 0; i < kSamples; ++i)
    ++drawn[IdsOf(LogUniformCandidates(Ids({}), 1, kClasses, MixSeeds(71, i)).ids)[0]];
  for (int64_t id = 0; id < kClasses; ++id) {
    const auto number = static_cast<double>(id);
    const double p = std::log((number + 2) / (number + 1)) / std::log(kClasses + 1.0);
    const double sigma = std::sqrt(kSamples * p * (1 - p));
    EXPECT_NEAR(drawn[id], kSamples * p, 5 * sigma) << id;
  }
}

TEST(LogUniformCandidatesTest, TellHowOftenEachClassIsExpected) {
  // Without a class that was drawn twice: n p.
  const CandidateSample one = LogUniformCandidates(Ids({0, 3}), 1, 10, 5);
  const auto p = [](double id) { return std::log((id + 2) / (id + 1)) / std::log(11.0); };
  ExpectNear(CountsOf(one.label_log_counts), {std::log(p(0)), std::log(p(3))});
  ExpectNear(CountsOf(one.log_counts), {std::log(p(static_cast<double>(IdsOf(one.ids)[0])))});
  // With some: never above 1, and the more frequent class more often.
  const CandidateSample half = LogUniformCandidates(Ids({0, 1, 99}), 50, 100, 5);
  for (const double count : CountsOf(half.log_counts)) EXPECT_LE(count, 0);
  const std::vector<double> counts = CountsOf(half.label_log_counts);
  EXPECT_GE(counts[0], counts[1]);
  EXPECT_GT(counts[1], counts[2]);
  // The mean of 1 - (1 - p)^tries over many samples is how often a class was drawn.
  constexpr int kSamples = 20'000;
  double drawn = 0, expected = 0;
  for (int i = 0; i < kSamples; ++i) {
    const CandidateSample sample = LogUniformCandidates(Ids({2}), 4, 8, MixSeeds(72, i));
    const std::vector<int64_t> ids = IdsOf(sample.ids);
    drawn += std::count(ids.begin(), ids.end(), 2) > 0;
    expected += std::exp(CountsOf(sample.label_log_counts)[0]);
  }
  EXPECT_NEAR(drawn / kSamples, expected / kSamples, 0.02);
}

TEST(LogUniformCandidatesTest, OfOneClassIsThatClass) {
  const CandidateSample sample = LogUniformCandidates(Ids({0}), 1, 1, 3);
  EXPECT_THAT(IdsOf(sample.ids), ElementsAre(0));
  EXPECT_THAT(CountsOf(sample.label_log_counts), ElementsAre(0));
}

TEST(LogUniformCandidatesTest, RefusesWhatCannotBeDrawnInEveryField) {
  const auto refused = [](const Nest& labels, int64_t sampled, int64_t classes,
                          const std::vector<std::string>& parts) {
    const CandidateSample sample = LogUniformCandidates(labels, sampled, classes, 1);
    ExpectRefused(sample.ids.status(), parts);
    EXPECT_EQ(sample.ids.status(), sample.log_counts.status());
    EXPECT_EQ(sample.ids.status(), sample.label_log_counts.status());
  };
  refused(Ids({0}), 0, 10, {"num_sampled is 0", "draw 1 to num_classes, 10"});
  refused(Ids({0}), 11, 10, {"num_sampled is 11", "draw 1 to num_classes, 10"});
  refused(Ids({}), 1, 0, {"num_classes is 0", "at least 1"});
  refused(Ids({3, 10}), 1, 10, {"label 10 of example 1", "[0, 10)", "number the classes"});
  refused(Ids({-1}), 1, 10, {"label -1 of example 0"});
  refused(Tensor::Vector<float>({1}), 1, 10, {"labels are float32 [1]", "integers of rank 1"});
}

// ---- sampled softmax ----------------------------------------------------------------------------

TEST(SampledSoftmaxTest, AgreesWithItsDefinition) {
  const uint64_t seed = 81;
  SCOPED_TRACE(seed);
  Random random(seed);
  const Matrix inputs = RandomMatrix(random, 3, 4), right = RandomMatrix(random, 3, 4);
  const Matrix drawn = RandomMatrix(random, 5, 4);
  const std::vector<int64_t> labels = {4, 9, 4}, ids = {1, 4, 6, 9, 2};
  const std::vector<double> label_counts = {-0.5, -1, -0.5}, counts = {-0.1, -0.5, -2, -1, -3};
  const std::vector<double> label_biases = {0.3, -0.2, 0.3}, biases = {0.1, 0.3, 0, -0.2, 0.5};
  const CandidateSample sample{Ids(ids), Tensor::Vector<double>(counts),
                               Tensor::Vector<double>(label_counts)};
  for (const bool with_biases : {false, true}) {
    for (const bool without_hits : {false, true}) {
      SCOPED_TRACE(absl::StrCat(with_biases, without_hits));
      SampledSoftmaxOptions options;
      options.remove_accidental_hits = without_hits;
      if (with_biases) {
        options.label_biases = Doubles(label_biases);
        options.sampled_biases = Reshape(Doubles(biases), {5, 1});
      }
      std::vector<double> expected;
      for (int64_t i = 0; i < 3; ++i) {
        const double own =
            Dot(inputs, i, right, i) + (with_biases ? label_biases[i] : 0) - label_counts[i];
        double sum = std::exp(own);
        for (int64_t j = 0; j < 5; ++j) {
          if (without_hits && ids[j] == labels[i]) continue;
          sum += std::exp(Dot(inputs, i, drawn, j) + (with_biases ? biases[j] : 0) - counts[j]);
        }
        expected.push_back(std::log(sum) - own);
      }
      ExpectNear(ValuesOf(SampledSoftmax(inputs.There(), Ids(labels), right.There(), drawn.There(),
                                         sample, options)),
                 expected);
    }
  }
}

TEST(SampledSoftmaxTest, HasTheGradientOfDifferences) {
  Random random(82);
  const CandidateSample sample = LogUniformCandidates(Ids({0, 7, 2}), 4, 9, 3);
  EXPECT_EQ(absl::OkStatus(),
            CheckGradients(
                [&](GradientTape&, const std::vector<Var>& v) {
                  SampledSoftmaxOptions options;
                  options.label_biases = v[3];
                  options.sampled_biases = v[4];
                  return SampledSoftmax(v[0], Ids({0, 7, 2}), v[1], v[2], sample, options);
                },
                {RandomMatrix(random, 3, 2).Here(), RandomMatrix(random, 3, 2).Here(),
                 RandomMatrix(random, 4, 2).Here(), RandomMatrix(random, 3, 1).Here(),
                 RandomMatrix(random, 4, 1).Here()},
                *TestDevice()));
}

// The expected gradient of a sampled softmax is near that of the full one: the logits of the drawn
// classes stand for all.
TEST(SampledSoftmaxTest, OfAllClassesIsTheFullSoftmaxWhereEachIsSureToBeDrawn) {
  Random random(83);
  const Matrix inputs = RandomMatrix(random, 2, 3), weights = RandomMatrix(random, 4, 3);
  const Nest labels = Ids({3, 1});
  const Nest zeros4 = Tensor::Vector<double>({0, 0, 0, 0}), zeros2 = Tensor::Vector<double>({0, 0});
  const CandidateSample all{Ids({2, 0, 3, 1}), zeros4, zeros2};
  ExpectNear(ValuesOf(SampledSoftmax(inputs.There(), labels,
                                     Gather(weights.There(), There(*labels.tensor())),
                                     Gather(weights.There(), There(*all.ids.tensor())), all)),
             ValuesOf(SoftmaxCrossEntropy(
                 MatMul(inputs.There(), weights.There(), Transpose::kNo, Transpose::kYes),
                 There(*labels.tensor()))));
}

TEST(SampledSoftmaxTest, ARetriedStepDrawsTheSameAndTheNextStepOthers) {
  const auto losses = [](uint64_t step_seed) {
    std::vector<double> numbers(60);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<double>(i));
    MapReader reader({{"words", *Tensor::Copy<double>({30, 2}, numbers)}}, *TestDevice());
    reader.SetSeed(step_seed);
    GradientTape tape(reader);
    const Nest labels = Ids({1, 20});
    const CandidateSample sample = LogUniformCandidates(labels, 5, 30, tape.seed());
    const Var right = tape.Lookup("words", labels), drawn = tape.Lookup("words", sample.ids);
    return ValuesOf(SampledSoftmax(right * 0.5, labels, right, drawn, sample));
  };
  EXPECT_EQ(losses(11), losses(11));
  EXPECT_NE(losses(11), losses(12));
}

TEST(SampledSoftmaxTest, RefusesWhatDoesNotFitAndNamesTheFix) {
  Random random(84);
  const Var inputs = RandomMatrix(random, 2, 3).There(), drawn = RandomMatrix(random, 4, 3).There();
  const Nest labels = Ids({0, 1});
  const CandidateSample sample = LogUniformCandidates(labels, 4, 9, 1);
  ExpectRefused(SampledSoftmax(inputs, labels, inputs, inputs, sample).status(),
                {"SampledSoftmax", "4 drawn classes", "[2, 3]", "[sampled, width]"});
  ExpectRefused(SampledSoftmax(inputs, Ids({0}), inputs, drawn, sample).status(),
                {"1 labels", "[batch, width]"});
  ExpectRefused(SampledSoftmax(inputs, labels, drawn, drawn, sample).status(),
                {"weights float64 [4, 3]", "[batch, width]"});
  ExpectRefused(
      SampledSoftmax(inputs, Tensor::Vector<float>({0, 1}), inputs, drawn, sample).status(),
      {"labels are float32 [2]", "integers"});
  const CandidateSample of_others = LogUniformCandidates(Ids({0, 1, 2}), 4, 9, 1);
  ExpectRefused(SampledSoftmax(inputs, labels, inputs, drawn, of_others).status(),
                {"log counts float64 [3] of 2 labels", "draw the sample for these labels"});
  SampledSoftmaxOptions options;
  options.label_biases = Doubles({1, 2});
  ExpectRefused(SampledSoftmax(inputs, labels, inputs, drawn, sample, options).status(),
                {"biases", "give both or none"});
  options.sampled_biases = Doubles({1, 2});
  ExpectRefused(SampledSoftmax(inputs, labels, inputs, drawn, sample, options).status(),
                {"the biases of 4 drawn classes are [2]", "give [4] or [4, 1]"});
  const CandidateSample failed = LogUniformCandidates(labels, 40, 9, 1);
  EXPECT_EQ(SampledSoftmax(inputs, labels, inputs, drawn, failed).status(), failed.ids.status());
}

}  // namespace
}  // namespace divvy
