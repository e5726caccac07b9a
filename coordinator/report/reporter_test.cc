#include "coordinator/report/reporter.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

// A terminal that is stopped takes no line, and the status page is answered nevertheless. A call
// that waited for the line would never return here, because it is made while the line is written.
TEST(ReporterTest, WhatTheJobHasReachedIsToldWhileALineIsWritten) {
  SimExecutor executor(1);
  std::string written;
  std::shared_ptr<Reporter> reporter;
  ReportOptions options;
  options.write = [&](absl::string_view text) {
    written += std::string(text);
    EXPECT_EQ(reporter->reached().examples, 0);
    EXPECT_EQ(reporter->reached().loss, std::nullopt);
  };
  reporter = std::make_shared<Reporter>(std::move(options), executor, Clock::Real());
  reporter->OnReport("evaluation", 3, {});
  EXPECT_THAT(written, HasSubstr("evaluation: "));
}

}  // namespace
}  // namespace divvy
