// Dynamic tables on a whole cluster in this process.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/embedded.h"
#include "tests/cluster/one_worker_test.h"
#include "variables/first_rows.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 4, kKeys = 500;

// Any number is a key.
const DynamicTable kUsers("user", {.width = kWidth,
                                   .optimizer = Adam{0.1},
                                   .initializer = RandomNormal{0, 0.5f}});
// The same rows as a variable, for keys that are row numbers.
const VariableSpec kFixed{"user", {kKeys, kWidth}, RandomNormal{0, 0.5f}, Adam{0.1}};
const DynamicTable kAds("ad", {.width = 2,
                               .optimizer = RowwiseAdagrad{0.1},
                               .admission = AdmitAfter{3},
                               .absent = TableOptions::Absent::kZeros});

// The gradient of a row depends on its values. Keys repeat within a step.
absl::Status Descend(ReplicaContext& replica, const Tensor& keys) {
  GradientTape tape(replica);
  const Var rows = tape.Lookup("user", keys);
  return replica.ApplyGradients(tape.Gradient(ReduceSum(Square(rows) - rows)));
}
absl::Status Train(WorkerContext& worker, Tensor keys) {
  return worker.strategy().Run(Descend, keys).status();
}
const Step kTrain("tables_test/train", Train);

absl::Status DescendBags(ReplicaContext& replica, const Nest& lists) {
  GradientTape tape(replica);
  const Var bags = tape.LookupSparse("ad", lists, Combiner::kSum);
  return replica.ApplyGradients(tape.Gradient(ReduceSum(bags)));
}
absl::Status TrainBags(WorkerContext& worker, Nest lists) {
  return worker.strategy().Run(DescendBags, lists).status();
}
const Step kTrainBags("tables_test/train_bags", TrainBags);

class TablesTest : public OneWorkerTest {
 protected:
  // The keys of step `i`.
  static Tensor KeysOf(int i) {
    std::vector<int64_t> keys;
    for (int64_t k = 0; k < 20; ++k) keys.push_back((i * 31 + k * k * 7) % kKeys);
    return Tensor::Vector<int64_t>(keys);
  }
  static absl::Status RunSteps(Coordinator& coordinator, int first, int end) {
    for (int i = first; i < end; ++i)
      RETURN_IF_ERROR(coordinator.Schedule(kTrain, KeysOf(i)).status());
    return coordinator.Join();
  }
  static Tensor RowsOf(Coordinator& coordinator, const std::string& name, const Tensor& keys) {
    const auto table = coordinator.strategy().FindVariable(name);
    const auto rows = table.ok() ? table->Rows(keys) : table.status();
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.value_or(Tensor());
  }
  static Tensor AllKeys() {
    std::vector<int64_t> keys(kKeys);
    for (int64_t i = 0; i < kKeys; ++i) keys[static_cast<size_t>(i)] = i;
    return Tensor::Vector<int64_t>(keys);
  }
};

TEST_F(TablesTest, ATableTrainsAsAVariableWithARowForEachKeyDoes) {
  Tensor rows[2];
  for (const bool is_table : {false, true}) {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(
        coordinator.strategy().CreateVariable(is_table ? VariableSpec(kUsers) : kFixed).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 60).ok());
    rows[is_table] = RowsOf(coordinator, "user", AllKeys());
  }
  EXPECT_TRUE(BitwiseEqual(rows[0], rows[1]));
}

