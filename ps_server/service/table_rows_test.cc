#include "ps_server/service/table_rows.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kWidth = 2;

// A parameter server with both parts of a table "user".
class TableRowsTest : public ::testing::Test {
 protected:
  TableRowsTest() : executor_(1) {
    ParameterServerOptions options;
    options.incarnation = fence_.target;
    options.address = "embedded:ps/0";
    core_ = *ParameterServerCore::Start(options, executor_, nullptr, nullptr);
    EXPECT_TRUE(Call<PsAttachReply>(PsAttachRequest{fence_}).ok());
    LoadRequest load;
    load.fence = fence_;
    EXPECT_TRUE(Call<LoadReply>(std::move(load)).ok());
    CreateShardsRequest create;
    create.fence = fence_;
    for (const int part : {0, 1}) create.shards.push_back(PartSpec(part));
    EXPECT_TRUE(Call<LayoutReply>(std::move(create)).ok());
  }
  static ShardSpec PartSpec(int part) {
    ShardSpec spec;
    spec.key = {VariableId(1), 0, static_cast<uint16_t>(part)};
    spec.name = "user";
    spec.shape = {kTableBuckets / 2, kWidth};
    spec.full_shape = {kTableBuckets, kWidth};
    spec.first_row = part * kTableBuckets / 2;
    spec.initializer = Zeros();
    spec.table = TableOptions();
    return spec;
  }
  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Call(Request request) {
    absl::StatusOr<Reply> answer = absl::UnknownError("no answer");
    core_->Call(std::move(request), [&answer](absl::StatusOr<Reply> reply) { answer = reply; });
    executor_.RunUntilIdle();
    return answer;
  }
  // A step that writes {value, 0} to a key.
  void Write(int64_t key, float value, uint32_t minute) {
    CommitRequest commit;
    commit.fence = fence_;
    commit.entry = EntryId(++entry_);
    commit.tick = minute;
    CommitPart& write = commit.parts.emplace_back();
    const bool is_second = BucketOf(MixKey(key)) >= kTableBuckets / 2;
    write.shard = PartSpec(is_second).key;
    write.op = WriteOp::kScatterUpdate;
    write.rows = Tensor::Vector<int64_t>({key});
    write.values = *Tensor::Copy<float>({1, kWidth}, {value, 0});
    EXPECT_TRUE(Call<CommitReply>(std::move(commit)).ok());
  }
  v1::GetTableRowsRequest Asking(const std::vector<int64_t>& keys) const {
    v1::GetTableRowsRequest request;
    request.set_table("user");
    request.mutable_keys()->Add(keys.begin(), keys.end());
    return request;
  }
  v1::GetTableRowsRequest Top(int rows, v1::GetTableRowsRequest::By by) const {
    v1::GetTableRowsRequest request = Asking({});
    request.set_top(rows);
    request.set_by(by);
    return request;
  }
  std::vector<int64_t> KeysOf(const v1::GetTableRowsRequest& request) const {
    const auto reply = FindTableRows(*core_, request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    std::vector<int64_t> keys;
    if (!reply.ok()) return keys;
    for (const auto& row : reply->rows())
      keys.push_back(row.key());
    return keys;
  }
  absl::Status ErrorOf(const v1::GetTableRowsRequest& request) const {
    return FindTableRows(*core_, request).status();
  }

  const Fence fence_{JobId(9), Epoch(1), Incarnation(5), SessionId(), Incarnation(77)};
  SimExecutor executor_;
  std::shared_ptr<ParameterServerCore> core_;
  uint64_t entry_ = 0;
};

TEST_F(TableRowsTest, RowsOfKeysAndTheLargestOnesComeFromAllParts) {
  for (int64_t key = 0; key < 20; ++key) Write(key, static_cast<float>(key), 3);
  for (const int64_t key : {7, 3, 7}) Write(key, static_cast<float>(-key), 8);
  const auto reply = FindTableRows(*core_, Asking({7, 100, -1}));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->rows_size(), 1);
  EXPECT_EQ(reply->rows(0).key(), 7);
  EXPECT_EQ(reply->rows(0).count(), 3);
  EXPECT_EQ(reply->rows(0).minute(), 8);
  EXPECT_THAT(reply->rows(0).values(), ElementsAre(-7, 0));
  EXPECT_THAT(KeysOf(Top(3, v1::GetTableRowsRequest::COUNT)), ElementsAre(7, 3, 0));
  EXPECT_THAT(KeysOf(Top(4, v1::GetTableRowsRequest::NORM)), ElementsAre(19, 18, 17, 16));
  EXPECT_EQ(KeysOf(Top(1000, v1::GetTableRowsRequest::NORM)).size(), 20u);
  EXPECT_THAT(KeysOf(Asking({})), IsEmpty());
}

TEST_F(TableRowsTest, WhatCannotBeAnsweredSaysWhy) {
  v1::GetTableRowsRequest unknown = Asking({1});
  unknown.set_table("users");
  EXPECT_TRUE(absl::IsNotFound(ErrorOf(unknown)));
  EXPECT_EQ(ReasonOf(ErrorOf(Top(-1, v1::GetTableRowsRequest::COUNT))), Reason::kInvalid);
  EXPECT_TRUE(ErrorOf(Top(10'000, v1::GetTableRowsRequest::COUNT)).ok());
  const absl::Status too_many = ErrorOf(Top(10'001, v1::GetTableRowsRequest::COUNT));
  EXPECT_EQ(ReasonOf(too_many), Reason::kInvalid);
  EXPECT_THAT(std::string(too_many.message()),
              HasSubstr("10001 rows are asked for, and at most 10000"));
  EXPECT_EQ(ReasonOf(ErrorOf(Asking(std::vector<int64_t>(10'001, 5)))), Reason::kInvalid);
  v1::GetTableRowsRequest order = Top(1, v1::GetTableRowsRequest::COUNT);
  order.set_by(static_cast<v1::GetTableRowsRequest::By>(7));
  EXPECT_EQ(ReasonOf(ErrorOf(order)), Reason::kInvalid);
}

}  // namespace
}  // namespace divvy
