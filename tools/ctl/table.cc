#include "tools/ctl/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/edit_distance.h"
#include "base/exit_codes.h"
#include "base/number_text.h"
#include "base/status_macros.h"
#include "cluster/config_json.h"
#include "proto/divvy.grpc.pb.h"
#include "tools/ctl/operate.h"
#include "tools/ctl/survey.h"
#include "variables/table_parts.h"
#include "wire/messages.h"
#include "wire/text.h"

namespace divvy {
namespace {

// ---- text ---------------------------------------------------------------------------------------

// Columns as wide as their widest cell: the first one aligned on the left, the others on the right.
std::string Aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const int width = static_cast<int>(widths[i]);
      absl::StrAppend(
          &line, i == 0 ? "" : "  ",
          i == 0 ? absl::StrFormat("%-*s", width, row[i]) : absl::StrFormat("%*s", width, row[i]));
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// The cells of a table's numbers, under StatsHeader.
const std::vector<std::string>& StatsHeader() {
  static const auto& header =
      *new std::vector<std::string>{"ROWS", "WAITING", "MEMORY", "ADMITTED", "REFUSED", "EVICTED"};
  return header;
}
std::vector<std::string> Cells(const TablePartStats& stats) {
  return {absl::StrCat(stats.rows),     absl::StrCat(stats.waiting), BytesText(stats.bytes),
          absl::StrCat(stats.admitted), absl::StrCat(stats.refused), absl::StrCat(stats.evicted)};
}
std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Numbers of 64 bits are texts, as in the JSON of `divvyctl status`.
std::string StatsJson(const TablePartStats& stats) {
  return absl::StrFormat(
      R"("rows":"%d","waiting":"%d","bytes":"%d","admitted":"%d","refused":"%d","evicted":"%d")",
      stats.rows, stats.waiting, stats.bytes, stats.admitted, stats.refused, stats.evicted);
}

// What a person does about keys that found no room.
std::string Advice(const std::string& table, int64_t refused) {
  return absl::StrCat("\n", wire::Escaped(table), " is full: ", refused,
                      " writes to new keys found no room. Raise its max_rows or "
                      "--memory_limit_bytes, or give it an eviction rule\n");
}

// ---- questions ----------------------------------------------------------------------------------

// A table as the parameter servers tell it.
struct CountedTable {
  std::map<int, TablePartStats> servers;
  // Known if the coordinator has answered; 0: no limit.
  std::optional<int64_t> max_rows;
};
// A parameter server that has answered.
struct PsAnswer {
  std::string address;
  v1::TaskStatus status;
};
struct Job {
  std::map<std::string, CountedTable> tables;
  // The parameter servers that count.
  std::vector<PsAnswer> servers;
};
// What the tasks have said.
struct Answers {
  // Of each incarnation one.
  std::vector<PsAnswer> servers;
  std::optional<v1::TaskStatus> coordinator;
  // Address -> why it has not answered.
  std::vector<std::pair<std::string, absl::Status>> silent;
};

TablePartStats SumOf(const CountedTable& table) {
  TablePartStats sum;
  for (const auto& [ps, stats] : table.servers) sum += stats;
  return sum;
}

// The role of an address, as far as options.names tells it.
struct KnownRole {
  bool may_be_server = true;
  std::optional<int> index;
};
KnownRole RoleOf(const StatusOptions& options, const std::string& address) {
  const auto found = options.names.find(address);
  if (found == options.names.end()) return {};
  absl::string_view name = found->second;
  int index = 0;
  if (!absl::ConsumePrefix(&name, "ps")) return {false, std::nullopt};
  if (!absl::SimpleAtoi(name, &index)) return {};
  return {true, index};
}

Answers AskTasks(const StatusOptions& options) {
  Answers answers;
  std::set<uint64_t> incarnations;
  Survey<v1::GetStatusRequest, v1::TaskStatus> survey(options.addresses, options.credentials,
                                                      options.timeout);
  for (const auto& answer : survey.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus)) {
    const v1::TaskStatus& status = answer->reply;
    if (!answer->status.ok())
      answers.silent.emplace_back(answer->address, answer->status);
    else if (status.has_coordinator() && !answers.coordinator)
      answers.coordinator = status;
    else if (status.has_ps() && incarnations.insert(status.incarnation()).second)
      answers.servers.push_back({answer->address, status});
  }
  return answers;
}

// The first error of an address that may be one of the parameter servers [0, num_ps).
absl::Status ErrorOfSilentServer(const StatusOptions& options, const Answers& answers, int num_ps) {
  for (const auto& [address, status] : answers.silent) {
    const KnownRole role = RoleOf(options, address);
    if (role.may_be_server && role.index.value_or(0) < num_ps) return status;
  }
  return absl::OkStatus();
}

bool IsSilence(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error);
}

