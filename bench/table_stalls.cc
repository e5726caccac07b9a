// How long a segment's lock is held. The time is the processor's, since other programs of the
// machine would count otherwise. Each figure is the worst of all calls, beside 5 ms.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "bench/rounds.h"
#include "bench/tables.h"
#include "ps_server/core/table/frozen_segment.h"

ABSL_FLAG(int64_t, server_rows, 50'000'000, "rows of the parameter server whose segment is held");

namespace divvy::bench {
namespace {

constexpr int64_t kWidth = 16, kSegments = 256, kBuckets = kTableBuckets / kSegments;
constexpr int64_t kKeysOfWrite = 256;

// Keys of the first segment, in the order in which ids would come.
std::vector<TableKey> KeysOfSegment(int64_t count) {
  std::vector<TableKey> keys;
  for (int64_t row = 0; static_cast<int64_t>(keys.size()) < count; ++row) {
    const TableKey key{KeyOfRow(row), MixKey(KeyOfRow(row))};
    if (BucketOf(key.mixed) < kBuckets) keys.push_back(key);
  }
  return keys;
}

class Longest {
 public:
  template <typename Call>
  void Time(const Call& call) {
    const double before = OwnCpuSeconds();
    call();
    seconds_ = std::max(seconds_, OwnCpuSeconds() - before);
  }
  void Show(const std::string& what) const {
    ShowBounded(absl::StrCat("longest stall, ", what), seconds_ * 1e3, "the bound", 5, "ms");
  }

 private:
  double seconds_ = 0;
};

class Held {
 public:
  Held(const std::vector<TableKey>& keys, const Eviction& eviction, int64_t most_rows)
      : keys_(keys), format_(FormatOf(kWidth, {{}, eviction})), limit_(most_rows) {}
  // Writes to all keys. Row i has the tick i.
  void Fill(Longest& longest) {
    const std::vector<float> gradients(kKeysOfWrite * kWidth, 0.01f);
    const OptimizerStep step = StepOf(kTableOptimizer, 0);
    for (size_t begin = 0; begin < keys_.size(); begin += kKeysOfWrite) {
      const auto some = absl::MakeConstSpan(keys_).subspan(begin, kKeysOfWrite);
      std::vector<TableKey> named(some.begin(), some.end());
      std::sort(named.begin(), named.end(), [](const TableKey& a, const TableKey& b) {
        return TableOrder(a.mixed) < TableOrder(b.mixed);
      });
      longest.Time([&] {
        segment_.ApplyGradients(named, gradients.data(), step,
                                {1 + begin, static_cast<uint32_t>(begin)});
      });
    }
  }
  // `buckets` at a time.
  void Evict(int64_t buckets, uint32_t now, Longest& longest) {
    for (int64_t first = 0; first < kBuckets; first += buckets)
      longest.Time([&] { segment_.Evict(first, first + buckets, now); });
  }
  void TakeRows(Longest& longest) {
    std::atomic<int64_t> kept_bytes{0};
    FrozenSegment frozen(kept_bytes);
    segment_.Freeze(&frozen);
    for (bool is_last = false; !is_last;)
      longest.Time([&] { is_last = segment_.TakeRows(frozen)->is_last; });
  }

 private:
  const std::vector<TableKey>& keys_;
  const TableFormat format_;
  RowLimit limit_;
  TableSegment segment_{format_, 0, kBuckets, limit_};
};

}  // namespace

void MeasureStalls() {
  const int64_t rows = absl::GetFlag(FLAGS_server_rows) / kSegments;
  const std::vector<TableKey> keys = KeysOfSegment(rows);
  {
    Longest growth, checkpoint, few, some;
    Held held(keys, EvictUnusedFor{absl::Minutes(10)}, RowLimit::kNone);
    held.Fill(growth);
    growth.Show("growth");
    held.TakeRows(checkpoint);
    checkpoint.Show("a checkpoint");
    held.Evict(32, static_cast<uint32_t>(rows / 20), few);
    few.Show("32 buckets, a twentieth unused");
    held.Evict(128, static_cast<uint32_t>(rows / 10), some);
    some.Show("128 buckets, a twentieth unused");
  }
  {
    Longest growth, by_norm;
    Held held(keys, EvictBelowNorm{1e-6f}, RowLimit::kNone);
    held.Fill(growth);
    held.Evict(32, 0, by_norm);
    by_norm.Show("32 buckets by norm");
  }
  {
    Longest room;
    Held held(keys, EvictLeastRecent{}, rows * 9 / 10);
    held.Fill(room);
    room.Show("room in a full table");
  }
}

}  // namespace divvy::bench
