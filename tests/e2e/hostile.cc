#include "tests/e2e/hostile.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "proto/divvy.pb.h"
#include "tests/e2e/hostile_files.h"
#include "tests/e2e/hostile_peers.h"
#include "tests/e2e/http2.h"
#include "tests/e2e/loopback_client.h"
#include "tests/e2e/process_cluster.h"
#include "tests/e2e/raw_calls.h"
#include "tests/e2e/tls_client.h"
#include "wire/data_frames.h"
#include "wire/messages.h"
#include "wire/testing/conversion.h"
#include "wire/testing/frames.h"

namespace divvy {
namespace {

using wire::testing::Mutated;

constexpr int kNumPs = 2, kNumWorkers = 3;
const TaskId kLiar = WorkerTask(kNumWorkers - 1);  // of the cluster, but played by us
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(500);
constexpr int64_t kRpcBytes = int64_t{64} << 20;     // --rpc_memory_bytes: gRPC counts roughly, and takes half as much again
constexpr int64_t kBudgetBytes = int64_t{64} << 20;  // --commit_buffer_bytes, and --pull_buffer_bytes
constexpr int64_t kBeyondBudgets = int64_t{64} << 20;
constexpr int64_t kGrpcBurst = int64_t{192} << 20;
constexpr char kPull[] = "/divvy.v1.ParameterServerData/Pull";
constexpr char kCommit[] = "/divvy.v1.ParameterServerData/Commit";
constexpr char kGetStatus[] = "/divvy.v1.Admin/GetStatus";
constexpr char kSteps[] = "/divvy.v1.Worker/Steps";  // a worker ends a stream of another session by OK: it has taken nothing
constexpr char kRegister[] = "/divvy.v1.Coordinator/Register";

// ---- what can be called ------------------------------------------------------------------------------------------------------------------------------------

struct Method {
  std::string path;
  std::vector<TaskType> served_by;
  std::vector<std::string> allowed;     // roles
  std::string (*valid)(uint64_t seed);  // a message that decodes, and is of no job that there is
};

std::string Nothing(uint64_t) { return ""; }
std::string OfNobody(uint64_t seed) { return std::string("\x09") + std::string(8, static_cast<char>(1 + seed % 255)); }  // field 1: another incarnation
template <typename Request>
std::string FrameOf(uint64_t seed) {
  return wire::testing::MessagesOf(wire::ToTransfer(1 + seed % 3, wire::testing::Generator(seed).Make<Request>()), wire::kMessageBytes)[0];
}

// Every RPC of the protocol and its two data streams, and who may call it.
const std::vector<Method>& Methods() {
  using wire::testing::RandomBytes;
  const auto ps = [](const char* name, std::string (*valid)(uint64_t)) {
    return Method{absl::StrCat("/divvy.v1.ParameterServer/", name), {TaskType::kPs}, {"chief"}, valid};
  };
  const auto admin = [](const char* name, std::string (*valid)(uint64_t)) {
    return Method{absl::StrCat("/divvy.v1.Admin/", name), {TaskType::kChief, TaskType::kPs, TaskType::kWorker}, {"admin"}, valid};
  };
  static const auto* const methods = new std::vector<Method>{
      {kRegister, {TaskType::kChief}, {"worker", "ps"}, &RandomBytes<RegisterRequest>},
      {"/divvy.v1.Worker/Attach", {TaskType::kWorker}, {"chief"}, &RandomBytes<WorkerAttachRequest>},
      {kSteps, {TaskType::kWorker}, {"chief"}, &RandomBytes<StreamFrame<ToWorker>>},
      {"/divvy.v1.Worker/Shutdown", {TaskType::kWorker}, {"chief"}, &RandomBytes<ShutdownRequest>},
      ps("Attach", &RandomBytes<PsAttachRequest>),
      ps("Load", &RandomBytes<LoadRequest>),
      ps("Sync", &RandomBytes<SyncRequest>),
      ps("Snapshot", &RandomBytes<SnapshotRequest>),
      ps("CreateShards", &RandomBytes<CreateShardsRequest>),
      ps("DeleteShards", &RandomBytes<DeleteShardsRequest>),
      ps("Shutdown", &RandomBytes<ShutdownRequest>),
      {kGetStatus, {TaskType::kChief, TaskType::kPs, TaskType::kWorker}, {"admin", "chief"}, &Nothing},
      admin("RequestCheckpoint", &OfNobody),
      admin("Drain", &OfNobody),
      admin("Resize", &OfNobody),
      {kPull, {TaskType::kPs}, {"chief", "worker"}, &FrameOf<PullRequest>},
      {kCommit, {TaskType::kPs}, {"chief", "worker"}, &FrameOf<CommitRequest>},
  };
  return *methods;
}

bool Serves(TaskId task, const Method& method) { return std::count(method.served_by.begin(), method.served_by.end(), task.type) > 0; }
bool MayBeCalledBy(const Method& method, const std::string& role) { return std::count(method.allowed.begin(), method.allowed.end(), role) > 0; }
bool IsStream(const Method& method) { return method.path == kPull || method.path == kCommit; }

std::string CodeName(const grpc::Status& status) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())); }

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, 0);
  for (char& byte : bytes) byte = static_cast<char>(random.Next());
  return bytes;
}

// Bytes that are no protobuf message: the first is of a kind of field that there is not.
std::string NoMessage(Random& random, size_t size) { return "\x0f" + RandomBytes(random, size); }

// A number of a process in /proc, in KiB there.
int64_t MemoryOf(pid_t pid, const std::string& what) {
  const std::string status = FileSystem::Real().ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or("");
  const size_t at = status.find(what);
  int64_t kib = 0;
  if (at == std::string::npos || !absl::SimpleAtoi(status.substr(at + what.size(), status.find("kB", at) - at - what.size()), &kib)) return 0;
  return kib * 1024;
}

