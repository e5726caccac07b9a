#include "tools/ctl/logs.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/recent_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/admin_service.h"
#include "rpc/credentials.h"
#include "rpc/server.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TaskEntry Entry(std::string task, int64_t time_ns, std::string text) {
  v1::GetLogsReply::Entry entry;
  entry.set_time_ns(time_ns);
  entry.set_severity(v1::GetLogsReply::WARNING);
  entry.set_text(std::move(text));
  entry.set_file("core.cc");
  entry.set_line(71);
  return {std::move(task), std::move(entry)};
}

TEST(LogsTest, ATaskIsNamedInAnyUsualWay) {
  EXPECT_EQ(*TaskOfWords({"ps", "0"}), "ps 0");
  EXPECT_EQ(*TaskOfWords({"ps 0"}), "ps 0");
  EXPECT_EQ(*TaskOfWords({"worker-12"}), "worker 12");
  EXPECT_EQ(*TaskOfWords({"worker:1"}), "worker 1");
  EXPECT_EQ(*TaskOfWords({"chief"}), "chief");
  EXPECT_EQ(*TaskOfWords({"coordinator"}), "chief");
  for (const char* bad : {"", "ps", "ps-", "ps--1", "psx", "worker 1 2", "evaluator"}) {
    const absl::Status refused = TaskOfWords({bad}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << bad;
    EXPECT_THAT(refused.message(), HasSubstr("wanted chief, ps-N or worker-N"));
  }
}

TEST(LogsTest, EntriesAreMergedByTimeAndThoseOfATaskStayInTheirOrder) {
  std::string order;
  for (const auto& [task, entry] :
       MergedByTime({Entry("a", 5, "1"), Entry("a", 7, "2"), Entry("a", 7, "3"), Entry("b", 6, "4"),
                     Entry("b", 7, "5")}))
    order += entry.text();
  EXPECT_EQ(order, "14235");
}

// Somebody has set the clock of "a" back between its entries 2 and 3.
TEST(LogsTest, AClockThatIsSetBackReordersNothing) {
  std::string order;
  for (const auto& [task, entry] :
       MergedByTime({Entry("a", 5, "1"), Entry("a", 9, "2"), Entry("a", 2, "3"),
                     Entry("a", 10, "4"), Entry("b", 6, "5"), Entry("b", 11, "6")}))
    order += entry.text();
  EXPECT_EQ(order, "152346");
}

TEST(LogsTest, ALineIsAsInTheLogWithTheTaskBeforeIt) {
  EXPECT_EQ(LogLines(Entry("ps 0", 1'500'000'000, "one\ntwo"), 8, absl::UTCTimeZone()),
            "ps 0     | W0101 00:00:01.500000 core.cc:71] one\n"
            "ps 0     |     two\n");
}

// A log quotes names, paths and errors that others chose.
TEST(LogsTest, NoControlCharacterReachesTheTerminal) {
  TaskEntry entry = Entry("ps 0", 0, "\x1b[2J\r\x07\x9b bad \xff\x7f\xc2\x9b end");
  entry.second.set_file("\x1b.cc");
  const std::string lines = LogLines(entry, 4, absl::UTCTimeZone());
  const std::string json = LogJson(entry);
  for (const std::string& text : {lines, json}) {
    EXPECT_THAT(text, HasSubstr("end"));
    for (const char c : text.substr(0, text.size() - 1)) {
      EXPECT_GE(c, ' ') << text;
      EXPECT_NE(c, '\x7f') << text;
    }
  }
}

TEST(LogsTest, JsonHasTheNamesOfTheLogsOwnFormat) {
  EXPECT_EQ(LogJson(Entry("ps 0", 1'500'000'000, "one\ntwo")),
            "{\"task\":\"ps 0\",\"ts\":\"1970-01-01T00:00:01.500000Z\",\"sev\":\"WARNING\","
            "\"file\":\"core.cc\",\"line\":71,\"msg\":\"one\\ntwo\"}\n");
}

// ---- over a connection --------------------------------------------------------------------------

class ShowLogsTest : public ::testing::Test {
 protected:
  ShowLogsTest()
      : admin_([] {
          v1::TaskStatus status;
          status.set_job(v1::PS);
          status.set_index(3);
          return status;
        }) {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    auto server = Server::Start(options, {&admin_}, nullptr);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    asked_.tasks.addresses = {absl::StrCat("127.0.0.1:", server_->port())};
    asked_.tasks.credentials = MakeChannelCredentials(std::nullopt, "");
    asked_.tasks.timeout = absl::Seconds(10);
    SetLogSink([](const LogEntry&) {});
  }
  ~ShowLogsTest() override { SetLogSink(nullptr); }

  struct Shown {
    int code = 0;
    std::string out, error;
  };
  Shown Show() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Shown shown;
    shown.code = ShowLogs(asked_);
    shown.out = testing::internal::GetCapturedStdout();
    shown.error = testing::internal::GetCapturedStderr();
    return shown;
  }

  AdminService admin_;
  std::unique_ptr<Server> server_;
  LogsOptions asked_;
};

TEST_F(ShowLogsTest, TheLastEntriesOfATaskAreShown) {
  for (int i = 0; i < 5; ++i) DIVVY_LOG(INFO) << "entry " << i;
  asked_.entries = 2;
  const Shown shown = Show();
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.out, AllOf(HasSubstr("ps 3 | I"), HasSubstr("] entry 3\n"),
                               HasSubstr("] entry 4\n"), Not(HasSubstr("entry 2"))));
  EXPECT_EQ(shown.error, "");
  asked_.entries = 0;
  EXPECT_THAT(Show().out, HasSubstr("entry 0"));
}

TEST_F(ShowLogsTest, ATaskThatDoesNotAnswerIsNamedAndTheOthersAreShown) {
  DIVVY_LOG(INFO) << "it lives";
  const std::string gone = "127.0.0.1:1";
  asked_.tasks.addresses.push_back(gone);
  asked_.tasks.names[gone] = "worker 1";
  const Shown shown = Show();
  EXPECT_EQ(shown.code, 1);
  EXPECT_THAT(shown.out, HasSubstr("it lives"));
  EXPECT_THAT(shown.error, HasSubstr(absl::StrCat("worker 1 at ", gone, " does not answer")));
}

TEST_F(ShowLogsTest, OneTaskMayBeChosen) {
  DIVVY_LOG(INFO) << "chosen";
  asked_.task = "ps 3";
  EXPECT_THAT(Show().out, HasSubstr("chosen"));
  asked_.task = "ps 7";
  const Shown shown = Show();
  EXPECT_EQ(shown.code, exit_codes::kUsage);
  EXPECT_EQ(shown.out, "");
  EXPECT_EQ(shown.error, "divvyctl logs: there is no ps 7; the tasks are ps 3\n");
}

TEST_F(ShowLogsTest, TheTaskThatIsWantedIsEnough) {
  DIVVY_LOG(INFO) << "chosen";
  asked_.tasks.addresses.push_back("127.0.0.1:1");
  asked_.task = "ps 3";
  const Shown shown = Show();
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.error, "");
  EXPECT_THAT(shown.out, HasSubstr("chosen"));
  // The other address may be that task's.
  asked_.task = "ps 7";
  const Shown missed = Show();
  EXPECT_EQ(missed.code, 1);
  EXPECT_THAT(missed.error, HasSubstr("127.0.0.1:1 does not answer"));
}

TEST_F(ShowLogsTest, EntriesThatAreNotKeptAreCounted) {
  for (size_t i = 0; i < RecentLog::kMostEntries + 7; ++i) DIVVY_LOG(INFO) << "entry " << i;
  const int64_t lost = LastEntries().written - static_cast<int64_t>(RecentLog::kMostEntries);
  asked_.entries = 0;
  EXPECT_THAT(Show().error, HasSubstr(absl::StrCat("divvyctl logs: ps 3 has not kept ", lost,
                                                   " earlier entries\n")));
  // There are more than these, so nobody can tell.
  asked_.entries = 10;
  EXPECT_EQ(Show().error, "");
}

TEST_F(ShowLogsTest, ANegativeNumberIsRefusedByTheTask) {
  asked_.entries = -1;
  const Shown shown = Show();
  EXPECT_EQ(shown.code, 1);
  EXPECT_THAT(shown.error, HasSubstr("entries is -1, wanted a number from 1, or 0 for all"));
}

}  // namespace
}  // namespace divvy
