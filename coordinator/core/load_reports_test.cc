#include "coordinator/core/load_reports.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/testing/sim_executor.h"
#include "coordinator/core/testing/no_dialer.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// `parts`: the server of each part.
VariableLayout VariableOn(uint32_t id, const std::string& name, std::vector<int32_t> parts) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = name;
  variable.spec.shape = {static_cast<int64_t>(parts.size()), 4};
  for (size_t i = 0; i <= parts.size(); ++i) variable.offsets.push_back(static_cast<int64_t>(i));
  variable.ps = std::move(parts);
  return variable;
}

class BusiestVariablesTest : public testing::Test {
 protected:
  BusiestVariablesTest() { servers_.Add({"zero", "one", "two"}); }

  // The server counted these bytes of shards of slot 0 in the last ten seconds.
  void Tell(int ps, std::vector<SyncReply::Load> loads) {
    std::vector<SyncReply::Load> before = loads;
    for (SyncReply::Load& load : before) load.bytes.assign(load.bytes.size(), 0);
    servers_[ps].loads.Note(before, absl::Seconds(1));
    servers_[ps].loads.Note(loads, absl::Seconds(11));
  }
  static SyncReply::Load Load(uint32_t variable, uint16_t part, std::vector<uint64_t> bytes) {
    bytes.resize(SyncReply::Load::kParts);
    return {{VariableId(variable), 0, part}, std::move(bytes)};
  }
  std::vector<std::optional<BusiestVariable>> Busiest() const {
    return BusiestVariables(
        *Layout::Empty()->With(VariableOn(1, "user", {0, 0, 1}))->With(VariableOn(2, "w", {0})),
        servers_);
  }

  const CoordinatorOptions options_;
  SimClock clock_;
  NoDialer dialer_;
  ServerSet servers_{options_, clock_, dialer_};
};

TEST_F(BusiestVariablesTest, AddUpTheShardsOfAServer) {
  Tell(0, {Load(1, 0, {100, 200}), Load(1, 1, {300}), Load(2, 0, {400})});
  Tell(1, {Load(1, 2, {7})});
  const auto busiest = Busiest();
  ASSERT_EQ(busiest.size(), 3u);
  ASSERT_TRUE(busiest[0]);
  EXPECT_EQ(busiest[0]->name, "user");
  EXPECT_DOUBLE_EQ(busiest[0]->share, 0.6);
  ASSERT_TRUE(busiest[1]);
  EXPECT_DOUBLE_EQ(busiest[1]->share, 1);
  EXPECT_FALSE(busiest[2]);  // has no load
}

TEST_F(BusiestVariablesTest, AShardThatLiesElsewhereByTheLayoutDoesNotCount) {
  Tell(0, {Load(1, 2, {1000}), Load(9, 0, {1000}), Load(2, 0, {1})});
  ASSERT_TRUE(Busiest()[0]);
  EXPECT_EQ(Busiest()[0]->name, "w");
  EXPECT_DOUBLE_EQ(Busiest()[0]->share, 1);
}

TEST_F(BusiestVariablesTest, BeforeTheFirstWindowNothingIsKnown) {
  servers_[0].loads.Note({Load(1, 0, {1000})}, absl::Seconds(1));
  EXPECT_FALSE(Busiest()[0]);
}

}  // namespace
}  // namespace divvy
