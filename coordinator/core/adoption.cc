#include "coordinator/core/adoption.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

absl::Status Refused(const std::string& why) { return absl::FailedPreconditionError(why); }

absl::Status CheckStored(const StoredJob& stored) {
  if (!stored.state) return Refused("the store does not describe their state");
  switch (stored.state->held) {
    case StateRow::Held::kAll: break;
    case StateRow::Held::kLeasedData:
      return Refused(
          "a pass over leased data was under way, and an older version of the coordinator did not "
          "store its position");
    case StateRow::Held::kFirstValues:
      return Refused("the first values of a variable were still being written");
  }
  return absl::OkStatus();
}

std::shared_ptr<const Layout> LayoutOf(const StoredJob& stored) {
  std::map<VariableId, VariableLayout> variables;
  for (const VariableRow& row : stored.variables) variables.emplace(row.layout.id, row.layout);
  return Layout::Received(stored.state->state.layout->version(), std::move(variables));
}

absl::Status CheckPlaced(const Layout& layout, int num_ps) {
  for (const auto& [id, variable] : layout.variables()) {
    if (std::any_of(variable.ps.begin(), variable.ps.end(),
                    [num_ps](int ps) { return ps >= num_ps; })) {
      return Refused(absl::StrCat("variable \"", variable.spec.name, "\" lies on more than the ",
                                  num_ps, " parameter servers that there are now"));
    }
  }
  return absl::OkStatus();
}

// If a store is lost, epochs start from 1 again. So a server of the time before the loss may hold a
// state whose lineage has the same number.
absl::Status CheckProcess(size_t index, Incarnation process,
                          const std::vector<Incarnation>& known) {
  // An older version of the coordinator did not store the incarnations of the servers.
  if (known.empty()) return absl::OkStatus();
  if (index < known.size() && known[index] == process) return absl::OkStatus();
  return Refused(absl::StrCat("ps ", index,
                              " holds a state that another coordinator made, whose store is lost"));
}

absl::Status CheckServer(int index, const PsAttachReply& reply, Epoch lineage,
                         const Layout& layout) {
  const std::string ps = absl::StrCat("ps ", index);
  if (reply.state != PsState::kFrozen)
    return Refused(absl::StrCat(ps, " has restarted, and holds nothing"));
  if (reply.lineage != lineage) {
    return Refused(absl::StrCat(ps, " holds a state of lineage ", reply.lineage.value(),
                                ", and the store knows lineage ", lineage.value()));
  }
  const bool same =
      reply.layout_version < layout.version() ||
      (reply.layout_version == layout.version() && reply.layout_hash == layout.hash());
  return same ? absl::OkStatus()
              : Refused(absl::StrCat(
                    ps, " was told of a layout change that had not been carried out everywhere"));
}

// The newest horizon of the former coordinator that any server has received. Of two horizons, the
// newer one has a higher next id, or the same next id and fewer open ids: ids are given in order,
// and a closed id stays closed.
const Horizon& NewestHorizon(const std::vector<PsAttachReply>& replies) {
  const auto rank = [](const Horizon& horizon) {
    return std::make_tuple(horizon.next, -static_cast<int64_t>(horizon.open.size()));
  };
  return std::max_element(
             replies.begin(), replies.end(),
             [&rank](const auto& a, const auto& b) { return rank(a.horizon) < rank(b.horizon); })
      ->horizon;
}

struct Applied {
  // The number of servers that have applied the entry.
  int servers = 0;
  std::set<int> participants;
  EntryKind kind = EntryKind::kStep;
  std::vector<InputLease> inputs;

  bool IsWhole() const { return participants.size() == 1 && *participants.begin() == servers; }
};

// By id: the entries that the newest horizon does not close.
std::map<EntryId, Applied> AppliedAndNotClosed(const std::vector<PsAttachReply>& replies,
                                               const Horizon& newest) {
  std::map<EntryId, Applied> found;
  for (const PsAttachReply& reply : replies) {
    for (const RememberedEntry& entry : reply.remembered) {
      if (newest.IsClosed(entry.id)) continue;
      Applied& applied = found[entry.id];
      ++applied.servers;
      applied.participants.insert(entry.participants);
      applied.kind = entry.kind;
      applied.inputs = entry.inputs;
    }
  }
  return found;
}

