// Operations on a coordinator that does not run. tests/e2e/operations_test.cc has the rest, with
// real coordinators.
#include "tools/ctl/operate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "base/testing/loopback_port.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/credentials.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

// A port that is reserved for this test, and on which nothing listens.
class NobodyServesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.address = port_.address();
    options_.credentials = MakeChannelCredentials(std::nullopt, "");
    options_.timeout = absl::Milliseconds(300);
  }
  void ExpectTheFix(const absl::Status& status) const {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("cannot reach ", port_.address(),
                                       ": connection refused: nothing listens there")));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("Start the coordinator, or give its address: "
                          "--addr=HOST:PORT, or TF_CONFIG"));
    EXPECT_EQ(OperatorExitCode(status), exit_codes::kTryAgain);
  }

  const LoopbackPort port_ = *LoopbackPort::Reserve();
  OperatorOptions options_;
};

TEST_F(NobodyServesTest, WhoeverSavesDrainsResizesOrRebalancesIsToldWhatToDo) {
  ExpectTheFix(SaveCheckpoint(options_).status());
  ExpectTheFix(DrainCoordinator(options_).status());
  ExpectTheFix(ResizeJob(options_, 2).status());
  ExpectTheFix(RebalanceJob(options_).status());
}

}  // namespace
}  // namespace divvy
