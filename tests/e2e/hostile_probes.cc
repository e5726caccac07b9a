#include "tests/e2e/hostile_probes.h"

#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/loopback_client.h"
#include "wire/testing/conversion.h"

namespace divvy {
namespace {

constexpr char kProbe[] = "GET /healthz HTTP/1.1\r\nHost: divvy\r\n\r\n";
constexpr absl::Duration kShort = absl::Milliseconds(500), kUntilAnswered = absl::Seconds(10);
constexpr size_t kMostAnswer = 1024;

}  // namespace

std::vector<HostileAttack> Probes::Attacks() {
  const auto by = [this](void (Probes::*run)(HostileKind&, int64_t)) {
    return [this, run](HostileKind& kind, int64_t tries) { (this->*run)(kind, tries); };
  };
  return {
      {"probe: random bytes, requests changed", 200, by(&Probes::RandomRequests)},
      {"probe: headers of 4 KiB to 1 MiB", 50, by(&Probes::LongHeaders)},
      {"probe: half requests", 200, by(&Probes::HalfRequests)},
      {"probe: a byte at a time", 20, by(&Probes::SlowSenders), 0.5},
      {"probe: 1,000 connections to a task", 1000, by(&Probes::ManyConnections)},
  };
}

Descriptor Probes::Connect(HostileKind& kind, TaskId task) {
  Descriptor connection = ConnectTo(job_.health_address(task));
  if (!connection) kind.Hang(absl::StrCat(ToString(task), " does not accept a probe's connection"));
  return connection;
}

void Probes::Ask(HostileKind& kind, const std::string& bytes) {
  const TaskId task = job_.Any();
  const Descriptor connection = Connect(kind, task);
  if (!connection) return kind.Note("no connection");
  Send(connection, bytes, kShort);
  shutdown(connection.get(), SHUT_WR);
  const std::string answer = Receive(connection, 1 << 16, kShort);
  if (answer.empty()) return kind.Note("closed without an answer");
  kind.Note(answer.substr(0, answer.find("\r\n")));
  const bool fits = answer.size() <= kMostAnswer && absl::StartsWith(answer, "HTTP/1.1 ");
  if (!fits)
    kind.WrongAccept(absl::StrCat(ToString(task), " answers a probe with ", answer.size(),
                                  " bytes that are no answer to a probe"));
}

void Probes::MustServe(HostileKind& kind) {
  for (const TaskId& task : job_.tasks()) {
    const Descriptor connection = Connect(kind, task);
    Send(connection, kProbe, kShort);
    const std::string answer = Receive(connection, kMostAnswer, kUntilAnswered);
    if (!absl::StartsWith(answer, "HTTP/1.1 200 "))
      kind.Hang(absl::StrCat(ToString(task), " answers an honest probe with \"", answer, "\""));
  }
}

// ---- requests -----------------------------------------------------------------------------------

void Probes::RandomRequests(HostileKind& kind, int64_t tries) {
  for (int64_t i = 0; i < tries; ++i) {
    const std::string bytes = RandomBytes(random_, random_.Below(i % 10 == 0 ? 100'000 : 300));
    Ask(kind, i % 2 == 0 ? bytes : wire::testing::Mutated(kProbe, random_));
  }
  MustServe(kind);
}

void Probes::LongHeaders(HostileKind& kind, int64_t tries) {
  for (int64_t i = 0; i < tries; ++i) {
    const std::string line =
        absl::StrCat("X-Long: ", std::string(size_t{1} << random_.Below(12), 'v'), "\r\n");
    const size_t wanted = size_t{4 << 10} << random_.Below(9);
    std::string request = "GET / HTTP/1.1\r\n";
    while (request.size() < wanted) request += line;
    Ask(kind, request + (i % 2 == 0 ? "\r\n" : ""));
  }
  MustServe(kind);
}

// ---- connections --------------------------------------------------------------------------------

void Probes::HalfRequests(HostileKind& kind, int64_t tries) {
  const std::string probe = kProbe;
  std::vector<Descriptor> held;
  for (int64_t i = 0; i < tries; ++i) {
    held.push_back(Connect(kind, job_.Any()));
    Send(held.back(), probe.substr(0, random_.Below(probe.size())), kShort);
    kind.Note("held, then closed");
  }
  MustServe(kind);  // while the connections are open
}

void Probes::SlowSenders(HostileKind& kind, int64_t tries) {
  const std::string probe = kProbe;
  std::vector<Descriptor> senders;
  for (int64_t i = 0; i < tries; ++i) {
    senders.push_back(Connect(kind, job_.Any()));
    kind.Note("sent slowly");
  }
  for (size_t at = 0; at < probe.size() / 2; ++at) {
    for (const Descriptor& sender : senders) Send(sender, probe.substr(at, 1), kShort);
    Receive(senders[0], 1, absl::Milliseconds(20));
  }
  MustServe(kind);
}

void Probes::ManyConnections(HostileKind& kind, int64_t tries) {
  const int64_t a_round = 1000;
  for (int64_t done = 0; done < tries; done += a_round) {
    const TaskId task = job_.Any();
    std::vector<Descriptor> held;
    for (int64_t i = 0; i < std::min(a_round, tries - done); ++i) {
      held.push_back(Connect(kind, task));
      kind.Note("held, then closed");
    }
    MustServe(kind);
  }
}

}  // namespace divvy