TEST_F(TablesTest, ItsCheckpointIsReadByAnyNumberOfServersAndSurvivesTheirLoss) {
  Tensor uninterrupted;
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 40).ok());
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
    ASSERT_TRUE(RunSteps(coordinator, 40, 60).ok());
    uninterrupted = RowsOf(coordinator, "user", AllKeys());
  }
  for (const int num_ps : {1, 3}) {
    SCOPED_TRACE(num_ps);
    const auto cluster = *Start(num_ps);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    const auto steps = coordinator.RestoreLatest();
    ASSERT_TRUE(steps.ok()) << steps.status();
    ASSERT_TRUE(RunSteps(coordinator, 40, 60).ok());
    // What the server held is read from the checkpoint, and the steps since are run again.
    cluster->KillPs(0);
    ASSERT_TRUE(cluster->RestartPs(0).ok());
    ASSERT_TRUE(coordinator.Join().ok());
    EXPECT_TRUE(BitwiseEqual(RowsOf(coordinator, "user", AllKeys()), uninterrupted));
  }
  // Another program may read the rows.
  std::string prefix;
  const auto names = *FileSystem::Real().ListDirectory(directory_);
  for (const std::string& name : names) {
    if (name.size() > 6 && name.substr(name.size() - 6) == ".index")
      prefix = absl::StrCat(directory_, "/", name.substr(0, name.size() - 6));
  }
  const auto reader = BundleReader::Open(FileSystem::Real(), prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const Tensor keys = *(*reader)->ReadTensor("user-keys"),
               values = *(*reader)->ReadTensor("user-values");
  EXPECT_EQ(values.shape(), (Shape{keys.shape().dim(0), kWidth}));
  EXPECT_EQ((*reader)->ReadTensor("user-values/Adam/m")->shape(), values.shape());
  EXPECT_EQ((*reader)->ReadTensor("user-freqs")->shape(), keys.shape());
}

// Rows that are stored as halves.
DynamicTable HalfUsers(DType dtype) {
  return DynamicTable("user", {.width = kWidth,
                               .optimizer = Adam{0.1},
                               .initializer = RandomNormal{0, 0.5f},
                               .dtype = dtype});
}

TEST_F(TablesTest, HalvesAreTheSameForAnyNumberOfServersAndInACheckpoint) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(DTypeName(dtype));
    std::vector<Tensor> rows, saved;
    for (const int num_ps : {1, 3}) {
      const auto cluster = *Start(num_ps);
      Coordinator& coordinator = cluster->coordinator();
      ASSERT_TRUE(coordinator.strategy().CreateVariable(HalfUsers(dtype)).ok());
      ASSERT_TRUE(RunSteps(coordinator, 0, 40).ok());
      ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
      saved.push_back(RowsOf(coordinator, "user", AllKeys()));
      ASSERT_TRUE(RunSteps(coordinator, 40, 60).ok());
      rows.push_back(RowsOf(coordinator, "user", AllKeys()));
      // What the server held is read from the checkpoint, and the steps since are run again.
      cluster->KillPs(0);
      ASSERT_TRUE(cluster->RestartPs(0).ok());
      ASSERT_TRUE(coordinator.Join().ok());
      rows.push_back(RowsOf(coordinator, "user", AllKeys()));
    }
    for (const Tensor& each : rows) EXPECT_TRUE(BitwiseEqual(each, rows[0]));
    EXPECT_EQ(rows[0].dtype(), DType::kFloat32);
    const auto values = rows[0].values<float>();
    for (const float value : *values)
      EXPECT_EQ(value, dtype == DType::kFloat16 ? Half::FromFloat(value).ToFloat()
                                                : BFloat16::FromFloat(value).ToFloat());
    {
      // Another number of servers reads the same bits.
      const auto cluster = *Start(2);
      Coordinator& coordinator = cluster->coordinator();
      ASSERT_TRUE(coordinator.strategy().CreateVariable(HalfUsers(dtype)).ok());
      ASSERT_TRUE(coordinator.RestoreLatest().ok());
      EXPECT_TRUE(BitwiseEqual(RowsOf(coordinator, "user", AllKeys()), saved[0]));
      EXPECT_TRUE(BitwiseEqual(saved[1], saved[0]));
    }
    // The rows of a checkpoint have one dtype.
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.RestoreLatest().ok());
    const absl::Status other = coordinator.strategy().CreateVariable(kUsers).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition) << other;
    EXPECT_THAT(std::string(other.message()), HasSubstr("of float32"));
    EXPECT_THAT(std::string(other.message()),
                HasSubstr(absl::StrCat("of ", DTypeName(dtype), " of width 4")));
    const auto names = *FileSystem::Real().ListDirectory(directory_);
    for (const std::string& name : names) {
      ASSERT_TRUE(FileSystem::Real().Remove(absl::StrCat(directory_, "/", name)).ok()) << name;
    }
  }
}

