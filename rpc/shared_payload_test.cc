// Payloads in memory that the client and the server share.
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/shared_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/testing/data_streams.h"
#include "wire/region.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLarge = 1 << 18;  // floats

class SharedPayloadTest : public DataStreamsTest {
 protected:
  static PullRequest PullOf(const std::vector<int64_t>& sizes) {
    PullRequest request{kFence, {}};
    for (const int64_t size : sizes) {
      PullPart part{{VariableId(7), 1, static_cast<uint16_t>(request.parts.size())}, std::nullopt};
      part.reply_bytes = size * 4;
      request.parts.push_back(part);
    }
    return request;
  }
  // What a parameter server does: the values are made where the request wants them.
  static PullReply Made(const PullRequest& request, const std::vector<Tensor>& values) {
    PullReply reply;
    for (const Tensor& value : values) {
      if (request.target == nullptr) {
        reply.parts.push_back({value, 1, false});
        continue;
      }
      absl::StatusOr<Tensor> there = request.target->Next(value.dtype(), value.shape());
      EXPECT_TRUE(there.ok()) << there.status();
      if (value.size_bytes() > 0)
        std::memcpy(there->fresh_data<char>(), value.data(),
                    static_cast<size_t>(value.size_bytes()));
      reply.parts.push_back({*there, 1, false});
    }
    return reply;
  }
  // Pulls and commits until both streams have their memory.
  void AwaitMemory() {
    bool shares = false;
    for (int tries = 0; !shares; ++tries) {
      ASSERT_LT(tries, kMostTries) << "the server cannot open the client's memory";
      const auto answer = SendPull(PullOf({kLarge}));
      auto asked = handler_.pulls.Take();
      asked.done(Made(asked.request, {Filled(kLarge)}));
      ASSERT_TRUE(answer->Take().ok());
      shares = asked.request.target != nullptr;
    }
    // Too large for the server's memory, so it is refused as long as it travels.
    handler_.limit = 0;
    handler_.commits_at_once = true;
    for (int tries = 0; !SendCommit(CommitOf(1, {Filled(kLarge)}))->Take().ok(); ++tries)
      ASSERT_LT(tries, kMostTries) << "the server cannot open the client's memory";
    handler_.commits_at_once = false;
    handler_.limit = int64_t{1} << 30;
  }

  static constexpr int kMostTries = 1000;
  Random random_{7};
};

