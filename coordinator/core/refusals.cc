#include "coordinator/core/refusals.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/linker_hint.h"
#include "coordinator/core/store.h"
#include "protocol/error.h"

namespace divvy {
namespace {

std::string TaskOf(const RegisterRequest& request) { return TaskName(request.role, request.index); }

std::string TextOf(const WorkerReplicas& worker) {
  return absl::StrCat("worker ", worker.index, " (", worker.address, ") has ", worker.replicas,
                      worker.replicas == 1 ? " replica" : " replicas");
}

// The largest number of differences in one message.
constexpr size_t kShownDifferences = 10;

// The types of a step's signature in C++ notation.
std::string Readable(const std::string& signature) {
  int error = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(signature.c_str(), nullptr, nullptr, &error), std::free);
  return error == 0 ? std::string(text.get()) : signature;
}

// What a program compares beside its steps, such as the variables that a Python module declares, is
// registered as a step whose name has this prefix.
constexpr absl::string_view kComparedOnly = "divvy:";

// `step "train"`, or `variable w` of "divvy:variable w".
std::string NameOf(absl::string_view step) {
  if (absl::ConsumePrefix(&step, kComparedOnly)) return std::string(step);
  return absl::StrCat("step \"", step, "\"");
}

absl::string_view RemedyOf(Reason reason) {
  switch (reason) {
    case Reason::kWrongJob:
      return ". If this is the same job started again, give the coordinator its former --state_dir "
             "or --job_name. If it is another job, stop the old job's "
             "tasks first";
    case Reason::kStaleEpoch:
    case Reason::kSecondCoordinator:
      return ". Another coordinator of this job has taken over, and this one ends";
    default: return "";
  }
}

}  // namespace

absl::Status RunsAlready(const RegisterRequest& request, const std::string& known) {
  return MakeError(
      Reason::kDuplicateTask,
      absl::StrCat(TaskOf(request), " runs already, at ", known, ", and answers. Give the one at ",
                   request.address, " another index, or do not start it"));
}

absl::Status ServesAs(const RegisterRequest& request, int known) {
  return MakeError(
      Reason::kNotReady,
      absl::StrCat(TaskOf(request), " gives the address ", request.address, ", at which worker ",
                   known, " serves: give each task an address of its own"));
}

absl::Status MayRunAlready(const RegisterRequest& request, const std::string& known) {
  return MakeError(Reason::kNotReady,
                   absl::StrCat(TaskOf(request), " is known as another process, at ", known,
                                ": the coordinator is checking whether that process still runs"));
}

absl::Status OtherReplicas(const WorkerReplicas& worker, const WorkerReplicas& first) {
  return MakeError(
      Reason::kClusterMismatch,
      absl::StrCat(TextOf(worker), ", and ", TextOf(first),
                   " and registered first: all workers of a job must have the same "
                   "number. Give each the same number of GPUs ",
                   "(--gpus) or, on the CPU, the same --replicas_per_worker. If the "
                   "first worker is wrong, give the coordinator --replicas_per_worker=",
                   worker.replicas, ", which refuses workers with another number"));
}

absl::Status OtherReplicasYet(const WorkerReplicas& worker, const WorkerReplicas& first) {
  return MakeError(
      Reason::kNotReady,
      absl::StrCat(TextOf(worker), ", and ", TextOf(first),
                   ": all workers of a job must have the same number, and the next worker decides "
                   "which number that is"));
}

absl::Status UnwantedReplicas(const WorkerReplicas& worker, int wanted) {
  return MakeError(
      Reason::kClusterMismatch,
      absl::StrCat(TextOf(worker), ", and the coordinator's --replicas_per_worker is ", wanted,
                   ": give the worker ", wanted,
                   " GPUs (--gpus; with \"all\" or a list of numbers the worker ends if one "
                   "is missing) or, on the CPU, --replicas_per_worker=",
                   wanted));
}

absl::Status CheckSameProgram(const ProgramDescription& own,
                              const std::map<std::string, std::string>& flags,
                              const ProgramDescription& theirs, int index,
                              const std::string& address) {
  std::vector<std::string> differences;
  bool lacks_a_step = false;
  for (const auto& [name, signature] :
       theirs.steps.empty() ? ProgramDescription().steps : own.steps) {
    const auto found = theirs.steps.find(name);
    if (found == theirs.steps.end()) {
      differences.push_back(absl::StrCat("it has no ", NameOf(name)));
      lacks_a_step = true;
    } else if (found->second != signature) {
      differences.push_back(absl::StrCat("its ", NameOf(name), " is ", Readable(found->second),
                                         ", and the coordinator's is ", Readable(signature)));
    }
  }
  for (const auto& [name, value] : flags) {
    if (!theirs.steps.empty() && theirs.flags.count(name) == 0)
      differences.push_back(absl::StrCat("it has no flag --", name));
  }
  if (differences.empty()) return absl::OkStatus();
  if (differences.size() > kShownDifferences) differences.resize(kShownDifferences);
  const bool is_linked = own.steps.count(absl::StrCat(kComparedOnly, "Python program")) == 0;
  return MakeError(
      Reason::kClusterMismatch,
      absl::StrCat(
          "worker ", index, " (", address,
          ") runs another program than the coordinator: ", absl::StrJoin(differences, "; "),
          is_linked ? ". Deploy one binary to all tasks" : ". Start the same files on all tasks",
          lacks_a_step && is_linked ? absl::StrCat("; of a step that is missing: ", kLinkerHint)
                                    : ""));
}

absl::Status WithoutCheckpoints(int ps, const std::string& address) {
  return MakeError(Reason::kClusterMismatch,
                   absl::StrCat("ps ", ps, " (", address,
                                ") has no --checkpoint_dir, and the coordinator has: this job "
                                "keeps checkpoints, and every parameter ",
                                "server writes its part. Start it with the coordinator's "
                                "--checkpoint_dir, a directory that all of them reach"));
}

// Each start of a coordinator and each rewind begins an epoch. A million of them cannot happen
// between two messages of a task.
bool IsPlausible(Epoch said, Epoch own) {
  constexpr uint64_t kMostAtOnce = uint64_t{1} << 20;
  return CanBe(said) && (said <= own || said.value() - own.value() <= kMostAtOnce);
}

absl::Status ImplausibleEpoch(int ps, const std::string& address, Epoch said) {
  return MakeError(
      Reason::kInvalid,
      absl::StrCat("ps ", ps, " (", address, ") says that it obeys epoch ", said.value(),
                   ", which no coordinator of this job can have begun: start that process again, "
                   "then the program"));
}

absl::Status ComesBeforeResize(const RegisterRequest& request, int num_ps) {
  return MakeError(
      Reason::kNotReady,
      absl::StrCat("ps ", request.index, " (", request.address, ") is not of this job, which has ",
                   num_ps, " parameter servers: it may wait a minute for ",
                   "`divvyctl resize --ps=", request.index + 1, "`, or more"));
}

absl::Status WithRemedy(const absl::Status& refusal) {
  const ErrorDetail detail = DetailOf(refusal);
  const absl::string_view remedy = RemedyOf(detail.reason);
  return remedy.empty() ? refusal : MakeError(detail, absl::StrCat(refusal.message(), remedy));
}

}  // namespace divvy
