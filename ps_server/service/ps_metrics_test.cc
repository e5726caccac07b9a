#include "ps_server/service/ps_metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PsMetricsTest : public testing::Test {
 protected:
  void Note(DataMethod method, absl::Status status, bool duplicate = false) {
    DataOutcome outcome{method, std::move(status), duplicate};
    outcome.bytes = 100;
    outcome.rows = 4;
    outcome.took = absl::Seconds(2);
    metrics_.Note(outcome);
  }
  std::string Text() const { return registry_.ToPrometheusText(); }

  MetricsRegistry registry_;
  PsMetrics metrics_{registry_};
};

TEST_F(PsMetricsTest, PullsAndCommitsCountTheirRowsAndBytes) {
  Note(DataMethod::kPull, absl::OkStatus());
  Note(DataMethod::kCommit, absl::OkStatus());
  Note(DataMethod::kCommit, absl::OkStatus());
  EXPECT_EQ(metrics_.pull_rows(), 4);
  EXPECT_EQ(metrics_.pull_bytes(), 100);
  EXPECT_EQ(metrics_.push_rows(), 8);
  EXPECT_EQ(metrics_.push_bytes(), 200);
  EXPECT_THAT(Text(), AllOf(HasSubstr("divvy_apply_seconds_count 2\n"),
                            HasSubstr("divvy_apply_seconds_sum 4\n"),
                            HasSubstr("divvy_push_duplicate_total 0\n"),
                            HasSubstr("divvy_push_rejected_total{reason=\"session_fenced\"} 0\n")));
}

TEST_F(PsMetricsTest, ADuplicateBringsBytesAndWritesNoRow) {
  Note(DataMethod::kCommit, absl::OkStatus(), /*duplicate=*/true);
  EXPECT_EQ(metrics_.push_rows(), 0);
  EXPECT_EQ(metrics_.push_bytes(), 100);
  EXPECT_THAT(Text(), AllOf(HasSubstr("divvy_push_duplicate_total 1\n"),
                            HasSubstr("divvy_apply_seconds_count 0\n")));
}

TEST_F(PsMetricsTest, RefusalsCountByReason) {
  Note(DataMethod::kCommit, MakeError(Reason::kSessionFenced, ""));
  Note(DataMethod::kCommit, MakeError(Reason::kStaleEpoch, ""));
  Note(DataMethod::kPull, MakeError(Reason::kStaleEpoch, ""));
  Note(DataMethod::kCommit, absl::InternalError(""));
  EXPECT_THAT(Text(), AllOf(HasSubstr("divvy_push_rejected_total{reason=\"session_fenced\"} 1\n"),
                            HasSubstr("divvy_push_rejected_total{reason=\"stale_epoch\"} 1\n"),
                            HasSubstr("divvy_push_rejected_total{reason=\"other\"} 1\n"),
                            HasSubstr("divvy_stale_epoch_rejected_total 2\n")));
  EXPECT_EQ(metrics_.pull_rows(), 0);
}

}  // namespace
}  // namespace divvy