// What a data stream's reply says; OK where it is one that was asked for.
absl::Status StatusOfReply(const std::string& message) {
  absl::string_view payload;
  const absl::StatusOr<v1::FrameHeader> header = wire::testing::Opened(message, payload);
  if (!header.ok()) return header.status();
  if (header->has_waiting()) return absl::UnavailableError("waits for memory");
  if (header->has_pull_reply()) return wire::FromProto(header->pull_reply().status());
  return wire::FromProto(header->commit_reply().status());
}

// ---- floods of HTTP/2 --------------------------------------------------------------------------------------------------------------------------------------

std::string EndlessHeaders() {
  std::string bytes = http2::Frame(http2::kHeaders, http2::kNone, 1, http2::CallHeaders(kCommit));
  for (int i = 0; i < 200; ++i) bytes += http2::Frame(http2::kContinuation, http2::kNone, 1, http2::Header(absl::StrCat("x-", i), std::string(8000, 'v')));
  return bytes;
}

// One large header in the table, named again and again.
std::string RepeatedHeader() {
  std::string block = http2::CallHeaders(kCommit) + http2::KeptHeader("x-large", std::string(3500, 'v'));
  block += std::string(4000, static_cast<char>(0x80 | 62));
  return http2::Frame(http2::kHeaders, http2::kEndHeaders, 1, block);
}

std::string ResetCalls() {
  std::string bytes;
  for (uint32_t i = 0; i < 5000; ++i) {
    bytes += http2::Frame(http2::kHeaders, http2::kEndHeaders, 2 * i + 1, http2::CallHeaders(kCommit));
    bytes += http2::Frame(http2::kReset, http2::kNone, 2 * i + 1, http2::BigEndian(8, 4));
  }
  return bytes;
}

std::string EndlessCalls() {
  std::string bytes;
  for (uint32_t i = 0; i < 2000; ++i) bytes += http2::Frame(http2::kHeaders, http2::kEndHeaders, 2 * i + 1, http2::CallHeaders(kCommit));
  return bytes;
}

std::string Pings() {
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) bytes += http2::Frame(http2::kPing, http2::kNone, 0, std::string(8, 'p'));
  return bytes;
}

std::string Settings() {
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) bytes += http2::Setting(4, 65'535);
  return bytes;
}

// ---- the siege ---------------------------------------------------------------------------------------------------------------------------------------------

class Hostile {
 public:
  explicit Hostile(const HostileOptions& options) : options_(options), stop_file_(options.directory + "/stop"), random_(options.seed) {}

  absl::StatusOr<HostileResult> Run() {
    RETURN_IF_ERROR(Begin());
    for (const Attack& attack : Attacks()) {
      if (absl::StrContains(attack.name, options_.only)) RETURN_IF_ERROR(Try(attack));
    }
    RETURN_IF_ERROR(TryFiles());
    const absl::Status ended = End();
    if (!ended.ok()) return absl::InternalError(absl::StrCat(absl::StrJoin(result_.Faults(), "\n"), "\n", result_.Table(), ended.message()));
    return std::move(result_);
  }

 private:
  struct Attack {
    std::string name;
    int64_t tries;  // at a scale of 1
    void (Hostile::*run)(HostileKind& kind, int64_t tries);
    double grows = 1;         // 0: as many at every scale
    int64_t burst_bytes = 0;  // that gRPC takes for it and counts nowhere
  };
  static const std::vector<Attack>& Attacks();

  // ---- the job ----

  absl::Status Begin() {
    RaiseOpenFileLimit();
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that are closed
    umask(077);                // of keys
    ASSIGN_OR_RETURN(HostileCertificates certificates, HostileCertificates::Make(options_.directory + "/certificates", kNumPs, kNumWorkers));
    certificates_ = std::make_unique<HostileCertificates>(std::move(certificates));
    ProcessClusterOptions cluster;
    cluster.program = options_.program;
    cluster.num_ps = kNumPs;
    cluster.num_workers = kNumWorkers;
    cluster.flags = {"--stop_file=" + stop_file_, "--round=50", "--elements=64", "--counters=4", "--descents=2", absl::StrCat("--rpc_memory_bytes=", kRpcBytes),
                     "--max_recoveries=1000000"};
    ASSIGN_OR_RETURN(cluster_, ProcessCluster::Make(std::move(cluster)));
    for (const TaskId& task : cluster_->tasks()) {
      if (!(task == kLiar)) RETURN_IF_ERROR(Start(task));
    }
    RETURN_IF_ERROR(cluster_->WaitForText(kChiefTask, "counting", kPatience).status());
    RETURN_IF_ERROR(AwaitRounds());
    for (const TaskId& task : Tasks()) {
      if (!Answers(task)) return absl::InternalError(absl::StrCat(ToString(task), " answers nobody at the beginning"));
      resting_bytes_[ToString(task)] = MemoryOf(PidOf(task), "VmRSS:");
    }
    ASSIGN_OR_RETURN(liar_, LyingWorker::Start(certificates_->Of(NameOf(kLiar)), options_.seed));
    return absl::OkStatus();
  }

