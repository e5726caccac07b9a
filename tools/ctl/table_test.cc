// Tests what `divvyctl table` prints, against fake tasks.
#include "tools/ctl/table.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "base/testing/loopback_port.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/credentials.h"
#include "rpc/server.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A task with a status and rows.
class FakeTask : public v1::Admin::CallbackService {
 public:
  v1::TaskStatus status;
  std::vector<v1::GetTableRowsReply::Row> rows;
  v1::GetTableRowsRequest asked;
  grpc::Status refusal;

  void Serve() {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    auto server = Server::Start(options, {this}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

 private:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*, v1::TaskStatus* reply) override {
    *reply = status;
    return Done(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* GetTableRows(grpc::CallbackServerContext* context,
                                         const v1::GetTableRowsRequest* request,
                                         v1::GetTableRowsReply* reply) override {
    asked = *request;
    for (const v1::GetTableRowsReply::Row& row : rows) *reply->add_rows() = row;
    return Done(context, refusal);
  }
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  std::unique_ptr<Server> server_;
};

v1::GetTableRowsReply::Row Row(int64_t key, int64_t count, std::vector<float> values) {
  v1::GetTableRowsReply::Row row;
  row.set_key(key);
  row.set_count(count);
  row.set_minute(key % 60);
  row.mutable_values()->Add(values.begin(), values.end());
  return row;
}

// A chief and two parameter servers, which have parts of two tables.
class TableTest : public ::testing::Test {
 protected:
  TableTest() {
    chief_.status.set_job(v1::CHIEF);
    chief_.status.set_job_id(kJob);
    chief_.status.set_incarnation(100);
    chief_.status.mutable_coordinator()->set_num_ps(2);
    v1::CoordinatorStatus::Table& limited = *chief_.status.mutable_coordinator()->add_tables();
    limited.set_name("user");
    limited.set_max_rows(1'000'000);
    chief_.status.mutable_coordinator()->add_tables()->set_name("ad");
    for (const int ps : {0, 1}) {
      MakePs(servers_[ps], ps);
      AddTable(ps, "user", 1000 + ps, 0);
    }
    AddTable(1, "ad", 7, 0);
    servers_[0].rows = {Row(17, 12, {3, -4})};
    servers_[1].rows = {Row(-5, 900, {0.5f, 0}), Row(99, 12, {1, 2, 3, 4, 5, 6, 7, 8})};
    options_.credentials = MakeChannelCredentials(std::nullopt, "");
    options_.timeout = absl::Seconds(10);
    for (FakeTask* task : {&chief_, &servers_[0], &servers_[1]}) {
      task->Serve();
      options_.addresses.push_back(task->address());
    }
  }
  // A server of the job that has its tables.
  static void MakePs(FakeTask& server, int ps) {
    server.status.set_job(v1::PS);
    server.status.set_job_id(kJob);
    server.status.set_index(ps);
    server.status.set_incarnation(200 + ps);
    server.status.set_state("ready");
    server.status.mutable_ps();
  }
  // That the table cannot be told, with the reason and the fix.
  void ExpectIncomplete(const std::string& reason) {
    for (const absl::Status& status :
         {ListTables(options_).status(), ShowTable(options_, "user").status(),
          FindInTable(options_, "user", {17}).status(),
          TopOfTable(options_, "user", TopBy::kCount, 1).status()}) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(reason), HasSubstr("Every parameter server has to answer"),
                        HasSubstr("--addr=HOST:PORT,... or TF_CONFIG")));
      EXPECT_EQ(TableExitCode(status), exit_codes::kTryAgain);
    }
  }
  void AddTable(int ps, const std::string& name, int64_t rows, int64_t refused) {
    v1::PsStatus::TablePart& table = *servers_[ps].status.mutable_ps()->add_tables();
    table.set_name(name);
    table.mutable_stats()->set_rows(rows);
    table.mutable_stats()->set_waiting(3);
    table.mutable_stats()->set_bytes(3 << 19);
    table.mutable_stats()->set_admitted(rows + 5);
    table.mutable_stats()->set_refused(refused);
    table.mutable_stats()->set_evicted(5);
  }
  static std::string TextOf(const absl::StatusOr<std::string>& text) {
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  static constexpr uint64_t kJob = 7;
  FakeTask chief_, servers_[2];
  StatusOptions options_;
};

TEST_F(TableTest, TheListHasTheSumOfEachTable) {
  EXPECT_EQ(TextOf(ListTables(options_)),
            "TABLE  ROWS  WAITING   MEMORY  ADMITTED  REFUSED  EVICTED  MOST ROWS  SERVERS\n"
            "ad        7        3  1.5 MiB        12        0        5        any        1\n"
            "user   2001        6    3 MiB      2011        0       10    1000000        2\n");
  options_.json = true;
  EXPECT_EQ(TextOf(ListTables(options_)),
            R"({"table":"ad","rows":"7","waiting":"3","bytes":"1572864","admitted":"12",)"
            R"("refused":"0","evicted":"5","max_rows":"0","servers":1})"
            "\n"
            R"({"table":"user","rows":"2001","waiting":"6","bytes":"3145728","admitted":"2011",)"
            R"("refused":"0","evicted":"10","max_rows":"1000000","servers":2})"
            "\n");
  // Without the coordinator, nobody tells the limit.
  options_.json = false;
  options_.addresses.erase(options_.addresses.begin());
  EXPECT_THAT(TextOf(ListTables(options_)), HasSubstr("10          ?        2\n"));
}

TEST_F(TableTest, ATableIsShownByServer) {
  EXPECT_EQ(TextOf(ShowTable(options_, "user")),
            "SERVER  ROWS  WAITING   MEMORY  ADMITTED  REFUSED  EVICTED\n"
            "ps 0    1000        3  1.5 MiB      1005        0        5\n"
            "ps 1    1001        3  1.5 MiB      1006        0        5\n"
            "all     2001        6    3 MiB      2011        0       10\n"
            "\n"
            "at most 1000000 rows (max_rows)\n");
  options_.json = true;
  EXPECT_THAT(TextOf(ShowTable(options_, "ad")),
              AllOf(HasSubstr(R"({"table":"ad","ps":1,"rows":"7",)"), Not(HasSubstr("user"))));
}

TEST_F(TableTest, AFullTableSaysWhatToDo) {
  AddTable(0, "bag", 10, 123);
  for (const std::string& text :
       {TextOf(ListTables(options_)), TextOf(ShowTable(options_, "bag"))}) {
    EXPECT_THAT(text, HasSubstr("\nbag is full: 123 writes to new keys found no room. Raise its "
                                "max_rows or --memory_limit_bytes, or give it an eviction rule\n"));
  }
}

TEST_F(TableTest, KeysAreFoundOnAllServersInTheirOrder) {
  EXPECT_EQ(TextOf(FindInTable(options_, "user", {99, 1, 17, -5})),
            "KEY   COUNT  MINUTE   NORM               VALUES\n"
            "99       12      39  14.28  1 2 3 4 5 6 ... (8)\n"
            "1    no row\n"
            "17       12      17      5                 3 -4\n"
            "-5      900      -5    0.5                0.5 0\n");
  EXPECT_EQ(servers_[1].asked.table(), "user");
  EXPECT_THAT(servers_[1].asked.keys(), ElementsAre(99, 1, 17, -5));
  options_.json = true;
  EXPECT_EQ(TextOf(FindInTable(options_, "user", {1, 17})),
            R"({"table":"user","key":"1","exists":false})"
            "\n"
            R"({"table":"user","key":"17","exists":true,"count":"12","minute":"17","norm":5,)"
            R"("values":[3,-4]})"
            "\n");
}

TEST_F(TableTest, TheLargestRowsOfAllServersAreMerged) {
  EXPECT_THAT(TextOf(TopOfTable(options_, "user", TopBy::kCount, 2)),
              AllOf(HasSubstr("\n-5 "), HasSubstr("\n17 "), Not(HasSubstr("\n99 "))));
  EXPECT_EQ(servers_[0].asked.top(), 2);
  EXPECT_EQ(servers_[0].asked.by(), v1::GetTableRowsRequest::COUNT);
  servers_[0].rows.push_back(Row(3, 1, {std::numeric_limits<float>::quiet_NaN()}));
  const std::string by_norm = TextOf(TopOfTable(options_, "user", TopBy::kNorm, 2));
  EXPECT_THAT(by_norm, AllOf(HasSubstr("\n3 "), HasSubstr("\n99 "), Not(HasSubstr("\n17 "))));
  EXPECT_EQ(servers_[0].asked.by(), v1::GetTableRowsRequest::NORM);
  options_.json = true;
  EXPECT_THAT(TextOf(TopOfTable(options_, "user", TopBy::kNorm, 1)),
              HasSubstr(R"("norm":null,"values":[null]})"));
}

TEST_F(TableTest, AServerWithoutAPartOfTheTableIsNoError) {
  servers_[0].refusal = grpc::Status(grpc::StatusCode::NOT_FOUND, "no part");
  EXPECT_THAT(TextOf(FindInTable(options_, "ad", {17, 99})),
              AllOf(HasSubstr("17   no row"), HasSubstr("99       12")));
  servers_[0].refusal =
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "20000 rows are asked for");
  const absl::Status refused = TopOfTable(options_, "user", TopBy::kCount, 20'000).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("20000 rows are asked for"));
  EXPECT_EQ(TableExitCode(refused), exit_codes::kUsage);
}

TEST_F(TableTest, AnUnknownTableHasNearNames) {
  for (const absl::Status& status :
       {ShowTable(options_, "users").status(), FindInTable(options_, "users", {1}).status(),
        TopOfTable(options_, "users", TopBy::kCount, 1).status()}) {
    EXPECT_TRUE(absl::IsNotFound(status));
    EXPECT_EQ(status.message(),
              "no dynamic table \"users\" among 2; the nearest: \"user\", \"ad\"");
    EXPECT_EQ(TableExitCode(status), exit_codes::kNoInput);
  }
}

TEST_F(TableTest, AJobWithoutTablesSaysSo) {
  for (FakeTask& server : servers_) server.status.mutable_ps()->clear_tables();
  const absl::Status status = ListTables(options_).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the job has no dynamic tables"));
}

// What it holds would be missing in every answer.
TEST_F(TableTest, EveryServerHasToAnswer) {
  options_.addresses.erase(options_.addresses.begin());  // no coordinator tells how many there are
  const LoopbackPort nobody = *LoopbackPort::Reserve();
  options_.addresses.push_back(nobody.address());
  ExpectIncomplete(nobody.address());
  // A worker has no rows.
  options_.names[nobody.address()] = "worker 0";
  EXPECT_TRUE(ListTables(options_).ok());
  options_.addresses = {nobody.address()};
  EXPECT_THAT(std::string(ListTables(options_).status().message()),
              HasSubstr("no parameter server is among the tasks"));
}

TEST_F(TableTest, AServerWhoseAddressWasNotGivenIsNamed) {
  options_.addresses.pop_back();
  ExpectIncomplete("ps 1 has not answered");
  options_.addresses = {chief_.address()};
  ExpectIncomplete("ps 0 has not answered; ps 1 has not answered");
}

TEST_F(TableTest, AServerThatDoesNotAnswerIsNamedWithItsAddress) {
  const LoopbackPort nobody = *LoopbackPort::Reserve();
  options_.addresses.back() = nobody.address();
  options_.names[nobody.address()] = "ps 1";
  ExpectIncomplete("ps 1 has not answered (");
  ExpectIncomplete(nobody.address());
}

TEST_F(TableTest, AServerThatHasNoTablesYetIsNamedWithItsState) {
  for (const char* const state : {"empty", "loading", "ending"}) {
    servers_[1].status.set_state(state);
    ExpectIncomplete(absl::StrCat("ps 1 (", servers_[1].address(), ") is in state \"", state,
                                  "\", without its tables"));
  }
  servers_[1].status.set_state("frozen");
  EXPECT_THAT(TextOf(ShowTable(options_, "user")), HasSubstr("\nall     2001 "));
}

TEST_F(TableTest, AServerOfAnotherJobIsNotCounted) {
  servers_[1].status.set_job_id(kJob + 1);
  ExpectIncomplete(
      absl::StrCat("ps 1 (", servers_[1].address(), ") is not attached to the coordinator's job"));
}

TEST_F(TableTest, ServersThatAResizeLeftOverAreIgnored) {
  FakeTask former;
  MakePs(former, 2);
  *former.status.mutable_ps() = servers_[0].status.ps();
  former.rows = {Row(17, 1, {0})};
  former.Serve();
  options_.addresses.push_back(former.address());
  EXPECT_THAT(TextOf(ShowTable(options_, "user")),
              AllOf(HasSubstr("\nall     2001 "), Not(HasSubstr("ps 2"))));
  EXPECT_THAT(TextOf(FindInTable(options_, "user", {17})), HasSubstr("\n17      12 "));
  // One that does not answer is not missing either.
  const LoopbackPort nobody = *LoopbackPort::Reserve();
  options_.addresses.push_back(nobody.address());
  options_.names[nobody.address()] = "ps 3";
  EXPECT_TRUE(ListTables(options_).ok());
  // Nor is it why another server is missing.
  options_.addresses = {nobody.address(), chief_.address(), servers_[0].address()};
  const absl::Status status = ListTables(options_).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps 1 has not answered"), Not(HasSubstr(nobody.address()))));
}

TEST_F(TableTest, AServerWhoseAddressIsGivenTwiceCountsOnce) {
  const std::string once = TextOf(ListTables(options_));
  const std::string top = TextOf(TopOfTable(options_, "user", TopBy::kCount, 9));
  options_.addresses.push_back(servers_[1].address());
  EXPECT_EQ(TextOf(ListTables(options_)), once);
  EXPECT_EQ(TextOf(TopOfTable(options_, "user", TopBy::kCount, 9)), top);
  // Nor does it stand for another one.
  options_.addresses = {chief_.address(), servers_[0].address(), servers_[0].address()};
  ExpectIncomplete("ps 1 has not answered");
}

TEST_F(TableTest, AServerThatWasReplacedDoesNotCount) {
  FakeTask former;
  MakePs(former, 1);
  former.status.set_incarnation(300);
  former.status.set_epoch(1);
  *former.status.mutable_ps() = servers_[0].status.ps();
  former.Serve();
  servers_[1].status.set_epoch(2);
  for (const bool first : {true, false}) {
    options_.addresses = {chief_.address(), servers_[0].address(), servers_[1].address()};
    options_.addresses.insert(first ? options_.addresses.begin() : options_.addresses.end(),
                              former.address());
    EXPECT_THAT(TextOf(ShowTable(options_, "user")), HasSubstr("\nall     2001 "));
  }
}

TEST_F(TableTest, AServerThatLosesItsPartBetweenTheQuestionsIsNamed) {
  servers_[1].refusal = grpc::Status(grpc::StatusCode::NOT_FOUND, "no part");
  const absl::Status status = FindInTable(options_, "user", {17}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps 1 ("), HasSubstr("has lost its part"), HasSubstr("ask again")));
}

TEST_F(TableTest, ANameForgesNoRowAndCommandsNoTerminal) {
  AddTable(0, "x\ny\x1b[2J", 1, 1);
  const std::string shown = TextOf(ListTables(options_));
  EXPECT_EQ(shown.find('\x1b'), shown.npos);
  EXPECT_THAT(shown, HasSubstr("x\\x0ay"));
}

TEST(ParseKeysTest, AnyInt64IsAKeyAndNothingElse) {
  const auto keys = ParseKeys({"0", "-1", "9223372036854775807", "-9223372036854775808"});
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, ElementsAre(0, -1, std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int64_t>::min()));
  for (const char* text : {"", "x", "1.5", "9223372036854775808", "0x10", "1 2"}) {
    const absl::Status status = ParseKeys({"1", text}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("\"", text, "\" is no key: a key is a whole number")));
    EXPECT_EQ(TableExitCode(status), exit_codes::kUsage);
  }
}

}  // namespace
}  // namespace divvy
