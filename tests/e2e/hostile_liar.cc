#include "tests/e2e/hostile_liar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "wire/data_frames.h"
#include "wire/testing/conversion.h"
#include "wire/testing/frames.h"

namespace divvy {

using wire::testing::Mutated;

absl::Status Liar::Start(uint64_t seed) {
  ASSIGN_OR_RETURN(service_,
                   LyingWorker::Start(job_.certificates().Of(HostileJob::kLiarsCertificate), seed));
  return absl::OkStatus();
}

std::vector<HostileAttack> Liar::Attacks() {
  const auto by = [this](void (Liar::*run)(HostileKind&, int64_t)) {
    return [this, run](HostileKind& kind, int64_t tries) { (this->*run)(kind, tries); };
  };
  return {
      {"worker: odd transfers on data streams", 400, by(&Liar::OddStreams), 2},
      {"worker: registers as itself, at odd addresses", 200, by(&Liar::Registrations)},
      {"worker: lies to the coordinator", 40, by(&Liar::Lies), 0.5},
      {"worker: commits of a wrong job, epoch or life", 200, by(&Liar::WrongFences)},
      {"worker: commits in the sessions of others", 100, by(&Liar::OthersSessions), 0.5},
      {"worker: commits to what is not there", 100, by(&Liar::UnfitCommits)},
      {"worker: announces commits and sends none", 4, by(&Liar::Announced), 0.2},
  };
}

// ---- data streams -------------------------------------------------------------------------------

// Sends one transfer, which must not be accepted.
void Liar::StreamMustBeRefused(HostileKind& kind, RawCalls& calls, const char* method,
                               const std::vector<std::string>& messages, const std::string& what) {
  const RawCalls::StreamEnd end = calls.Stream(method, messages);
  // After the client has ended its side, the server sends no further reply. Whether it accepted
  // anything shows in the sum.
  std::string outcome = end.status.ok() ? "ended without an answer" : CodeName(end.status);
  for (const std::string& reply : end.replies) {
    const absl::Status said = StatusOfReply(reply);
    if (said.ok()) kind.WrongAccept(what);
    outcome = absl::StatusCodeToString(said.code());
  }
  kind.Note(outcome);
  if (end.status.error_code() == grpc::DEADLINE_EXCEEDED) kind.Hang(what);
}

template <typename Request>
std::vector<std::string> Liar::AnyTransfer() {
  return wire::testing::MessagesOf(
      wire::ToTransfer(1, wire::testing::Generator(random_.Next()).Make<Request>()), 64);
}

std::vector<std::string> Liar::OddTransfer() {
  std::vector<std::string> messages =
      random_.Chance(0.5) ? AnyTransfer<PullRequest>() : AnyTransfer<CommitRequest>();
  const size_t at = random_.Below(messages.size());
  switch (random_.Below(8)) {
    case 0: messages[at] = Mutated(messages[at], random_); break;
    case 1: messages.erase(messages.begin() + static_cast<ptrdiff_t>(at)); break;
    case 2:
      messages.insert(messages.begin() + static_cast<ptrdiff_t>(at),
                      messages[random_.Below(messages.size())]);
      break;
    case 3: std::reverse(messages.begin(), messages.end()); break;
    // A header of 2 GiB.
    case 4: messages[at] = std::string("\xff\xff\xff\x7f", 4) + messages[at]; break;
    case 5: messages[at] = RandomBytes(random_, random_.Below(100)); break;
    case 6: messages = {std::string()}; break;
    default: messages = {OtherKind()}; break;
  }
  if (messages.empty()) messages.push_back("");
  return messages;
}

// A frame that only a server sends, or a payload frame that no header announced.
std::string Liar::OtherKind() {
  v1::FrameHeader header;
  header.set_request_id(1 + random_.Below(3));
  switch (random_.Below(4)) {
    case 0: header.mutable_data(); break;
    case 1: header.mutable_waiting(); break;
    case 2: header.mutable_pull_reply(); break;
    default: header.mutable_commit_reply(); break;
  }
  return wire::EncodeHeader(header) + RandomBytes(random_, random_.Below(50));
}

void Liar::OddStreams(HostileKind& kind, int64_t tries) {
  while (kind.tries < tries) {
    RawCalls calls = CallsTo(job_.AnyPs());
    for (int i = 0; i < 20; ++i) {
      const char* const method = random_.Chance(0.5) ? kPull : kCommit;
      const std::vector<std::string> transfer = OddTransfer();
      std::string what = absl::StrCat("an odd transfer on ", method, ":");
      for (const std::string& message : transfer)
        absl::StrAppend(&what, " ", absl::BytesToHexString(message));
      StreamMustBeRefused(kind, calls, method, transfer, what);
    }
  }
}

// ---- a worker of the cluster that lies ----

std::string Liar::Registration(const std::string& address) {
  RegisterRequest request;
  request.role = Role::kWorker;
  request.index = HostileJob::kLiar.index;
  request.incarnation = Incarnation(random_.Next() | 1);
  request.address = address;
  return wire::ToProto(request).SerializeAsString();
}

bool Liar::RegisterAt(const std::string& address) {
  bool taken = false;
  CallsTo(kChiefTask)
      .CallEach(
          kRegister, {Registration(address)},
          [&](size_t, const grpc::Status& status, const std::string&) { taken = status.ok(); });
  return taken;
}

void Liar::Registrations(HostileKind& kind, int64_t tries) {
  std::vector<std::string> messages;
  const std::vector<std::string> addresses = {"127.0.0.1:1",
                                              "127.0.0.1:99999",
                                              "unix:/dev/null",
                                              "",
                                              "xds:///x",
                                              "127.0.0.1",
                                              std::string(70'000, 'a'),
                                              job_.address(kChiefTask),
                                              job_.address(PsTask(0))};
  for (int64_t i = 0; i < tries; ++i)
    messages.push_back(Registration(addresses[random_.Below(addresses.size())]));
  CallsTo(kChiefTask)
      .CallEach(kRegister, messages, [&](size_t, const grpc::Status& status, const std::string&) {
        kind.Note(status.ok() ? "registered: as itself, it may" : CodeName(status));
        if (status.error_code() == grpc::DEADLINE_EXCEEDED) kind.Hang(kRegister);
      });
}

void Liar::Lies(HostileKind& kind, int64_t tries) {
  const absl::Duration until =
      Clock::Real().Elapsed() + absl::Seconds(2) * static_cast<double>(tries);
  const int64_t before = service_->lies();
  while (service_->lies() - before < tries && Clock::Real().Elapsed() < until) {
    RegisterAt(service_->address());
    service_->AwaitAttach(absl::Seconds(2));
  }
  kind.tries = kind.outcomes["taken for what they are"] = service_->lies() - before;
  if (kind.tries == 0) kind.Hang("the coordinator did not attach the lying worker");
}

std::optional<v1::WorkerAttachRequest> Liar::Attached() {
  for (int i = 0; i < 20 && !service_->attached(); ++i) {
    RegisterAt(service_->address());
    service_->AwaitAttach(absl::Seconds(2));
  }
  return service_->attached();
}

v1::FrameHeader Liar::CommitOf(const v1::WorkerAttachRequest& attached, int ps) {
  v1::FrameHeader header;
  header.set_request_id(1);
  v1::CommitBegin& commit = *header.mutable_commit();
  *commit.mutable_fence() = attached.fence();
  commit.mutable_fence()->set_target_incarnation(attached.view(ps).incarnation());
  commit.set_entry(1 + random_.Below(1 << 30));
  commit.set_attempt(1);
  commit.set_kind(v1::ENTRY_STEP);
  commit.set_participants(1);
  return header;
}

// A commit that adds 1,000 to one element of a counter. It must never be applied.
std::string Liar::Poison(v1::FrameHeader header, uint32_t variable) {
  v1::CommitBegin::Part& part = *header.mutable_commit()->add_parts();
  part.mutable_shard()->set_variable(variable);
  part.set_op(v1::SCATTER_ADD);
  part.set_rows(1);
  part.set_dtype(v1::DT_INT64);
  part.add_shape(1);
  header.mutable_commit()->set_total_bytes(16);
  return wire::EncodeHeader(header) + std::string(8, 0) + std::string("\xe8\x03\0\0\0\0\0\0", 8);
}

void Liar::SpoilFence(v1::Fence& fence) {
  switch (random_.Below(6)) {
    case 0: fence.set_job_id(random_.Next()); break;
    case 1: fence.set_epoch(fence.epoch() + (random_.Chance(0.5) ? 1 : ~uint64_t{0})); break;
    case 2: fence.set_coordinator_incarnation(random_.Next()); break;
    case 3: fence.set_target_incarnation(random_.Next()); break;
    case 4: fence.set_session(0); break;
    // A number near its own could become its own session later.
    default:
      fence.set_session(fence.session() + 100'000 + static_cast<uint32_t>(random_.Below(1000)));
      break;
  }
}

void Liar::BadCommits(HostileKind& kind, int64_t tries,
                      const std::function<BadCommit(v1::FrameHeader)>& spoil) {
  const auto attached = Attached();
  if (!attached) return kind.Hang("the coordinator did not attach the lying worker");
  while (kind.tries < tries) {
    const int ps = static_cast<int>(random_.Below(HostileJob::kNumPs));
    RawCalls calls = CallsTo(PsTask(ps));
    for (int i = 0; i < 20; ++i) {
      const BadCommit bad = spoil(CommitOf(*attached, ps));
      StreamMustBeRefused(kind, calls, kCommit, {bad.bytes}, bad.what);
    }
  }
}

void Liar::WrongFences(HostileKind& kind, int64_t tries) {
  BadCommits(kind, tries, [this](v1::FrameHeader header) {
    SpoilFence(*header.mutable_commit()->mutable_fence());
    const std::string what =
        absl::StrCat("a commit by ", header.commit().fence().ShortDebugString());
    return BadCommit{Poison(header, static_cast<uint32_t>(random_.Below(8))), what};
  });
}

// Uses the sessions of honest workers, as GetStatus shows them to an admin. A liar might guess
// them.
void Liar::OthersSessions(HostileKind& kind, int64_t tries) {
  BadCommits(kind, tries, [this](v1::FrameHeader header) {
    const TaskId other = WorkerTask(static_cast<int>(random_.Below(HostileJob::kNumWorkers - 1)));
    header.mutable_commit()->mutable_fence()->set_session(job_.status(other).worker().session());
    return BadCommit{Poison(header, static_cast<uint32_t>(random_.Below(8))),
                     "a commit in the session of " + ToString(other)};
  });
}

// Commits in its own session, to shards that do not exist.
void Liar::UnfitCommits(HostileKind& kind, int64_t tries) {
  BadCommits(kind, tries, [this](const v1::FrameHeader& header) {
    return BadCommit{Poison(header, 100'000 + static_cast<uint32_t>(random_.Below(1000))),
                     "a commit to a shard that is not there"};
  });
}

// Announces a commit of half the budget, sends no payload, and holds the stream for 2 seconds.
void Liar::Announced(HostileKind& kind, int64_t tries) {
  const auto attached = Attached();
  if (!attached) return kind.Hang("the coordinator did not attach the lying worker");
  for (int64_t i = 0; i < tries; ++i) {
    const int ps = static_cast<int>(i % HostileJob::kNumPs);
    v1::FrameHeader header = CommitOf(*attached, ps);
    v1::CommitBegin::Part& part = *header.mutable_commit()->add_parts();
    part.mutable_shard()->set_variable(1);
    part.set_op(v1::ADD);
    part.set_dtype(v1::DT_INT64);
    part.add_shape(HostileJob::kBudgetBytes / 16);
    header.mutable_commit()->set_total_bytes(HostileJob::kBudgetBytes / 2);
    kind.Note(CodeName(CallsTo(PsTask(ps))
                           .HeldStream(kCommit, {wire::EncodeHeader(header)}, absl::Seconds(2))
                           .status));
  }
}

}  // namespace divvy
