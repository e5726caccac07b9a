// One history of steps and evictions, applied by any number of parameter servers: the rows are the
// same (X22), and equal to a plain model of that history.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "ps_server/core/parameter_server_core.h"
#include "tests/sim/table_model.h"
#include "variables/table_keys.h"

namespace divvy::sim {
namespace {

// A step, or an eviction if `keys` is empty.
struct Entry {
  std::vector<int64_t> keys;  // in the order of requests
  uint32_t minute = 0;
  int64_t first = 0, end = 0;  // buckets
};

// Keys with different buckets, as the model takes them: corners, equal low bits, small numbers.
std::vector<int64_t> ManyKeys() {
  std::vector<int64_t> candidates = {0, -1, std::numeric_limits<int64_t>::min(),
                                     std::numeric_limits<int64_t>::max()};
  for (int64_t i = 1; i <= 30; ++i) candidates.insert(candidates.end(), {i, i << 40, -i << 20});
  std::set<int64_t> buckets;
  std::vector<int64_t> keys;
  for (const int64_t key : candidates) {
    if (buckets.insert(BucketOf(MixKey(key))).second) keys.push_back(key);
  }
  return keys;
}

std::vector<Entry> RandomHistory(Random& random) {
  const std::vector<int64_t> all = ManyKeys();
  std::vector<Entry> history;
  uint32_t minute = 0;
  for (int i = 0; i < 120; ++i) {
    if (random.Chance(0.2)) ++minute;
    Entry entry;
    entry.minute = minute;
    if (random.Chance(0.3)) {
      entry.first = static_cast<int64_t>(random.Below(kTableBuckets));
      entry.end = entry.first + 1 + static_cast<int64_t>(random.Below(kTableBuckets - entry.first));
    } else {
      for (const int64_t key : all) {
        if (random.Chance(0.2)) entry.keys.push_back(key);
      }
      std::sort(entry.keys.begin(), entry.keys.end(),
                [](int64_t a, int64_t b) { return KeyRank(a) < KeyRank(b); });
      // A late step: it was dispatched before others that have finished.
      if (random.Chance(0.1) && minute > 0) --entry.minute;
    }
    if (!entry.keys.empty() || entry.end > 0) history.push_back(std::move(entry));
  }
  return history;
}

// Where the parts of a table begin, and the end of the last one.
std::vector<int64_t> RandomCut(int parts, Random& random) {
  std::set<int64_t> cut = {0, kTableBuckets};
  while (static_cast<int>(cut.size()) < parts + 1)
    cut.insert(static_cast<int64_t>(random.Below(kTableBuckets)));
  return {cut.begin(), cut.end()};
}

// One parameter server with one part of the table.
class Server {
 public:
  Server(int64_t first, int64_t end, const TableOptions& rules, const Optimizer& optimizer)
      : first_(first), end_(end), optimizer_(optimizer), executor_(/*seed=*/1) {
    ParameterServerOptions options;
    options.incarnation = fence_.target;
    options.address = "embedded:ps/0";
    options.at_once_bytes = 0;
    core_ =
        *ParameterServerCore::Start(options, executor_, nullptr, [](int, const std::string&) {});
    ShardSpec spec;
    spec.key = {VariableId(1), 0, 0};
    spec.name = "table";
    spec.shape = {end - first, kTableWidth};
    spec.full_shape = {kTableBuckets, kTableWidth};
    spec.first_row = first;
    spec.initializer = Zeros();
    spec.table = rules;
    spec.optimizer = optimizer;
    Send(PsAttachRequest{fence_});
    LoadRequest load;
    load.fence = fence_;
    Send(load);
    Send(CreateShardsRequest{fence_, 1, 10, /*job_seed=*/3, {spec}});
  }

