#include "tests/e2e/hostile_peers.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "grpcpp/server_builder.h"
#include "rpc/openssl.h"
#include "rpc/status.h"
#include "tools/ctl/certs.h"
#include "wire/testing/conversion.h"

namespace divvy {
namespace {

namespace ssl = openssl;

ssl::Bio Memory(const std::string& text) {
  return ssl::Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The same certificate with other names in it, which IssueCertificate would not write.
absl::StatusOr<CertifiedKey> WithNames(const CertifiedKey& authority, CertifiedKey made,
                                       const std::string& names) {
  const std::vector<ssl::Certificate> chain = ssl::ReadCertificates(Memory(made.certificate).get());
  const ssl::Key key = ssl::ReadKey(Memory(authority.key).get());
  if (chain.empty() || key == nullptr)
    return absl::InternalError("cannot read a certificate that the test has made");
  X509* const certificate = chain[0].get();
  X509_EXTENSION_free(
      X509_delete_ext(certificate, X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1)));
  const ssl::Extension extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1)
    return absl::InternalError("cannot write " + names);
  if (X509_sign(certificate, key.get(), EVP_sha256()) == 0)
    return absl::InternalError("cannot sign " + names);
  const ssl::Bio out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out.get(), &bytes);
  made.certificate.assign(bytes, static_cast<size_t>(size));
  return made;
}

CertificateRequest Named(const std::string& uri, absl::Duration lifetime = absl::Hours(1)) {
  return {uri, {"localhost", "127.0.0.1"}, lifetime};
}

}  // namespace

// ---- certificates -------------------------------------------------------------------------------

absl::StatusOr<HostileCertificates> HostileCertificates::Make(const std::string& directory,
                                                              int num_ps, int num_workers) {
  HostileCertificates certificates(directory);
  CertsOptions options;
  options.out = directory;
  options.job = "good";
  options.ps = num_ps;
  options.workers = num_workers;
  RETURN_IF_ERROR(WriteCertificates(options, FileSystem::Real()).status());
  RETURN_IF_ERROR(certificates.MakeOdd());
  return certificates;
}

absl::Status HostileCertificates::MakeOdd() {
  CertifiedKey authority;
  ASSIGN_OR_RETURN(authority.certificate, FileSystem::Real().ReadFile(directory_ + "/ca.pem"));
  ASSIGN_OR_RETURN(authority.key, FileSystem::Real().ReadFile(directory_ + "/ca.key"));
  ASSIGN_OR_RETURN(const CertifiedKey other, MakeAuthority("good development CA", absl::Hours(1)));
  ASSIGN_OR_RETURN(const CertifiedKey right,
                   IssueCertificate(authority, Named("spiffe://good/worker/2")));
  odd_.push_back({"that is none", std::nullopt});
  RETURN_IF_ERROR(Add("of another CA", IssueCertificate(other, Named("spiffe://good/worker/2"))));
  RETURN_IF_ERROR(
      Add("of another job", IssueCertificate(authority, Named("spiffe://other/worker/2"))));
  RETURN_IF_ERROR(
      Add("that has expired",
          IssueCertificate(authority, Named("spiffe://good/worker/2", -absl::Hours(1)))));
  RETURN_IF_ERROR(Add("without a URI", IssueCertificate(authority, Named(""))));
  RETURN_IF_ERROR(
      Add("with a URI of the web", IssueCertificate(authority, Named("https://good/worker/2"))));
  RETURN_IF_ERROR(Add("with an index that is none",
                      IssueCertificate(authority, Named("spiffe://good/worker/2?x=1"))));
  RETURN_IF_ERROR(
      Add("with two URIs",
          WithNames(authority, right, "URI:spiffe://good/worker/2,URI:spiffe://good/chief/0")));
  return Add("that signed itself", MakeAuthority("good", absl::Hours(1)));
}

absl::Status HostileCertificates::Add(const std::string& name,
                                      const absl::StatusOr<CertifiedKey>& made) {
  RETURN_IF_ERROR(made.status());
  const std::string path = absl::StrCat(directory_, "/odd-", odd_.size());
  RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(path + ".pem", made->certificate));
  RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(path + ".key", made->key));
  odd_.push_back({name, ClientCertificate{path + ".pem", path + ".key"}});
  return absl::OkStatus();
}

TlsFiles HostileCertificates::Of(absl::string_view task) const {
  const std::string own = absl::StrCat(directory_, "/", task);
  return {own + ".pem", own + ".key", directory_ + "/ca.pem"};
}

ClientCertificate HostileCertificates::ClientOf(absl::string_view task) const {
  return {Of(task).cert, Of(task).key};
}

std::vector<std::string> HostileCertificates::FlagsOf(absl::string_view task) const {
  const TlsFiles files = Of(task);
  return {"--tls_ca=" + files.ca, "--tls_cert=" + files.cert, "--tls_key=" + files.key};
}

// ---- the lying worker ---------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<LyingWorker>> LyingWorker::Start(const TlsFiles& files,
                                                                uint64_t seed,
                                                                const std::string& address) {
  std::unique_ptr<LyingWorker> worker(new LyingWorker(seed));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, MakeServerCredentials(files), &port);
  builder.RegisterService(worker.get());
  worker->server_ = builder.BuildAndStart();
  if (worker->server_ == nullptr) return absl::InternalError("the lying worker cannot listen");
  worker->address_ = absl::StrCat("127.0.0.1:", port);
  return worker;
}

LyingWorker::~LyingWorker() { server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC)); }

uint64_t LyingWorker::Draw() {
  MutexLock lock(mu_);
  ++lies_;
  return random_.Next();
}

