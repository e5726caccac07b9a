// bazel run //bench:pull_push [-- --tls --format=json --only="push, 1 MB"]
//
// Variables of 16 MB and 1 MB are pulled from a parameter server in another process, and their
// gradients are pushed and applied with SGD, through a worker's client, the data streams and the
// whole server. The ceiling, which takes turns with that: a plain TCP socket that moves the same
// bytes to and from a third process, by requests and replies, with as many requests in flight. With
// --tls both use mutual TLS. The lines "one host" have --local_path=auto, the others
// --local_path=off. The lines "bfloat16" move the same parameters in that format, so their rate
// counts the bytes that float32 would have.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/parameter_server.h"
#include "bench/raw_tcp.h"
#include "bench/rounds.h"
#include "kernels/bfloat16.h"
#include "protocol/clients.h"
#include "rpc/certificates.h"
#include "rpc/credentials.h"
#include "rpc/dialer.h"

ABSL_FLAG(std::string, only, "", "name of the only line to measure; empty: all lines");
ABSL_FLAG(int64_t, run_bytes, int64_t{1} << 30, "bytes that one run moves");
ABSL_FLAG(bool, tls, false, "mutual TLS, also for the ceiling");
ABSL_FLAG(std::string, certificates, "",
          "set by the benchmark for its child processes: the directory of the PEM files; empty: no "
          "TLS");
ABSL_FLAG(std::string, role, "", "set by the benchmark for its child processes: ps or tcp");

namespace divvy::bench {
namespace {

constexpr int64_t kLargest = int64_t{16} << 20;
constexpr int64_t kSizes[] = {kLargest, int64_t{1} << 20};

// ---- certificates -------------------------------------------------------------------------------

// The PEM files of one task in the directory.
TlsFiles FilesOf(const std::string& directory, const std::string& role) {
  const auto path = [&](const std::string& name) { return absl::StrCat(directory, "/", name); };
  return {path(role + ".pem"), path(role + ".key"), path("ca.pem")};
}

// A directory with the files of the parameter server and of its caller, removed at the end.
class Certificates {
 public:
  ~Certificates() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  absl::Status Make() {
    char directory[] = "/tmp/divvy_bench.XXXXXX";
    if (mkdtemp(directory) == nullptr)
      return absl::UnavailableError("cannot make a directory in /tmp");
    directory_ = directory;
    ASSIGN_OR_RETURN(const CertifiedKey ca, MakeAuthority("bench", absl::Hours(24)));
    for (const std::string role : {"ps", "chief"}) {
      const TlsFiles files = FilesOf(directory_, role);
      ASSIGN_OR_RETURN(
          const CertifiedKey made,
          IssueCertificate(
              ca, {absl::StrCat("spiffe://bench/", role, "/0"), {"127.0.0.1"}, absl::Hours(24)}));
      RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(files.ca, ca.certificate));
      RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(files.cert, made.certificate));
      RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(files.key, made.key));
    }
    return absl::OkStatus();
  }
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

// ---- requests -----------------------------------------------------------------------------------

// The variables on a parameter server, and a worker's requests.
class Parameters {
 public:
  // `travels` moves every payload through the network, `shares` in shared memory.
  Parameters(std::shared_ptr<ParameterClient> travels, std::shared_ptr<ParameterClient> shares)
      : travels_(std::move(travels)), shares_(std::move(shares)), ps_(travels_) {}

  // Whether payloads lie in shared memory from now on.
  void Share(bool shares) { ps_ = shares ? shares_ : travels_; }
  // Whether values travel as bfloat16 from now on.
  void Round(bool rounded) { rounded_ = rounded; }

  absl::Status Prepare() {
    std::vector<ShardSpec> shards;
    for (const int64_t bytes : kSizes)
      shards.push_back(WholeVariable(NumberOf(bytes), {bytes / 4}));
    ASSIGN_OR_RETURN(fence_, BeginJob(*ps_, std::move(shards)));
    for (Tensor& gradient : gradients_) {
      ASSIGN_OR_RETURN(gradient, Tensor::Zeros(DType::kFloat32, {kLargest / 4}));
      for (int64_t i = 0; i < kLargest / 4; ++i) gradient.fresh_data<float>()[i] = 1e-3f;
    }
    return absl::OkStatus();
  }

  absl::Status Pull(int64_t bytes, int count, int outstanding) {
    Window window(outstanding);
    for (int i = 0; i < count; ++i) {
      window.Enter();
      ps_->Call({fence_, {{KeyOf(bytes), std::nullopt, rounded_ ? bytes / 2 : bytes, rounded_}}},
                [&](absl::StatusOr<PullReply> reply) { window.Leave(reply.status()); });
    }
    return window.Wait();
  }

  absl::Status Push(int64_t bytes, int count, int outstanding) {
    Window window(outstanding);
    for (int i = 0; i < count; ++i) {
      window.Enter();
      ASSIGN_OR_RETURN(CommitRequest request, Gradient(bytes));
      ps_->Call(std::move(request),
                [&](absl::StatusOr<CommitReply> reply) { window.Leave(reply.status()); });
    }
    return window.Wait();
  }

 private:
  static uint32_t NumberOf(int64_t bytes) { return static_cast<uint32_t>(bytes >> 10); }
  static ShardKey KeyOf(int64_t bytes) { return {VariableId(NumberOf(bytes)), 0, 0}; }
  absl::StatusOr<CommitRequest> Gradient(int64_t bytes) {
    CommitPart part;
    part.shard = KeyOf(bytes);
    part.op = WriteOp::kGradient;
    ASSIGN_OR_RETURN(part.values, gradients_[entry_ % 2].Rows(0, bytes / 4));
    if (rounded_) {
      ASSIGN_OR_RETURN(Tensor rounded,
                       Tensor::Uninitialized(DType::kBFloat16, part.values.shape()));
      ToBFloat16(part.values.data_as<float>(), bytes / 4, rounded.fresh_data<BFloat16Bits>());
      part.values = std::move(rounded);
    }
    part.optimizer = StepOf(Sgd{0.1}, 0);
    CommitRequest request;
    request.fence = fence_;
    request.entry = EntryId(++entry_);
    request.parts.push_back(std::move(part));
    return request;
  }

