// Steps whose replica computes on a GPU: one that the host plays, or a real one.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/ops.h"
#include "ops/testing/place.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"
#include "worker/core/testing/step_runner_fixture.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows 0, 1, 2 ... of a matrix, in batches of 2, with their numbers. Row i holds i, 2 i, 3 i and 4
// i.
absl::StatusOr<Dataset> Rows(const InputContext&, int64_t n) {
  std::vector<float> values;
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) {
    numbers.push_back(i);
    for (int64_t column = 1; column <= 4; ++column)
      values.push_back(static_cast<float>(i * column));
  }
  const Tensor rows = *Tensor::Copy<float>(Shape{n, 4}, values),
               ids = Tensor::Vector<int64_t>(numbers);
  return Dataset::FromTensorSlices(Nest(Nest::List{Nest(rows), Nest(ids)})).Batch(2);
}
const DataSource kRows("device_test/rows", Rows);

absl::StatusOr<Tensor> ReadOf(ReplicaContext& replica, const std::string& name) {
  ReadRequest request{name, std::nullopt, Tensor()};
  RETURN_IF_ERROR(replica.Read(absl::MakeSpan(&request, 1)));
  return request.value;
}

// The sum of x w over a batch x, computed on the device of the batch and of w. Then doubles w.
absl::StatusOr<float> Product(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(const auto elements, worker.Next(batches));
  ASSIGN_OR_RETURN(
      const auto sums,
      worker.strategy().Run(
          [](ReplicaContext& replica, const Nest& batch) -> absl::StatusOr<Tensor> {
            ASSIGN_OR_RETURN(const Tensor w, ReadOf(replica, "w"));
            const Tensor x = *batch.list()->at(0).tensor();
            if (x.device() != replica.device() || w.device() != replica.device()) {
              return absl::InternalError(absl::StrCat("x is on ", x.device().ToString(), ", w on ",
                                                      w.device().ToString()));
            }
            ASSIGN_OR_RETURN(const Variable variable, replica.strategy().FindVariable("w"));
            ASSIGN_OR_RETURN(const Tensor twice, (Var(w) * 2.0f).Value());
            RETURN_IF_ERROR(variable.Assign(twice));
            return ReduceSum(MatMul(Var(x), Var(w))).Value();
          },
          elements));
  ASSIGN_OR_RETURN(const Tensor sum, sums.values()[0].To(Device{}));
  return sum.scalar<float>();
}
const Step kProduct("device_test/product", Product);

// Takes row `id` of w on the GPU, and returns OK whether that succeeds or not.
absl::Status TakeRow(WorkerContext& worker, int64_t id) {
  return worker.strategy()
      .Run([id](ReplicaContext& replica) -> absl::StatusOr<bool> {
        ASSIGN_OR_RETURN(const Tensor w, ReadOf(replica, "w"));
        ASSIGN_OR_RETURN(const Tensor ids, Tensor::Vector<int64_t>({id}).To(replica.device()));
        return Gather(Var(w), Var(ids)).Value().ok();
      })
      .status();
}
const Step kTakeRow("device_test/take_row", TakeRow);

class DeviceStepTest : public StepRunnerFixture {
 protected:
  DeviceStepTest() : StepRunnerFixture({*TestDevice()}) {}

  absl::StatusOr<float> ProductOf(int64_t batch) {
    const absl::StatusOr<Nest> value =
        Run("device_test/product", {Nest(PerWorkerHandle{1})}, {{ResourceId(1), batch, 1}});
    RETURN_IF_ERROR(value.status());
    return value->tensor()->scalar<float>();
  }
};

TEST_F(DeviceStepTest, ABatchAndVariablesAreComputedWithThereAndWhatIsWrittenIsStagedOnTheCpu) {
  ASSERT_TRUE(Open(1, kRows(6)).ok());
  for (const int64_t batch : {0, 1, 2}) {
    const absl::StatusOr<float> sum = ProductOf(batch);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(*sum, (4 * batch + 1) * (3 * 3 + 4 * 4)) << "rows 2 b and 2 b + 1, each times 25";
    const auto staged = transaction_->Finish().writes;
    ASSERT_EQ(staged.size(), 1u);
    EXPECT_THAT(*staged[0].value.values<float>(), ElementsAre(0, 0, 6, 8));
  }
}

TEST_F(DeviceStepTest, WhatTheGpuFindsWrongFailsTheStepThatSaysAllIsWellAndNoOther) {
  EXPECT_TRUE(Run("device_test/take_row", {Nest(Tensor::Scalar<int64_t>(3))}).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status failed =
        Run("device_test/take_row", {Nest(Tensor::Scalar<int64_t>(7))}).status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument) << failed;
    EXPECT_THAT(std::string(failed.message()),
                HasSubstr("id 7 at 0 is outside [0, 4), the rows of float32 [4, 1], on GPU:0 ("));
    const absl::StatusOr<Nest> next =
        Run("device_test/take_row", {Nest(Tensor::Scalar<int64_t>(3))});
    EXPECT_TRUE(next.ok()) << next.status();
  }
}

// A GPU may report a failure to any of the steps that use it at the same time. The step that caused
// the failure must never succeed.
TEST_F(DeviceStepTest, OfStepsThatRunAtOnceTheOneWithAWrongIdFails) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Result> results;
    for (int step = 0; step < 4; ++step)
      results.push_back(BeginWith(MakeTransaction(), "device_test/take_row",
                                  {Nest(Tensor::Scalar<int64_t>(step == 2 ? 9 : 1))}));
    for (int step = 0; step < 4; ++step) {
      const absl::Status ended = results[step]->Take().status();
      if (step == 2 || !ended.ok()) {
        EXPECT_THAT(std::string(ended.message()), HasSubstr("id 9 at 0 is outside [0, 4)"))
            << "round " << round << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace divvy
