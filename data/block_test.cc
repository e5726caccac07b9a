// Elements as rows of blocks: whatever is done to them, they are the elements that a pass one by
// one returns.
#include "data/block.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/testing/in_memory_file_system.h"
#include "data/dataset.h"
#include "data/stacking.h"
#include "data/testing/seek_suite.h"
#include "formats/example.h"
#include "formats/tfrecord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using data_internal::Block;
using data_internal::RowList;
using data_internal::RowRef;
using data_internal::StackRefs;

Nest Numbers(int64_t first, int64_t count) {
  std::vector<int64_t> numbers, ids, splits = {0};
  std::vector<float> weights;
  for (int64_t i = first; i < first + count; ++i) {
    numbers.push_back(i);
    for (int64_t id = 0; id < i % 3; ++id) {
      ids.push_back(10 * i + id);
      weights.push_back(static_cast<float>(id));
    }
    splits.push_back(static_cast<int64_t>(ids.size()));
  }
  const Tensor numbers_tensor = Tensor::Vector<int64_t>(numbers);
  const SparseIds sparse{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(splits),
                         Tensor::Vector<float>(weights)};
  return Nest{{"numbers", Nest(numbers_tensor)},
              {"pairs", Nest(Nest::List{Nest(*numbers_tensor.Reshape({count, 1})), Nest(sparse)})}};
}

// ---- blocks and lists

TEST(BlockTest, GatheredRowsAreTheStackedElements) {
  const auto first = Block::OfRows(Numbers(0, 5), 5, nullptr);
  const auto second = Block::OfRows(Numbers(5, 4), 4, first->layout());
  EXPECT_EQ(first->layout(), second->layout());
  const std::vector<RowRef> refs = {
      {first.get(), 4}, {second.get(), 0}, {first.get(), 0}, {second.get(), 3}};
  std::vector<Nest> elements;
  for (const RowRef& ref : refs) elements.push_back(*ref.block->Row(ref.row));
  EXPECT_TRUE(BitwiseEqual(*StackRefs(refs), *StackRows(elements)));
}

