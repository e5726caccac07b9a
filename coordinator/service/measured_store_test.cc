#include "coordinator/service/measured_store.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// Answers when the test says so.
class SlowStore : public Store {
 public:
  explicit SlowStore(std::vector<std::function<void(absl::Status)>>& puts) : puts_(puts) {}
  absl::StatusOr<StoredJob> Load() override { return StoredJob(); }
  void Put(StoreChange, std::function<void(absl::Status)> done) override {
    puts_.push_back(std::move(done));
  }
  void Close() override {}
  absl::Status Scrub() override { return absl::DataLossError("damaged"); }

 private:
  std::vector<std::function<void(absl::Status)>>& puts_;
};

class MeasuredStoreTest : public testing::Test {
 protected:
  SimClock clock_;
  MetricsRegistry registry_;
  std::vector<std::function<void(absl::Status)>> puts_;
  MeasuredStore store_{std::make_unique<SlowStore>(puts_), registry_, clock_};
  Histogram& seconds_ = registry_.GetHistogram("divvy_store_commit_seconds", "");
};

TEST_F(MeasuredStoreTest, AWriteIsMeasuredUntilItIsDurable) {
  absl::Status answer = absl::UnknownError("none");
  store_.Put({}, [&answer](absl::Status status) { answer = std::move(status); });
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(seconds_.sum(), 0);
  puts_[0](absl::OkStatus());
  EXPECT_EQ(answer, absl::OkStatus());
  EXPECT_EQ(seconds_.sum(), 2);
}

TEST_F(MeasuredStoreTest, AWriteThatFailsIsMeasuredAndItsErrorPassedOn) {
  absl::Status answer;
  store_.Put({}, [&answer](absl::Status status) { answer = std::move(status); });
  clock_.Advance(absl::Seconds(1));
  puts_[0](absl::ResourceExhaustedError("full"));
  EXPECT_EQ(answer, absl::ResourceExhaustedError("full"));
  EXPECT_EQ(seconds_.sum(), 1);
}

TEST_F(MeasuredStoreTest, OtherCallsArePassedOn) {
  EXPECT_TRUE(store_.Load().ok());
  EXPECT_EQ(store_.Scrub(), absl::DataLossError("damaged"));
}

}  // namespace
}  // namespace divvy