// The servers that count if no coordinator tells how many there are: all that answered.
absl::StatusOr<std::vector<PsAnswer>> ServersThatAnswered(const StatusOptions& options,
                                                          const Answers& answers) {
  const absl::Status error = ErrorOfSilentServer(options, answers, std::numeric_limits<int>::max());
  if (IsSilence(error))
    return absl::UnavailableError(
        absl::StrCat(error.message(),
                     ". Every parameter server has to answer, for each has rows of its own: "
                     "start it, or give all addresses by --addr=HOST:PORT,... or TF_CONFIG"));
  RETURN_IF_ERROR(error);
  if (answers.servers.empty())
    return absl::UnavailableError(
        "no parameter server is among the tasks that were asked: give --addr=HOST:PORT,... with "
        "all of them, or set TF_CONFIG");
  return answers.servers;
}

bool HasItsTables(const v1::TaskStatus& server) {
  return server.state() == "ready" || server.state() == "frozen";
}

// Which of two servers with one index tells more of the job. A server that was replaced obeys a
// lower epoch than the server in its place.
bool TellsMore(const PsAnswer& a, const PsAnswer& b, uint64_t job) {
  const auto rank = [job](const v1::TaskStatus& status) {
    return std::make_tuple(status.job_id() == job, HasItsTables(status), status.epoch());
  };
  return rank(a.status) > rank(b.status);
}

// What is amiss with a server; empty: nothing. `server`: null if there is no answer of it.
std::string Fault(const PsAnswer* server, uint64_t job) {
  if (server == nullptr) return "has not answered";
  if (server->status.job_id() != job)
    return absl::StrCat("(", server->address, ") is not attached to the coordinator's job");
  if (!HasItsTables(server->status))
    return absl::StrCat("(", server->address, ") is in state \"",
                        wire::Escaped(server->status.state()), "\", without its tables");
  return "";
}

// One server for each index that the coordinator's job has.
absl::StatusOr<std::vector<PsAnswer>> ServersOfJob(const StatusOptions& options,
                                                   const Answers& answers) {
  const uint64_t job = answers.coordinator->job_id();
  const int num_ps = answers.coordinator->coordinator().num_ps();
  std::map<int, const PsAnswer*> best;
  for (const PsAnswer& server : answers.servers) {
    const PsAnswer*& known = best[server.status.index()];
    if (known == nullptr || TellsMore(server, *known, job)) known = &server;
  }
  std::vector<PsAnswer> servers;
  std::vector<std::string> faults;
  bool silent = false;
  constexpr size_t kMostFaults = 8;  // are named
  for (int ps = 0; ps < num_ps && faults.size() < kMostFaults; ++ps) {
    const auto found = best.find(ps);
    const PsAnswer* const server = found == best.end() ? nullptr : found->second;
    silent = silent || server == nullptr;
    if (const std::string fault = Fault(server, job); !fault.empty())
      faults.push_back(absl::StrCat("ps ", ps, " ", fault));
    else
      servers.push_back(*server);
  }
  if (faults.empty()) return servers;
  const absl::Status error =
      silent ? ErrorOfSilentServer(options, answers, num_ps) : absl::OkStatus();
  if (!error.ok() && !IsSilence(error)) return error;
  return absl::UnavailableError(absl::StrCat(
      absl::StrJoin(faults, "; "), error.ok() ? "" : absl::StrCat(" (", error.message(), ")"),
      ". Every parameter server has to answer, for each of the job's ", num_ps,
      " has rows of its own. Give the addresses of all of them by --addr=HOST:PORT,... or "
      "TF_CONFIG; for one that starts or loads, wait until `divvyctl status` shows it as ready"));
}

