// The last ten minutes of a task and of those that it shows: samples of their statuses, and what
// these tell.
#ifndef DIVVY_RPC_STATUS_HISTORY_H_
#define DIVVY_RPC_STATUS_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "proto/divvy.pb.h"
#include "rpc/findings.h"

namespace divvy {

// Thread-safe; no method blocks. Time is an argument: Clock::Elapsed().
//
//   history.Add(now, status);        // every kEvery
//   history.Complete(now, status);   // before a status is shown
class StatusHistory {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(5);
  // Samples that are kept of each task: those of the last ten minutes.
  static constexpr size_t kMost = 120;

  // Adds a sample of the task, and of each of the tasks in its status. Forgets tasks that are not
  // in it any more, and the samples of a task that has been started again. Of a task that does not
  // answer, whose status has no role, it notes the state alone.
  void Add(absl::Duration now, const v1::TaskStatus& status);

  // Fills in what the samples tell: state_ns, the rates and the findings; in the tasks of a
  // coordinator's status, too. Rates are those of the last 30 s. The steps that a coordinator has
  // restored are in no rate, and neither are the rows of a ps that does not answer.
  void Complete(absl::Duration now, v1::TaskStatus& status) const;

  // The course of a number.
  struct Picture {
    std::string title;
    std::vector<TimedValue> points;
  };
  // Of the task itself, for people: rates between neighbouring samples, and values.
  std::vector<Picture> Pictures() const;

 private:
  struct Sample {
    absl::Duration at;
    // Grow in the life of the process. Of a coordinator, steps and rows are those that were seen to
    // come: see Accumulate.
    double steps = 0, examples = 0, rows = 0, bytes = 0, busy = 0, waited = 0;
    // Values. `total_steps`: of a coordinator, with those that it has restored.
    double memory = 0, median = 0, total_steps = 0;
    std::optional<double> loss;
    // A ps serves its shards; a coordinator's job has its state.
    bool ready = false;
  };
  struct Course {
    uint64_t incarnation = 0;
    std::string state;
    absl::Duration state_since;
    std::deque<Sample> samples;
  };
  using Key = std::pair<int, int>;  // job, index

  static Sample SampleOf(absl::Duration now, const v1::TaskStatus& status);
  static Key KeyOf(const v1::TaskStatus& status) {
    return {static_cast<int>(status.job()), status.index()};
  }
  // Adds a sample of one task. The result: the rows that it has moved since its last sample.
  double AddOne(absl::Duration now, const v1::TaskStatus& status, double rows_of_others)
      DIVVY_REQUIRES(mu_);
  // Makes the steps and rows of a coordinator's `sample` from those of the one before.
  static void Accumulate(const Sample& before, double rows_of_others, Sample& sample);
  // Null: there is no sample of this life of the task.
  const Course* Find(const v1::TaskStatus& status) const DIVVY_REQUIRES(mu_);
  void CompleteOne(absl::Duration now, v1::TaskStatus& status) const DIVVY_REQUIRES(mu_);
  // Whether a worker has reported enough steps for its median to be compared with others.
  bool HasMedian(const v1::TaskStatus& status) const DIVVY_REQUIRES(mu_);
  // Compares the tasks of a coordinator's status with each other.
  void Compare(const v1::CoordinatorStatus& job,
               google::protobuf::RepeatedPtrField<v1::TaskStatus::Finding>& findings) const
      DIVVY_REQUIRES(mu_);
  // Adds what has been found of `status` alone.
  void FindIn(const v1::TaskStatus& status,
              google::protobuf::RepeatedPtrField<v1::TaskStatus::Finding>& findings) const
      DIVVY_REQUIRES(mu_);

  mutable Mutex mu_;
  std::map<Key, Course> courses_ DIVVY_GUARDED_BY(mu_);
  Key own_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_STATUS_HISTORY_H_