  // As `divvyctl certs` calls it.
  static std::string NameOf(TaskId task) {
    const char* const role = task.type == TaskType::kChief ? "chief" : task.type == TaskType::kPs ? "ps" : "worker";
    return absl::StrCat(role, "-", task.index);
  }
  absl::Status Start(TaskId task) {
    LifeOptions life;
    life.flags = certificates_->FlagsOf(NameOf(task));
    const std::string state = options_.directory + "/state", checkpoints = "--checkpoint_dir=" + options_.directory + "/checkpoints";
    if (task.type == TaskType::kChief) life.flags.insert(life.flags.end(), {"--state_dir=" + state, checkpoints, "--checkpoint_every=1s"});
    if (task.type == TaskType::kPs) {
      life.flags.insert(life.flags.end(),
                        {checkpoints, absl::StrCat("--commit_buffer_bytes=", kBudgetBytes), absl::StrCat("--pull_buffer_bytes=", kBudgetBytes)});
    }
    return cluster_->Start(task, life);
  }

  // Those that are real.
  std::vector<TaskId> Tasks() const {
    std::vector<TaskId> tasks = cluster_->tasks();
    tasks.erase(std::remove(tasks.begin(), tasks.end(), kLiar), tasks.end());
    return tasks;
  }
  pid_t PidOf(TaskId task) const { return cluster_->processes().pid(ToString(task)); }

  absl::Status AwaitRounds() {
    for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(cluster_->WaitForText(kChiefTask, "counted ", kPatience).status());
    return absl::OkStatus();
  }

