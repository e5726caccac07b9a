// Datasets for several replicas and workers: batches cut for replicas, and data distributed over
// workers.
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/testing/in_memory_file_system.h"
#include "data/dataset.h"
#include "data/distribute.h"
#include "data/rebatch.h"
#include "data/testing/seek_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ints = std::vector<int64_t>;

Tensor Range(int64_t first, int64_t end) {
  Ints values;
  for (int64_t i = first; i < end; ++i) values.push_back(i);
  return Tensor::Vector<int64_t>(values);
}

Dataset Count(int64_t n) { return Dataset::FromTensorSlices(Nest(Range(0, n))); }

// The examples 0, 1, ... in batches of these sizes, which the recipe does not describe.
Dataset BatchesOf(Ints sizes) {
  return Dataset::Generator(
      [sizes](int64_t index) -> absl::StatusOr<std::optional<Nest>> {
        int64_t first = 0;
        for (int64_t i = 0; i < index; ++i) first += sizes[static_cast<size_t>(i)];
        return Nest(Range(first, first + sizes[static_cast<size_t>(index)]));
      },
      static_cast<int64_t>(sizes.size()));
}

std::string Shown(const Nest& element) {
  const Tensor tensor = *element.tensor();
  return absl::StrJoin(*tensor.values<int64_t>(), " ");
}

std::vector<std::string> Shown(const Dataset& dataset, const DataEnvironment& environment = {}) {
  std::vector<std::string> shown;
  for (const Nest& element : PlainPass(dataset, environment)) shown.push_back(Shown(element));
  return shown;
}

InputContext ContextOf(int worker, int workers, int replicas = 1) {
  InputContext context;
  context.worker_index = worker;
  context.num_workers = workers;
  context.num_replicas_in_sync = replicas;
  return context;
}

MATCHER_P(IsInvalid, part, "") {
  return arg.code() == absl::StatusCode::kInvalidArgument && absl::StrContains(arg.message(), part);
}

absl::Status FirstError(const Dataset& dataset) { return dataset.Iterate()->Next().status(); }

// ---- cutting for replicas

TEST(BatchSizesForWorkerTest, TheFirstAreLargerAndEachWorkerBeginsAtItsOwnPlace) {
  EXPECT_EQ(*BatchSizesForWorker(7, 2, 2, 0), (Ints{2, 2, 2, 1}));
  EXPECT_EQ(*BatchSizesForWorker(7, 2, 2, 1), (Ints{2, 1, 2, 2}));
  EXPECT_EQ(*BatchSizesForWorker(10, 3, 1, 2), (Ints{3, 4, 3}));
  EXPECT_EQ(*BatchSizesForWorker(2, 1, 4, 0), (Ints{1, 1, 0, 0}));
}