absl::StatusOr<Job> AskJob(const StatusOptions& options) {
  const Answers answers = AskTasks(options);
  const bool told = answers.coordinator && answers.coordinator->coordinator().num_ps() > 0;
  Job job;
  ASSIGN_OR_RETURN(job.servers,
                   told ? ServersOfJob(options, answers) : ServersThatAnswered(options, answers));
  for (const PsAnswer& server : job.servers) {
    for (const v1::PsStatus::TablePart& table : server.status.ps().tables()) {
      ASSIGN_OR_RETURN(const TablePartStats stats, wire::FromProto(table.stats()));
      job.tables[table.name()].servers[server.status.index()] += stats;
    }
  }
  if (job.tables.empty())
    return absl::NotFoundError(
        "the job has no dynamic tables: a program creates them with CreateVariable(DynamicTable)");
  if (!answers.coordinator) return job;
  for (const v1::CoordinatorStatus::Table& table : answers.coordinator->coordinator().tables()) {
    if (const auto found = job.tables.find(table.name()); found != job.tables.end())
      found->second.max_rows = table.max_rows();
  }
  return job;
}

absl::StatusOr<CountedTable> FindTable(const Job& job, const std::string& name) {
  if (const auto found = job.tables.find(name); found != job.tables.end()) return found->second;
  std::vector<std::pair<size_t, std::string>> near;
  for (const auto& [other, table] : job.tables) near.emplace_back(EditDistance(name, other), other);
  std::sort(near.begin(), near.end());
  near.resize(std::min<size_t>(near.size(), 3));
  return absl::NotFoundError(absl::StrCat(
      "no dynamic table \"", name, "\" among ", job.tables.size(),
      "; the nearest: ", absl::StrJoin(near, ", ", [](std::string* out, const auto& pair) {
        absl::StrAppend(out, "\"", pair.second, "\"");
      })));
}

// The rows of all servers.
absl::StatusOr<std::vector<v1::GetTableRowsReply::Row>> AskRows(
    const StatusOptions& options, const v1::GetTableRowsRequest& request) {
  ASSIGN_OR_RETURN(const Job job, AskJob(options));
  ASSIGN_OR_RETURN(const CountedTable table, FindTable(job, request.table()));
  std::vector<std::string> addresses;
  for (const PsAnswer& server : job.servers) addresses.push_back(server.address);
  std::vector<v1::GetTableRowsReply::Row> rows;
  Survey<v1::GetTableRowsRequest, v1::GetTableRowsReply> survey(addresses, options.credentials,
                                                                options.timeout);
  const auto& answers =
      survey.Run(request, &v1::Admin::StubInterface::async_interface::GetTableRows);
  for (size_t i = 0; i < answers.size(); ++i) {
    const int ps = job.servers[i].status.index();
    // A server may have no part of the table. If it had one just now, it has been replaced.
    if (absl::IsNotFound(answers[i]->status)) {
      if (table.servers.count(ps) == 0) continue;
      return absl::UnavailableError(
          absl::StrCat("ps ", ps, " (", answers[i]->address,
                       ") has lost its part of the table since it told "
                       "its state: ask again when `divvyctl status` shows it as ready"));
    }
    RETURN_IF_ERROR(answers[i]->status);
    rows.insert(rows.end(), answers[i]->reply.rows().begin(), answers[i]->reply.rows().end());
  }
  return rows;
}