TEST_F(TablesTest, AllKeysMoveToMoreServersAndToFewerOnes) {
  // Sequential keys, keys with equal low bits, and those at the ends.
  constexpr int64_t kEach = 10'000;
  std::vector<int64_t> keys = {-1, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()};
  for (int64_t i = 0; i < kEach; ++i) {
    keys.push_back(i);
    keys.push_back((i + 1) << 32);
    keys.push_back(-(i + 2) * 65'536);
  }
  const Tensor all = Tensor::Vector<int64_t>(keys);
  Tensor before;
  {
    const auto cluster = *Start(1);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    ASSERT_TRUE(coordinator.Schedule(kTrain, all).ok());
    ASSERT_TRUE(coordinator.Join().ok());
    before = RowsOf(coordinator, "user", all);
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  for (const int num_ps : {3, 2}) {
    SCOPED_TRACE(num_ps);
    const auto cluster = *Start(num_ps);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    ASSERT_TRUE(coordinator.RestoreLatest().ok());
    EXPECT_TRUE(BitwiseEqual(RowsOf(coordinator, "user", all), before));
    // A step goes on in the rows that are there.
    ASSERT_TRUE(coordinator.Schedule(kTrain, all).ok());
    ASSERT_TRUE(coordinator.Join().ok());
    before = RowsOf(coordinator, "user", all);
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
}

// Momentum and the centered RmsProp have as many slots of the same kinds, but not the same ones.
TEST_F(TablesTest, ATableOfACheckpointKeepsItsSlots) {
  const auto rms_prop = [](float momentum, bool centered) {
    RmsProp rule{0.1};
    rule.momentum = momentum;
    rule.centered = centered;
    return DynamicTable("user", {.width = kWidth, .optimizer = rule});
  };
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(rms_prop(0.9f, false)).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 10).ok());
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  const auto cluster = *Start(2);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.RestoreLatest().ok());
  const absl::Status other = coordinator.strategy().CreateVariable(rms_prop(0, true)).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("RmsProp (rms, mg)"));
  EXPECT_THAT(std::string(other.message()), HasSubstr("RmsProp (rms, momentum)"));
  EXPECT_TRUE(coordinator.strategy().CreateVariable(rms_prop(0.5f, false)).ok());
}

TEST_F(TablesTest, KeysAreAdmittedWhenTheyRecurAndMayBeAnyNumber) {
  const auto cluster = *Start(3);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.strategy().CreateVariable(kAds).ok());
  const std::vector<int64_t> keys = {-1, 0, std::numeric_limits<int64_t>::min(),
                                     std::numeric_limits<int64_t>::max(), int64_t{1} << 62};
  const Nest lists =
      SparseIds{Tensor::Vector<int64_t>(keys), Tensor::Vector<int64_t>({0, 2, 5}), {}};
  const auto is_zero = [&] {
    const Tensor rows = RowsOf(coordinator, "ad", Tensor::Vector<int64_t>(keys));
    const auto values = *rows.values<float>();
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
  };
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(coordinator.Schedule(kTrainBags, lists).ok());
    ASSERT_TRUE(coordinator.Join().ok());
    EXPECT_TRUE(is_zero()) << "named " << i + 1 << " times";
  }
  ASSERT_TRUE(coordinator.Schedule(kTrainBags, lists).ok());
  ASSERT_TRUE(coordinator.Join().ok());
  EXPECT_FALSE(is_zero());
}

TEST_F(TablesTest, EachPartMayHaveARow) {
  const auto cluster = *Start(3);
  Strategy& strategy = cluster->coordinator().strategy();
  const auto create = [&](int64_t max_rows) {
    return strategy.CreateVariable(DynamicTable("t", {.width = 16, .max_rows = max_rows})).status();
  };
  const absl::Status few = create(2);
  EXPECT_EQ(few.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(few.message()), HasSubstr("declare it with max_rows of at least 3"));
  EXPECT_TRUE(create(3).ok());
}

