// Who is hostile: certificates of every wrong kind, and a worker that lies.
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

// A certificate that no task may believe, and why.
struct OddCertificate {
  std::string name;                        // "of another CA"
  std::optional<ClientCertificate> files;  // none: it shows none
};

// The certificates of a job, made by what `divvyctl certs` is made of, and odd ones beside them.
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

// A worker's service that answers anything: a random status with a random detail, a random reply,
// and on the stream of steps random frames; or it keeps to the stream's protocol and says of each
// step that it is given that another worker must run it. It never says that such a step is done,
// has failed or was half applied: docs/operating/security.md tells what that does. Thread-safe.
class LyingWorker final : public v1::Worker::Service {
 public:
  // Listens with the worker's certificate; on port 0: on one that is free.
  static absl::StatusOr<std::unique_ptr<LyingWorker>> Start(
      const TlsFiles& files, uint64_t seed, const std::string& address = "127.0.0.1:0");
  ~LyingWorker() override;

  std::string address() const { return address_; }
  // Blocks until it has been attached once more since the call before; false: not within the
  // timeout.
  bool AwaitAttach(absl::Duration timeout);
  // Of the latest Attach: its own right to commit, and where the parameter servers are.
  std::optional<v1::WorkerAttachRequest> attached();
  int64_t lies();
  int64_t given_back();  // steps that it was given and did not run

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
  // What to send: the session's numbers, and the answer to what the frame brought. nullopt: the
  // session is over.
  std::optional<std::vector<StreamFrame<FromWorker>>> AnswersTo(const v1::ToWorkerFrame& heard);
  std::optional<FromWorker> AnswerTo(const ToWorker& message);
  Report GivenBack(const Dispatch& dispatch);

  Mutex mu_;
  CondVar came_;
  Random random_ DIVVY_GUARDED_BY(mu_);
  std::optional<v1::WorkerAttachRequest> attached_ DIVVY_GUARDED_BY(mu_);
  // The session of the latest Attach. None: it was broken off, so that its steps go to others.
  std::optional<ResumableStream<FromWorker, ToWorker>> session_ DIVVY_GUARDED_BY(mu_);
  int64_t lies_ DIVVY_GUARDED_BY(mu_) = 0, attaches_ DIVVY_GUARDED_BY(mu_) = 0,
                seen_ DIVVY_GUARDED_BY(mu_) = 0, given_back_ DIVVY_GUARDED_BY(mu_) = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;  // last: goes first
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_PEERS_H_