// The number of ids that were certainly given and that no server has applied. Their ordinals are
// not given again.
int64_t LostIds(const Horizon& newest, const std::map<EntryId, Applied>& applied) {
  int64_t lost = 0;
  for (const EntryId id : newest.open) lost += applied.count(id) == 0;
  if (applied.empty() || applied.rbegin()->first < newest.next) return lost;
  const int64_t beyond = std::distance(applied.lower_bound(newest.next), applied.end());
  return lost + static_cast<int64_t>(applied.rbegin()->first.value() - newest.next.value() + 1) -
         beyond;
}

// Marks the positions of the lease as read. Positions before the lease that were not known to be
// given become unread, because the steps that had them no longer exist.
void TakeOut(const InputLease& lease, PassProgress& pass) {
  const int64_t first = lease.first, last = lease.first + lease.count;
  if (first > pass.next) pass.unread.emplace(pass.next, first - pass.next);
  std::map<int64_t, int64_t> left;
  for (const auto& [begin, count] : pass.unread) {
    const int64_t end = begin + count;
    if (begin < std::min(end, first)) left.emplace(begin, std::min(end, first) - begin);
    if (std::max(begin, last) < end)
      left.emplace(std::max(begin, last), end - std::max(begin, last));
  }
  pass.unread = std::move(left);
  pass.next = std::max(pass.next, last);
}

// Adds to the passes of the store everything that the servers have read of them.
void BringUpToDate(const Horizon& newest, const std::map<EntryId, Applied>& applied,
                   std::vector<DataPass>& passes) {
  for (DataPass& pass : passes) {
    for (const PassProgress& progress : newest.passes) {
      if (progress.iterator != pass.iterator) continue;
      // The store's value is newer: it was durable before the next entry got an id.
      const bool in_loop = pass.in_loop;
      static_cast<PassProgress&>(pass) = progress;
      pass.in_loop = in_loop;
    }
    for (const auto& [id, entry] : applied) {
      for (const InputLease& lease : entry.inputs) {
        if (lease.iterator != pass.iterator) continue;
        if (lease.count > 0) TakeOut(lease, pass);
        ++pass.finished;
      }
    }
  }
}

}  // namespace

absl::StatusOr<JobState> WhatServersHold(const std::vector<PsAttachReply>& replies,
                                         const StoredJob& stored) {
  if (replies.empty()) return Refused("there is no parameter server");
  RETURN_IF_ERROR(CheckStored(stored));
  JobState held = stored.state->state;
  held.layout = LayoutOf(stored);
  RETURN_IF_ERROR(CheckPlaced(*held.layout, static_cast<int>(replies.size())));
  for (size_t i = 0; i < replies.size(); ++i) {
    RETURN_IF_ERROR(CheckServer(static_cast<int>(i), replies[i], held.lineage, *held.layout));
    RETURN_IF_ERROR(CheckProcess(i, replies[i].incarnation, held.servers));
  }
  const Horizon& newest = NewestHorizon(replies);
  const std::map<EntryId, Applied> applied = AppliedAndNotClosed(replies, newest);
  int64_t finished = static_cast<int64_t>(newest.finished_steps);
  for (const auto& [id, entry] : applied) {
    if (!entry.IsWhole() && RuleHolds(Rule::kAdoptOnlyWhole)) {
      return Refused(absl::StrCat("entry ", id.value(), " was applied by ", entry.servers, " of ",
                                  *entry.participants.rbegin(), " parameter servers"));
    }
    finished += entry.kind == EntryKind::kStep;
  }
  // The number of ordinals of steps that had failed.
  const int64_t gaps = held.next_ordinal - held.finished_steps;
  held.finished_steps = finished;
  held.next_ordinal = finished + gaps + LostIds(newest, applied);
  BringUpToDate(newest, applied, held.data);
  return held;
}

}  // namespace divvy