TEST_F(TablesTest, KeysAreIntegers) {
  const auto cluster = *Start(1);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
  ASSERT_TRUE(coordinator.Schedule(kTrain, Tensor::Vector<float>({1, 2})).ok());
  const absl::Status status = coordinator.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("float32"));
  // int32 counts as int64.
  ASSERT_TRUE(coordinator.Schedule(kTrain, Tensor::Vector<int32_t>({1, 2})).ok());
  EXPECT_TRUE(coordinator.Join().ok());
}

// Whether a new program finds the table in a checkpoint or on the servers.
TEST_F(TablesTest, ATableKeepsItsWidth) {
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 3).ok());
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  const DynamicTable wider("user", {.width = 8, .optimizer = Adam{0.1}});
  const auto expect_both_widths = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("of width 8"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("of width 4"));
  };
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.RestoreLatest().ok());
    expect_both_widths(coordinator.strategy().CreateVariable(wider).status());
    const absl::Status fixed = coordinator.strategy().CreateVariable({"user", {9, 8}}).status();
    EXPECT_THAT(std::string(fixed.message()), HasSubstr("a variable, float32 [9, 8]"));
  }
  const auto cluster = *Start(2);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.strategy().CreateVariable(wider).ok());
  expect_both_widths(coordinator.RestoreLatest().status());
}

// The rows of a table's tensor by key, from the newest checkpoint.
std::map<int64_t, std::vector<float>> RowsByKey(const std::string& directory,
                                                const std::string& table,
                                                const std::string& tensor) {
  const std::string text = *FileSystem::Real().ReadFile(absl::StrCat(directory, "/checkpoint"));
  const size_t begin = text.find('"') + 1;
  const auto reader = BundleReader::Open(
      FileSystem::Real(),
      absl::StrCat(directory, "/", text.substr(begin, text.find('"', begin) - begin)));
  EXPECT_TRUE(reader.ok()) << reader.status();
  const Tensor keys = *(*reader)->ReadTensor(absl::StrCat(table, "-keys")),
               rows = *(*reader)->ReadTensor(absl::StrCat(table, tensor));
  std::map<int64_t, std::vector<float>> by_key;
  const int64_t width = rows.shape().row_elements();
  for (int64_t i = 0; i < keys.shape().dim(0); ++i) {
    std::vector<float>& row = by_key[(*keys.values<int64_t>())[static_cast<size_t>(i)]];
    for (int64_t k = i * width; k < (i + 1) * width; ++k)
      row.push_back(rows.dtype() == DType::kInt64 ? static_cast<float>(rows.data_as<int64_t>()[k])
                                                  : rows.data_as<float>()[k]);
  }
  return by_key;
}

// A table of another name, with an admission rule that no key has met, on more servers.
TEST_F(TablesTest, ATableStartsFromTheRowsAndCountsOfACheckpointAndNotFromItsSlots) {
  Tensor trained;
  {
    const auto cluster = *Start(1);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 10).ok());
    trained = RowsOf(coordinator, "user", AllKeys());
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  const auto values = RowsByKey(directory_, "user", "-values"),
             counts = RowsByKey(directory_, "user", "-freqs");
  ASSERT_GT(values.size(), 50);
  EmbeddedSetup setup;
  setup.options.num_ps = 3;
  setup.options.num_workers = 1;
  setup.options.checkpoint_dir = absl::StrCat(directory_, "_new");
  const DynamicTable members("member", {.width = kWidth,
                                        .optimizer = Adam{0.1},
                                        .initializer = Constant{9},
                                        .admission = AdmitAfter{100}});
  const auto start = WarmStart::Open(directory_, {{"member", "user"}});
  ASSERT_TRUE(start.ok()) << start.status();
  const auto spec = start->Apply(members);
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (const bool restored : {false, true}) {
    SCOPED_TRACE(restored);
    const auto cluster = *EmbeddedCluster::Start(setup);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(*spec).ok());
    if (restored) {
      ASSERT_TRUE(coordinator.RestoreLatest().ok());
    }
    const Tensor rows = RowsOf(coordinator, "member", AllKeys());
    for (int64_t key = 0; key < kKeys; ++key) {
      const auto row = rows.values<float>()->subspan(static_cast<size_t>(key * kWidth), kWidth);
      const auto found = values.find(key);
      EXPECT_EQ(std::vector<float>(row.begin(), row.end()),
                found != values.end() ? found->second : std::vector<float>(kWidth, 9))
          << key;
    }
    // A lost server gets its rows again.
    if (!restored) {
      cluster->KillPs(1);
      ASSERT_TRUE(cluster->RestartPs(1).ok());
      ASSERT_TRUE(coordinator.Join().ok());
      EXPECT_TRUE(BitwiseEqual(RowsOf(coordinator, "member", AllKeys()), rows));
    }
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
    EXPECT_EQ(RowsByKey(setup.options.checkpoint_dir, "member", "-values"), values);
    EXPECT_EQ(RowsByKey(setup.options.checkpoint_dir, "member", "-freqs"), counts);
    for (const auto& [key, slots] :
         RowsByKey(setup.options.checkpoint_dir, "member", "-values/Adam/m"))
      EXPECT_EQ(slots, std::vector<float>(kWidth, 0)) << key;
  }
}

