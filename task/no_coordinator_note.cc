#include "task/no_coordinator_note.h"

#include <utility>

#include "absl/time/time.h"
#include "base/log.h"

namespace divvy {
namespace {

constexpr absl::Duration kEvery = absl::Minutes(1);

void Look(Executor& executor, const std::string& task, const std::function<bool()>& waits) {
  if (waits()) {
    DIVVY_LOG(WARNING) << task
                       << ": its cluster has no chief and there is no --coordinator_address: it "
                          "waits until the coordinator dials it. If it never "
                       << "does, add the chief to cluster in TF_CONFIG";
  }
  executor.PostAfter(kEvery, [&executor, task, waits] { Look(executor, task, waits); });
}

}  // namespace

void WarnOfNoCoordinator(Executor& executor, std::string task, std::function<bool()> waits) {
  executor.Post([&executor, task = std::move(task), waits = std::move(waits)] {
    Look(executor, task, waits);
  });
}

}  // namespace divvy