TEST(BlockTest, RowsOfUnlikeBlocksAreStackedOrRefusedAsElementsAre) {
  const auto wide = Block::OfRows(Nest(*Tensor::Zeros(DType::kFloat32, {2, 3})), 2, nullptr);
  const auto same = Block::OfElement(Nest(*Tensor::Zeros(DType::kFloat32, {3})));
  const auto narrow = Block::OfElement(Nest(*Tensor::Zeros(DType::kFloat32, {2})));
  const std::vector<RowRef> alike = {{wide.get(), 1}, {same.get(), 0}};
  EXPECT_TRUE(BitwiseEqual(*StackRefs(alike), Nest(*Tensor::Zeros(DType::kFloat32, {2, 3}))));
  const std::vector<RowRef> unlike = {{wide.get(), 1}, {narrow.get(), 0}};
  EXPECT_EQ(StackRefs(unlike).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RowListTest, TidyFreesLargeBlocksOfWhichFewRowsAreWanted) {
  RowList rows;
  auto large = Block::OfRows(Numbers(0, 100), 100, nullptr);
  const std::weak_ptr<const Block> freed = large;
  rows.Add(large, 7, 2);
  large.reset();
  ASSERT_TRUE(rows.Tidy(RowList::Tail::kIfLong).ok());
  EXPECT_EQ(rows.kept_rows(), 100) << "a short tail waits for more";
  ASSERT_TRUE(rows.Tidy(RowList::Tail::kAny).ok());
  EXPECT_EQ(rows.kept_rows(), 2);
  EXPECT_TRUE(freed.expired());
  EXPECT_TRUE(BitwiseEqual(*StackRefs(rows.refs()), *RowsOf(Numbers(0, 100), 7, 9)));
}

TEST(RowListTest, TidyJoinsSmallBlocks) {
  RowList rows;
  std::shared_ptr<const data_internal::BlockLayout> layout;
  for (int64_t i = 0; i < 5000; ++i) {
    const auto block = Block::OfRows(Numbers(i, 1), 1, layout);
    layout = block->layout();
    rows.Add(block, 0, 1);
    ASSERT_TRUE(rows.Tidy(RowList::Tail::kIfLong).ok());
  }
  EXPECT_EQ(rows.refs()[0].block, rows.refs()[1000].block);
  EXPECT_TRUE(BitwiseEqual(*StackRefs(rows.refs()), Numbers(0, 5000)));
}

TEST(RowListTest, TidyLeavesWhatTheDatasetKeepsAnyway) {
  RowList rows;
  const auto large = Block::OfRows(Numbers(0, 100), 100, nullptr);
  rows.Add(large, 7, 20, /*kept_rows=*/0);
  ASSERT_TRUE(rows.Tidy(RowList::Tail::kAny).ok());
  EXPECT_EQ(rows.refs()[0].block, large.get());
}

// ---- datasets

// The same elements, each a tree of its own: nothing about their source is known above it.
Dataset OneByOne(const Dataset& dataset) {
  return dataset.Map([](const Nest& element) -> absl::StatusOr<Nest> { return element; });
}

// Applies the same random methods to both.
void Grow(Random& random, Dataset& a, Dataset& b, std::string& recipe) {
  const int64_t n = static_cast<int64_t>(random.Below(40)) + 1;
  const int64_t index = static_cast<int64_t>(random.Below(static_cast<uint64_t>(n)));
  const uint64_t seed = random.Next();
  const uint64_t kind = random.Below(9);
  absl::StrAppend(&recipe, " ", kind, "(", n, ", ", index, ")");
  const auto grow = [&](const Dataset& dataset) {
    switch (kind) {
      case 0: return dataset.HoldOut(static_cast<int>(n), static_cast<int>(index));
      case 1: return dataset.Shard(static_cast<int>(n), static_cast<int>(index));
      case 2: return dataset.Take(n * 20);
      case 3: return dataset.Skip(n);
      case 4: return dataset.Repeat(2);
      case 5: return dataset.Prefetch(n);
      case 6: return dataset.IgnoreErrors(1000);
      case 7:
        return dataset.Filter([n](const Nest& element) -> absl::StatusOr<bool> {
          return element.ToString().size() % static_cast<size_t>(n) != 0;
        });
      default: return dataset.Shuffle(n * 30, seed);
    }
  };
  a = grow(a);
  b = grow(b);
}

class BlocksOfFilesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, absl::string_view bytes) {
    ASSERT_TRUE(files_.ReplaceFile(name, bytes).ok());
  }

  // Examples in the usual encoding, and some in others.
  static std::string Records(Random& random, int count) {
    std::string file;
    for (int i = 0; i < count; ++i) {
      std::string example =
          WriteExample({{"ids", std::vector<int64_t>{i, -i, static_cast<int64_t>(random.Next())}},
                        {"label", std::vector<float>{static_cast<float>(random.Uniform())}},
                        {"other", std::vector<absl::string_view>{"text"}}});
      if (random.Chance(0.1)) example += WriteExample({{"label", std::vector<float>{9}}});
      AppendTfRecord(example, file);
    }
    return file;
  }

  // Some of everything that text may have: quotes, blanks, empty lines, line ends, numbers of all
  // kinds.
  void WriteFiles(Random& random) {
    std::string csv = "x,y,name,z,z2\n", libsvm, criteo;
    for (int i = 0; i < 700; ++i) {
      const char* const end = random.Chance(0.3) ? "\r\n" : random.Chance(0.05) ? "\n\n" : "\n";
      absl::StrAppend(&csv, random.Below(100), random.Chance(0.3) ? ".25" : "",
                      random.Chance(0.1) ? " , " : ",", random.Chance(0.5) ? "-" : "",
                      random.Next() >> (1 + random.Below(60)), ",",
                      random.Chance(0.2) ? "\"a \"\"b\"\",\n\"" : "plain", ",");
      absl::StrAppend(&csv, random.Chance(0.2) ? "1e-3" : "007", ",", random.Uniform(), end);
      absl::StrAppend(&libsvm, random.Below(2), random.Chance(0.1) ? " qid:3" : "");
      for (uint64_t id = 1 + random.Below(3); id < 9; id += 1 + random.Below(9))
        absl::StrAppend(&libsvm, random.Chance(0.1) ? "\t " : " ", id, ":", random.Uniform());
      absl::StrAppend(&libsvm, random.Chance(0.1) ? " # why" : "", end);
      absl::StrAppend(&criteo, random.Below(2));
      for (int field = 0; field < 39; ++field) {
        absl::StrAppend(&criteo, "\t");
        if (random.Chance(0.8)) absl::StrAppend(&criteo, random.Below(1000));
      }
      absl::StrAppend(&criteo, end);
    }
    Write("records", Records(random, 700));
    Write("csv-1", csv);
    Write("csv-2", csv.substr(0, csv.size() / 3));
    Write("libsvm", libsvm);
    Write("criteo", criteo);
    Write("labels", std::string("\0\0\x08\x01\0\0\x01\x2c", 8) + std::string(300, '\x07'));
    std::string images("\0\0\x0d\x03\0\0\x01\x2c\0\0\0\x02\0\0\0\x01", 16);
    for (int i = 0; i < 4 * 600; ++i) images.push_back(static_cast<char>(random.Below(100)));
    Write("images", images);
  }

  std::vector<Dataset> Sources() {
    CsvColumn name{"name", DType::kString};
    name.hash_buckets = 1000;
    return {
        Dataset::Csv("csv-*",
                     {{"y", DType::kInt64}, {"x"}, name, {"z", DType::kFloat64, 0, /*width=*/2}})
            .IgnoreErrors(1),
        Dataset::Libsvm("libsvm"), Dataset::CriteoTsv("criteo"), Dataset::Idx("images", "labels"),
        Dataset::FromTensorSlices(Numbers(0, 900))};
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

TEST_F(BlocksOfFilesTest, AnyPipelineYieldsWhatItYieldsElementByElement) {
  constexpr uint64_t kSeed = 20261124;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  WriteFiles(random);
  const std::vector<Dataset> sources = Sources();
  for (int sample = 0; sample < 150; ++sample) {
    Dataset a = sources[random.Below(sources.size())], b = OneByOne(a);
    std::string recipe;
    for (uint64_t depth = random.Below(4); depth > 0; --depth) Grow(random, a, b, recipe);
    SCOPED_TRACE(absl::StrCat("sample ", sample, ":", recipe));
    const int64_t size = 1 + static_cast<int64_t>(random.Below(200));
    const std::vector<Nest> batches = PlainPass(a.Batch(size), environment_);
    const std::vector<Nest> wanted = PlainPass(b.Batch(size), environment_);
    ASSERT_EQ(batches.size(), wanted.size());
    for (size_t i = 0; i < batches.size(); ++i)
      ASSERT_TRUE(BitwiseEqual(batches[i], wanted[i])) << i << ": " << batches[i].ToString();
    ExpectEveryPositionCanBeSought(random.Chance(0.5) ? a.Batch(size) : a, random.Next(),
                                   environment_);
    if (HasFatalFailure()) return;
  }
}

TEST_F(BlocksOfFilesTest, FeaturesAreWhatParseExampleGives) {
  constexpr uint64_t kSeed = 4;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  Write("records", Records(random, 300));
  const std::vector<std::vector<ExampleFeature>> wanted = {
      {{"label"}, {"ids", DType::kInt64, {3}}},
      {{"ids", DType::kInt64, {3, 1}}},
      {{"ids", DType::kInt64, {-1}}, {"label", DType::kFloat32, {1}}},
      {{"other", DType::kString}},
      {{"label"}, {"label", DType::kFloat32, {1}}}};
  for (const std::vector<ExampleFeature>& features : wanted) {
    const Dataset parsed = Dataset::TfRecord(
        "records", [features](absl::string_view record) { return ParseExample(record, features); });
    const std::vector<Nest> a = PlainPass(Dataset::TfRecord("records", features), environment_);
    const std::vector<Nest> b = PlainPass(parsed, environment_);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(BitwiseEqual(a[i], b[i]));
  }
}

// Each element or error of a pass, with a seek past each error. Cut where errors never end: behind
// the last that IgnoreErrors allows.
std::vector<std::string> Told(const Dataset& dataset, const DataEnvironment& environment) {
  std::vector<std::string> told;
  const auto iterator = dataset.Iterate(environment);
  for (int64_t position = 0; position < 2000; ++position) {
    const auto element = iterator->Next();
    if (element.ok() && !element->has_value()) break;
    told.push_back(element.ok() ? "good" : std::string(element.status().message()));
    if (element.ok()) continue;
    EXPECT_TRUE(iterator->Seek(position + 1).ok());
  }
  return told;
}

TEST_F(BlocksOfFilesTest, ErrorsKeepTheirPlacesAndWords) {
  constexpr uint64_t kSeed = 3;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  for (int round = 0; round < 4; ++round) {
    WriteFiles(random);
    for (const char* const name : {"csv-1", "libsvm", "criteo", "records"}) {
      std::string bytes = *files_.ReadFile(name);
      for (int change = 0; change < 20; ++change)
        bytes[random.Below(bytes.size())] = "x\",\n\r\t: 9"[random.Below(9)];
      Write(name, bytes);
      const Dataset source = name[1] == 's'   ? Dataset::Csv(name, {{"x"}, {"y", DType::kInt64}})
                             : name[0] == 'l' ? Dataset::Libsvm(name)
                             : name[0] == 'r'
                                 ? Dataset::TfRecord(name, {{"label"}, {"ids", DType::kInt64, {3}}})
                                 : Dataset::CriteoTsv(name);
      const std::vector<std::string> told = Told(OneByOne(source), environment_);
      ASSERT_FALSE(told.empty());
      EXPECT_EQ(Told(source, environment_), told);
      // A batch is bad if one of its elements is.
      EXPECT_EQ(Told(source.Batch(10), environment_),
                Told(OneByOne(source).Batch(10), environment_));
      EXPECT_EQ(Told(source.Shard(7, 2).Batch(3), environment_),
                Told(OneByOne(source).Shard(7, 2).Batch(3), environment_));
      EXPECT_EQ(Told(source.IgnoreErrors(3).HoldOut(3, 1), environment_),
                Told(OneByOne(source).IgnoreErrors(3).HoldOut(3, 1), environment_));
    }
  }
}

// ---- MapBatches

// Negates "numbers", of a batch or of one element.
absl::StatusOr<Nest> Negated(const Nest& nest) {
  ASSIGN_OR_RETURN(Tensor numbers, nest["numbers"].tensor());
  ASSIGN_OR_RETURN(const absl::Span<int64_t> values, numbers.mutable_values<int64_t>());
  for (int64_t& value : values) value = -value;
  return Nest{{"negated", Nest(numbers)}, {"pairs", nest["pairs"]}};
}

TEST(MapBatchesTest, YieldsWhatMapYieldsAndAnyPositionCanBeSought) {
  const Dataset source = Dataset::FromTensorSlices(Numbers(0, 100));
  for (const auto& change : std::vector<std::function<Dataset(const Dataset&)>>{
           [](const Dataset& d) { return d; }, [](const Dataset& d) { return d.Shard(7, 3); },
           [](const Dataset& d) { return d.Shuffle(30, 1).Batch(8); }}) {
    const Dataset a = change(source.MapBatches(Negated, 16)), b = change(source.Map(Negated));
    const std::vector<Nest> got = PlainPass(a), wanted = PlainPass(b);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(BitwiseEqual(got[i], wanted[i])) << i;
    ExpectEveryPositionCanBeSought(a, 5);
  }
}

TEST(MapBatchesTest, GivesNoMoreRowsThanAskedForAndWantsAsManyBack) {
  const Dataset source = Dataset::FromTensorSlices(Numbers(0, 100));
  int64_t most = 0;
  const Dataset counted = source.MapBatches(
      [&most](const Nest& batch) -> absl::StatusOr<Nest> {
        most = std::max(most, batch["numbers"].tensor()->shape().dim(0));
        return batch;
      },
      10);
  EXPECT_EQ(PlainPass(counted.Batch(64)).size(), 2u);
  EXPECT_EQ(most, 10);
  const auto fewer =
      source.MapBatches([](const Nest&) -> absl::StatusOr<Nest> { return Numbers(0, 1); }, 10)
          .Batch(5)
          .Iterate()
          ->Next();
  EXPECT_EQ(fewer.status(), absl::InvalidArgumentError(
                                "a MapBatches function got 5 rows and returned 1: it must return a "
                                "row for each. To drop some, use Filter"));
  EXPECT_EQ(source.MapBatches(Negated, 0).Iterate()->Next().status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BlocksOfFilesTest, ABadLineEndsABatchOfMapBatchesAndKeepsItsPlace) {
  Write("a", "1\n2\nx\n4\n");
  const Dataset lines =
      Dataset::Csv("a", {{"numbers", DType::kInt64}})
          .MapBatches([](const Nest& batch) -> absl::StatusOr<Nest> { return batch; });
  EXPECT_EQ(Told(lines, environment_),
            (std::vector<std::string>{"good", "good",
                                      "a: line 3: column \"numbers\": \"x\" is not an integer of "
                                      "64 bits",
                                      "good"}));
  EXPECT_EQ(PlainPass(lines.IgnoreErrors(1).Batch(3), environment_).size(), 1u);
}

}  // namespace
}  // namespace divvy
