// Tests of a whole cluster in this process whose steps have a fixed order.
#ifndef DIVVY_TESTS_CLUSTER_ONE_WORKER_TEST_H_
#define DIVVY_TESTS_CLUSTER_ONE_WORKER_TEST_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "program/embedded.h"

namespace divvy {

class OneWorkerTest : public ::testing::Test {
 protected:
  OneWorkerTest()
      : directory_(absl::StrCat(::testing::TempDir(), "/",
                                ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}

  // With one worker, the order of the steps is fixed. Checkpoints are in directory_.
  absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(int num_ps) {
    EmbeddedSetup setup;
    setup.options.num_ps = num_ps;
    setup.options.num_workers = 1;
    setup.options.checkpoint_dir = directory_;
    return EmbeddedCluster::Start(setup);
  }

  // Of this test alone.
  const std::string directory_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_CLUSTER_ONE_WORKER_TEST_H_
