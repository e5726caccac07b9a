#include "tests/e2e/hostile_strangers.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_system.h"
#include "tests/e2e/http2.h"
#include "tests/e2e/loopback_client.h"
#include "wire/testing/conversion.h"

namespace divvy {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(500);
constexpr absl::Duration kUntilItAnswers = absl::Seconds(30);

// A whole gRPC call without TLS.
std::string PlainCall() {
  return http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "") +
         http2::Frame(http2::kHeaders, http2::kEndHeaders, 1,
                      http2::CallHeaders("/divvy.v1.Admin/GetStatus")) +
         http2::Frame(http2::kData, http2::kEndStream, 1, http2::MessageFront(0));
}

}  // namespace

std::vector<HostileAttack> Strangers::Attacks() {
  const auto by = [this](void (Strangers::*run)(HostileKind&, int64_t)) {
    return [this, run](HostileKind& kind, int64_t tries) { (this->*run)(kind, tries); };
  };
  return {
      {"stranger: random bytes", 100, by(&Strangers::RandomBytesBeforeTls)},
      {"stranger: HTTP without TLS", 40, by(&Strangers::PlaintextBeforeTls)},
      {"stranger: handshakes cut short or changed", 100, by(&Strangers::ChangedHandshakes)},
      {"stranger: certificates of nine wrong kinds", 90, by(&Strangers::OddCertificates)},
      {"stranger: idle connections", 200, by(&Strangers::IdleConnections)},
      {"stranger: more connections than there may be", 600, by(&Strangers::TooManyConnections)},
      {"stranger: a task with few file descriptors", 200, by(&Strangers::FewDescriptors), 0.2},
  };
}

// ---- bytes before TLS ---------------------------------------------------------------------------

void Strangers::SendPlain(HostileKind& kind, TaskId task, const std::string& bytes) {
  const Descriptor stranger = ConnectTo(job_.address(task));
  if (!stranger)
    return kind.Note("no connection"),
           kind.Hang(absl::StrCat(ToString(task), " does not accept a connection"));
  Send(stranger, bytes, kShort);
  shutdown(stranger.get(), SHUT_WR);
  const std::string answer = Receive(stranger, 1 << 16, kShort);
  kind.Note(answer.empty() ? "closed without an answer" : "a TLS alert");
  if (answer.size() > 4096)
    kind.WrongAccept(absl::StrCat(ToString(task), " sent ", answer.size(), " bytes to a stranger"));
}

void Strangers::RandomBytesBeforeTls(HostileKind& kind, int64_t tries) {
  Random& random = job_.random();
  for (int64_t i = 0; i < tries; ++i)
    SendPlain(kind, job_.Any(), RandomBytes(random, 1 + random.Below(i % 10 == 0 ? 100'000 : 300)));
}

void Strangers::PlaintextBeforeTls(HostileKind& kind, int64_t tries) {
  const std::string call = PlainCall();
  for (int64_t i = 0; i < tries; ++i)
    SendPlain(kind, job_.Any(), i % 2 == 0 ? call : "GET / HTTP/1.1\r\nHost: divvy\r\n\r\n");
}

void Strangers::ChangedHandshakes(HostileKind& kind, int64_t tries) {
  const std::string hello = ClientHello();
  for (int64_t i = 0; i < tries; ++i)
    SendPlain(kind, job_.Any(), wire::testing::Mutated(hello, job_.random()));
}

// ---- certificates -------------------------------------------------------------------------------

void Strangers::OddCertificates(HostileKind& kind, int64_t tries) {
  const std::string call = PlainCall();
  const std::vector<OddCertificate>& odd = job_.certificates().odd();
  for (int64_t i = 0; i < tries; ++i)
    ShowOddCertificate(kind, odd[static_cast<size_t>(i) % odd.size()], call);
}

void Strangers::ShowOddCertificate(HostileKind& kind, const OddCertificate& odd,
                                   const std::string& call) {
  const TaskId task = job_.Any();
  std::optional<TlsConnection> connection =
      TlsConnection::Open(job_.address(task), odd.files, absl::Seconds(10));
  if (!connection) return kind.Note("refused in the handshake");
  connection->Send(call);
  const bool answered = !connection->Receive().empty();
  kind.Note(answered               ? "answered"
            : connection->closed() ? "refused in the handshake"
                                   : "no answer");
  if (answered) kind.WrongAccept(absl::StrCat(ToString(task), " answers a certificate ", odd.name));
  if (!answered && !connection->closed())
    kind.Hang(
        absl::StrCat(ToString(task), " leaves a certificate ", odd.name, " without an answer"));
}

// ---- connections --------------------------------------------------------------------------------

void Strangers::IdleConnections(HostileKind& kind, int64_t tries) {
  const int64_t a_round = 200;  // fewer than a task accepts
  const std::string hello = ClientHello();
  for (int64_t done = 0; done < tries; done += a_round) {
    std::vector<Descriptor> held;
    for (int64_t i = 0; i < a_round; ++i) {
      held.push_back(ConnectTo(job_.address(job_.Any())));
      if (i % 2 == 0)
        Send(held.back(), hello.substr(0, static_cast<size_t>(i) % hello.size()), kShort);
      kind.Note("held, then closed");
    }
    job_.AwaitAnswers(kind, absl::ZeroDuration());  // while the connections are open
  }
}

void Strangers::TooManyConnections(HostileKind& kind, int64_t tries) {
  const int64_t a_round = 600;
  for (int64_t done = 0; done < tries; done += a_round) {
    const TaskId task = job_.Any();
    std::vector<Descriptor> held;
    for (int64_t i = 0; i < a_round; ++i) held.push_back(ConnectTo(job_.address(task)));
    for (const Descriptor& connection : held) {
      char byte;
      const bool open = recv(connection.get(), &byte, 1, MSG_DONTWAIT) != 0;
      kind.Note(open ? "held, then closed" : "closed: too many");
    }
    held.clear();
    job_.AwaitAnswers(kind, kUntilItAnswers);
  }
}

void Strangers::FewDescriptors(HostileKind& kind, int64_t tries) {
  const int64_t a_round = 100;
  for (int64_t done = 0; done < tries; done += a_round) {
    const TaskId task = job_.Any();
    rlimit before{};
    prlimit(job_.pid(task), RLIMIT_NOFILE, nullptr, &before);
    const absl::StatusOr<std::vector<std::string>> open =
        FileSystem::Real().ListDirectory(absl::StrCat("/proc/", job_.pid(task), "/fd"));
    rlimit few = before;
    few.rlim_cur = (open.ok() ? open->size() : 64) + 5;
    prlimit(job_.pid(task), RLIMIT_NOFILE, &few, nullptr);
    std::vector<Descriptor> held;
    for (int64_t i = 0; i < a_round; ++i) {
      held.push_back(ConnectTo(job_.address(task)));
      Send(held.back(), RandomBytes(job_.random(), 10), kShort);
      kind.Note("held, then closed");
    }
    Receive(held.back(), 1, kShort);
    held.clear();
    prlimit(job_.pid(task), RLIMIT_NOFILE, &before, nullptr);
    job_.AwaitAnswers(kind, kUntilItAnswers);
  }
}

}  // namespace divvy
