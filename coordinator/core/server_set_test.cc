#include "coordinator/core/server_set.h"

#include <memory>
#include <string>
#include <vector>

#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using coordinator_records::Ps;

// Records the addresses that are dialled.
class FakeDialer : public Dialer {
 public:
  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override {
    dialled.push_back(address);
    return nullptr;
  }
  std::shared_ptr<WorkerClient> Worker(const std::string&) override { return nullptr; }

  std::vector<std::string> dialled;
};

class ServerSetTest : public testing::Test {
 protected:
  ServerSetTest() : servers_(options_, clock_, dialer_) { servers_.Add({"zero", "", "two"}); }
  void Advance(absl::Duration time) { clock_.AdvanceTo(clock_.Elapsed() + time); }

  CoordinatorOptions options_;
  SimClock clock_;
  FakeDialer dialer_;
  ServerSet servers_;
};

TEST_F(ServerSetTest, OneWithoutAnAddressIsWaitedFor) {
  EXPECT_EQ(servers_.size(), 3);
  EXPECT_EQ(dialer_.dialled, (std::vector<std::string>{"zero", "two"}));
  EXPECT_TRUE(servers_.AnySilent());
  EXPECT_EQ(servers_[1].Text(), "ps 1");
  servers_.NoteAnswer(servers_[1]);
  EXPECT_FALSE(servers_.AnySilent());
}

TEST_F(ServerSetTest, SilenceIsCountedFromTheFirstCallThatFailed) {
  Advance(absl::Seconds(1));
  servers_.NoteSilent(servers_[0], "refused");
  Advance(absl::Seconds(1));
  servers_.NoteSilent(servers_[0], "no route");
  EXPECT_EQ(servers_[0].silent_since, absl::Seconds(1));
  EXPECT_EQ(servers_[0].last_error, "no route");
}

TEST_F(ServerSetTest, AllOfThemDecideWhatIsAttachedReadyAndAcknowledged) {
  for (Ps& ps : servers_) ps.attached = ps.ready = true;
  servers_[1].ready = false;
  EXPECT_TRUE(servers_.AllAttached());
  EXPECT_FALSE(servers_.AllReady());
  EXPECT_EQ(servers_.NumUp(), 2) << "one server has not answered";
  EXPECT_FALSE(servers_.Serves(1)) << "server 1 does not have its state";
  EXPECT_TRUE(servers_.Serves(2));
  EXPECT_EQ(servers_.TakeSync(), 1u);
  EXPECT_EQ(servers_.next_sync(), 2u);
  servers_[0].acked_seq = 7;
  servers_[1].acked_seq = 5;
  servers_[2].acked_seq = 6;
  EXPECT_EQ(servers_.Acked(), 5u);
}

TEST_F(ServerSetTest, AnAnswerToACallOfTheFormerEpochIsVoid) {
  servers_[0].attached = true;
  const uint64_t tries = servers_[0].tries;
  EXPECT_TRUE(servers_.Same(0, tries));
  servers_.ForgetEpoch();
  EXPECT_FALSE(servers_.Same(0, tries));
  EXPECT_FALSE(servers_[0].attached);
}

TEST_F(ServerSetTest, AResizeCanBeTakenBack) {
  const std::vector<Ps> before = servers_.all();
  servers_.Resize(1, {}, 0);
  EXPECT_EQ(servers_.size(), 1);
  EXPECT_FALSE(servers_.Same(2, before[2].tries));
  servers_.Restore(before);
  EXPECT_EQ(servers_.size(), 3);
  servers_.Resize(4, {{3, "three"}}, 1'000);
  EXPECT_EQ(dialer_.dialled.back(), "three");
  EXPECT_TRUE(servers_.Same(3, 1'000));
  EXPECT_EQ(servers_[3].index, 3);
}

TEST_F(ServerSetTest, OneThatComesBeforeItsResizeMayWaitAWhile) {
  EXPECT_TRUE(servers_.MayComeEarly(3, absl::Minutes(1)));
  Advance(absl::Seconds(59));
  EXPECT_TRUE(servers_.MayComeEarly(3, absl::Minutes(1)));
  Advance(absl::Seconds(1));
  EXPECT_FALSE(servers_.MayComeEarly(3, absl::Minutes(1)));
  EXPECT_EQ(servers_.Sizes().at("early parameter servers"), 1);
}

}  // namespace
}  // namespace divvy
