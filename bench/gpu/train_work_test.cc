#include "bench/gpu/train_work.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::bench {
namespace {

using ::testing::ElementsAre;

// One leaf of each element of a work's data.
std::vector<Tensor> Read(const TrainWork& work, const std::string& leaf) {
  const absl::StatusOr<Dataset> dataset = DataSourceRegistry::Open(work.data, InputContext());
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  std::vector<Tensor> read;
  const auto iterator = dataset->Iterate();
  while (true) {
    const absl::StatusOr<std::optional<Nest>> element = iterator->Next();
    EXPECT_TRUE(element.ok()) << element.status();
    if (!element.ok() || !element->has_value()) return read;
    read.push_back(*(**element)[leaf].tensor());
  }
}

TEST(TrainWorkTest, APassIsAsManyBatchesAsWereAskedFor) {
  for (const TrainModel& model : TrainModels(700)) {
    for (const TrainWork& work : model.works) {
      const std::vector<Tensor> labels = Read(work, "label");
      EXPECT_EQ(labels.size(), 700u) << work.name;
      for (const Tensor& label : labels) ASSERT_EQ(label.shape(), Shape{work.batch}) << work.name;
    }
  }
}

// Each timed pass opens the data, and must not measure the time to draw random numbers.
TEST(TrainWorkTest, DataIsDrawnOnceHoweverOftenItIsOpened) {
  for (const TrainModel& model : TrainModels(2)) {
    const void* const first = Read(model.works[0], "label")[0].data();
    for (const TrainWork& work : model.works)
      EXPECT_EQ(Read(work, "label")[0].data(), first) << work.name;
  }
}

TEST(TrainWorkTest, HasTheSizesThatThePeerMeasures) {
  std::vector<std::string> names;
  for (const TrainModel& model : TrainModels(1)) {
    for (const TrainWork& work : model.works) names.push_back(work.name);
  }
  EXPECT_THAT(names, ElementsAre("mlp 784-512-10, batch 64", "mlp 784-512-10, batch 512",
                                 "mlp 784-512-10, batch 1024", "mlp 784-512-10, batch 4096",
                                 "dlrm, batch 64", "dlrm, batch 512", "dlrm, batch 1024",
                                 "dlrm, batch 4096"));
}

TEST(TrainWorkTest, ItsProductsAreThoseOfAStep) {
  const std::vector<Product> products = TrainModels(1)[0].works[0].products;
  // Two products forward, the gradients of two kernels, and the gradient of the hidden layer.
  ASSERT_EQ(products.size(), 5u);
  EXPECT_EQ(products[0].m * products[0].n * products[0].k, 64 * 512 * 784);
}

}  // namespace
}  // namespace divvy::bench
