// The hostile peers: certificates of every wrong kind, and a lying worker.
#ifndef DIVVY_TESTS_E2E_HOSTILE_PEERS_H_
#define DIVVY_TESTS_E2E_HOSTILE_PEERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/random.h"
#include "grpcpp/server.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "rpc/certificates.h"
#include "rpc/credentials.h"
#include "tests/e2e/tls_client.h"

namespace divvy {

// A certificate that every task must refuse, and the reason.
struct OddCertificate {
  std::string name;                        // the reason, for example "of another CA"
  std::optional<ClientCertificate> files;  // nullopt: the peer shows no certificate
};

// A job's certificates, made by the code of `divvyctl certs`, and wrong ones beside them.
// Immutable.
class HostileCertificates {
 public:
  static absl::StatusOr<HostileCertificates> Make(const std::string& directory, int num_ps,
                                                  int num_workers);

  TlsFiles Of(absl::string_view task) const;  // "worker-1", "admin-0"
  ClientCertificate ClientOf(absl::string_view task) const;
  std::vector<std::string> FlagsOf(absl::string_view task) const;
  const std::vector<OddCertificate>& odd() const { return odd_; }

 private:
  explicit HostileCertificates(std::string directory) : directory_(std::move(directory)) {}
  absl::Status MakeOdd();
  absl::Status Add(const std::string& name, const absl::StatusOr<CertifiedKey>& made);

  std::string directory_;
  std::vector<OddCertificate> odd_;
};

// A worker's service that gives false answers: a random status with a random detail, a random
// reply, or random frames on the Steps stream. Otherwise it keeps to the stream's protocol, and
// reports of each step that another worker must run it. It never reports such a step as finished,
// failed or half applied, because such reports are believed (docs/operating/security.md).
// Thread-safe.
class LyingWorker final : public v1::Worker::Service {
 public:
  // Listens with the worker's certificate. Port 0: a free one.
  static absl::StatusOr<std::unique_ptr<LyingWorker>> Start(
      const TlsFiles& files, uint64_t seed, const std::string& address = "127.0.0.1:0");
  ~LyingWorker() override;

  std::string address() const { return address_; }
  // Blocks until another Attach has come since the previous call. Returns false after `timeout`.
  bool AwaitAttach(absl::Duration timeout);
  // The latest Attach: the worker's own right to commit, and the addresses of the parameter
  // servers.
  std::optional<v1::WorkerAttachRequest> attached();
  int64_t lies();
  int64_t given_back();  // steps that it received and did not run

  grpc::Status Attach(grpc::ServerContext*, const v1::WorkerAttachRequest* request,
                      v1::WorkerAttachReply* reply) override;
  grpc::Status Steps(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::FromWorkerFrame, v1::ToWorkerFrame>* stream) override;
  grpc::Status Shutdown(grpc::ServerContext*, const v1::ShutdownRequest*,
                        v1::ShutdownReply*) override;

 private:
  using Stream = grpc::ServerReaderWriter<v1::FromWorkerFrame, v1::ToWorkerFrame>;

  explicit LyingWorker(uint64_t seed) : random_(seed) {}
  uint64_t Draw();
  void SayAnything(Stream& stream);
  void GiveBack(Stream& stream);
  // The frames to send: the session's numbers, and the answer to the message in `heard`. nullopt:
  // the session is over.
  std::optional<std::vector<StreamFrame<FromWorker>>> AnswersTo(const v1::ToWorkerFrame& heard);
  std::optional<FromWorker> AnswerTo(const ToWorker& message);
  Report GivenBack(const Dispatch& dispatch);

  Mutex mu_;
  CondVar came_;
  Random random_ DIVVY_GUARDED_BY(mu_);
  std::optional<v1::WorkerAttachRequest> attached_ DIVVY_GUARDED_BY(mu_);
  // The session of the latest Attach. nullopt after it was broken off, so that its steps go to
  // others.
  std::optional<ResumableStream<FromWorker, ToWorker>> session_ DIVVY_GUARDED_BY(mu_);
  int64_t lies_ DIVVY_GUARDED_BY(mu_) = 0, attaches_ DIVVY_GUARDED_BY(mu_) = 0,
                seen_ DIVVY_GUARDED_BY(mu_) = 0, given_back_ DIVVY_GUARDED_BY(mu_) = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;  // the last member, so it is destroyed first
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_PEERS_H_
