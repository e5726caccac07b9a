// Datasets in memory: the elements of each method, seeking to every position, and refused
// arguments; and data sources by name.
#include "data/dataset.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/testing/captured_log.h"
#include "base/testing/sim_executor.h"
#include "data/stacking.h"
#include "data/testing/seek_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Ints = std::vector<int64_t>;

Nest X(int64_t value) { return Nest{{"x", Nest(value)}}; }

int64_t ValueOf(const Nest& element) { return *element["x"].tensor()->scalar<int64_t>(); }

Dataset Count(int64_t n) {
  Ints values;
  for (int64_t i = 0; i < n; ++i) values.push_back(i);
  return Dataset::FromTensorSlices(Nest{{"x", Nest(Tensor::Vector<int64_t>(values))}});
}

// A dataset of unknown size.
Dataset CountUnknown(int64_t n) {
  return Dataset::Generator(
      [n](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
        return i < n ? std::optional<Nest>(X(i)) : std::nullopt;
      },
      -1);
}

std::vector<Nest> Collect(DatasetIterator& iterator, size_t at_most = 10'000) {
  std::vector<Nest> elements;
  while (elements.size() < at_most) {
    absl::StatusOr<std::optional<Nest>> element = iterator.Next();
    EXPECT_TRUE(element.ok()) << element.status();
    if (!element.ok() || !element->has_value()) break;
    elements.push_back(**element);
  }
  return elements;
}

Ints Values(const Dataset& dataset) {
  Ints values;
  for (const Nest& element : PlainPass(dataset)) values.push_back(ValueOf(element));
  return values;
}

absl::Status FirstError(const Dataset& dataset) { return dataset.Iterate()->Next().status(); }

bool IsOdd(int64_t value) { return value % 2 != 0; }
Dataset Odd(const Dataset& dataset) {
  return dataset.Filter(
      [](const Nest& element) -> absl::StatusOr<bool> { return IsOdd(ValueOf(element)); });
}
Dataset Tenfold(const Dataset& dataset) {
  return dataset.Map(
      [](const Nest& element) -> absl::StatusOr<Nest> { return X(10 * ValueOf(element)); });
}

// ---- the elements of each method