// Keys and counts are bytes too.
TEST_F(TablesTest, AWarmStartOfManyRowsIsSentInPieces) {
  for (const auto& [width, num_rows] : {std::pair{32, 300'000}, {1, 700'000}}) {
    SCOPED_TRACE(width);
    int64_t asked = 0, most = 0;
    FirstRows first;
    first.num_rows = num_rows;
    first.others = Zeros();
    first.rows = [&, width = width](int64_t begin,
                                    int64_t count) -> absl::StatusOr<FirstRows::Block> {
      EXPECT_EQ(begin, asked);
      asked += count;
      most = std::max(most, count);
      std::vector<int64_t> keys;
      for (int64_t i = begin; i < begin + count; ++i) keys.push_back(i * 7);
      const Tensor all_keys = Tensor::Vector<int64_t>(keys);
      ASSIGN_OR_RETURN(const Tensor values, Tensor::Zeros(DType::kFloat32, {count, width}));
      return FirstRows::Block{all_keys, values, all_keys};
    };
    const std::string name = absl::StrCat("many", width);
    VariableSpec spec = DynamicTable(name, {.width = width});
    spec.initializer = AsInitializer(first);
    const auto cluster = *Start(2);
    const auto table = cluster->coordinator().strategy().CreateVariable(spec);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(asked, num_rows);
    EXPECT_LE(most * (width * 4 + 24), 16 << 20);
    EXPECT_EQ(table->Stats()->rows, num_rows);
    EXPECT_EQ((*table->Find({70}))[0].count, 70);
  }
}

// ---- what a table tells -------------------------------------------------------------------------

// What a step is told: the rows of the table, and the count of each key.
absl::StatusOr<Tensor> Look(WorkerContext& worker, Tensor keys) {
  ASSIGN_OR_RETURN(const Variable users, worker.strategy().FindVariable("user"));
  const auto wanted = *keys.values<int64_t>();
  ASSIGN_OR_RETURN(const std::vector<TableRow> rows, users.Find(wanted));
  ASSIGN_OR_RETURN(const TableStats stats, users.Stats());
  std::vector<int64_t> told = {stats.rows};
  for (const TableRow& row : rows) told.push_back(row.count);
  return Tensor::Vector<int64_t>(told);
}
const Step kLook("tables_test/look", Look, StepKind::kReadOnly);