bool LyingWorker::AwaitAttach(absl::Duration timeout) {
  MutexLock lock(mu_);
  const bool came =
      came_.WaitFor(mu_, timeout, [this]() DIVVY_REQUIRES(mu_) { return attaches_ > seen_; });
  seen_ = attaches_;
  return came;
}

std::optional<v1::WorkerAttachRequest> LyingWorker::attached() {
  MutexLock lock(mu_);
  return attached_;
}

int64_t LyingWorker::given_back() {
  MutexLock lock(mu_);
  return given_back_;
}

int64_t LyingWorker::lies() {
  MutexLock lock(mu_);
  return lies_;
}

grpc::Status LyingWorker::Attach(grpc::ServerContext*, const v1::WorkerAttachRequest* request,
                                 v1::WorkerAttachReply* reply) {
  const uint64_t seed = Draw();
  uint64_t kind = seed % 3;
  {
    MutexLock lock(mu_);
    attached_ = *request;
    session_.emplace(SessionId(request->fence().session()));
    // A valid reply, so that the worker soon gets a step in each run.
    if (given_back_ == 0 && attaches_ % 2 == 0) kind = 2;
    ++attaches_;
    came_.NotifyAll();
  }
  if (kind == 0) return ToGrpc(wire::testing::Generator(seed).Make<absl::Status>());
  if (kind == 1) {
    Random random(seed);
    reply->ParseFromString(
        wire::testing::Mutated(wire::testing::RandomBytes<WorkerAttachReply>(seed), random));
  } else {
    reply->set_incarnation(seed | 1);  // the coordinator may accept this one
    reply->set_replicas(1);
    reply->set_slots(static_cast<int32_t>(1 + seed % 3));
  }
  return grpc::Status::OK;
}

grpc::Status LyingWorker::Steps(grpc::ServerContext*, Stream* stream) {
  bool has_given_back = false;
  {
    MutexLock lock(mu_);
    if (!session_) return grpc::Status(grpc::UNAVAILABLE, "no session");
    has_given_back = given_back_ > 0;
  }
  has_given_back&& Draw() % 3 == 0 ? SayAnything(*stream) : GiveBack(*stream);
  return ToGrpc(wire::testing::Generator(Draw()).Make<absl::Status>());
}

void LyingWorker::SayAnything(Stream& stream) {
  v1::ToWorkerFrame heard;
  for (int i = 0; i < 20 && stream.Read(&heard); ++i) {
    v1::FromWorkerFrame said;
    said.ParseFromString(wire::testing::RandomBytes<StreamFrame<FromWorker>>(Draw()));
    if (Draw() % 2 == 0) said.set_session(heard.session());
    if (i == 0 || Draw() % 4 == 0)
      said.set_number(static_cast<uint64_t>(i)), said.set_resume(i == 0);
    if (!stream.Write(said)) break;
  }
}

void LyingWorker::GiveBack(Stream& stream) {
  constexpr int kMostHeard = 200;  // messages, after which the stream breaks
  std::vector<StreamFrame<FromWorker>> said;
  {
    MutexLock lock(mu_);
    if (session_) said.push_back(session_->Connect());
  }
  v1::ToWorkerFrame heard;
  for (int i = 0; i < kMostHeard; ++i) {
    for (const StreamFrame<FromWorker>& one : said) {
      if (!stream.Write(wire::ToProto(one))) return;
    }
    if (!stream.Read(&heard)) return;
    auto answers = AnswersTo(heard);
    if (!answers) return;
    said = *std::move(answers);
  }
}

std::optional<std::vector<StreamFrame<FromWorker>>> LyingWorker::AnswersTo(
    const v1::ToWorkerFrame& heard) {
  absl::StatusOr<StreamFrame<ToWorker>> frame = wire::FromProto(heard);
  std::vector<StreamFrame<FromWorker>> answers;
  std::optional<ToWorker> message;
  {
    MutexLock lock(mu_);
    if (!session_) return std::nullopt;
    if (!frame.ok() || !session_->Receive(*std::move(frame), answers, message).ok()) {
      // An earlier random frame has acknowledged messages that this worker never received.
      session_.reset();
      return std::nullopt;
    }
  }
  const std::optional<FromWorker> answer = message ? AnswerTo(*message) : std::nullopt;
  MutexLock lock(mu_);
  if (!answer || !session_) return answers;
  if (auto next = session_->Send(*answer)) answers.push_back(*std::move(next));
  return answers;
}

std::optional<FromWorker> LyingWorker::AnswerTo(const ToWorker& message) {
  if (const auto* dispatch = std::get_if<Dispatch>(&message)) return GivenBack(*dispatch);
  if (const auto* hold = std::get_if<Hold>(&message)) return Held{hold->number};
  if (std::holds_alternative<Ping>(message)) return wire::testing::Generator(Draw()).Make<Pong>();
  return std::nullopt;
}

Report LyingWorker::GivenBack(const Dispatch& dispatch) {
  const uint64_t seed = Draw();
  auto report = wire::testing::Generator(seed).Make<Report>();
  report.step = dispatch.step;
  report.attempt = dispatch.attempt;
  report.outcome = seed % 2 == 0 ? StepOutcome::kSystem : StepOutcome::kCancelled;
  report.value = Nest();
  if (report.error.ok()) report.error = absl::UnavailableError("so it says");
  report.participants.clear();
  report.ended.clear();
  MutexLock lock(mu_);
  ++given_back_;
  return report;
}

grpc::Status LyingWorker::Shutdown(grpc::ServerContext*, const v1::ShutdownRequest*,
                                   v1::ShutdownReply*) {
  return grpc::Status(grpc::UNAVAILABLE, "no");
}

}  // namespace divvy
