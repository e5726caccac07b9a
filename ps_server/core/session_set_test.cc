#include "ps_server/core/session_set.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace divvy {
namespace {

SyncRequest Sync(uint64_t seq, std::vector<SessionId> sessions, std::vector<int> workers = {}) {
  SyncRequest request;
  request.seq = seq;
  request.sessions = std::move(sessions);
  request.workers = std::move(workers);
  return request;
}

TEST(SessionSetTest, TheCoordinatorsSessionIsAlwaysInTheSet) {
  SessionSet set;
  EXPECT_TRUE(set.Has(kCoordinatorSession));
  EXPECT_FALSE(set.Has(SessionId(7)));
  EXPECT_TRUE(set.sessions().empty());
}

TEST(SessionSetTest, ANewerSyncReplacesTheSet) {
  SessionSet set;
  EXPECT_TRUE(set.Take(Sync(1, {SessionId(5), SessionId(7)})));
  EXPECT_TRUE(set.Take(Sync(3, {SessionId(7), SessionId(9)})));
  EXPECT_EQ(set.sessions(), std::vector<SessionId>({SessionId(7), SessionId(9)}));
  EXPECT_FALSE(set.Has(SessionId(5)));
}

TEST(SessionSetTest, ALateOrRepeatedSyncChangesNothing) {
  SessionSet set;
  EXPECT_TRUE(set.Take(Sync(3, {SessionId(7)})));
  EXPECT_FALSE(set.Take(Sync(2, {SessionId(5)})));
  EXPECT_FALSE(set.Take(Sync(3, {SessionId(5)})));
  EXPECT_TRUE(set.Has(SessionId(7)));
  EXPECT_FALSE(set.Has(SessionId(5)));
}

TEST(SessionSetTest, AnotherEpochCountsItsSyncsAnew) {
  SessionSet set;
  EXPECT_TRUE(set.Take(Sync(9, {SessionId(7)})));
  set.Clear();
  EXPECT_FALSE(set.Has(SessionId(7)));
  EXPECT_TRUE(set.Take(Sync(1, {SessionId(8)})));
  EXPECT_TRUE(set.Has(SessionId(8)));
}

TEST(SessionSetTest, KnowsTheWorkerOfASessionOnceASyncHasNamedIt) {
  SessionSet set;
  EXPECT_TRUE(set.Take(Sync(1, {SessionId(5), SessionId(7)}, {2})));
  EXPECT_EQ(set.WorkerOf(SessionId(5)), 2);
  EXPECT_EQ(set.WorkerOf(SessionId(7)), SessionSet::kAnyWorker)
      << "the list of workers was shorter";
  EXPECT_EQ(set.WorkerOf(SessionId(8)), SessionSet::kAnyWorker);
  EXPECT_EQ(set.WorkerOf(kCoordinatorSession), SessionSet::kAnyWorker);
}

TEST(SessionSetTest, CountsTheSessionsThatTheCoordinatorTakesOut) {
  SessionSet set;
  EXPECT_TRUE(set.Take(Sync(1, {SessionId(5), SessionId(7)})));
  EXPECT_TRUE(set.Take(Sync(2, {SessionId(5), SessionId(7), SessionId(8)})));
  EXPECT_EQ(set.num_fenced(), 0);
  EXPECT_TRUE(set.Take(Sync(3, {SessionId(8)})));
  EXPECT_FALSE(set.Take(Sync(3, {})));
  EXPECT_EQ(set.num_fenced(), 2);
  set.Clear();
  EXPECT_TRUE(set.Take(Sync(1, {})));
  EXPECT_EQ(set.num_fenced(), 2) << "another epoch, in which all attach anew";
}

}  // namespace
}  // namespace divvy