// ---- rows ---------------------------------------------------------------------------------------

double NormOf(const v1::GetTableRowsReply::Row& row) {
  double sum = 0;
  for (const float value : row.values()) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// A number that JSON has; else null.
std::string JsonNumber(double number) {
  return std::isfinite(number) ? absl::StrFormat("%.9g", number) : "null";
}

std::string RowJson(const std::string& table, int64_t key, const v1::GetTableRowsReply::Row* row) {
  const std::string begin =
      absl::StrFormat(R"({"table":%s,"key":"%d","exists":%s)", QuoteJson(table), key,
                      row != nullptr ? "true" : "false");
  if (row == nullptr) return absl::StrCat(begin, "}\n");
  return absl::StrFormat(R"(%s,"count":"%d","minute":"%d","norm":%s,"values":[%s]})"
                         "\n",
                         begin, row->count(), row->minute(), JsonNumber(NormOf(*row)),
                         absl::StrJoin(row->values(), ",", [](std::string* out, float value) {
                           absl::StrAppend(out, JsonNumber(value));
                         }));
}

// The first few values.
std::string ValuesText(const v1::GetTableRowsReply::Row& row) {
  constexpr int kShown = 6;
  std::vector<std::string> values;
  for (int i = 0; i < std::min(kShown, row.values_size()); ++i)
    values.push_back(absl::StrFormat("%.4g", row.values(i)));
  if (row.values_size() > kShown) values.push_back(absl::StrCat("... (", row.values_size(), ")"));
  return absl::StrJoin(values, " ");
}

using KeyAndRow = std::pair<int64_t, const v1::GetTableRowsReply::Row*>;  // null: no row

std::string RowsText(const std::string& table, const std::vector<KeyAndRow>& rows, bool json) {
  std::vector<std::vector<std::string>> cells = {{"KEY", "COUNT", "MINUTE", "NORM", "VALUES"}};
  std::string lines;
  for (const auto& [key, row] : rows) {
    if (json) absl::StrAppend(&lines, RowJson(table, key, row));
    if (row == nullptr)
      cells.push_back({absl::StrCat(key), "no row"});
    else
      cells.push_back({absl::StrCat(key), absl::StrCat(row->count()), absl::StrCat(row->minute()),
                       absl::StrFormat("%.4g", NormOf(*row)), ValuesText(*row)});
  }
  return json ? lines : Aligned(cells);
}

}  // namespace

absl::StatusOr<std::string> ListTables(const StatusOptions& options) {
  ASSIGN_OR_RETURN(const Job job, AskJob(options));
  std::vector<std::vector<std::string>> cells = {std::vector<std::string>{"TABLE"} + StatsHeader() +
                                                 std::vector<std::string>{"MOST ROWS", "SERVERS"}};
  std::string lines, advice;
  for (const auto& [name, table] : job.tables) {
    const TablePartStats sum = SumOf(table);
    const std::string most = !table.max_rows        ? "?"
                             : *table.max_rows == 0 ? "any"
                                                    : absl::StrCat(*table.max_rows);
    cells.push_back(std::vector<std::string>{wire::Escaped(name)} + Cells(sum) +
                    std::vector<std::string>{most, absl::StrCat(table.servers.size())});
    if (sum.refused > 0) absl::StrAppend(&advice, Advice(name, sum.refused));
    absl::StrAppend(&lines, "{\"table\":", QuoteJson(name), ",", StatsJson(sum));
    if (table.max_rows) absl::StrAppend(&lines, ",\"max_rows\":\"", *table.max_rows, "\"");
    absl::StrAppend(&lines, ",\"servers\":", table.servers.size(), "}\n");
  }
  return options.json ? lines : absl::StrCat(Aligned(cells), advice);
}