  // Applies the part of the entry that falls into this part of the table.
  void Apply(uint64_t id, const Entry& entry, int times) {
    CommitPart part;
    part.shard = {VariableId(1), 0, 0};
    if (entry.keys.empty()) {
      if (entry.end <= first_ || end_ <= entry.first) return;
      part.op = WriteOp::kEvict;
      part.rows = Tensor::Vector<int64_t>(
          {int64_t{entry.minute}, std::max(first_, entry.first), std::min(end_, entry.end)});
    } else {
      std::vector<int64_t> keys;
      std::copy_if(entry.keys.begin(), entry.keys.end(), std::back_inserter(keys),
                   [this](int64_t key) {
                     const int64_t bucket = BucketOf(MixKey(key));
                     return first_ <= bucket && bucket < end_;
                   });
      if (keys.empty()) return;
      const Shape shape{static_cast<int64_t>(keys.size()), kTableWidth};
      const std::vector<float> down(static_cast<size_t>(shape.num_elements()), -1);
      part.op = WriteOp::kGradient;
      part.rows = Tensor::Vector<int64_t>(keys);
      part.values = *Tensor::Copy<float>(shape, down);
      part.optimizer = StepOf(optimizer_, 0);
    }
    CommitRequest request;
    request.fence = fence_;
    request.entry = EntryId(id);
    request.tick = entry.minute;
    request.parts = {part};
    for (int i = 0; i < times; ++i) Send(request);
  }

  TableImage rows() const { return *core_->Inspect().shards.begin()->second.rows; }

 private:
  template <typename Request>
  void Send(Request request) {
    bool is_answered = false;
    core_->Call(std::move(request), [&is_answered](const absl::StatusOr<ReplyTo<Request>>& reply) {
      EXPECT_TRUE(reply.ok()) << reply.status();
      is_answered = true;
    });
    executor_.RunUntilIdle();
    EXPECT_TRUE(is_answered);
  }