  absl::Status End() {
    NoteMemory();
    RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop_file_, ""));
    ASSIGN_OR_RETURN(const std::string line, cluster_->WaitForText(kChiefTask, "counter = ", kPatience));
    absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &result_.steps);
    ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(kChiefTask, kPatience));
    if (!status.ok()) return absl::InternalError(absl::StrCat("the chief ", status.ToString(), cluster_->processes().LastLines()));
    return cluster_->WaitForAll(kPatience);
  }

  void NoteMemory() {
    for (const TaskId& task : Tasks()) result_.memory.push_back({ToString(task), peaks_[ToString(task)], AllowedBytes(task)});
  }

  // ---- one kind after another ----

  // The hostile side has a thread of its own; this one reads what the tasks print, so that none waits for that.
  absl::Status Try(const Attack& attack) {
    HostileKind kind;
    kind.name = attack.name;
    const auto tries = static_cast<int64_t>(static_cast<double>(attack.tries) * (1 + (options_.scale - 1) * attack.grows));
    std::atomic<bool> done = false;
    hostile_thread_.PostBlocking("hostile", [&] { (this->*attack.run)(kind, tries), done = true; });
    while (!done) cluster_->processes().RunFor(absl::Milliseconds(20));
    RETURN_IF_ERROR(LookAfter(kind, attack.burst_bytes));
    options_.on_kind(kind);
    result_.kinds.push_back(std::move(kind));
    return absl::OkStatus();
  }

  absl::Status TryFiles() {
    HostileKind kind;
    kind.name = "odd files and directories";
    if (!absl::StrContains(kind.name, options_.only)) return absl::OkStatus();
    RETURN_IF_ERROR(TryOddFiles(options_.program, options_.directory, static_cast<int64_t>(8 * options_.scale), random_, kind));
    options_.on_kind(kind);
    result_.kinds.push_back(std::move(kind));
    return absl::OkStatus();
  }

  // Every task runs, answers, and the job goes on.
  absl::Status LookAfter(HostileKind& kind, int64_t burst_bytes) {
    for (const TaskId& task : Tasks()) {
      if (cluster_->running(task)) {
        NotePeak(task, burst_bytes, kind);
        continue;
      }
      ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(task, kPatience));
      kind.Crash(absl::StrCat(ToString(task), " ", status.ToString(), cluster_->processes().LastLines()));
      RETURN_IF_ERROR(Start(task));
    }
    for (const TaskId& task : Tasks()) {
      if (!Answers(task)) kind.Hang(absl::StrCat(ToString(task), " answers nobody"));
    }
    const absl::Status goes_on = AwaitRounds();
    if (!goes_on.ok()) kind.Hang(absl::StrCat("the job does not go on: ", goes_on.message()));
    return absl::OkStatus();
  }

  // Of this kind: the kernel then counts anew (proc(5), clear_refs).
  void NotePeak(TaskId task, int64_t burst_bytes, HostileKind& kind) {
    const int64_t peak = MemoryOf(PidOf(task), "VmHWM:"), allowed = AllowedBytes(task) + burst_bytes;
    kind.peak_bytes = std::max(kind.peak_bytes, peak);
    if (peak > allowed) kind.TooMuch(absl::StrCat(ToString(task), " held ", peak >> 20, " MiB, and may hold ", allowed >> 20));
    if (burst_bytes == 0) peaks_[ToString(task)] = std::max(peaks_[ToString(task)], peak);
    std::ofstream(absl::StrCat("/proc/", PidOf(task), "/clear_refs")) << "5";
  }
  int64_t AllowedBytes(TaskId task) {
    const int64_t budgets = kRpcBytes * 3 / 2 + (task.type == TaskType::kPs ? 2 * kBudgetBytes : 0);
    return resting_bytes_[ToString(task)] + budgets + kBeyondBudgets;
  }

  bool Answers(TaskId task) {
    bool answered = false;
    As("admin-0", task).CallEach(kGetStatus, {""}, [&](size_t, const grpc::Status& status, const std::string& reply) {
      answered = status.ok() && status_[ToString(task)].ParseFromString(reply);
    });
    return answered;
  }

  // ---- means ----

  RawCalls As(const std::string& member, TaskId task, absl::Duration deadline = absl::Seconds(20)) const {
    return RawCalls(cluster_->address(task), MakeChannelCredentials(certificates_->Of(member), ""), deadline);
  }
  std::optional<TlsConnection> ConnectAs(absl::string_view member, TaskId task, absl::Duration timeout = kShort) const {
    return TlsConnection::Open(cluster_->address(task), certificates_->ClientOf(member), timeout);
  }
  TaskId Any() { return Tasks()[random_.Below(Tasks().size())]; }
  std::string AnyMember(std::string* role) {
    static const auto* const kMembers = new std::vector<std::string>{"chief", "ps", "worker", "admin"};
    *role = (*kMembers)[random_.Below(kMembers->size())];
    return absl::StrCat(*role, *role == "worker" ? "-2" : "-0");
  }

  // Calls that must be refused, in portions of one method, member and task each.
  struct Portion {
    TaskId task;
    std::string member, role;
    const Method* method;
  };
  Portion AnyPortion() {
    Portion portion;
    portion.task = Any();
    portion.member = AnyMember(&portion.role);
    portion.method = &Methods()[random_.Below(Methods().size())];
    return portion;
  }
  // A registration that chance, or a change, has made the member's own.
  static bool IsOfItself(const Portion& portion, const std::string& message) {
    v1::RegisterRequest request;
    const bool is_worker = portion.role == "worker";
    return request.ParseFromString(message) && request.job() == (is_worker ? v1::WORKER : v1::PS) && request.index() == (is_worker ? kLiar.index : 0);
  }
  using MakeMessage = std::function<std::string()>;
  void MustBeRefused(HostileKind& kind, const Portion& portion, int count, const MakeMessage& make, RawCalls::Options options = RawCalls::Options()) {
    std::vector<std::string> messages;
    for (int i = 0; i < count; ++i) messages.push_back(make());
    RawCalls calls = As(portion.member, portion.task);
    const std::string what = absl::StrCat(portion.member, " -> ", ToString(portion.task), " ", portion.method->path);
    calls.CallEach(portion.method->path, messages, options, [&](size_t i, const grpc::Status& status, const std::string& reply) {
      if (status.ok() && portion.method->path == kRegister && IsOfItself(portion, messages[i])) return kind.Note("registered: as itself, it may");
      const bool refused = !status.ok() || portion.method->path == kSteps || (IsStream(*portion.method) && !StatusOfReply(reply).ok());
      kind.Note(status.ok() && refused ? "refused in the stream" : CodeName(status));
      if (status.error_code() == grpc::DEADLINE_EXCEEDED) kind.Hang(what);
      if (!refused) kind.WrongAccept(what);
    });
  }

  // ---- strangers, before TLS ----

  void SendPlain(HostileKind& kind, TaskId task, const std::string& bytes) {
    const Descriptor stranger = ConnectTo(cluster_->address(task));
    if (!stranger) return kind.Note("no connection"), kind.Hang(absl::StrCat(ToString(task), " takes no connection"));
    Send(stranger, bytes, kShort);
    shutdown(stranger.get(), SHUT_WR);
    const std::string answer = Receive(stranger, 1 << 16, kShort);
    kind.Note(answer.empty() ? "closed without a word" : "an alert of TLS");
    if (answer.size() > 4096) kind.WrongAccept(absl::StrCat(ToString(task), " said ", answer.size(), " bytes to a stranger"));
  }
  void RandomBytesBeforeTls(HostileKind& kind, int64_t tries) {
    for (int64_t i = 0; i < tries; ++i) SendPlain(kind, Any(), RandomBytes(random_, 1 + random_.Below(i % 10 == 0 ? 100'000 : 300)));
  }
  void PlaintextBeforeTls(HostileKind& kind, int64_t tries) {
    const std::string call = http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "") +
                             http2::Frame(http2::kHeaders, http2::kEndHeaders, 1, http2::CallHeaders(kGetStatus)) +
                             http2::Frame(http2::kData, http2::kEndStream, 1, http2::MessageFront(0));
    for (int64_t i = 0; i < tries; ++i) SendPlain(kind, Any(), i % 2 == 0 ? call : "GET / HTTP/1.1\r\nHost: divvy\r\n\r\n");
  }
  void ChangedHandshakes(HostileKind& kind, int64_t tries) {
    const std::string hello = ClientHello();
    for (int64_t i = 0; i < tries; ++i) SendPlain(kind, Any(), Mutated(hello, random_));
  }
  void OddCertificates(HostileKind& kind, int64_t tries) {
    const std::string call = http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "") +
                             http2::Frame(http2::kHeaders, http2::kEndHeaders, 1, http2::CallHeaders(kGetStatus)) +
                             http2::Frame(http2::kData, http2::kEndStream, 1, http2::MessageFront(0));
    for (int64_t i = 0; i < tries; ++i) {
      const OddCertificate& odd = certificates_->odd()[static_cast<size_t>(i) % certificates_->odd().size()];
      const TaskId task = Any();
      std::optional<TlsConnection> connection = TlsConnection::Open(cluster_->address(task), odd.files, absl::Seconds(10));
      if (!connection) {
        kind.Note("refused in the handshake");
        continue;
      }
      connection->Send(call);
      const bool answered = !connection->Receive().empty();
      kind.Note(answered ? "answered" : connection->closed() ? "refused in the handshake" : "no answer");
      if (answered) kind.WrongAccept(absl::StrCat(ToString(task), " answers a certificate ", odd.name));
      if (!answered && !connection->closed()) kind.Hang(absl::StrCat(ToString(task), " leaves a certificate ", odd.name, " without an answer"));
    }
  }

  // ---- members ----

  void WrongRoles(HostileKind& kind, int64_t tries) {
    while (kind.tries < tries) {
      const Portion portion = AnyPortion();
      if (!Serves(portion.task, *portion.method) || MayBeCalledBy(*portion.method, portion.role)) continue;
      MustBeRefused(kind, portion, 20, [&] { return portion.method->valid(random_.Next()); });
    }
    for (const auto& [outcome, count] : kind.outcomes) {
      if (outcome != "PERMISSION_DENIED") kind.WrongAccept(absl::StrCat(count, " calls of the wrong role came to ", outcome));
    }
  }
  void Garbage(HostileKind& kind, int64_t tries) {
    while (kind.tries < tries) MustBeRefused(kind, AnyPortion(), 20, [&] { return NoMessage(random_, random_.Below(300)); });
  }
  void OfAnotherJob(HostileKind& kind, int64_t tries) {
    AllowedCalls(kind, tries, [this](const Method& method) { return method.valid(random_.Next()); });
  }
  void Changed(HostileKind& kind, int64_t tries) {
    AllowedCalls(kind, tries, [this](const Method& method) { return Mutated(method.valid(random_.Next()), random_); });
  }
  void CutShort(HostileKind& kind, int64_t tries) {
    AllowedCalls(kind, tries, [this](const Method& method) {
      const std::string whole = method.valid(random_.Next());
      return whole.substr(0, random_.Below(whole.size() + 1));
    });
  }
  // By who may make the call, which is no less to be refused for what it says. A changed request of an admin could be a real one.
  void AllowedCalls(HostileKind& kind, int64_t tries, const std::function<std::string(const Method&)>& make) {
    while (kind.tries < tries) {
      const Portion portion = AnyPortion();
      const bool counts = MayBeCalledBy(*portion.method, portion.role) && Serves(portion.task, *portion.method) && portion.role != "admin";
      if (!counts || portion.method->path == kGetStatus) continue;
      MustBeRefused(kind, portion, 20, [&] { return make(*portion.method); });
    }
  }
  void TooLarge(HostileKind& kind, int64_t tries) {
    const std::string large(17 << 20, 'x');
    RawCalls::Options options;
    options.at_once = 2;
    while (kind.tries < tries)
      MustBeRefused(
          kind, AnyPortion(), 2, [&] { return large; }, options);
  }
  void Bombs(HostileKind& kind, int64_t tries) {
    const std::string zeros(64 << 20, 0);
    RawCalls::Options options;
    options.gzip = true;
    options.at_once = 1;
    while (kind.tries < tries)
      MustBeRefused(
          kind, AnyPortion(), 1, [&] { return zeros; }, options);
  }
  void LargeHeaders(HostileKind& kind, int64_t tries) {
    while (kind.tries < tries) {
      RawCalls::Options options;
      options.large_header = std::string(size_t{9 << 10} << random_.Below(5), 'h');
      MustBeRefused(
          kind, AnyPortion(), 5, [&] { return NoMessage(random_, 10); }, options);
    }
  }
  void Floods(HostileKind& kind, int64_t tries) {
    RawCalls::Options options;
    options.at_once = 1000;
    while (kind.tries < tries)
      MustBeRefused(
          kind, AnyPortion(), 1000, [&] { return NoMessage(random_, 100); }, options);
  }

  // ---- HTTP/2 by hand, behind a certificate that is right ----

  void SendHttp2(HostileKind& kind, TaskId task, const std::string& bytes) {
    std::optional<TlsConnection> connection = ConnectAs("worker-2", task, kShort);
    if (!connection) return kind.Note("no connection"), kind.Hang(absl::StrCat(ToString(task), " shakes no hands"));
    connection->Send(http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "") + bytes);
    connection->ReceiveAll();
    kind.Note(connection->closed() ? "closed" : "left open");
  }
  void OddFrames(HostileKind& kind, int64_t tries) {
    for (int64_t i = 0; i < tries; ++i) {
      const std::string payload = RandomBytes(random_, random_.Below(2000));
      const auto size = static_cast<uint32_t>(payload.size());
      const uint32_t claimed = i % 3 == 0 ? size : i % 3 == 1 ? 0xffffff : size + 100;  // right; the most there can be; cut short
      SendHttp2(kind, Any(),
                http2::Frame(claimed, static_cast<uint8_t>(random_.Below(12)), static_cast<uint8_t>(random_.Next()), static_cast<uint32_t>(random_.Below(8)),
                             payload));
    }
  }
  template <std::string (*kFlood)()>
  void FrameFlood(HostileKind& kind, int64_t tries) {
    const std::string bytes = kFlood();
    for (int64_t i = 0; i < tries; ++i) SendHttp2(kind, Any(), bytes);
  }

  // Streams with a message that is announced and never whole, on connections that stay open for a while.
  void HalfMessages(HostileKind& kind, int64_t tries) {
    constexpr uint32_t kStreams = 50, kAnnounced = 16'000'000;
    std::vector<TlsConnection> held;
    while (kind.tries < tries) {
      std::string bytes = http2::kPreface + http2::Frame(http2::kSettings, 0, 0, "");
      for (uint32_t stream = 1; stream < 2 * kStreams; stream += 2) {
        bytes += http2::Frame(http2::kHeaders, http2::kEndHeaders, stream, http2::CallHeaders(random_.Chance(0.5) ? kCommit : kRegister));
        bytes += http2::Frame(http2::kData, http2::kNone, stream, http2::MessageFront(kAnnounced) + std::string(16'000, 'x'));
        kind.Note("held, then closed");
      }
      std::optional<TlsConnection> connection = ConnectAs("worker-2", Any());
      if (!connection || !connection->Send(bytes)) continue;
      held.push_back(*std::move(connection));
    }
    for (TlsConnection& connection : held) connection.ReceiveAll();
  }

  // Calls that are answered, by who takes no answer.
  void SlowReaders(HostileKind& kind, int64_t tries) {
    std::vector<TlsConnection> held;
    while (kind.tries < tries) {
      std::string bytes = http2::kPreface + http2::Setting(4, 0);  // a window of nothing
      for (uint32_t stream = 1; stream < 100; stream += 2) {
        bytes += http2::Frame(http2::kHeaders, http2::kEndHeaders, stream, http2::CallHeaders(kGetStatus));
        bytes += http2::Frame(http2::kData, http2::kEndStream, stream, http2::MessageFront(0));
        kind.Note("held, then closed");
      }
      std::optional<TlsConnection> connection = ConnectAs("admin-0", Any());
      if (connection && connection->Send(bytes)) held.push_back(*std::move(connection));
    }
    for (TlsConnection& connection : held) connection.ReceiveAll();
  }

  // ---- connections ----

  void IdleConnections(HostileKind& kind, int64_t tries) {
    const int64_t a_round = 200;  // fewer than a task takes
    const std::string hello = ClientHello();
    for (int64_t done = 0; done < tries; done += a_round) {
      std::vector<Descriptor> held;
      for (int64_t i = 0; i < a_round; ++i) {
        held.push_back(ConnectTo(cluster_->address(Any())));
        if (i % 2 == 0) Send(held.back(), hello.substr(0, static_cast<size_t>(i) % hello.size()), kShort);
        kind.Note("held, then closed");
      }
      AwaitAnswers(kind, absl::ZeroDuration());  // beside them
    }
  }
  void TooManyConnections(HostileKind& kind, int64_t tries) {
    const int64_t a_round = 600;
    for (int64_t done = 0; done < tries; done += a_round) {
      const TaskId task = Any();
      std::vector<Descriptor> held;
      for (int64_t i = 0; i < a_round; ++i) held.push_back(ConnectTo(cluster_->address(task)));
      for (const Descriptor& connection : held) {
        char byte;
        const bool open = recv(connection.get(), &byte, 1, MSG_DONTWAIT) != 0;
        kind.Note(open ? "held, then closed" : "closed: too many");
      }
      held.clear();
      AwaitAnswers(kind, absl::Seconds(30));
    }
  }
  // Every task answers a call, at the latest after `patience`.
  void AwaitAnswers(HostileKind& kind, absl::Duration patience) {
    const absl::Duration until = Clock::Real().Elapsed() + patience;
    for (const TaskId& task : Tasks()) {
      bool answered = Answers(task);
      while (!answered && Clock::Real().Elapsed() < until) answered = Answers(task);
      if (!answered) kind.Hang(absl::StrCat(ToString(task), " answers nobody"));
    }
  }
  void FewDescriptors(HostileKind& kind, int64_t tries) {
    const int64_t a_round = 100;
    for (int64_t done = 0; done < tries; done += a_round) {
      const TaskId task = Any();
      rlimit before{};
      prlimit(PidOf(task), RLIMIT_NOFILE, nullptr, &before);
      const absl::StatusOr<std::vector<std::string>> open = FileSystem::Real().ListDirectory(absl::StrCat("/proc/", PidOf(task), "/fd"));
      rlimit few = before;
      few.rlim_cur = (open.ok() ? open->size() : 64) + 5;
      prlimit(PidOf(task), RLIMIT_NOFILE, &few, nullptr);
      std::vector<Descriptor> held;
      for (int64_t i = 0; i < a_round; ++i) {
        held.push_back(ConnectTo(cluster_->address(task)));
        Send(held.back(), RandomBytes(random_, 10), kShort);
        kind.Note("held, then closed");
      }
      Receive(held.back(), 1, kShort);
      held.clear();
      prlimit(PidOf(task), RLIMIT_NOFILE, &before, nullptr);
      AwaitAnswers(kind, absl::Seconds(30));
    }
  }

  // ---- data streams, by a worker ----

  TaskId AnyPs() { return PsTask(static_cast<int>(random_.Below(kNumPs))); }
  // Transfers of which none may be accepted.
  void StreamMustBeRefused(HostileKind& kind, RawCalls& calls, const char* method, const std::vector<std::string>& messages, const std::string& what) {
    const RawCalls::StreamEnd end = calls.Stream(method, messages);
    // Who has said all it wanted gets no answer that was not on its way yet: whether anything was taken shows in the sum.
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
  std::vector<std::string> AnyTransfer() {
    return wire::testing::MessagesOf(wire::ToTransfer(1, wire::testing::Generator(random_.Next()).Make<Request>()), 64);
  }
  std::vector<std::string> OddTransfer() {
    std::vector<std::string> messages = random_.Chance(0.5) ? AnyTransfer<PullRequest>() : AnyTransfer<CommitRequest>();
    const size_t at = random_.Below(messages.size());
    switch (random_.Below(8)) {
      case 0: messages[at] = Mutated(messages[at], random_); break;
      case 1: messages.erase(messages.begin() + static_cast<ptrdiff_t>(at)); break;
      case 2: messages.insert(messages.begin() + static_cast<ptrdiff_t>(at), messages[random_.Below(messages.size())]); break;
      case 3: std::reverse(messages.begin(), messages.end()); break;
      case 4: messages[at] = std::string("\xff\xff\xff\x7f", 4) + messages[at]; break;  // a header of 2 GiB
      case 5: messages[at] = RandomBytes(random_, random_.Below(100)); break;
      case 6: messages = {std::string()}; break;
      default: messages = {OtherKind()}; break;
    }
    if (messages.empty()) messages.push_back("");
    return messages;
  }
  // A frame that only a server sends, or one of payload that nothing announced.
  std::string OtherKind() {
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
  void OddStreams(HostileKind& kind, int64_t tries) {
    while (kind.tries < tries) {
      RawCalls calls = As("worker-2", AnyPs());
      for (int i = 0; i < 20; ++i) {
        const char* const method = random_.Chance(0.5) ? kPull : kCommit;
        const std::vector<std::string> transfer = OddTransfer();
        std::string what = absl::StrCat("an odd transfer on ", method, ":");
        for (const std::string& message : transfer) absl::StrAppend(&what, " ", absl::BytesToHexString(message));
        StreamMustBeRefused(kind, calls, method, transfer, what);
      }
    }
  }

  // ---- a worker of the cluster that lies ----

  std::string Registration(const std::string& address) {
    v1::RegisterRequest request;
    request.set_job(v1::WORKER);
    request.set_index(kLiar.index);
    request.set_incarnation(random_.Next() | 1);
    request.set_address(address);
    request.set_replicas(1);
    return request.SerializeAsString();
  }
  bool RegisterAt(const std::string& address) {
    bool taken = false;
    As("worker-2", kChiefTask).CallEach(kRegister, {Registration(address)}, [&](size_t, const grpc::Status& status, const std::string&) {
      taken = status.ok();
    });
    return taken;
  }
  void Registrations(HostileKind& kind, int64_t tries) {
    std::vector<std::string> messages;
    const std::vector<std::string> addresses = {"127.0.0.1:1",
                                                "127.0.0.1:99999",
                                                "unix:/dev/null",
                                                "",
                                                "xds:///x",
                                                "127.0.0.1",
                                                std::string(70'000, 'a'),
                                                cluster_->address(kChiefTask),
                                                cluster_->address(PsTask(0))};
    for (int64_t i = 0; i < tries; ++i) messages.push_back(Registration(addresses[random_.Below(addresses.size())]));
    As("worker-2", kChiefTask).CallEach(kRegister, messages, [&](size_t, const grpc::Status& status, const std::string&) {
      kind.Note(status.ok() ? "registered: as itself, it may" : CodeName(status));
      if (status.error_code() == grpc::DEADLINE_EXCEEDED) kind.Hang(kRegister);
    });
  }
  void Lies(HostileKind& kind, int64_t tries) {
    const absl::Duration until = Clock::Real().Elapsed() + absl::Seconds(2) * static_cast<double>(tries);
    const int64_t before = liar_->lies();
    while (liar_->lies() - before < tries && Clock::Real().Elapsed() < until) {
      RegisterAt(liar_->address());
      liar_->AwaitAttach(absl::Seconds(2));
    }
    kind.tries = kind.outcomes["taken for what they are"] = liar_->lies() - before;
    if (kind.tries == 0) kind.Hang("nobody has attached the lying worker");
  }
  // The right to commit of a worker that lies; none: nobody gives it one.
  std::optional<v1::WorkerAttachRequest> Attached() {
    for (int i = 0; i < 20 && !liar_->attached(); ++i) {
      RegisterAt(liar_->address());
      liar_->AwaitAttach(absl::Seconds(2));
    }
    return liar_->attached();
  }

  v1::FrameHeader CommitOf(const v1::WorkerAttachRequest& attached, int ps) {
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
  // One element of a counter, plus a thousand: what must never be there.
  std::string Poison(v1::FrameHeader header, uint32_t variable) {
    v1::CommitBegin::Part& part = *header.mutable_commit()->add_parts();
    part.mutable_shard()->set_variable(variable);
    part.set_op(v1::SCATTER_ADD);
    part.set_rows(1);
    part.set_dtype(v1::DT_INT64);
    part.add_shape(1);
    header.mutable_commit()->set_total_bytes(16);
    return wire::EncodeHeader(header) + std::string(8, 0) + std::string("\xe8\x03\0\0\0\0\0\0", 8);
  }
  void SpoilFence(v1::Fence& fence) {
    switch (random_.Below(6)) {
      case 0: fence.set_job_id(random_.Next()); break;
      case 1: fence.set_epoch(fence.epoch() + (random_.Chance(0.5) ? 1 : ~uint64_t{0})); break;
      case 2: fence.set_coordinator_incarnation(random_.Next()); break;
      case 3: fence.set_target_incarnation(random_.Next()); break;
      case 4: fence.set_session(0); break;
      default: fence.set_session(fence.session() + 100'000 + static_cast<uint32_t>(random_.Below(1000))); break;  // near ones may be its own, later
    }
  }
  void WrongFences(HostileKind& kind, int64_t tries) {
    const auto attached = Attached();
    if (!attached) return kind.Hang("nobody has attached the lying worker");
    while (kind.tries < tries) {
      const int ps = static_cast<int>(random_.Below(kNumPs));
      RawCalls calls = As("worker-2", PsTask(ps));
      for (int i = 0; i < 20; ++i) {
        v1::FrameHeader header = CommitOf(*attached, ps);
        SpoilFence(*header.mutable_commit()->mutable_fence());
        const std::string what = absl::StrCat("a commit by ", header.commit().fence().ShortDebugString());
        StreamMustBeRefused(kind, calls, kCommit, {Poison(header, static_cast<uint32_t>(random_.Below(8)))}, what);
      }
    }
  }
  // What GetStatus tells an admin of an honest worker a liar may guess.
  void OthersSessions(HostileKind& kind, int64_t tries) {
    const auto attached = Attached();
    if (!attached) return kind.Hang("nobody has attached the lying worker");
    while (kind.tries < tries) {
      const int ps = static_cast<int>(random_.Below(kNumPs));
      RawCalls calls = As("worker-2", PsTask(ps));
      for (int i = 0; i < 20; ++i) {
        const std::string other = ToString(WorkerTask(static_cast<int>(random_.Below(kNumWorkers - 1))));
        v1::FrameHeader header = CommitOf(*attached, ps);
        header.mutable_commit()->mutable_fence()->set_session(status_[other].worker().session());
        StreamMustBeRefused(kind, calls, kCommit, {Poison(header, static_cast<uint32_t>(random_.Below(8)))}, "a commit in the session of " + other);
      }
    }
  }
  // In its own session, and for shards that are not there.
  void UnfitCommits(HostileKind& kind, int64_t tries) {
    const auto attached = Attached();
    if (!attached) return kind.Hang("nobody has attached the lying worker");
    while (kind.tries < tries) {
      const int ps = static_cast<int>(random_.Below(kNumPs));
      RawCalls calls = As("worker-2", PsTask(ps));
      for (int i = 0; i < 20; ++i) {
        const std::string poison = Poison(CommitOf(*attached, ps), 100'000 + static_cast<uint32_t>(random_.Below(1000)));
        StreamMustBeRefused(kind, calls, kCommit, {poison}, "a commit to a shard that is not there");
      }
    }
  }
  // Announced, and never sent: half of the budget, and that not for long.
  void Announced(HostileKind& kind, int64_t tries) {
    const auto attached = Attached();
    if (!attached) return kind.Hang("nobody has attached the lying worker");
    for (int64_t i = 0; i < tries; ++i) {
      const int ps = static_cast<int>(i % kNumPs);
      v1::FrameHeader header = CommitOf(*attached, ps);
      v1::CommitBegin::Part& part = *header.mutable_commit()->add_parts();
      part.mutable_shard()->set_variable(1);
      part.set_op(v1::ADD);
      part.set_dtype(v1::DT_INT64);
      part.add_shape(kBudgetBytes / 16);
      header.mutable_commit()->set_total_bytes(kBudgetBytes / 2);
      kind.Note(CodeName(As("worker-2", PsTask(ps)).HeldStream(kCommit, {wire::EncodeHeader(header)}, absl::Seconds(2)).status));
    }
  }

  const HostileOptions options_;
  const std::string stop_file_;
  Random random_;
  std::unique_ptr<HostileCertificates> certificates_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::map<std::string, int64_t> resting_bytes_, peaks_;
  std::map<std::string, v1::TaskStatus> status_;
  HostileResult result_;
  std::unique_ptr<LyingWorker> liar_;
  ThreadPoolExecutor hostile_thread_{1};  // last: joined first
};

const std::vector<Hostile::Attack>& Hostile::Attacks() {
  static const auto* const attacks = new std::vector<Attack>{
      {"stranger: random bytes", 100, &Hostile::RandomBytesBeforeTls},
      {"stranger: HTTP without TLS", 40, &Hostile::PlaintextBeforeTls},
      {"stranger: handshakes cut short or changed", 100, &Hostile::ChangedHandshakes},
      {"stranger: certificates of nine wrong kinds", 90, &Hostile::OddCertificates},
      {"stranger: idle connections", 200, &Hostile::IdleConnections},
      {"stranger: more connections than there may be", 600, &Hostile::TooManyConnections},
      {"stranger: a task with few file descriptors", 200, &Hostile::FewDescriptors, 0.2},
      {"member: calls of the wrong role", 400, &Hostile::WrongRoles, 2},
      {"member: garbage to every call", 400, &Hostile::Garbage, 3},
      {"member: requests of another job", 400, &Hostile::OfAnotherJob, 3},
      {"member: requests changed", 400, &Hostile::Changed, 3},
      {"member: requests cut short", 200, &Hostile::CutShort, 2},
      {"member: messages of 17 MiB", 16, &Hostile::TooLarge, 0.2},
      {"member: compressed 64 MiB of zeros", 8, &Hostile::Bombs, 0.2},
      {"member: headers of 9 to 144 KiB", 50, &Hostile::LargeHeaders},
      {"member: 1,000 calls at once", 2000, &Hostile::Floods, 0.5},
      {"member: odd frames of HTTP/2", 30, &Hostile::OddFrames},
      {"member: 1.6 MB of headers without an end", 8, &Hostile::FrameFlood<EndlessHeaders>},
      {"member: one header named 4,000 times", 8, &Hostile::FrameFlood<RepeatedHeader>},
      {"member: 2,000 calls without an end", 8, &Hostile::FrameFlood<EndlessCalls>},
      {"member: 20,000 pings", 8, &Hostile::FrameFlood<Pings>},
      {"member: 20,000 settings", 8, &Hostile::FrameFlood<Settings>},
      {"member: messages that are never whole", 400, &Hostile::HalfMessages, 0.2},
      {"member: takes no answer", 400, &Hostile::SlowReaders, 0.2},
      {"worker: odd transfers on data streams", 400, &Hostile::OddStreams, 2},
      {"worker: registers as itself, at odd addresses", 200, &Hostile::Registrations},
      {"worker: lies to the coordinator", 40, &Hostile::Lies, 0.5},
      {"worker: commits of a wrong job, epoch or life", 200, &Hostile::WrongFences},
      {"worker: commits in the sessions of others", 100, &Hostile::OthersSessions, 0.5},
      {"worker: commits to what is not there", 100, &Hostile::UnfitCommits},
      {"worker: announces commits and sends none", 4, &Hostile::Announced, 0.2},
      // The last: what gRPC took for it the process keeps for later.
      {"member: 5,000 calls reset as they begin", 8, &Hostile::FrameFlood<ResetCalls>, 1, kGrpcBurst},
  };
  return *attacks;
}

}  // namespace

absl::StatusOr<HostileResult> RunHostile(const HostileOptions& options) { return Hostile(options).Run(); }

}  // namespace divvy