  const std::shared_ptr<ParameterClient> travels_, shares_;
  std::shared_ptr<ParameterClient> ps_;
  Fence fence_;
  Tensor gradients_[2];
  uint64_t entry_ = 0;
  bool rounded_ = false;
};

// ---- measuring ----------------------------------------------------------------------------------

struct Workload {
  std::string name;
  int64_t bytes = 0;
  int outstanding = 0;
  bool pull = false, push = false;
  bool one_host = false, rounded = false;
};

template <typename Transport>
absl::Status RunOnce(Transport& transport, const Workload& work) {
  const int count = static_cast<int>(absl::GetFlag(FLAGS_run_bytes) / work.bytes) /
                    (work.pull && work.push ? 2 : 1);
  if (!work.push) return transport.Pull(work.bytes, count, work.outstanding);
  if (!work.pull) return transport.Push(work.bytes, count, work.outstanding);
  for (int i = 0; i < count; ++i) {
    RETURN_IF_ERROR(transport.Pull(work.bytes, 1, 1));
    RETURN_IF_ERROR(transport.Push(work.bytes, 1, 1));
  }
  return absl::OkStatus();
}

absl::Status Measure(Parameters& parameters, const Child& ps, RawTcp& tcp, const Child& raw,
                     const Workload& work) {
  absl::Status status;
  CpuMeter cpu([&] { return OwnCpuSeconds() + ps.CpuSeconds(); }),
      raw_cpu([&] { return OwnCpuSeconds() + raw.CpuSeconds(); });
  const bool tls = absl::GetFlag(FLAGS_tls);
  const std::string name =
      absl::StrCat(work.name, ", ", work.bytes >> 20, " MB", work.one_host ? ", one host" : "",
                   work.rounded ? ", bfloat16" : "");
  if (const std::string only = absl::GetFlag(FLAGS_only); !only.empty() && only != name)
    return absl::OkStatus();
  parameters.Share(work.one_host);
  parameters.Round(work.rounded);
  const Contender figure{name, cpu.Metered([&] { status.Update(RunOnce(parameters, work)); })};
  const Contender ceiling{
      absl::StrCat(tls ? "raw TLS, " : "raw TCP, ", work.outstanding, " outstanding"),
      raw_cpu.Metered([&] { status.Update(RunOnce(tcp, work)); })};
  const double bytes = static_cast<double>(absl::GetFlag(FLAGS_run_bytes));
  const Comparison comparison = Compare(figure, ceiling, bytes);
  RETURN_IF_ERROR(status);
  Show(tls ? "pull_push_tls" : "pull_push", comparison, {"GB/s", 1e9},
       {{"cpu_s_per_gb", cpu.SecondsPerRun() / bytes * 1e9},
        {"ceiling_cpu_s_per_gb", raw_cpu.SecondsPerRun() / bytes * 1e9}});
  return absl::OkStatus();
}

absl::Status Run() {
  Certificates certificates;
  std::optional<TlsFiles> tls;
  std::string flag;
  if (absl::GetFlag(FLAGS_tls)) {
    RETURN_IF_ERROR(certificates.Make());
    tls = FilesOf(certificates.directory(), "chief");
    flag = absl::StrCat("--certificates=", certificates.directory());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> raw, Child::Start("tcp", flag));
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> ps, Child::Start("ps", flag));
  ASSIGN_OR_RETURN(const std::unique_ptr<RawTcp> tcp, RawTcp::Connect(raw->port(), kLargest, tls));
  ThreadPoolExecutor executor(NumCores());
  RpcDialer travels(executor, tls, /*shares_memory=*/false), shares(executor, tls);
  const std::string address = absl::StrCat("127.0.0.1:", ps->port());
  Parameters parameters(travels.ParameterServer(address), shares.ParameterServer(address));
  RETURN_IF_ERROR(parameters.Prepare());
  for (const bool one_host : {false, true}) {
    for (const int64_t bytes : kSizes) {
      for (const Workload& work : {Workload{"pull", bytes, 2, true, false, one_host},
                                   Workload{"push", bytes, 2, false, true, one_host},
                                   Workload{"pull, then push", bytes, 1, true, true, one_host}})
        RETURN_IF_ERROR(Measure(parameters, *ps, *tcp, *raw, work));
    }
  }
  for (const Workload& work : {Workload{"pull", kLargest, 2, true, false, false, true},
                               Workload{"push", kLargest, 2, false, true, false, true}})
    RETURN_IF_ERROR(Measure(parameters, *ps, *tcp, *raw, work));
  return absl::OkStatus();
}

absl::Status ServeRawTcp(const std::optional<TlsFiles>& tls) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RawTcpServer> server, RawTcpServer::Listen());
  TellPort(server->port());
  return server->Serve(kLargest, tls);
}

int Main() {
  const std::string role = absl::GetFlag(FLAGS_role);
  const std::string certificates = absl::GetFlag(FLAGS_certificates);
  std::optional<TlsFiles> tls;
  if (!certificates.empty()) tls = FilesOf(certificates, "ps");
  const absl::Status status = role == "ps"    ? ServeParameters(tls)
                              : role == "tcp" ? ServeRawTcp(tls)
                                              : Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
