#include "coordinator/core/resizing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_message.h"

namespace divvy {
namespace {

// The remedy for the operator after a change was refused. `joined`: the servers that had joined for
// it.
std::string RemedyFor(const std::map<int, std::string>& joined) {
  if (joined.empty()) return "Fix this, and repeat the resize";
  const int first = joined.begin()->first, last = joined.rbegin()->first;
  const std::string who = first == last ? absl::StrCat(first, " again (it exits")
                                        : absl::StrCat(first, " to ", last, " again (they exit");
  return absl::StrCat("Fix this, start ps ", who, ", because the job does not wait for ",
                      first == last ? "it" : "them", " any more), and repeat the resize");
}

}  // namespace

bool Resizing::HaveAllJoined() const {
  return std::none_of(joining_.begin(), joining_.end(),
                      [](const auto& ps) { return ps.second.empty(); });
}

void Resizing::Begin(int servers, int goal, absl::Duration now,
                     std::function<void(absl::Status)> done) {
  goal_ = goal;
  since_ = now;
  done_ = std::move(done);
  for (int ps = servers; ps < goal; ++ps) joining_[ps] = "";
}

void Resizing::BeginRebalance(int servers, absl::Duration now,
                              std::map<std::string, std::vector<int>> arrangement,
                              std::function<void(absl::Status)> done) {
  Begin(servers, servers, now, std::move(done));
  arrangement_ = std::move(arrangement);
}

bool Resizing::Admit(int ps, const std::string& address) {
  const auto joining = joining_.find(ps);
  if (joining == joining_.end()) return false;
  joining->second = address;
  return true;
}

absl::Status Resizing::CheckTime(absl::Duration now) const {
  if (now - since_ <= patience_) return absl::OkStatus();
  for (const auto& [ps, address] : joining_) {
    if (!address.empty()) continue;
    return absl::UnavailableError(absl::StrCat(
        "ps ", ps, " has not registered for ", absl::FormatDuration(now - since_),
        " (--ps_timeout): start it, with --task_type=ps --task_index=", ps,
        " and --coordinator_address, and repeat the resize. Nothing has been changed"));
  }
  return absl::OkStatus();
}

void Resizing::Cancel(const absl::Status& why) {
  std::vector<Task> calls;
  FailAll(why, calls);
  for (Task& call : calls) outbox_.Add(std::move(call));
}

void Resizing::Refuse(int servers, const absl::Status& why) {
  if (!arrangement_.empty())
    return Cancel(WithMessage(why, absl::StrCat("the shards stay where they are: ", why.message(),
                                                ". Fix this, and repeat the rebalance")));
  Cancel(WithMessage(why, absl::StrCat("the number of parameter servers stays ", servers, ": ",
                                       why.message(), ". ", RemedyFor(joining_))));
}

void Resizing::FailAll(const absl::Status& error, std::vector<Task>& calls) {
  if (!is_under_way()) return;
  Waiting waiting = Complete();
  calls.push_back([done = std::move(waiting.done), error] { done(error); });
  for (Task& call : waiting.deferred) calls.push_back(std::move(call));
}

Resizing::Waiting Resizing::Complete() {
  goal_ = 0;
  joining_.clear();
  arrangement_.clear();
  return {std::exchange(done_, nullptr), std::exchange(deferred_, {})};
}

}  // namespace divvy