TEST(BatchSizesForWorkerTest, RefusesWhatCannotBe) {
  for (const auto& sizes :
       {BatchSizesForWorker(7, 0, 2, 0), BatchSizesForWorker(7, 2, 0, 0),
        BatchSizesForWorker(7, 2, 2, 2), BatchSizesForWorker(7, 2, 2, -1),
        BatchSizesForWorker(-1, 2, 2, 0), BatchSizesForWorker(7, int64_t{1} << 62, 4, 0)}) {
    EXPECT_EQ(sizes.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RebatchTest, CutsAcrossTheBordersOfBatches) {
  EXPECT_THAT(Shown(Rebatch(BatchesOf({7, 3}), {4, 3})), ElementsAre("0 1 2 3", "4 5 6", "7 8 9"));
  EXPECT_THAT(Shown(Rebatch(BatchesOf({1, 0, 1, 4}), {3})), ElementsAre("0 1 2", "3 4 5"));
  EXPECT_THAT(Shown(Rebatch(Count(10).Batch(4), {6})), ElementsAre("0 1 2 3 4 5", "6 7 8 9"));
}

TEST(RebatchTest, AShortBatchEndsTheStreamAndSizesOfZeroComeBehindAFullOne) {
  EXPECT_THAT(Shown(Rebatch(Count(5).Batch(5), {2, 0})), ElementsAre("0 1", "", "2 3", "", "4"));
  EXPECT_THAT(Shown(Rebatch(Count(5).Batch(5), {2, 0}, /*drop_remainder=*/true)),
              ElementsAre("0 1", "", "2 3", ""));
  EXPECT_THAT(Shown(Rebatch(Count(2).Batch(2), {2, 0, 2, 0})), ElementsAre("0 1", ""));
  EXPECT_THAT(Shown(Rebatch(Count(0).Batch(2), {0, 2})), IsEmpty());
}

TEST(RebatchTest, EveryLeafIsCutSparseIdsToo) {
  SparseIds lists{Tensor::Vector<int64_t>({7, 8, 9, 5}), Tensor::Vector<int64_t>({0, 1, 3, 3, 4}),
                  Tensor::Vector<float>({1, 2, 3, 4})};
  const Nest rows{{"ids", Nest(lists)}, {"x", Nest(*Range(0, 8).Reshape({4, 2}))}};
  const Dataset recut = Rebatch(Dataset::FromTensorSlices(rows).Batch(3), {2});
  const std::vector<Nest> batches = PlainPass(recut);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_TRUE(
      BitwiseEqual(*batches[1]["x"].tensor(), *Tensor::Copy<int64_t>({2, 2}, {4, 5, 6, 7})));
  const SparseIds second = *batches[1]["ids"].sparse_ids();
  EXPECT_TRUE(BitwiseEqual(second.ids, Tensor::Vector<int64_t>({5})));
  EXPECT_TRUE(BitwiseEqual(second.row_splits, Tensor::Vector<int64_t>({0, 0, 1})));
  EXPECT_TRUE(BitwiseEqual(*second.weights, Tensor::Vector<float>({4})));
  EXPECT_EQ(recut.ElementSpec()->at("x").shape, (Shape{-1, 2}));
}

TEST(RebatchTest, RefusesSizesThatCannotBeAndElementsThatAreNoBatches) {
  for (const Ints& sizes : {Ints{}, Ints{0, 0}, Ints{2, -1}})
    EXPECT_EQ(FirstError(Rebatch(Count(4).Batch(2), sizes)).code(),
              absl::StatusCode::kInvalidArgument);
  for (const Dataset& cut : {Rebatch(Count(4), {2}), RecutForReplicas(Count(4), 2)}) {
    EXPECT_EQ(FirstError(cut).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(FirstError(cut).message(), HasSubstr("so call Batch first"));
  }
}

TEST(RebatchTest, BatchesThatCannotBeJoinedAreAnError) {
  const Dataset uneven = Dataset::Generator(
      [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
        return Nest(*Range(0, 2 + i).Reshape({1, 2 + i}));
      },
      2);
  EXPECT_THAT(FirstError(Rebatch(uneven, {2})).message(), HasSubstr("must be alike"));
}

TEST(RebatchTest, AnyStreamIsWhatItsModelSaysAndAnyPositionCanBeSought) {
  constexpr uint64_t kSeed = 20250302;
  std::cout << "seed " << kSeed << "\n";
  for (uint64_t i = 0; i < 300; ++i) {
    Random random(MixSeeds(kSeed, i));
    Ints input, sizes = {static_cast<int64_t>(random.Below(5)) + 1};
    const int64_t rows = static_cast<int64_t>(random.Below(30));
    for (int64_t left = rows; left > 0; left -= input.back())
      input.push_back(std::min(left, static_cast<int64_t>(random.Below(6))));
    for (uint64_t more = random.Below(4); more > 0; --more)
      sizes.push_back(static_cast<int64_t>(random.Below(5)));
    const bool drop = random.Chance(0.5);
    std::vector<std::string> model;
    for (int64_t first = 0, place = 0;; ++place) {
      const int64_t size = sizes[static_cast<size_t>(place) % sizes.size()];
      if (rows == 0 || (size > 0 && first == rows) || (drop && first + size > rows)) break;
      model.push_back(Shown(Nest(Range(first, std::min(first + size, rows)))));
      first += size;
      if (first > rows) break;
    }
    SCOPED_TRACE(absl::StrCat("sample ", i, ": ", rows, " rows in {", absl::StrJoin(input, ","),
                              "} cut into {", absl::StrJoin(sizes, ","), "}"));
    const Dataset shown_to_be_even = Count(rows).Batch(static_cast<int64_t>(random.Below(6)) + 1);
    for (const Dataset& batches :
         {BatchesOf(input), shown_to_be_even, shown_to_be_even.Shuffle(1, 1)}) {
      const Dataset recut = Rebatch(batches, sizes, drop);
      ASSERT_EQ(Shown(recut), model);
      ExpectEveryPositionCanBeSought(recut, random.Next());
    }
    if (HasFatalFailure()) return;
  }
}

TEST(RebatchTest, ReadsOnlyTheBatchesItNeedsWhereTheyAreKnownToBeAlike) {
  int64_t mapped = 0;  // one thread
  const Dataset counted = Count(1000).Map([&mapped](const Nest& element) -> absl::StatusOr<Nest> {
    ++mapped;
    return element;
  });
  const auto iterator = Rebatch(counted.Batch(10).Prefetch(2), {5}).Iterate();
  ASSERT_TRUE(iterator->Seek(150).ok());
  EXPECT_EQ(Shown(**iterator->Next()), "750 751 752 753 754");
  EXPECT_EQ(mapped, 10);
}

TEST(RecutForReplicasTest, CutsBatchesKnownToBeAlikeAcrossTheirBordersAndOthersEachByItself) {
  EXPECT_THAT(Shown(RecutForReplicas(Count(9).Batch(9, /*drop_remainder=*/true), 4)),
              ElementsAre("0 1 2", "3 4", "5 6", "7 8"));
  EXPECT_THAT(Shown(RecutForReplicas(Count(9).Batch(9), 4)),
              ElementsAre("0 1 2", "3 4 5", "6 7 8", ""));
  EXPECT_THAT(Shown(RecutForReplicas(BatchesOf({4, 5, 1}), 2)),
              ElementsAre("0 1", "2 3", "4 5 6", "7 8", "9", ""));
  EXPECT_THAT(Shown(RecutForReplicas(Count(3).Batch(2), 1)), ElementsAre("0 1", "2"));
  ExpectEveryPositionCanBeSought(RecutForReplicas(BatchesOf({4, 5, 1}), 3), 1);
}

// ---- distributed over workers

// The elements that each of `workers` workers reads from `dataset` under `policy`.
std::vector<std::vector<std::string>> Parts(const Dataset& dataset, AutoShardPolicy policy,
                                            int workers, const DataEnvironment& environment = {}) {
  std::vector<std::vector<std::string>> parts;
  for (int worker = 0; worker < workers; ++worker) {
    const auto part = internal::AutoShard(dataset, policy, ContextOf(worker, workers));
    EXPECT_TRUE(part.ok()) << part.status();
    parts.push_back(part.ok() ? Shown(*part, environment) : std::vector<std::string>());
  }
  return parts;
}

TEST(AutoShardTest, DataAreDealtOutBelowWhatKeepsThemAll) {
  EXPECT_THAT(Parts(Count(7).Batch(2), AutoShardPolicy::kData, 2),
              ElementsAre(ElementsAre("0 2", "4 6"), ElementsAre("1 3", "5")));
  EXPECT_THAT(Parts(Count(4).Repeat(2).Batch(3), AutoShardPolicy::kData, 2),
              ElementsAre(ElementsAre("0 2 0", "2"), ElementsAre("1 3 1", "3")));
  EXPECT_THAT(Parts(Count(3).Batch(1), AutoShardPolicy::kOff, 2),
              ElementsAre(ElementsAre("0", "1", "2"), ElementsAre("0", "1", "2")));
}

TEST(AutoShardTest, WhatChoosesChoosesBeforeTheDataAreDealtOut) {
  EXPECT_THAT(Parts(Count(100).Take(3).Batch(2), AutoShardPolicy::kData, 2),
              ElementsAre(ElementsAre("0 2"), ElementsAre("1")));
  EXPECT_THAT(Parts(Count(10).Shard(5, 0).Batch(2), AutoShardPolicy::kData, 2),
              ElementsAre(ElementsAre("0"), ElementsAre("5")));
}

TEST(AutoShardTest, EachRecordHasOneWorkerHoweverEachShuffles) {
  std::vector<int64_t> seen;
  for (int worker = 0; worker < 3; ++worker) {
    const Dataset shuffled =
        Count(50).Shuffle(7, static_cast<uint64_t>(worker)).Batch(4).Prefetch(2);
    for (const Nest& batch :
         PlainPass(*internal::AutoShard(shuffled, AutoShardPolicy::kData, ContextOf(worker, 3)))) {
      const Tensor tensor = *batch.tensor();
      const absl::Span<const int64_t> values = *tensor.values<int64_t>();
      seen.insert(seen.end(), values.begin(), values.end());
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(Shown(Nest(Tensor::Vector<int64_t>(seen))), Shown(Nest(Range(0, 50))));
}

class FileShardTest : public ::testing::Test {
 protected:
  // Files of the numbers 10 * i and 10 * i + 1.
  void WriteFiles(int count) {
    for (int i = 0; i < count; ++i)
      ASSERT_TRUE(
          files_.ReplaceFile(absl::StrCat("part-", i), absl::StrCat(10 * i, "\n", 10 * i + 1, "\n"))
              .ok());
  }
  Dataset Numbers() {
    return Dataset::Csv("part-*", {{"x", DType::kInt64}})
        .Map([](const Nest& row) -> absl::StatusOr<Nest> { return row["x"]; })
        .Batch(2);
  }
  absl::Status ErrorOf(const Dataset& dataset, AutoShardPolicy policy) {
    return internal::AutoShard(dataset, policy, ContextOf(0, 2))
        ->Iterate(environment_)
        ->Next()
        .status();
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

TEST_F(FileShardTest, FilesAreDealtOutInTheOrderOfTheirNames) {
  WriteFiles(3);
  EXPECT_THAT(Parts(Numbers(), AutoShardPolicy::kFile, 2, environment_),
              ElementsAre(ElementsAre("0 1", "20 21"), ElementsAre("10 11")));
  EXPECT_THAT(Parts(RecutForReplicas(Numbers(), 2), AutoShardPolicy::kFile, 3, environment_),
              ElementsAre(ElementsAre("0", "1"), ElementsAre("10", "11"), ElementsAre("20", "21")));
}

TEST_F(FileShardTest, AutoDealsOutFilesWhereThereAreEnoughOfThemElseData) {
  WriteFiles(2);
  EXPECT_THAT(Parts(Numbers(), AutoShardPolicy::kAuto, 2, environment_),
              ElementsAre(ElementsAre("0 1"), ElementsAre("10 11")));
  EXPECT_THAT(Parts(Numbers(), AutoShardPolicy::kAuto, 3, environment_),
              ElementsAre(ElementsAre("0 11"), ElementsAre("1"), ElementsAre("10")));
  EXPECT_THAT(Parts(Count(2).Batch(1), AutoShardPolicy::kAuto, 2),
              ElementsAre(ElementsAre("0"), ElementsAre("1")));
}

TEST_F(FileShardTest, TooFewFilesOrNoneAreAnErrorThatNamesTheOtherPolicies) {
  WriteFiles(1);
  EXPECT_EQ(
      ErrorOf(Numbers(), AutoShardPolicy::kFile),
      absl::InvalidArgumentError(
          "there are only 1 files for 2 workers with AutoShardPolicy::kFile: use kData or kAuto"));
  EXPECT_THAT(ErrorOf(Count(4), AutoShardPolicy::kFile).message(),
              HasSubstr("the data is not read from whole files, for 2 workers"));
  EXPECT_EQ(ErrorOf(Dataset::Libsvm("none-*"), AutoShardPolicy::kAuto).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FileShardTest, AWorkersPartCanBeSought) {
  WriteFiles(5);
  for (const AutoShardPolicy policy : {AutoShardPolicy::kFile, AutoShardPolicy::kData})
    ExpectEveryPositionCanBeSought(*internal::AutoShard(Numbers(), policy, ContextOf(1, 2)), 3,
                                   environment_);
}

TEST(AutoShardTest, RefusesAHintAndAPlaceThatIsNotThere) {
  EXPECT_THAT(internal::AutoShard(Count(4), AutoShardPolicy::kHint, ContextOf(0, 1)).status(),
              IsInvalid("Dataset::Shard"));
  EXPECT_THAT(internal::AutoShard(Count(4), AutoShardPolicy::kData, ContextOf(3, 2)).status(),
              IsInvalid("no part for worker 3"));
}

TEST(AutoShardTest, AFifthMayBeHeldOutOnFiveWorkersToo) {
  EXPECT_TRUE(
      internal::AutoShard(Count(20).Shard(5, 0), AutoShardPolicy::kData, ContextOf(0, 5)).ok());
}

// ---- inside a data source

std::function<absl::StatusOr<Dataset>(const InputContext&)>& Function() {
  static auto& function = *new std::function<absl::StatusOr<Dataset>(const InputContext&)>;
  return function;
}
absl::StatusOr<Dataset> CallFunction(const InputContext& input) { return Function()(input); }
const DataSource kLeased("leased", CallFunction);
const DataSource kOff("off", CallFunction, InputOptions{AutoShardPolicy::kOff});
const DataSource kByData("by data", CallFunction, InputOptions{AutoShardPolicy::kData});
const DataSource kHinted("hinted", CallFunction, InputOptions{AutoShardPolicy::kHint});

absl::StatusOr<Dataset> Open(const BoundDataSource& source, const InputContext& context,
                             std::function<absl::StatusOr<Dataset>(const InputContext&)> function) {
  Function() = std::move(function);
  return DataSourceRegistry::Open(source, context);
}

TEST(DataSourcePolicyTest, TheWorkersPartIsTakenOfWhatTheFunctionGives) {
  const auto count = [](const InputContext&) -> absl::StatusOr<Dataset> {
    return Count(5).Batch(2);
  };
  EXPECT_THAT(Shown(*Open(kByData(), ContextOf(1, 2), count)), ElementsAre("1 3"));
  EXPECT_THAT(Shown(*Open(kLeased(), ContextOf(1, 2), count)), ElementsAre("0 1", "2 3", "4"));
  EXPECT_THAT(Shown(*Open(kOff(), ContextOf(1, 2), count)), ElementsAre("0 1", "2 3", "4"));
  EXPECT_THAT(Open(kHinted(), ContextOf(1, 2), count).status(), IsInvalid("Dataset::Shard"));
  EXPECT_THAT(DataSourceRegistry::Validate(),
              IsInvalid("data source \"hinted\" has AutoShardPolicy::kHint"));
}

TEST(DataSourcePolicyTest, ThePipelinesAreOneUnlessTheWorkersHaveTheirParts) {
  std::string seen;
  const auto show = [&seen](const InputContext& input) -> absl::StatusOr<Dataset> {
    absl::StrAppend(&seen, input.input_pipeline_id, " of ", input.num_input_pipelines, ";");
    return Count(1);
  };
  for (const BoundDataSource& source : {kLeased(), kOff(), kByData()})
    ASSERT_TRUE(Open(source, ContextOf(2, 3), show).ok());
  EXPECT_EQ(seen, "0 of 1;0 of 1;2 of 3;");
}

TEST(DistributeDatasetTest, CutsGlobalBatchesForTheReplicasOfTheWorker) {
  const auto distribute = [](const InputContext&) { return DistributeDataset(Count(6).Batch(4)); };
  EXPECT_THAT(Shown(*Open(kLeased(), ContextOf(0, 2, /*replicas=*/2), distribute)),
              ElementsAre("0 1", "2 3", "4", "5"));
  EXPECT_THAT(Shown(*Open(kLeased(), ContextOf(0, 2, /*replicas=*/1), distribute)),
              ElementsAre("0 1 2 3", "4 5"));
  EXPECT_THAT(Shown(*Open(kByData(), ContextOf(0, 2, /*replicas=*/2), distribute)),
              ElementsAre("0 2", "4"));
}

TEST(DistributeDatasetTest, WhatComesBackIsADatasetThatTakesMoreAndKeepsItsShuffling) {
  const auto shuffled = [](const InputContext& input) {
    return DistributeDataset(Count(8).Shuffle(8, input.seed).Batch(4));
  };
  const auto plain = [](const InputContext&) { return DistributeDataset(Count(8).Batch(4)); };
  const std::vector<std::string> batches =
      Shown(*Open(kOff(), ContextOf(0, 2, /*replicas=*/2), shuffled));
  EXPECT_EQ(batches.size(), 4u);
  EXPECT_NE(batches, Shown(*Open(kOff(), ContextOf(0, 2, /*replicas=*/2), plain)));
  EXPECT_EQ(batches, Shown(*Open(kOff(), ContextOf(0, 2, /*replicas=*/2), shuffled)))
      << "of one seed";
  const auto more = [&](const InputContext& input) -> absl::StatusOr<Dataset> {
    ASSIGN_OR_RETURN(const Dataset distributed, shuffled(input));
    return distributed.Skip(1).Take(2);
  };
  EXPECT_THAT(Shown(*Open(kOff(), ContextOf(0, 2, /*replicas=*/2), more)),
              ElementsAre(batches[1], batches[2]));
}

TEST(DistributeDatasetTest, AFunctionGivesBatchesForEachReplicaAndIsToldItsPlace) {
  const auto distribute = [](const InputContext&) {
    return DistributeDatasetsFromFunction([](const InputContext& input) -> absl::StatusOr<Dataset> {
      return Count(6).Batch(*input.GetPerReplicaBatchSize(4)).Skip(input.input_pipeline_id);
    });
  };
  EXPECT_THAT(Shown(*Open(kLeased(), ContextOf(1, 2, /*replicas=*/2), distribute)),
              ElementsAre("0 1", "2 3", "4 5"));
  EXPECT_THAT(Shown(*Open(kByData(), ContextOf(1, 2, /*replicas=*/2), distribute)),
              ElementsAre("4 5"));
  const auto failing = [](const InputContext&) {
    return DistributeDatasetsFromFunction([](const InputContext&) -> absl::StatusOr<Dataset> {
      return absl::NotFoundError("no data");
    });
  };
  EXPECT_EQ(Open(kLeased(), ContextOf(0, 1), failing).status(),
            absl::NotFoundError("data source \"leased\": no data"));
}

TEST(DistributeDatasetTest, APolicyOfItsOwnIsTakenOnlyWhereTheSourceHasNone) {
  const auto with = [](AutoShardPolicy policy) {
    return [policy](const InputContext&) {
      return DistributeDataset(Count(4).Batch(2), InputOptions{policy});
    };
  };
  EXPECT_THAT(Shown(*Open(kOff(), ContextOf(1, 2), with(AutoShardPolicy::kData))),
              ElementsAre("1 3"));
  EXPECT_THAT(Shown(*Open(kByData(), ContextOf(1, 2), with(AutoShardPolicy::kData))),
              ElementsAre("1 3"));
  EXPECT_THAT(Open(kLeased(), ContextOf(1, 2), with(AutoShardPolicy::kData)).status(),
              IsInvalid("set the policy in the DataSource's options"));
  EXPECT_THAT(Open(kByData(), ContextOf(1, 2), with(AutoShardPolicy::kOff)).status(),
              IsInvalid("set the policy in the DataSource's options"));
  EXPECT_THAT(Open(kLeased(), ContextOf(1, 2), with(AutoShardPolicy::kHint)).status(),
              IsInvalid("Dataset::Shard"));
}

TEST(DistributeDatasetTest, OutsideADataSourceItIsAFailedPreconditionThatSaysWhere) {
  const absl::Status status = DistributeDataset(Count(4).Batch(2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("inside a DataSource function"));
  EXPECT_EQ(DistributeDatasetsFromFunction(CallFunction).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace divvy