TEST_F(TablesTest, FindAndStatsTellOfEveryFinishedStep) {
  const auto cluster = *Start(3);
  Coordinator& coordinator = cluster->coordinator();
  const auto users = coordinator.strategy().CreateVariable(kUsers);
  ASSERT_TRUE(users.ok()) << users.status();
  EXPECT_EQ(users->Stats()->rows, 0);
  EXPECT_TRUE(users->Find({})->empty());
  ASSERT_TRUE(RunSteps(coordinator, 0, 40).ok());
  std::vector<int64_t> counts(kKeys);
  int64_t named = 0;
  for (int i = 0; i < 40; ++i) {
    const Tensor step = KeysOf(i);
    std::vector<int64_t> keys(step.values<int64_t>()->begin(), step.values<int64_t>()->end());
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const int64_t key : keys) named += counts[static_cast<size_t>(key)]++ == 0;
  }
  // Any order, repeats, and keys that no step has named.
  std::vector<int64_t> asked = {-1, std::numeric_limits<int64_t>::min(), 7, 7};
  for (int64_t key = kKeys - 1; key >= 0; --key) asked.push_back(key);
  const auto check = [&] {
    const auto rows = users->Find(asked);
    ASSERT_TRUE(rows.ok()) << rows.status();
    const Tensor values = RowsOf(coordinator, "user", Tensor::Vector<int64_t>(asked));
    ASSERT_EQ(rows->size(), asked.size());
    for (size_t i = 0; i < asked.size(); ++i) {
      const TableRow& row = (*rows)[i];
      const int64_t count = asked[i] < 0 ? 0 : counts[static_cast<size_t>(asked[i])];
      EXPECT_EQ(row.key, asked[i]);
      EXPECT_EQ(row.exists, count > 0) << row.key;
      EXPECT_EQ(row.count, count) << row.key;
      const float* const wanted = values.data_as<float>() + i * kWidth;
      EXPECT_EQ(row.values, std::vector<float>(wanted, wanted + kWidth)) << row.key;
    }
    const auto stats = users->Stats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_EQ(stats->rows, named);
    EXPECT_EQ(stats->refused, 0);
    ASSERT_EQ(stats->servers.size(), 3u);
    TablePartStats sum;
    for (const auto& [ps, part] : stats->servers) {
      EXPECT_GT(part.rows, 0) << ps;
      sum.rows += part.rows;
      sum.bytes += part.bytes;
    }
    EXPECT_EQ(sum.rows, stats->rows);
    EXPECT_EQ(sum.bytes, stats->bytes);
  };
  check();
  EXPECT_EQ(users->Stats()->admitted, named);
  // A step sees the same.
  const auto looked = coordinator.Schedule(kLook, Tensor::Vector<int64_t>({7, -1}));
  ASSERT_TRUE(looked.ok());
  ASSERT_TRUE(coordinator.Join().ok());
  const auto told = looked->Fetch();
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(*told->values<int64_t>(), ::testing::ElementsAre(named, counts[7], 0));
  // The steps that the lost server knew are run again, and count once.
  ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  ASSERT_TRUE(RunSteps(coordinator, 0, 1).ok());
  cluster->KillPs(1);
  ASSERT_TRUE(cluster->RestartPs(1).ok());
  const Tensor again = KeysOf(0);
  std::vector<int64_t> keys(again.values<int64_t>()->begin(), again.values<int64_t>()->end());
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (const int64_t key : keys) ++counts[static_cast<size_t>(key)];
  check();
}

TEST_F(TablesTest, WhatIsNoTableHasNoRowsToFind) {
  const auto cluster = *Start(1);
  const auto fixed = cluster->coordinator().strategy().CreateVariable(kFixed);
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_THAT(std::string(fixed->Find({1}).status().message()),
              HasSubstr("Find of variable \"user\": it is no dynamic table. Read its rows with "
                        "Rows(ids), or declare it as a DynamicTable"));
  EXPECT_EQ(fixed->Stats().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TablesTest, ACheckpointTellsWhatItsTableHad) {
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(coordinator.strategy().CreateVariable(kUsers).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 10).ok());
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  // As an evaluator does.
  const auto cluster = *Start(1);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.RestoreLatest().ok());
  const auto users = coordinator.strategy().FindVariable("user");
  ASSERT_TRUE(users.ok()) << users.status();
  const auto rows = users->Find({KeysOf(0).data_as<int64_t>()[0], -7});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_GT((*rows)[0].count, 0);
  EXPECT_FALSE((*rows)[1].exists);
  EXPECT_GT(users->Stats()->rows, 50);
  EXPECT_EQ(users->Stats()->admitted, 0) << "it counts from the moment at which it was loaded";
}