TEST(FromTensorsTest, YieldsTheRowsOfEveryLeaf) {
  SparseIds ids{Tensor::Vector<int64_t>({7, 8, 9}), Tensor::Vector<int64_t>({0, 1, 3}),
                Tensor::Vector<float>({1, 2, 3})};
  const std::vector<Nest> rows = PlainPass(Dataset::FromTensorSlices(
      Nest{{"a", Nest(*Tensor::Copy<float>({2, 2}, {1, 2, 3, 4}))}, {"s", Nest(ids)}}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(BitwiseEqual(*rows[1]["a"].tensor(), Tensor::Vector<float>({3, 4})));
  EXPECT_TRUE(BitwiseEqual(*rows[1]["s"]["ids"].tensor(), Tensor::Vector<int64_t>({8, 9})));
  EXPECT_TRUE(BitwiseEqual(*rows[1]["s"]["row_splits"].tensor(), Tensor::Vector<int64_t>({0, 2})));
  EXPECT_TRUE(BitwiseEqual(*rows[1]["s"]["weights"].tensor(), Tensor::Vector<float>({2, 3})));
}

TEST(FromTensorsTest, ALoneTensorAndAListHaveRowsToo) {
  EXPECT_TRUE(BitwiseEqual(
      *PlainPass(Dataset::FromTensorSlices(Nest(Tensor::Vector<int32_t>({4, 5}))))[1].tensor(),
      Tensor::Scalar<int32_t>(5)));
  const std::vector<Nest> rows = PlainPass(Dataset::FromTensorSlices(
      Nest(Nest::List{Nest(Tensor::Vector<int32_t>({4})), Nest(Tensor::Vector<bool>({true}))})));
  EXPECT_TRUE(BitwiseEqual(*rows[0][1].tensor(), Tensor::Scalar<bool>(true)));
}

TEST(FromTensorsTest, AnEmptyDatasetEndsAtOnce) {
  const auto iterator = Count(0).Iterate();
  EXPECT_EQ(iterator->size(), 0);
  EXPECT_FALSE(iterator->Next()->has_value());
  EXPECT_FALSE(iterator->Next()->has_value());
}

TEST(FromTensorsTest, RefusesWhatHasNoCommonRows) {
  EXPECT_THAT(FirstError(Dataset::FromTensorSlices(Nest{{"a", Nest(Tensor::Vector<float>({1, 2}))},
                                                        {"b", Nest(Tensor::Vector<float>({1}))}}))
                  .message(),
              HasSubstr("\"a\" has 2 rows, \"b\" has 1"));
  EXPECT_THAT(FirstError(Dataset::FromTensorSlices(Nest{{"a", Nest(1.0f)}})).message(),
              HasSubstr("\"a\" has no rows: it is float32 []"));
  EXPECT_THAT(FirstError(Dataset::FromTensorSlices(Nest{{"a", Nest("text")}})).message(),
              HasSubstr("\"a\" has no rows"));
  EXPECT_EQ(FirstError(Dataset::FromTensorSlices(Nest())).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      FirstError(Dataset::FromTensorSlices(Nest::Failed(absl::AbortedError("why")))).message(),
      "why");
}

TEST(GeneratorTest, YieldsWhatTheFunctionGivesForEachIndex) {
  const auto square = [](int64_t i) -> absl::StatusOr<std::optional<Nest>> { return X(i * i); };
  EXPECT_THAT(Values(Dataset::Generator(square, 4)), ElementsAre(0, 1, 4, 9));
  EXPECT_EQ(Collect(*Dataset::Generator(square, -1).Iterate(), 100).size(), 100u);
  EXPECT_THAT(Values(CountUnknown(3)), ElementsAre(0, 1, 2));
}

TEST(GeneratorTest, AnEndBeforeTheDeclaredOneIsAnError) {
  const auto two = [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
    return i < 2 ? std::optional<Nest>(X(i)) : std::nullopt;
  };
  const auto iterator = Dataset::Generator(two, 3).Iterate();
  ASSERT_TRUE(iterator->Seek(2).ok());
  EXPECT_THAT(iterator->Next().status().message(),
              HasSubstr("Generator with size 3 returned no element at index 2"));
}

TEST(MapTest, KeepsTheOrderAndPassesErrorsOn) {
  EXPECT_THAT(Values(Tenfold(Count(3))), ElementsAre(0, 10, 20));
  const Dataset failing = Count(3).Map([](const Nest& element) -> absl::StatusOr<Nest> {
    if (ValueOf(element) == 1) return absl::AbortedError("not this one");
    return element;
  });
  const auto iterator = failing.Iterate();
  EXPECT_TRUE(iterator->Next().ok());
  EXPECT_EQ(iterator->Next().status(), absl::AbortedError("not this one"));
  // The error is returned until a Seek moves elsewhere.
  EXPECT_EQ(iterator->Next().status(), absl::AbortedError("not this one"));
  ASSERT_TRUE(iterator->Seek(2).ok());
  EXPECT_EQ(ValueOf(**iterator->Next()), 2);
}

TEST(MapTest, AFailedNestIsAnError) {
  EXPECT_THAT(FirstError(Count(3).Map([](const Nest& element) -> absl::StatusOr<Nest> {
                return element["y"];
              })).message(),
              HasSubstr("\"x\""));
}

TEST(FilterTest, KeepsWhatTheFunctionKeeps) {
  EXPECT_THAT(Values(Odd(Count(6))), ElementsAre(1, 3, 5));
  EXPECT_EQ(FirstError(Count(3).Filter(
                [](const Nest&) -> absl::StatusOr<bool> { return absl::AbortedError("no"); })),
            absl::AbortedError("no"));
}

TEST(ShardTest, ShardsAndHoldOutsPartTheElements) {
  EXPECT_THAT(Values(Count(8).Shard(3, 1)), ElementsAre(1, 4, 7));
  EXPECT_THAT(Values(Count(8).HoldOut(3, 1)), ElementsAre(0, 2, 3, 5, 6));
  EXPECT_THAT(Values(Count(2).Shard(3, 2)), IsEmpty());
  EXPECT_THAT(Values(Count(3).HoldOut(1, 0)), IsEmpty());
  EXPECT_EQ(Count(1797).Shard(5, 0).Iterate()->size(), 360);
  EXPECT_EQ(Count(1797).HoldOut(5, 0).Iterate()->size(), 1437);
}

TEST(TakeSkipTest, CutTheDatasetInTwo) {
  EXPECT_THAT(Values(Count(5).Take(2)), ElementsAre(0, 1));
  EXPECT_THAT(Values(Count(5).Skip(2)), ElementsAre(2, 3, 4));
  EXPECT_THAT(Values(Count(5).Skip(9)), IsEmpty());
  EXPECT_THAT(Values(Count(2).Take(9)), ElementsAre(0, 1));
}

TEST(RepeatTest, GoesThroughTheDatasetSoManyTimes) {
  EXPECT_THAT(Values(Count(2).Repeat(3)), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(Values(CountUnknown(2).Repeat(2)), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Values(Count(2).Repeat().Take(5)), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(Values(Count(2).Repeat(0)), IsEmpty());
}

TEST(RepeatTest, APassWithoutElementsEndsIt) {
  EXPECT_THAT(Values(Count(0).Repeat()), IsEmpty());
  EXPECT_THAT(Values(CountUnknown(0).Repeat()), IsEmpty());
}

// 0, 1, ... n - 1. Its iterators count the calls of size().
class SizeCounted : public DatasetRecipe {
 public:
  SizeCounted(int64_t n, bool known, int& asked) : n_(n), known_(known), asked_(asked) {}
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment&) const override {
    return std::make_unique<Iterator>(*this);
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(const SizeCounted& recipe) : recipe_(recipe) {}
    absl::StatusOr<std::optional<Nest>> Next() override {
      return position_ < recipe_.n_ ? std::optional<Nest>(X(position_++)) : std::nullopt;
    }
    absl::Status Seek(int64_t position) override {
      position_ = position;
      return absl::OkStatus();
    }
    std::optional<int64_t> size() override {
      ++recipe_.asked_;
      return recipe_.known_ ? std::optional<int64_t>(recipe_.n_) : std::nullopt;
    }

   private:
    const SizeCounted& recipe_;
    int64_t position_ = 0;
  };

  const int64_t n_;
  const bool known_;
  int& asked_;
};

// size() can be expensive: Prefetch must stop its filler first.
TEST(RepeatTest, DoesNotAskForTheSizeAtEachElement) {
  for (const bool known : {true, false}) {
    int asked = 0;
    const Dataset twice = Dataset(std::make_shared<SizeCounted>(100, known, asked)).Repeat(2);
    const auto iterator = twice.Iterate();
    EXPECT_EQ(Collect(*iterator).size(), 200u);
    EXPECT_EQ(asked, known ? 1 : 2);  // at the beginning, and at the end of a pass
  }
}

TEST(ShuffleTest, PermutesWithinWindows) {
  const Ints shuffled = Values(Count(25).Shuffle(10, 3));
  ASSERT_EQ(shuffled.size(), 25u);
  for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 10}, {10, 20}, {20, 25}}) {
    Ints window(shuffled.begin() + begin, shuffled.begin() + end);
    Ints whole;
    for (int64_t i = begin; i < end; ++i) whole.push_back(i);
    EXPECT_NE(window, whole);
    std::sort(window.begin(), window.end());
    EXPECT_EQ(window, whole);
  }
}

