// How a worker reacts to a parameter server's answer: one decision for pulls and commits.
#ifndef DIVVY_WORKER_CORE_PS_ANSWER_H_
#define DIVVY_WORKER_CORE_PS_ANSWER_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "protocol/backoff.h"
#include "protocol/error.h"

namespace divvy {

enum class PsAnswer : uint8_t {
  // The request was carried out.
  kDone,
  // A transport failure, or the ps cannot carry out the request yet: send the same request again
  // after a wait.
  kSendAgain,
  // The right of this worker to make requests has ended. It drops everything and waits for Attach.
  // If the reason IsFinal, the process ends.
  kSessionOver,
  // The request itself is wrong. This should not happen, because everything that a ps could refuse
  // was checked before.
  kRefused,
};

// Pure. An error without a typed reason is a transport failure. A step that commits must not fail
// because of it, and a pull waits, so the request is sent again.
//
//   switch (JudgePsAnswer(reply.status())) {
//     case PsAnswer::kSendAgain: PostAfter(backoff.Next(), send the same request);
inline PsAnswer JudgePsAnswer(const absl::Status& status) {
  if (status.ok()) return PsAnswer::kDone;
  switch (ReasonOf(status)) {
    case Reason::kWrongJob:  // IsFinal: the process ends
    case Reason::kNotAuthorized:
    case Reason::kSessionFenced:
    case Reason::kStepClosed:
    case Reason::kStaleEpoch:
    case Reason::kSecondCoordinator: return PsAnswer::kSessionOver;
    case Reason::kUnknownShard:
    case Reason::kBadCommit:
    case Reason::kInvalid: return PsAnswer::kRefused;
    default: return PsAnswer::kSendAgain;
  }
}

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_PS_ANSWER_H_