  const int64_t first_, end_;
  const Optimizer optimizer_;
  const Fence fence_{JobId(9), Epoch(1), Incarnation(5), kCoordinatorSession, Incarnation(77)};
  SimExecutor executor_;
  std::shared_ptr<ParameterServerCore> core_;
};

// The rows of each part after the history. A commit comes twice now and then.
std::vector<TableImage> RowsAfter(const std::vector<Entry>& history,
                                  const std::vector<int64_t>& cut, const TableOptions& rules,
                                  const Optimizer& optimizer, Random& random) {
  std::vector<TableImage> rows;
  for (size_t part = 0; part + 1 < cut.size(); ++part) {
    Server server(cut[part], cut[part + 1], rules, optimizer);
    for (size_t i = 0; i < history.size(); ++i)
      server.Apply(i + 1, history[i], random.Chance(0.2) ? 2 : 1);
    rows.push_back(server.rows());
  }
  return rows;
}

TableImage Joined(const std::vector<TableImage>& parts) {
  TableImage all;
  for (const TableImage& part : parts) Append(part, all);
  return all;
}

void ExpectEqual(const TableImage& a, const TableImage& b) {
  EXPECT_EQ(a.keys, b.keys);
  EXPECT_EQ(a.counts, b.counts);
  EXPECT_EQ(a.ticks, b.ticks);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_EQ(a.waiting.keys, b.waiting.keys);
  EXPECT_EQ(a.waiting.counts, b.waiting.counts);
  EXPECT_EQ(a.waiting.ticks, b.waiting.ticks);
}

const Admission kAdmissions[] = {AdmitAlways(), AdmitAfter{3}, AdmitAfter{3, 1 << 20},
                                 AdmitWithProbability{0.3}};
const Eviction kEvictions[] = {EvictNever(), EvictUnusedFor{absl::Minutes(2)}, EvictBelowNorm{5}};

TEST(TableHistoryTest, TheRowsAreThoseOfTheHistoryForAnyNumberOfServers) {
  int64_t rows = 0, evicted = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const Admission& admission : kAdmissions) {
      for (const Eviction& eviction : kEvictions) {
        SCOPED_TRACE(absl::StrCat("seed ", seed, ", admission ", admission.index(), ", eviction ",
                                  eviction.index()));
        Random random(seed);
        const TableOptions rules{admission, eviction};
        const std::vector<Entry> history = RandomHistory(random);
        TableModel model(rules, TableWrite::kGradient);
        for (const Entry& entry : history) {
          if (!entry.keys.empty()) model.Step(entry.keys, entry.minute);
          if (entry.keys.empty()) evicted += model.Evict(entry.minute, entry.first, entry.end);
        }
        const Optimizer optimizer = Momentum{1.0, 1};
        const std::vector<TableImage> whole =
            RowsAfter(history, {0, kTableBuckets}, rules, optimizer, random);
        rows += static_cast<int64_t>(whole[0].keys.size());
        // A draw for each step has no model.
        const bool has_model = !std::holds_alternative<AdmitWithProbability>(admission);
        if (has_model) {
          EXPECT_EQ(model.Contradiction(whole), "");
        }
        for (const int parts : {2, 3, 7}) {
          const std::vector<TableImage> cut =
              RowsAfter(history, RandomCut(parts, random), rules, optimizer, random);
          if (has_model) {
            EXPECT_EQ(model.Contradiction(cut), "");
          }
          ExpectEqual(Joined(cut), whole[0]);
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(rows, 1'000);
  EXPECT_GT(evicted, 1'000);
}

// Slots of a row, of its elements, and several of them.
TEST(TableHistoryTest, ValuesAndSlotsOfEveryOptimizerHaveOneSetOfKeys) {
  const Optimizer optimizers[] = {Sgd{0.1}, Adagrad{0.1}, RowwiseAdagrad{0.1}, Adam{0.1}};
  for (const Optimizer& optimizer : optimizers) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", optimizer ", &optimizer - optimizers));
      Random random(seed);
      const TableOptions rules{AdmitAfter{2}, EvictUnusedFor{absl::Minutes(2)}};
      const std::vector<Entry> history = RandomHistory(random);
      const TableImage whole =
          Joined(RowsAfter(history, {0, kTableBuckets}, rules, optimizer, random));
      ExpectEqual(Joined(RowsAfter(history, RandomCut(3, random), rules, optimizer, random)),
                  whole);
      EXPECT_GT(whole.keys.size(), 0u);
      EXPECT_EQ(whole.values.size(), whole.keys.size() * kTableWidth * sizeof(float));
      for (const std::vector<char>& slot : whole.slots) {
        const bool of_rows = slot.size() == whole.keys.size() * sizeof(float);
        EXPECT_TRUE(of_rows || slot.size() == whole.values.size());
      }
    }
  }
}

TableImage ImageOfOneRow(int64_t key, int64_t count, int64_t minute, float value) {
  TableImage image;
  image.keys = {key}, image.counts = {count}, image.ticks = {minute};
  const std::vector<float> values(kTableWidth, value);
  image.values.resize(values.size() * sizeof(float));
  std::memcpy(image.values.data(), values.data(), image.values.size());
  return image;
}

TEST(TableModelTest, WhatContradictsItIsSaid) {
  TableModel model({AdmitAfter{2}, EvictNever()}, TableWrite::kAdd);
  model.Step({7}, 3);
  model.Step({7}, 2);
  model.Step({7, 8}, 3);
  TableImage right = ImageOfOneRow(7, 3, 3, 2);
  right.waiting = {{8}, {1}, {3}};
  EXPECT_EQ(model.Contradiction({right}), "");
  EXPECT_EQ(UnevenColumns(right), "");
  TableImage wrong = right;
  const auto said = [&](TableImage image) { return model.Contradiction({std::move(image)}); };
  wrong.keys = {9};
  EXPECT_EQ(said(wrong),
            "key 9 has a row, for 3 steps until minute 3, and should have none, or has two");
  EXPECT_EQ(model.Contradiction({right, right}),
            "key 7 has a row, for 3 steps until minute 3, and should have none, or has two");
  wrong = ImageOfOneRow(7, 2, 3, 2);
  EXPECT_EQ(
      said(wrong),
      "the row of key 7 is of 2 steps until minute 3, and should be of 3 steps until minute 3");
  wrong = ImageOfOneRow(7, 3, 3, 3);
  EXPECT_EQ(said(wrong), "the row of key 7 is 3 after 2 writes, and should be 2");
  wrong = right, wrong.waiting = {};
  EXPECT_EQ(said(wrong), "key 8 does not wait, and should after 1 steps until minute 3");
  wrong = right, wrong.waiting.keys = {7};
  EXPECT_EQ(said(wrong), "key 7 should not wait");
  EXPECT_EQ(model.Contradiction({}),
            "key 7 has no row, and should have one of 3 steps until minute 3");
  wrong = right, wrong.values.pop_back();
  EXPECT_EQ(UnevenColumns(wrong), "the columns of 1 rows are of other rows");
}

}  // namespace
}  // namespace divvy::sim