TEST(ShuffleTest, DependsOnTheSeedAlone) {
  EXPECT_EQ(Values(Count(100).Shuffle(50, 3)), Values(Count(100).Shuffle(50, 3)));
  EXPECT_NE(Values(Count(100).Shuffle(50, 3)), Values(Count(100).Shuffle(50, 4)));
  const Ints two_windows = Values(Count(10).Repeat(2).Shuffle(10, 3));
  EXPECT_NE(Ints(two_windows.begin(), two_windows.begin() + 10),
            Ints(two_windows.begin() + 10, two_windows.end()));
}

// Jobs resume by position: the order must be the same in every version.
TEST(ShuffleTest, TheOrderOfASeedNeverChanges) {
  EXPECT_EQ(Values(Count(10).Shuffle(4, 7)), Ints({3, 2, 1, 0, 6, 7, 4, 5, 8, 9}));
}

TEST(ShuffleTest, EveryOrderOfASmallWindowComes) {
  std::set<Ints> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) orders.insert(Values(Count(4).Shuffle(4, seed)));
  EXPECT_EQ(orders.size(), 24u);
}

TEST(BatchTest, StacksTensorsAndTheLastMayBeSmaller) {
  const std::vector<Nest> batches = PlainPass(Count(5).Batch(2));
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_TRUE(BitwiseEqual(*batches[0]["x"].tensor(), Tensor::Vector<int64_t>({0, 1})));
  EXPECT_TRUE(BitwiseEqual(*batches[2]["x"].tensor(), Tensor::Vector<int64_t>({4})));
  EXPECT_EQ(PlainPass(Count(5).Batch(2, /*drop_remainder=*/true)).size(), 2u);
  EXPECT_EQ(Count(5).Batch(2).Iterate()->size(), 3);
  EXPECT_EQ(Count(5).Batch(2, true).Iterate()->size(), 2);
}

TEST(BatchTest, BatchesCanBeBatched) {
  const std::vector<Nest> batches = PlainPass(Count(4).Batch(2).Batch(2));
  EXPECT_TRUE(
      BitwiseEqual(*batches[0]["x"].tensor(), *Tensor::Copy<int64_t>({2, 2}, {0, 1, 2, 3})));
}

TEST(BatchTest, SparseIdsOfSingleRowsBecomeOneCsrBatch) {
  const SparseIds ids{Tensor::Vector<int64_t>({7, 8, 9}), Tensor::Vector<int64_t>({0, 0, 1, 3}),
                      Tensor::Vector<float>({1, 2, 3})};
  const std::vector<Nest> batches =
      PlainPass(Dataset::FromTensorSlices(Nest{{"s", Nest(ids)}}).Batch(3));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_TRUE(BitwiseEqual(batches[0]["s"], Nest(ids)));
}