absl::StatusOr<std::string> ShowTable(const StatusOptions& options, const std::string& name) {
  ASSIGN_OR_RETURN(const Job job, AskJob(options));
  ASSIGN_OR_RETURN(const CountedTable table, FindTable(job, name));
  std::vector<std::vector<std::string>> cells = {std::vector<std::string>{"SERVER"} +
                                                 StatsHeader()};
  std::string lines;
  for (const auto& [ps, stats] : table.servers) {
    cells.push_back(std::vector<std::string>{absl::StrCat("ps ", ps)} + Cells(stats));
    absl::StrAppend(&lines, "{\"table\":", QuoteJson(name), ",\"ps\":", ps, ",", StatsJson(stats),
                    "}\n");
  }
  if (options.json) return lines;
  const TablePartStats sum = SumOf(table);
  cells.push_back(std::vector<std::string>{"all"} + Cells(sum));
  std::string text = Aligned(cells);
  if (table.max_rows && *table.max_rows > 0)
    absl::StrAppend(&text, "\nat most ", *table.max_rows, " rows (max_rows)\n");
  if (sum.refused > 0) absl::StrAppend(&text, Advice(name, sum.refused));
  return text;
}

absl::StatusOr<std::string> FindInTable(const StatusOptions& options, const std::string& table,
                                        const std::vector<int64_t>& keys) {
  v1::GetTableRowsRequest request;
  request.set_table(table);
  request.mutable_keys()->Add(keys.begin(), keys.end());
  ASSIGN_OR_RETURN(const std::vector<v1::GetTableRowsReply::Row> rows, AskRows(options, request));
  std::map<int64_t, const v1::GetTableRowsReply::Row*> found;
  for (const v1::GetTableRowsReply::Row& row : rows) found[row.key()] = &row;
  std::vector<KeyAndRow> shown;
  for (const int64_t key : keys) {
    const auto row = found.find(key);
    shown.emplace_back(key, row == found.end() ? nullptr : row->second);
  }
  return RowsText(table, shown, options.json);
}

absl::StatusOr<std::string> TopOfTable(const StatusOptions& options, const std::string& table,
                                       TopBy by, int limit) {
  v1::GetTableRowsRequest request;
  request.set_table(table);
  request.set_top(limit);
  request.set_by(by == TopBy::kNorm ? v1::GetTableRowsRequest::NORM
                                    : v1::GetTableRowsRequest::COUNT);
  ASSIGN_OR_RETURN(std::vector<v1::GetTableRowsReply::Row> rows, AskRows(options, request));
  // As a parameter server orders its own: a norm that is no number is the largest, and of rows of
  // the same size the smaller key comes first.
  const auto rank = [by](const v1::GetTableRowsReply::Row& row) {
    const double size = by == TopBy::kNorm ? NormOf(row) : static_cast<double>(row.count());
    return std::make_pair(std::isnan(size) ? -HUGE_VAL : -size, row.key());
  };
  std::sort(rows.begin(), rows.end(),
            [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::vector<KeyAndRow> shown;
  for (const v1::GetTableRowsReply::Row& row : rows) {
    if (shown.size() < static_cast<size_t>(limit)) shown.emplace_back(row.key(), &row);
  }
  return RowsText(table, shown, options.json);
}

absl::StatusOr<std::vector<int64_t>> ParseKeys(const std::vector<std::string>& texts) {
  std::vector<int64_t> keys;
  for (const std::string& text : texts) {
    int64_t key = 0;
    if (!absl::SimpleAtoi(text, &key))
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", text,
          "\" is no key: a key is a whole number from -2^63 to 2^63 - 1 (HashText makes "
          "one from a text). Negative keys come after --"));
    keys.push_back(key);
  }
  return keys;
}

int TableExitCode(const absl::Status& status) {
  return absl::IsNotFound(status) ? exit_codes::kNoInput : OperatorExitCode(status);
}

}  // namespace divvy