// ---- full tables --------------------------------------------------------------------------------

DynamicTable Limited(int64_t max_rows, TableOptions::Full full) {
  return DynamicTable(
      "user", {.width = kWidth, .optimizer = Adam{0.1}, .max_rows = max_rows, .full = full});
}

TEST_F(TablesTest, AFullTableRefusesKeysAndSaysSo) {
  const auto cluster = *Start(2);
  Coordinator& coordinator = cluster->coordinator();
  const auto users =
      coordinator.strategy().CreateVariable(Limited(30, TableOptions::Full::kRefuse));
  ASSERT_TRUE(users.ok()) << users.status();
  ASSERT_TRUE(RunSteps(coordinator, 0, 20).ok());
  EXPECT_EQ(users->Stats()->rows, 30);
  EXPECT_GT(users->Stats()->refused, 0);
  EXPECT_EQ(cluster->coordinator().Finish(absl::OkStatus()), absl::OkStatus());
}

TEST_F(TablesTest, AFullTableEndsTheJobIfItIsToFail) {
  const auto cluster = *Start(2);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.strategy().CreateVariable(Limited(30, TableOptions::Full::kFail)).ok());
  // The job may run some steps more, and it does not end well.
  RunSteps(coordinator, 0, 20).IgnoreError();
  const absl::Status end = cluster->coordinator().Finish(absl::OkStatus());
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("dynamic table \"user\" is full"));
  EXPECT_THAT(std::string(end.message()), HasSubstr("max_rows=30"));
}

// Memory is another limit of a table than max_rows.
TEST_F(TablesTest, ATableWithoutMemoryRefusesKeysOrEndsTheJob) {
  for (const TableOptions::Full full : {TableOptions::Full::kRefuse, TableOptions::Full::kFail}) {
    SCOPED_TRACE(static_cast<int>(full));
    EmbeddedSetup setup;
    setup.options.num_ps = 2;
    setup.options.num_workers = 1;
    setup.ps.memory_limit_bytes = 200 << 10;
    const auto cluster = *EmbeddedCluster::Start(setup);
    Coordinator& coordinator = cluster->coordinator();
    const auto users = coordinator.strategy().CreateVariable(Limited(0, full));
    ASSERT_TRUE(users.ok()) << users.status();
    for (int i = 0; i < 40; ++i) {
      std::vector<int64_t> keys(200);
      for (int64_t k = 0; k < 200; ++k) keys[static_cast<size_t>(k)] = i * 200 + k;
      if (!coordinator.Schedule(kTrain, Tensor::Vector<int64_t>(keys)).ok()) break;
    }
    coordinator.Join().IgnoreError();
    const absl::Status end = cluster->coordinator().Finish(absl::OkStatus());
    if (full == TableOptions::Full::kRefuse) {
      EXPECT_TRUE(end.ok()) << end;
      continue;
    }
    EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("--memory_limit_bytes leaves no memory"));
  }
}

// ---- other options after a restart --------------------------------------------------------------