std::vector<std::vector<int64_t>> LargeSizes() {
  return {{kLarge}, {1, kLarge, 0, 3}, {0, 2 * kLarge + 7, 0, 0, 5, kLarge}, {40'000}};
}

TEST_F(SharedPayloadTest, PullsAndCommitsArriveBitwise) {
  AwaitMemory();
  for (int round = 0; round < 3; ++round) {
    for (const std::vector<int64_t>& sizes : LargeSizes()) {
      std::vector<Tensor> values;
      for (const int64_t size : sizes)
        values.push_back(Filled(size, static_cast<float>(random_.Below(1000))));
      const auto pulled = SendPull(PullOf(sizes));
      auto asked = handler_.pulls.Take();
      ASSERT_NE(asked.request.target, nullptr);
      asked.done(Made(asked.request, values));
      const absl::StatusOr<PullReply> got = pulled->Take();
      ASSERT_TRUE(got.ok()) << got.status();

      CommitRequest request = CommitOf(12, values);
      request.parts[0].rows = Tensor::Vector<int64_t>({5, 9, 13});
      const auto committed = SendCommit(request);
      auto commit = handler_.commits.Take();
      EXPECT_TRUE(BitwiseEqual(*commit.request.parts[0].rows, *request.parts[0].rows));
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(BitwiseEqual(got->parts[i].values, values[i])) << i;
        EXPECT_TRUE(BitwiseEqual(commit.request.parts[i].values, values[i])) << i;
      }
      commit.done(CommitReply{false, 5, std::vector<uint64_t>(sizes.size(), 8)});
      ASSERT_TRUE(committed->Take().ok());
    }
  }
}

TEST_F(SharedPayloadTest, OnlyRowsNeedTheServersMemory) {
  AwaitMemory();
  handler_.grants_at_once = false;
  handler_.reply_bytes = 4 * kLarge;
  const auto pulled = SendPull(PullOf({kLarge}));
  auto asked = handler_.pulls.Take();
  asked.done(Made(asked.request, {Filled(kLarge)}));
  ASSERT_TRUE(pulled->Take().ok());

  CommitRequest request = CommitOf(3, {Filled(kLarge)});
  request.parts[0].rows = Tensor::Vector<int64_t>({5, 9, 13});
  const auto committed = SendCommit(request);
  const auto claim = handler_.reservations.Take();
  EXPECT_EQ(claim.bytes, 3 * 8);
  claim.granted(absl::OkStatus());
  handler_.commits.Take().done(CommitReply{false, 1, {1}});
  ASSERT_TRUE(committed->Take().ok());
}

TEST_F(SharedPayloadTest, BoolsAreCopiedAndNeedTheServersMemory) {
  AwaitMemory();
  handler_.grants_at_once = false;
  const auto committed = SendCommit(CommitOf(3, {*Tensor::Zeros(DType::kBool, {kLarge})}));
  const auto claim = handler_.reservations.Take();
  EXPECT_EQ(claim.bytes, kLarge);
  claim.granted(absl::OkStatus());
  handler_.commits.Take().done(CommitReply{false, 1, {1}});
  ASSERT_TRUE(committed->Take().ok());
}

TEST_F(SharedPayloadTest, ASmallTensorDoesNotKeepTheMemoryOfItsPull) {
  AwaitMemory();
  std::vector<Tensor> small;
  std::set<const void*> blocks;
  constexpr int kPulls = 12;
  // The memory has 16 GiB of addresses, so a block that is not used again lies elsewhere. The
  // thread that has brought a reply may still hold it when the next pull begins.
  for (int i = 0; i < kPulls; ++i) {
    const auto pulled = SendPull(PullOf({100, kLarge}));
    auto asked = handler_.pulls.Take();
    asked.done(Made(asked.request, {Filled(100, static_cast<float>(i)), Filled(kLarge)}));
    absl::StatusOr<PullReply> got = pulled->Take();
    ASSERT_TRUE(got.ok()) << got.status();
    small.push_back(got->parts[0].values);
    blocks.insert(got->parts[1].values.data());
  }
  EXPECT_LE(blocks.size(), kPulls / 2);
  for (size_t i = 0; i < small.size(); ++i)
    EXPECT_TRUE(BitwiseEqual(small[i], Filled(100, static_cast<float>(i))));
}

TEST_F(SharedPayloadTest, ValuesThatLieElsewhereTravel) {
  AwaitMemory();
  const auto pulled = SendPull(PullOf({kLarge, kLarge}));
  auto asked = handler_.pulls.Take();
  ASSERT_NE(asked.request.target, nullptr);
  const Tensor values = Filled(kLarge);
  PullReply reply = Made(asked.request, {values, values});
  reply.parts[1].values = values;
  asked.done(reply);
  const absl::StatusOr<PullReply> got = pulled->Take();
  ASSERT_TRUE(got.ok()) << got.status();
  for (const PullPartReply& part : got->parts) EXPECT_TRUE(BitwiseEqual(part.values, values));
}

TEST_F(SharedPayloadTest, AReplyThatIsTooLargeForItsPlaceIsAnErrorForTheServer) {
  AwaitMemory();
  const auto pulled = SendPull(PullOf({kLarge}));
  auto asked = handler_.pulls.Take();
  EXPECT_EQ(asked.request.target->Next(DType::kFloat32, {kLarge + 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(asked.request.target->Next(DType::kFloat32, {kLarge}).ok());
  asked.done(MakeError(Reason::kUnknownShard, "gone"));
  EXPECT_EQ(ReasonOf(pulled->Take().status()), Reason::kUnknownShard);
}

TEST_F(SharedPayloadTest, PulledValuesLiveAsLongAsTheirTensors) {
  AwaitMemory();
  std::vector<Tensor> kept;
  for (int i = 0; i < 20; ++i) {
    const auto pulled = SendPull(PullOf({kLarge}));
    auto asked = handler_.pulls.Take();
    asked.done(Made(asked.request, {Filled(kLarge, static_cast<float>(i))}));
    absl::StatusOr<PullReply> got = pulled->Take();
    ASSERT_TRUE(got.ok()) << got.status();
    kept.push_back(got->parts[0].values);
  }
  client_ = nullptr;
  server_ = nullptr;
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_TRUE(BitwiseEqual(kept[i], Filled(kLarge, static_cast<float>(i)))) << i;
}

TEST_F(SharedPayloadTest, WhatAServerWritesAfterItsStreamHasBrokenTouchesNothingElse) {
  AwaitMemory();
  const auto lost = SendPull(PullOf({kLarge}));
  auto late = handler_.pulls.Take();
  const auto lost_commit = SendCommit(CommitOf(5, {Filled(kLarge, 5)}));
  auto late_commit = handler_.commits.Take();
  const std::shared_ptr<DataClient> client = client_;
  Serve(0);
  EXPECT_EQ(lost->Take().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lost_commit->Take().status().code(), absl::StatusCode::kUnavailable);
  AwaitMemory();
  std::vector<absl::StatusOr<PullReply>> replies;
  for (int i = 0; i < 5; ++i) {
    const auto pulled = SendPull(PullOf({kLarge}));
    auto asked = handler_.pulls.Take();
    asked.done(Made(asked.request, {Filled(kLarge, 9)}));
    replies.push_back(pulled->Take());
    ASSERT_TRUE(replies.back().ok()) << replies.back().status();
  }
  Made(late.request, {Filled(kLarge, 1)});
  for (const auto& reply : replies)
    EXPECT_TRUE(BitwiseEqual(reply->parts[0].values, Filled(kLarge, 9)));
  EXPECT_TRUE(BitwiseEqual(late_commit.request.parts[0].values, Filled(kLarge, 5)));
}

TEST_F(SharedPayloadTest, AServerThatWantsNoneAndAClientThatOffersNone) {
  for (const bool server_shares : {false, true}) {
    DataServerOptions options;
    options.shares_memory = server_shares;
    Serve(0, options);
    DataClientOptions client;
    client.shares_memory = !server_shares;
    client_ = DataClient::Create(channel_, executor_, client);
    for (int i = 0; i < 5; ++i) {
      const auto pulled = SendPull(PullOf({kLarge}));
      auto asked = handler_.pulls.Take();
      EXPECT_EQ(asked.request.target, nullptr);
      asked.done(Made(asked.request, {Filled(kLarge)}));
      EXPECT_TRUE(BitwiseEqual(pulled->Take()->parts[0].values, Filled(kLarge)));
    }
  }
}

// ---- hostile peers ------------------------------------------------------------------------------

class HostileRegionTest : public SharedPayloadTest {
 protected:
  HostileRegionTest() : memory_(*SharedMemory::Create(1 << 20)) {}
  static void Name(uint64_t offset, uint64_t bytes, v1::Region* region) {
    region->set_offset(offset);
    region->set_bytes(bytes);
  }
  v1::FrameHeader Commit(uint64_t id, int64_t elements, uint64_t offset, uint64_t bytes) {
    v1::FrameHeader header = CommitHeader(id, elements);
    Name(offset, bytes, header.mutable_commit()->mutable_payload());
    return header;
  }
  // The refusal of a request.
  static std::string RefusalOf(const std::string& bytes) {
    v1::FrameHeader header;
    EXPECT_TRUE(header.ParseFromArray(bytes.data() + wire::kLengthBytes,
                                      static_cast<int>(bytes.size() - wire::kLengthBytes)));
    return header.has_pull_reply() ? header.pull_reply().status().message()
                                   : header.commit_reply().status().message();
  }

  const std::shared_ptr<SharedMemory> memory_;
};

TEST_F(HostileRegionTest, ThatIsNotWithinTheMemoryIsRefusedAlone) {
  RawStream commits(channel_, kCommit, memory_->name()), pulls(channel_, kPull, memory_->name());
  const uint64_t size = memory_->size();
  const std::vector<std::pair<uint64_t, uint64_t>> regions = {
      {size, 64},         {size - 64, 65}, {4096, size},   {~uint64_t{63}, 128},
      {64, ~uint64_t{0}}, {4097, 1 << 9},  {size + 64, 0}, {~uint64_t{0}, 1}};
  uint64_t id = 0;
  for (const auto& [offset, bytes] : regions) {
    ++id;
    ASSERT_TRUE(commits.Write(Front(Commit(id, 16, offset, bytes))));
    EXPECT_THAT(RefusalOf(commits.ReadBytes()), HasSubstr("a region of"));
    v1::FrameHeader pull = PullHeader(id);
    Name(offset, bytes, pull.mutable_pull()->mutable_reply());
    ASSERT_TRUE(pulls.Write(Front(pull)));
    EXPECT_THAT(RefusalOf(pulls.ReadBytes()), HasSubstr("a region of"));
  }
  EXPECT_TRUE(commits.memory_is_open());
  // One that is too small for what it should hold.
  ASSERT_TRUE(commits.Write(Front(Commit(++id, 1000, 4096, 3999))));
  EXPECT_THAT(RefusalOf(commits.ReadBytes()), HasSubstr("has only"));
  // A payload that comes as well.
  ASSERT_TRUE(commits.Write(Front(Commit(++id, 16, 4096, 64)) + std::string(64, 'x')));
  EXPECT_EQ(commits.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectCommitWorks();
}

TEST_F(HostileRegionTest, OfMemoryThatIsNotSharedIsRefused) {
  for (const std::string& name :
       {std::string(), std::string("nonsense"), absl::StrCat(memory_->name(), "0")}) {
    RawStream commits(channel_, kCommit, name);
    ASSERT_TRUE(commits.Write(Front(Commit(1, 16, 4096, 64))));
    EXPECT_THAT(RefusalOf(commits.ReadBytes()), HasSubstr("not shared"));
    EXPECT_FALSE(commits.memory_is_open());
  }
  ExpectCommitWorks();
}

TEST_F(HostileRegionTest, CannotChangeRowsAfterTheyHaveBeenTaken) {
  CommitRequest request = CommitOf(1, {Filled(100)});
  request.parts[0].rows = Tensor::Vector<int64_t>({1, 2, 3});
  v1::FrameHeader header = wire::ToTransfer(1, request).header;
  wire::Region(memory_->data() + 4096, 1 << 12, memory_).Fill(wire::PayloadOf(request));
  Name(4096, 1 << 12, header.mutable_commit()->mutable_payload());
  RawStream commits(channel_, kCommit, memory_->name());
  ASSERT_TRUE(commits.Write(Front(header)));
  auto commit = handler_.commits.Take();
  std::memset(memory_->data() + 4096, -1, 1 << 12);
  EXPECT_TRUE(BitwiseEqual(*commit.request.parts[0].rows, *request.parts[0].rows));
  commit.done(CommitReply{false, 1, {1}});
}

TEST_F(HostileRegionTest, ABoolOfARegionIsChecked) {
  CommitRequest request = CommitOf(1, {*Tensor::Zeros(DType::kBool, {100})});
  v1::FrameHeader header = wire::ToTransfer(1, request).header;
  std::memset(memory_->data() + 4096, 7, 100);
  Name(4096, 128, header.mutable_commit()->mutable_payload());
  RawStream commits(channel_, kCommit, memory_->name());
  ASSERT_TRUE(commits.Write(Front(header)));
  EXPECT_THAT(RefusalOf(commits.ReadBytes()), HasSubstr("bool"));
}

}  // namespace
}  // namespace divvy