TEST(BatchTest, RefusesElementsThatAreNotAlike) {
  const auto refusal = [](const Nest& a, const Nest& b) {
    const absl::Status status = StackRows({a, b}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const Nest sparse(SparseIds{Tensor::Vector<int64_t>({7}), Tensor::Vector<int64_t>({0, 1}), {}});
  const Nest weighted(SparseIds{Tensor::Vector<int64_t>({7}), Tensor::Vector<int64_t>({0, 1}),
                                Tensor::Vector<float>({1})});
  const Nest two_rows(
      SparseIds{Tensor::Vector<int64_t>({7}), Tensor::Vector<int64_t>({0, 1, 1}), {}});
  const Nest torn(SparseIds{Tensor::Vector<int64_t>({7}), Tensor::Vector<int64_t>({0, 2}), {}});
  EXPECT_THAT(refusal(Nest{{"a", Nest(1.0f)}}, Nest{{"a", Nest(1.0)}}),
              HasSubstr("\"a\" is float64 [] in its element 1 and float32 [] in its first"));
  EXPECT_THAT(refusal(Nest{{"a", Nest(Tensor::Vector<float>({1}))}}, Nest{{"a", Nest(Tensor())}}),
              HasSubstr("\"a\" is float32 [0] in its element 1"));
  EXPECT_THAT(refusal(Nest{{"a", Nest(1.0f)}}, Nest{{"b", Nest(1.0f)}}),
              HasSubstr("the element is {\"b\""));
  EXPECT_THAT(refusal(Nest(Nest::List{Nest(1.0f)}), Nest()), HasSubstr("in its element 1"));
  EXPECT_THAT(refusal(Nest{{"t", Nest("text")}}, Nest{{"t", Nest("text")}}),
              HasSubstr("\"t\" is text, which tensors do not hold"));
  EXPECT_THAT(refusal(Nest{{"s", sparse}}, Nest{{"s", weighted}}), HasSubstr("\"s\" is"));
  EXPECT_THAT(refusal(Nest{{"s", sparse}}, Nest{{"s", two_rows}}),
              HasSubstr("\"s\" has 2 rows of sparse ids in element 1"));
  EXPECT_FALSE(refusal(torn, sparse).empty());
}

TEST(ElementSpecTest, TellsTypesAndShapesByPath) {
  const SparseIds ids{Tensor::Vector<int64_t>({7, 8}), Tensor::Vector<int64_t>({0, 1, 2}),
                      Tensor::Vector<float>({1, 2})};
  const Dataset rows = Dataset::FromTensorSlices(
      Nest{{"a", Nest(*Tensor::Copy<float>({2, 3}, {1, 2, 3, 4, 5, 6}))}, {"s", Nest(ids)}});
  const auto shown = [](const Dataset& dataset) {
    std::string text;
    const auto specs = dataset.ElementSpec();
    EXPECT_TRUE(specs.ok()) << specs.status();
    for (const auto& [path, spec] : *specs)
      absl::StrAppend(&text, path, " ", DTypeName(spec.dtype), " ", spec.shape.ToString(), "; ");
    return text;
  };
  EXPECT_EQ(shown(rows),
            "a float32 [3]; s/ids int64 [-1]; s/row_splits int64 [2]; s/weights float32 [-1]; ");
  EXPECT_EQ(
      shown(rows.Shuffle(2, 1).Batch(2).Prefetch(1)),
      "a float32 [-1, 3]; s/ids int64 [-1]; s/row_splits int64 [-1]; s/weights float32 [-1]; ");
  EXPECT_EQ(shown(rows.Batch(2, true)),
            "a float32 [2, 3]; s/ids int64 [-1]; s/row_splits int64 [3]; s/weights float32 [-1]; ");
  EXPECT_EQ(shown(Dataset::FromTensorSlices(Nest(Tensor::Vector<bool>({true})))), " bool []; ");
  EXPECT_EQ(Count(0).ElementSpec().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(Count(1).Batch(0).ElementSpec().ok());
}

TEST(ArgumentsTest, WhatCannotBeIsRefusedByTheIterator) {
  const std::vector<std::pair<Dataset, std::string>> cases = {
      {Count(3).Batch(0), "Batch of 0"},
      {Count(3).IgnoreErrors(-1), "IgnoreErrors(-1)"},
      {Count(3).Map([](const Nest& element) { return element; }, 0), "0 parallel_calls"},
      {Count(3).Shuffle(0, 1), "windows of 0"},
      {Count(3).Repeat(-2), "Repeat(-2)"},
      {Count(3).Shard(2, 2), "Shard(2, 2)"},
      {Count(3).HoldOut(0, 0), "HoldOut(0, 0)"},
      {Count(3).Take(-1), "Take(-1)"},
      {Count(3).Skip(-1), "Skip(-1)"},
      {Count(3).Prefetch(-1), "Prefetch(-1)"},
      {Dataset::Generator(nullptr, -2), "Generator with -2"},
      {Dataset::Csv("f", {}), "no columns"},
      {Dataset::Csv("f", {{"a"}, {"a"}}), "column \"a\" is named twice"},
      {Dataset::Csv("f", {{"a", DType::kFloat32, 0, 0}}), "width of 0"},
      {Dataset::Csv("f", {CsvColumn::Text("a", TextKeys::Hashed("a", -1))}), "with -1 buckets"},
      {Dataset::Csv("f", {{"a", DType::kComplex64}}), "cannot be complex64"},
      {Dataset::Csv("f", {{"a", DType::kInt64, -1}}), "-1 hash_buckets"},
      {Dataset::Csv("f", {{"a", DType::kInt64, 0, 1, /*below=*/-1}}), "has below = -1"},
      {Dataset::Csv("f", {{"a", DType::kFloat32, 0, 1, /*below=*/5}}),
       "only integers without hash_buckets"},
      {Dataset::Csv("f", {{"a", DType::kInt64, 7, 1, /*below=*/5}}),
       "only integers without hash_buckets"},
      {Dataset::Libsvm(""), "is empty"},
      {Count(3).Batch(0).Shuffle(2, 1).Take(1), "Batch of 0"},
  };
  for (const auto& [dataset, message] : cases) {
    const absl::Status status = FirstError(dataset);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
  EXPECT_EQ(Count(3).Iterate()->Seek(-1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SizeTest, IsKnownWithoutReadingWhereTheRecipeAllows) {
  EXPECT_EQ(Tenfold(Count(100))
                .Shuffle(7, 1)
                .HoldOut(5, 0)
                .Skip(3)
                .Take(50)
                .Repeat(2)
                .Batch(32)
                .Prefetch(2)
                .Iterate()
                ->size(),
            4);
  EXPECT_EQ(Count(3).Repeat().Iterate()->size(), std::nullopt);
  EXPECT_EQ(Count(0).Repeat().Iterate()->size(), 0);
  EXPECT_EQ(Odd(Count(3)).Iterate()->size(), std::nullopt);
  const auto iterator = Odd(Count(9)).Batch(3).Iterate();
  Collect(*iterator);
  EXPECT_EQ(iterator->size(), 2);
}

// ---- every position can be sought

struct Sample {
  std::string recipe;
  Dataset dataset;
  Ints model;           // the elements of a pass
  bool ordered = true;  // false: compared as a set
};

// The dataset and its model with a random step added.
Sample Grow(Sample sample, Random& random) {
  Ints& model = sample.model;
  Ints kept;
  const int64_t n = static_cast<int64_t>(random.Below(5)) + 1;
  const int64_t index = static_cast<int64_t>(random.Below(static_cast<uint64_t>(n)));
  const auto keep = [&](const std::function<bool(int64_t position, int64_t value)>& wanted) {
    for (size_t i = 0; i < model.size(); ++i) {
      if (wanted(static_cast<int64_t>(i), model[i])) kept.push_back(model[i]);
    }
    model = kept;
  };
  const auto name = [&](absl::string_view method) {
    absl::StrAppend(&sample.recipe, ".", method, "(", n, ", ", index, ")");
  };
  // After a shuffle the model knows only results that do not depend on the order.
  switch (random.Below(sample.ordered ? 9 : 4)) {
    case 0:
      name("Map");
      for (int64_t& value : model) value *= 10;
      sample.dataset = Tenfold(sample.dataset);
      break;
    case 1:
      name("Filter");
      keep([](int64_t, int64_t value) { return IsOdd(value); });
      sample.dataset = Odd(sample.dataset);
      break;
    case 2:
      name("Prefetch");
      sample.dataset = sample.dataset.Prefetch(n);
      break;
    case 3:
      name("Shuffle");
      sample.dataset = sample.dataset.Shuffle(n * 3, random.Next());
      sample.ordered = false;
      break;
    case 4:
      name("Repeat");
      for (int64_t i = 0; i < n; ++i) kept.insert(kept.end(), model.begin(), model.end());
      model = kept;
      sample.dataset = sample.dataset.Repeat(n);
      break;
    case 5:
      name("Shard");
      keep([&](int64_t at, int64_t) { return at % n == index; });
      sample.dataset = sample.dataset.Shard(static_cast<int>(n), static_cast<int>(index));
      break;
    case 6:
      name("HoldOut");
      keep([&](int64_t at, int64_t) { return at % n != index; });
      sample.dataset = sample.dataset.HoldOut(static_cast<int>(n), static_cast<int>(index));
      break;
    case 7:
      name("Take");
      keep([&](int64_t at, int64_t) { return at < n * 4; });
      sample.dataset = sample.dataset.Take(n * 4);
      break;
    default:
      name("Skip");
      keep([&](int64_t at, int64_t) { return at >= n; });
      sample.dataset = sample.dataset.Skip(n);
      break;
  }
  return sample;
}

Sample RandomSample(Random& random) {
  const int64_t n = static_cast<int64_t>(random.Below(30));
  const bool known = random.Chance(0.5);
  Sample sample{absl::StrCat(known ? "Count(" : "CountUnknown(", n, ")"),
                known ? Count(n) : CountUnknown(n),
                {}};
  for (int64_t i = 0; i < n; ++i) sample.model.push_back(i);
  for (uint64_t depth = random.Below(5); depth > 0; --depth)
    sample = Grow(std::move(sample), random);
  return sample;
}

TEST(SeekTest, AnyPipelineYieldsWhatItsModelYieldsAndAnyPositionCanBeSought) {
  constexpr uint64_t kSeed = 20250301;
  std::cout << "seed " << kSeed << "\n";
  ThreadPoolExecutor executor(1);
  for (uint64_t i = 0; i < 400; ++i) {
    Random random(MixSeeds(kSeed, i));
    Sample sample = RandomSample(random);
    SCOPED_TRACE(absl::StrCat("sample ", i, ": ", sample.recipe));
    Ints values = Values(sample.dataset);
    if (!sample.ordered) {
      std::sort(values.begin(), values.end());
      std::sort(sample.model.begin(), sample.model.end());
    }
    ASSERT_EQ(values, sample.model);
    const Dataset batched =
        random.Chance(0.5)
            ? sample.dataset.Batch(static_cast<int64_t>(random.Below(4)) + 1, random.Chance(0.5))
            : sample.dataset;
    const DataEnvironment environment{nullptr, random.Chance(0.5) ? &executor : nullptr};
    ExpectEveryPositionCanBeSought(batched, random.Next(), environment);
    if (HasFatalFailure()) return;
  }
}

TEST(SeekTest, PositionsPastEveryNumberAreBehindTheEnd) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  for (const Dataset& dataset :
       {Count(3).Batch(2), Count(3).Shard(3, 1), Count(3).HoldOut(3, 1), Count(3).Skip(2),
        Count(3).Shuffle(kFar, 1), Count(3).Repeat(kFar).Take(2)}) {
    const auto iterator = dataset.Iterate();
    ASSERT_TRUE(iterator->Seek(kFar).ok());
    const auto element = iterator->Next();
    ASSERT_TRUE(element.ok()) << element.status();
    EXPECT_FALSE(element->has_value());
  }
}

TEST(SeekTest, ReadsNoMoreOfTheSourceThanItMust) {
  int64_t mapped = 0;  // one thread
  const Dataset counted = Count(1000).Map([&mapped](const Nest& element) -> absl::StatusOr<Nest> {
    ++mapped;
    return element;
  });
  const auto iterator = counted.HoldOut(5, 0).Shuffle(100, 1).Batch(10).Iterate();
  ASSERT_TRUE(iterator->Seek(45).ok());
  ASSERT_TRUE(iterator->Next().ok());
  EXPECT_EQ(mapped, 100);  // one window
  ASSERT_TRUE(iterator->Seek(41).ok());
  ASSERT_TRUE(iterator->Next().ok());
  EXPECT_EQ(mapped, 100);
}

// ---- Prefetch

TEST(PrefetchTest, ReadsAheadOnTheExecutorUpToItsNumber) {
  Mutex mu;
  CondVar changed;
  int64_t read = 0;
  const Dataset counted = Count(100).Map([&](const Nest& element) -> absl::StatusOr<Nest> {
    MutexLock lock(mu);
    ++read;
    changed.NotifyAll();
    return element;
  });
  ThreadPoolExecutor executor(1);
  const auto iterator = counted.Prefetch(4).Iterate({nullptr, &executor});
  EXPECT_EQ(ValueOf(**iterator->Next()), 0);
  {
    MutexLock lock(mu);
    changed.Wait(mu, [&] { return read >= 4; });
    EXPECT_LE(read, 5);
  }
  EXPECT_EQ(Collect(*iterator).size(), 99u);
  executor.Stop();
}

TEST(PrefetchTest, ErrorsAndTheEndComeInTheirPlaceAsOftenAsAsked) {
  const Dataset failing = Count(3).Map([](const Nest& element) -> absl::StatusOr<Nest> {
    if (ValueOf(element) == 1) return absl::AbortedError("not this one");
    return element;
  });
  ThreadPoolExecutor executor(1);
  const auto iterator = failing.Prefetch(8).Iterate({nullptr, &executor});
  EXPECT_TRUE(iterator->Next().ok());
  EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(iterator->Seek(2).ok());
  EXPECT_EQ(ValueOf(**iterator->Next()), 2);
  EXPECT_FALSE(iterator->Next()->has_value());
  EXPECT_FALSE(iterator->Next()->has_value());
}

TEST(PrefetchTest, GoesOnWithoutAnExecutorOrWithAStoppedOne) {
  EXPECT_THAT(Values(Count(3).Prefetch(2)), ElementsAre(0, 1, 2));
  ThreadPoolExecutor executor(1);
  executor.Stop();
  EXPECT_EQ(Collect(*Count(30).Prefetch(2).Iterate({nullptr, &executor})).size(), 30u);
}

TEST(PrefetchTest, AnIteratorMayGoWhileItsReaderRuns) {
  ThreadPoolExecutor executor(2);
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(Count(1000).Prefetch(100).Iterate({nullptr, &executor})->Next().ok());
  executor.Stop();
}

// ---- Map with several calls at once

TEST(ParallelMapTest, CallsRunAtOnceAndTheOrderIsKept) {
  Mutex mu;
  CondVar changed;
  int inside = 0;
  const Dataset met = Count(40).Map(
      [&](const Nest& element) -> absl::StatusOr<Nest> {
        MutexLock lock(mu);
        if (ValueOf(element) < 4) {  // the first four wait for each other
          ++inside;
          changed.NotifyAll();
          changed.Wait(mu, [&] { return inside >= 4; });
        }
        return X(10 * ValueOf(element));
      },
      /*parallel_calls=*/4);
  ThreadPoolExecutor executor(1);
  const auto iterator = met.Iterate({nullptr, &executor});
  EXPECT_EQ(iterator->size(), 40);
  const std::vector<Nest> mapped = Collect(*iterator);
  ASSERT_EQ(mapped.size(), 40u);
  for (size_t i = 0; i < mapped.size(); ++i)
    EXPECT_EQ(ValueOf(mapped[i]), static_cast<int64_t>(10 * i));
  executor.Stop();
}

TEST(ParallelMapTest, ErrorsComeInTheirPlaceAndOneCanGoOnBehindThem) {
  const Dataset failing = Count(6).Map(
      [](const Nest& element) -> absl::StatusOr<Nest> {
        if (ValueOf(element) == 1) return absl::AbortedError("not this one");
        return element;
      },
      3);
  ThreadPoolExecutor executor(1);
  const auto iterator = failing.Iterate({nullptr, &executor});
  EXPECT_TRUE(iterator->Next().ok());
  EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(iterator->Seek(2).ok());
  EXPECT_EQ(ValueOf(**iterator->Next()), 2);
  EXPECT_EQ(Collect(*iterator).size(), 3u);
  EXPECT_FALSE(iterator->Next()->has_value());
  executor.Stop();
}

TEST(ParallelMapTest, AnyPositionCanBeSoughtAlsoWithoutAnExecutorOrWithAStoppedOne) {
  const Dataset mapped = Count(50).Map(
      [](const Nest& element) -> absl::StatusOr<Nest> { return X(ValueOf(element) + 1); }, 4);
  ThreadPoolExecutor executor(2), stopped(1);
  stopped.Stop();
  for (Executor* each : {static_cast<Executor*>(&executor), static_cast<Executor*>(&stopped),
                         static_cast<Executor*>(nullptr)})
    ExpectEveryPositionCanBeSought(mapped, 5, {nullptr, each});
  executor.Stop();
}

TEST(ThrowingTest, WhatAFunctionOfTheProgramThrowsIsAnErrorAlsoOnAnotherThread) {
  const auto throwing = [](const Nest&) -> absl::StatusOr<Nest> {
    throw std::runtime_error("thrown by the program");
  };
  const auto throwing_filter = [](const Nest&) -> absl::StatusOr<bool> {
    throw std::runtime_error("thrown by the program");
  };
  const auto throwing_generator = [](int64_t) -> absl::StatusOr<std::optional<Nest>> {
    throw std::runtime_error("thrown by the program");
  };
  ThreadPoolExecutor executor(2);
  for (const Dataset& dataset :
       {Count(3).Map(throwing), Count(3).Map(throwing, 2), Count(3).Filter(throwing_filter),
        Dataset::Generator(throwing_generator, 2)}) {
    const absl::Status status = dataset.Prefetch(2).Iterate({nullptr, &executor})->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
    EXPECT_THAT(status.message(), HasSubstr("threw: thrown by the program"));
  }
  executor.Stop();
}

// A DatasetRecipe that the program defines.
class ThrowingRecipe : public DatasetRecipe {
 public:
  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment&) const override {
    return std::make_unique<Iterator>();
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    absl::StatusOr<std::optional<Nest>> Next() override {
      throw std::runtime_error("thrown by the program");
    }
    absl::Status Seek(int64_t) override { return absl::OkStatus(); }
    std::optional<int64_t> size() override { return std::nullopt; }
  };
};

TEST(ThrowingTest, WhatARecipeOfTheProgramThrowsWhileReadAheadIsAnError) {
  ThreadPoolExecutor executor(1);
  const absl::Status status = Dataset(std::make_shared<ThrowingRecipe>())
                                  .Prefetch(2)
                                  .Iterate({nullptr, &executor})
                                  ->Next()
                                  .status();
  EXPECT_EQ(status, absl::UnknownError("Prefetch threw: thrown by the program"));
  executor.Stop();
}

// ---- IgnoreErrors, and log lines about progress

// The elements 0, 1, ...; multiples of 3 are bad.
Dataset BadThirds(int64_t n, absl::Status error) {
  return Count(n).Map([error](const Nest& element) -> absl::StatusOr<Nest> {
    if (ValueOf(element) % 3 == 0) return error;
    return element;
  });
}

TEST(IgnoreErrorsTest, PassesOverBadElementsUpToItsLimitAndTellsThem) {
  const CapturedLog log;
  EXPECT_THAT(Values(BadThirds(7, absl::DataLossError("a.csv: line 3: bad")).IgnoreErrors(3)),
              ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(log.texts(), ElementsAre("data: skipped bad element 1 (limit 3): a.csv: line 3: bad",
                                       "data: skipped bad element 2 (limit 3): a.csv: line 3: bad",
                                       "data: skipped bad element 3 (limit 3): a.csv: line 3: bad",
                                       "data: skipped 3 bad elements in a pass of 7"));
}

TEST(IgnoreErrorsTest, TheOneAboveTheLimitIsTheError) {
  const CapturedLog log;
  const auto iterator = BadThirds(7, absl::InvalidArgumentError("bad")).IgnoreErrors(2).Iterate();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(iterator->Next().ok());
  EXPECT_EQ(iterator->Next().status(),
            absl::InvalidArgumentError("more than 2 bad elements, the limit of IgnoreErrors: bad"));
  EXPECT_FALSE(BadThirds(7, absl::DataLossError("bad")).IgnoreErrors(0).Iterate()->Next().ok());
}

TEST(IgnoreErrorsTest, ErrorsThatAreNoBadDataComeOut) {
  for (const absl::Status& error :
       {absl::NotFoundError("no file"), absl::UnavailableError("the disk is away"),
        absl::InternalError("?")})
    EXPECT_EQ(FirstError(BadThirds(7, error).IgnoreErrors(9)), error);
}

TEST(IgnoreErrorsTest, AnyPositionCanBeSoughtAndNothingIsToldTwice) {
  const CapturedLog log;
  ExpectEveryPositionCanBeSought(BadThirds(30, absl::DataLossError("bad")).IgnoreErrors(10), 6);
  const size_t told = log.texts().size();
  const auto iterator = BadThirds(30, absl::DataLossError("bad")).IgnoreErrors(10).Iterate();
  for (int pass = 0; pass < 2; ++pass) {
    Collect(*iterator);
    ASSERT_TRUE(iterator->Seek(0).ok());
  }
  EXPECT_EQ(log.texts().size(), told + 11);
}

// f(i) for i in [0, n); multiples of 3 are bad.
Dataset GeneratedBadThirds(int64_t n) {
  return Dataset::Generator(
      [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
        if (i % 3 == 0) return absl::DataLossError("bad");
        return X(i);
      },
      n);
}

TEST(IgnoreErrorsTest, ABadElementOfAGeneratorOrUnderAFilterIsOne) {
  const CapturedLog log;
  EXPECT_THAT(Values(GeneratedBadThirds(7).IgnoreErrors(3)), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Values(Odd(BadThirds(7, absl::InvalidArgumentError("bad"))).IgnoreErrors(3)),
              ElementsAre(1, 5));
  EXPECT_THAT(Values(Odd(GeneratedBadThirds(7)).IgnoreErrors(3)), ElementsAre(1, 5));
  ExpectEveryPositionCanBeSought(GeneratedBadThirds(30).IgnoreErrors(10), 7);
  ExpectEveryPositionCanBeSought(Odd(GeneratedBadThirds(30)).IgnoreErrors(10), 8);
}

// A filter over 0, 1, ... that keeps odd numbers; multiples of 3 are bad. Result: bad, 1, bad, 5,
// bad, 7, bad, 11, ...
TEST(IgnoreErrorsTest, ABadElementHasAPlaceBehindWhichOneCanGoOn) {
  for (const auto& [dataset, behind] :
       {std::pair(GeneratedBadThirds(9), 7),
        std::pair(Odd(BadThirds(21, absl::DataLossError("bad"))), 11)}) {
    const auto iterator = dataset.Iterate();
    EXPECT_EQ(iterator->Next().status(), absl::DataLossError("bad"));
    // The error is returned until a Seek moves elsewhere.
    EXPECT_EQ(iterator->Next().status(), absl::DataLossError("bad"));
    ASSERT_TRUE(iterator->Seek(1).ok());
    EXPECT_EQ(ValueOf(**iterator->Next()), 1);
    ASSERT_TRUE(iterator->Seek(7).ok());
    EXPECT_EQ(ValueOf(**iterator->Next()), behind);
    const auto fresh = dataset.Iterate();
    ASSERT_TRUE(fresh->Seek(7).ok());
    EXPECT_EQ(ValueOf(**fresh->Next()), behind);
  }
}

TEST(FilterTest, AnErrorThatIsNoBadDataHasNoPlace) {
  const auto iterator = Odd(BadThirds(7, absl::UnavailableError("the disk is away"))).Iterate();
  ASSERT_TRUE(iterator->Seek(3).ok());
  EXPECT_EQ(iterator->Next().status(), absl::UnavailableError("the disk is away"));
}

TEST(ProgressTest, AnElementThatIsLongInComingIsToldOfEveryTenSeconds) {
  SimClock clock;
  const Dataset slow = Count(25).Map([&clock](const Nest& element) -> absl::StatusOr<Nest> {
    clock.Advance(absl::Seconds(1));
    return element;
  });
  const DataEnvironment environment{nullptr, nullptr, &clock};
  const CapturedLog log;
  const Dataset last = slow.Filter(
      [](const Nest& element) -> absl::StatusOr<bool> { return ValueOf(element) == 24; });
  EXPECT_EQ(ValueOf(**last.Iterate(environment)->Next()), 24);
  EXPECT_THAT(
      log.texts(),
      ElementsAre("data: Filter has read 10 elements and kept 0 on the way to element 0 in 10s",
                  "data: Filter has read 20 elements and kept 0 on the way to element 0 in 20s"));
  EXPECT_TRUE(slow.Shuffle(15, 1).Iterate(environment)->Next().ok());
  EXPECT_EQ(log.texts().back(), "data: Shuffle has read 10 elements of its window of 15 in 10s");
  const size_t told = log.texts().size();
  EXPECT_EQ(Collect(*slow.Iterate(environment)).size(), 25u);
  EXPECT_EQ(log.texts().size(), told) << "elements without delay write no line to the log";
}

// ---- InputContext and data sources

TEST(InputContextTest, ABatchIsSplitEvenlyOrNotAtAll) {
  InputContext input;
  input.num_replicas_in_sync = 2;
  EXPECT_EQ(*input.GetPerReplicaBatchSize(8), 4);
  EXPECT_EQ(*input.GetPerReplicaBatchSize(0), 0);
  EXPECT_EQ(input.GetPerReplicaBatchSize(7).status().code(), absl::StatusCode::kInvalidArgument);
  input.num_replicas_in_sync = 3;
  EXPECT_FALSE(input.GetPerReplicaBatchSize(8).ok());
}

absl::StatusOr<Dataset> Numbers(const InputContext& input, int64_t n, std::string what) {
  if (what != "numbers") return absl::NotFoundError(absl::StrCat("no ", what));
  return Count(n).Shard(input.num_workers, input.worker_index);
}
const DataSource kNumbers("numbers", Numbers);
const DataSource kAgain("numbers", Numbers, InputOptions{AutoShardPolicy::kOff});
const DataSource<std::vector<int64_t>> kGiven(
    "given",
    [](const InputContext&, const std::vector<int64_t>& values) -> absl::StatusOr<Dataset> {
      return Dataset::FromTensorSlices(Nest{{"x", Nest(Tensor::Vector<int64_t>(values))}});
    },
    {AutoShardPolicy::kOff});

TEST(DataSourceTest, IsOpenedByNameWithItsArguments) {
  InputContext input;
  input.num_workers = 2;
  input.worker_index = 1;
  const BoundDataSource bound = kNumbers(5, "numbers");
  EXPECT_EQ(bound.name(), "numbers");
  EXPECT_THAT(Values(*DataSourceRegistry::Open(bound, input)), ElementsAre(1, 3));
  EXPECT_THAT(Values(*DataSourceRegistry::Open(kGiven({4, 2}), input)), ElementsAre(4, 2));
}

TEST(DataSourceTest, OptionsAreKnownByName) {
  // For a duplicate name, the first.
  EXPECT_EQ(DataSourceRegistry::Options("numbers")->policy, AutoShardPolicy::kLease);
  EXPECT_EQ(DataSourceRegistry::Options("given")->policy, AutoShardPolicy::kOff);
  EXPECT_EQ((*DataSourceRegistry::Get("numbers"))->num_args, 2);
}

TEST(DataSourceTest, AnUnknownNameListsThoseThereAre) {
  const absl::Status status =
      DataSourceRegistry::Open(BoundDataSource("nubmers", Nest()), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      StartsWith("this program has no data source \"nubmers\"; it has \"given\", \"numbers\"; "
                 "if it is defined in a static library, "));
}

TEST(DataSourceTest, ErrorsOfTheFunctionAndWrongArgumentsNameTheSource) {
  EXPECT_EQ(DataSourceRegistry::Open(kNumbers(5, "letters"), {}).status(),
            absl::NotFoundError("data source \"numbers\": no letters"));
  const absl::Status status =
      DataSourceRegistry::Open(BoundDataSource("numbers", Nest(Nest::List{Nest("five")})), {})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("data source \"numbers\""));
}

TEST(DataSourceTest, ADoubleNameIsReportedAtStart) {
  EXPECT_EQ(DataSourceRegistry::Validate(),
            absl::InvalidArgumentError(
                "this program has 2 data sources named \"numbers\": give each a name of its own"));
  EXPECT_THAT(DataSourceRegistry::Names(), ElementsAre("given", "numbers"));
}

}  // namespace
}  // namespace divvy