TEST_F(TablesTest, ARestoredTableHasTheOptionsOfTheNewProgram) {
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(
        coordinator.strategy().CreateVariable(Limited(30, TableOptions::Full::kRefuse)).ok());
    ASSERT_TRUE(RunSteps(coordinator, 0, 10).ok());
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  for (const bool is_declared_first : {true, false}) {
    SCOPED_TRACE(is_declared_first);
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    const DynamicTable wide("user", {.width = kWidth + 1, .optimizer = Adam{0.1}});
    const DynamicTable larger = Limited(200, TableOptions::Full::kFail);
    auto users = is_declared_first ? coordinator.strategy().CreateVariable(larger)
                                   : absl::StatusOr<Variable>(absl::UnknownError("later"));
    ASSERT_TRUE(coordinator.RestoreLatest().ok());
    if (!is_declared_first) {
      const absl::Status refused = coordinator.strategy().CreateVariable(wide).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("table of float32 of width 5"));
      EXPECT_THAT(std::string(refused.message()), HasSubstr("table of float32 of width 4"));
      users = coordinator.strategy().CreateVariable(larger);
    }
    ASSERT_TRUE(users.ok()) << users.status();
    EXPECT_EQ(users->Stats()->rows, 30) << "the rows are still there";
    ASSERT_TRUE(RunSteps(coordinator, 10, 13).ok());
    const int64_t rows = users->Stats()->rows;
    EXPECT_GT(rows, 30);
    EXPECT_LE(rows, 200);
    // A lost server gets the options again, although its checkpoint has the former ones.
    cluster->KillPs(0);
    ASSERT_TRUE(cluster->RestartPs(0).ok());
    ASSERT_TRUE(coordinator.Join().ok());
    EXPECT_EQ(users->Stats()->rows, rows);
    RunSteps(coordinator, 13, 60).IgnoreError();
    EXPECT_EQ(cluster->coordinator().Finish(absl::OkStatus()).code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST_F(TablesTest, WhatATableCannotDoIsOneClearError) {
  const auto cluster = *Start(1);
  Strategy& strategy = cluster->coordinator().strategy();
  const auto create = [&](const VariableSpec& spec) {
    return std::string(strategy.CreateVariable(spec).status().message());
  };
  EXPECT_THAT(create(DynamicTable("t", {.width = 0})), HasSubstr("width of at least 1"));
  EXPECT_THAT(create(DynamicTable("t", {.initializer = Orthogonal{}})),
              HasSubstr("use Constant, RandomUniform, RandomNormal or TruncatedNormal"));
  const auto rows = [](int64_t, int64_t count) {
    return Tensor::Zeros(DType::kFloat32, {count, 1});
  };
  EXPECT_THAT(create(DynamicTable("t", {.initializer = FromRows{rows}})),
              HasSubstr("the rows of a dynamic table have keys. Begin with those of a checkpoint"));
  EXPECT_THAT(create(DynamicTable("t", {.admission = AdmitAfter{0}})), HasSubstr("AdmitAfter"));
  EXPECT_THAT(create(DynamicTable("t", {.eviction = EvictLeastUsed()})), HasSubstr("max_rows"));
  EXPECT_THAT(create(DynamicTable("t", {.admission = AdmitWithProbability{0}})),
              HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(create(DynamicTable("t", {.dtype = DType::kFloat64})),
              HasSubstr("rows of float32, float16 or bfloat16, and the dtype is float64"));
  const auto users = strategy.CreateVariable(kUsers);
  ASSERT_TRUE(users.ok()) << users.status();
  EXPECT_THAT(create(kFixed), HasSubstr("exists already"));
  EXPECT_THAT(create({"user-keys", {3}}), HasSubstr("both have a tensor \"user-keys\""));
  EXPECT_THAT(create(DynamicTable("user-filter", {.width = 1})),
              HasSubstr("both have a tensor \"user-filter-keys\""));
  EXPECT_THAT(create(DynamicTable("t", {.admission = AdmitAfter{2, int64_t{1} << 60}})),
              HasSubstr("at most"));
  EXPECT_THAT(std::string(users->Read().status().message()), HasSubstr("by its keys"));
  EXPECT_THAT(std::string(users->Slice(0, 5).status().message()), HasSubstr("Rows(keys)"));
  EXPECT_THAT(
      std::string(
          users->Assign(*Tensor::Zeros(DType::kFloat32, {kTableBuckets, kWidth})).message()),
      HasSubstr("written by its keys"));
  const Tensor row = *Tensor::Zeros(DType::kFloat32, {1, kWidth});
  EXPECT_THAT(std::string(users
                              ->ScatterRows(Variable::Scatter::kMul, {Tensor::Vector<int64_t>({-5}),
                                                                      row, IndexedSlices::kAnyId})
                              .message()),
              HasSubstr("it takes gradients, scatter_update"));
  EXPECT_TRUE(users
                  ->ScatterRows(Variable::Scatter::kUpdate,
                                {Tensor::Vector<int64_t>({-5}), row, IndexedSlices::kAnyId})
                  .ok());
}

}  // namespace
}  // namespace divvy
