// What a worker does about a parameter server's refusal: one decision for pulls and commits.
#ifndef DIVVY_WORKER_CORE_PS_ANSWER_H_
#define DIVVY_WORKER_CORE_PS_ANSWER_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "protocol/backoff.h"
#include "protocol/error.h"

namespace divvy {

enum class PsAnswer : uint8_t {
  // It was carried out.
  kDone,
  // The way failed, or the ps cannot yet: the same request again, after a wait.
  kSendAgain,
  // This worker's right to speak has ended: it drops everything and waits for Attach, or (IsFinal)
  // it ends.
  kSessionOver,
  // The request itself is wrong: cannot happen, for all that could be refused was checked before.
  kRefused,
};

// Pure. A refusal without a typed reason is a fault of the way: a step that commits may not fail
// for it, and a pull waits.
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
