#include "tests/e2e/hostile_frames.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/e2e/hostile_methods.h"
#include "tests/e2e/http2.h"

namespace divvy {
namespace {

// gRPC 1.51 keeps reading as long as bytes arrive. Meanwhile it ends no call that has begun,
// whether the call is open or reset. Each call holds 37 to 61 KiB (measured with 1,000, 5,000 and
// 20,000 calls on a connection). The memory quota does not count these bytes, and neither the quota
// nor the size of the reads bounds them.
constexpr uint32_t kResetCalls = 5000;
constexpr int64_t kResetCallBytes = int64_t{64} << 10;

// ---- floods -------------------------------------------------------------------------------------

std::string EndlessHeaders() {
  std::string bytes = http2::Frame(http2::kHeaders, http2::kNone, 1, http2::CallHeaders(kCommit));
  for (int i = 0; i < 200; ++i)
    bytes += http2::Frame(http2::kContinuation, http2::kNone, 1,
                          http2::Header(absl::StrCat("x-", i), std::string(8000, 'v')));
  return bytes;
}

// One large header in the dynamic table, referenced again and again.
std::string RepeatedHeader() {
  std::string block =
      http2::CallHeaders(kCommit) + http2::KeptHeader("x-large", std::string(3500, 'v'));
  block += std::string(4000, static_cast<char>(0x80 | 62));
  return http2::Frame(http2::kHeaders, http2::kEndHeaders, 1, block);
}

std::string ResetCalls() {
  std::string bytes;
  for (uint32_t i = 0; i < kResetCalls; ++i) {
    bytes +=
        http2::Frame(http2::kHeaders, http2::kEndHeaders, 2 * i + 1, http2::CallHeaders(kCommit));
    bytes += http2::Frame(http2::kReset, http2::kNone, 2 * i + 1, http2::BigEndian(8, 4));
  }
  return bytes;
}

std::string EndlessCalls() {
  std::string bytes;
  for (uint32_t i = 0; i < 2000; ++i)
    bytes +=
        http2::Frame(http2::kHeaders, http2::kEndHeaders, 2 * i + 1, http2::CallHeaders(kCommit));
  return bytes;
}

std::string Pings() {
  std::string bytes;
  for (int i = 0; i < 20'000; ++i)
    bytes += http2::Frame(http2::kPing, http2::kNone, 0, std::string(8, 'p'));
  return bytes;
}

std::string Settings() {
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) bytes += http2::Setting(4, 65'535);
  return bytes;
}

}  // namespace

std::vector<HostileAttack> Frames::Attacks() {
  const auto by = [this](void (Frames::*run)(HostileKind&, int64_t)) {
    return [this, run](HostileKind& kind, int64_t tries) { (this->*run)(kind, tries); };
  };
  return {
      {"member: odd frames of HTTP/2", 30, by(&Frames::OddFrames)},
      Flood("member: 1.6 MB of headers without an end", &EndlessHeaders),
      Flood("member: one header named 4,000 times", &RepeatedHeader),
      Flood("member: 2,000 calls without an end", &EndlessCalls),
      Flood("member: 20,000 pings", &Pings),
      Flood("member: 20,000 settings", &Settings),
      {"member: messages that are never whole", 400, by(&Frames::HalfMessages), 0.2},
      {"member: takes no answer", 400, by(&Frames::SlowReaders), 0.2},
  };
}

std::vector<HostileAttack> Frames::LastAttacks() {
  return {
      Flood("member: 5,000 calls reset as they begin", &ResetCalls, kResetCalls * kResetCallBytes)};
}

HostileAttack Frames::Flood(const std::string& name, Bytes bytes, int64_t burst_bytes) {
  const auto run = [this, bytes](HostileKind& kind, int64_t tries) {
    const std::string flood = bytes();
    for (int64_t i = 0; i < tries; ++i) {
      const TaskId task = job_.Any();
      SendHttp2(kind, task, flood);
      // So no task gets two floods at once. LookAfter checks whether the task answers.
      job_.Answers(task);
    }
  };
  return {name, 8, run, 1, burst_bytes};
}

void Frames::SendHttp2(HostileKind& kind, TaskId task, const std::string& bytes) {
  std::optional<TlsConnection> connection = job_.ConnectAs(HostileJob::kLiarsCertificate, task);
  if (!connection) {  // the first try is too short for a busy machine
    if (auto again = job_.ConnectAs(HostileJob::kLiarsCertificate, task, absl::Seconds(10)))
      connection.emplace(*std::move(again));
  }
  if (!connection)
    return kind.Note("no connection"),
           kind.Hang(absl::StrCat(ToString(task), " ends no handshake"));
  connection->Send(http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "") + bytes);
  connection->ReceiveAll();
  kind.Note(connection->closed() ? "closed" : "left open");
}

void Frames::OddFrames(HostileKind& kind, int64_t tries) {
  for (int64_t i = 0; i < tries; ++i) {
    const std::string payload = RandomBytes(random_, random_.Below(2000));
    const auto size = static_cast<uint32_t>(payload.size());
    // The right length, the largest possible one, or one beyond the end.
    const uint32_t claimed = i % 3 == 0 ? size : i % 3 == 1 ? 0xffffff : size + 100;
    SendHttp2(kind, job_.Any(),
              http2::Frame(claimed, static_cast<uint8_t>(random_.Below(12)),
                           static_cast<uint8_t>(random_.Next()),
                           static_cast<uint32_t>(random_.Below(8)), payload));
  }
}

// Streams with a message that is announced and never completed. Their connections stay open for a
// while.
void Frames::HalfMessages(HostileKind& kind, int64_t tries) {
  constexpr uint32_t kStreams = 50, kAnnounced = 16'000'000;
  std::vector<TlsConnection> held;
  while (kind.tries < tries) {
    std::string bytes = http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "");
    for (uint32_t stream = 1; stream < 2 * kStreams; stream += 2) {
      bytes += http2::Frame(http2::kHeaders, http2::kEndHeaders, stream,
                            http2::CallHeaders(random_.Chance(0.5) ? kCommit : kRegister));
      bytes += http2::Frame(http2::kData, http2::kNone, stream,
                            http2::MessageFront(kAnnounced) + std::string(16'000, 'x'));
      kind.Note("held, then closed");
    }
    std::optional<TlsConnection> connection =
        job_.ConnectAs(HostileJob::kLiarsCertificate, job_.Any());
    if (!connection || !connection->Send(bytes)) continue;
    held.push_back(*std::move(connection));
  }
  for (TlsConnection& connection : held) connection.ReceiveAll();
}

// Calls that are answered, from clients that read no answer.
void Frames::SlowReaders(HostileKind& kind, int64_t tries) {
  std::vector<TlsConnection> held;
  while (kind.tries < tries) {
    std::string bytes = http2::kPreface + http2::Setting(4, 0);  // a window of 0 bytes
    for (uint32_t stream = 1; stream < 100; stream += 2) {
      bytes +=
          http2::Frame(http2::kHeaders, http2::kEndHeaders, stream, http2::CallHeaders(kGetStatus));
      bytes += http2::Frame(http2::kData, http2::kEndStream, stream, http2::MessageFront(0));
      kind.Note("held, then closed");
    }
    std::optional<TlsConnection> connection = job_.ConnectAs("admin-0", job_.Any());
    if (connection && connection->Send(bytes)) held.push_back(*std::move(connection));
  }
  for (TlsConnection& connection : held) connection.ReceiveAll();
}

}  // namespace divvy
