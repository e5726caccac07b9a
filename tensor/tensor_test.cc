// Tests of tensors, of their two sparse forms, and of their calls of DeviceMemory.
#include "tensor/tensor.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/device_memory.h"

namespace divvy {
namespace {

using ::absl::InvalidArgumentError;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Device kGpu{Device::Kind::kGpu, 0};
constexpr Device kOtherGpu{Device::Kind::kGpu, 1};

TEST(DeviceTest, IsCalledByKindAndNumber) {
  EXPECT_EQ(Device().ToString(), "CPU:0");
  EXPECT_EQ((Device{Device::Kind::kGpu, 3}.ToString()), "GPU:3");
  EXPECT_NE(kGpu, kOtherGpu);
  EXPECT_NE(Device(), kGpu);
  EXPECT_EQ(kGpu, (Device{Device::Kind::kGpu, 0}));
}

// ---- Creation

TEST(TensorTest, IsAtFirstNoFloats) {
  const Tensor tensor;
  EXPECT_EQ(tensor.ToString(), "float32 [0]");
  EXPECT_EQ(tensor.size_bytes(), 0);
  EXPECT_EQ(tensor.data(), nullptr);
  EXPECT_EQ(tensor.device(), Device());
  EXPECT_THAT(*tensor.values<float>(), IsEmpty());
}

TEST(TensorTest, HoldsTheValuesItWasMadeOf) {
  EXPECT_EQ(Tensor::Scalar<int64_t>(7).ToString(), "int64 []");
  EXPECT_EQ(*Tensor::Scalar<int64_t>(7).scalar<int64_t>(), 7);
  EXPECT_THAT(*Tensor::Vector<bool>({true, false}).values<bool>(), ElementsAre(true, false));
  const Tensor square = *Tensor::Copy<double>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(square.ToString(), "float64 [2, 2]");
  EXPECT_EQ(square.size_bytes(), 32);
  EXPECT_THAT(*square.values<double>(), ElementsAre(1, 2, 3, 4));
}

TEST(TensorTest, CopyRefusesAnotherNumberOfValues) {
  EXPECT_EQ(Tensor::Copy<float>({2, 2}, {1, 2, 3}).status(),
            InvalidArgumentError("shape [2, 2] wants 4 values, not 3"));
  EXPECT_EQ(Tensor::Copy<float>({0}, {1}).status(),
            InvalidArgumentError("shape [0] wants 0 values, not 1"));
  EXPECT_EQ(Tensor::Copy<float>({-1}, {1}).status(),
            InvalidArgumentError("shape [-1] has an unknown dimension (-1)"));
  EXPECT_EQ(Tensor::Copy<float>({-2}, {1}).status(), Shape{-2}.status());
}

TEST(TensorTest, CopyOfTooFewValuesIsRefusedBeforeThereIsMemoryForTheShape) {
  EXPECT_EQ(
      Tensor::Copy<double>({int64_t{1} << 61}, {1}).status(),
      InvalidArgumentError("shape [2305843009213693952] wants 2305843009213693952 values, not 1"));
}

TEST(TensorTest, ZerosAreZeroOfEachDType) {
  EXPECT_THAT(*Tensor::Zeros(DType::kFloat64, {3})->values<double>(), ElementsAre(0, 0, 0));
  EXPECT_THAT(*Tensor::Zeros(DType::kBool, {1, 2})->values<bool>(), ElementsAre(false, false));
  EXPECT_EQ(Tensor::Zeros(DType::kInt8, {0, 5})->ToString(), "int8 [0, 5]");
}

struct Unstorable {
  DType dtype;
  Shape shape;
  absl::Status why;
};

TEST(TensorTest, WhatCannotBeHeldIsRefusedHoweverItIsMade) {
  int released = 0;
  for (const Unstorable& c : std::vector<Unstorable>{
           {DType::kComplex64, {2}, InvalidArgumentError("tensors do not hold complex64")},
           {DType::kComplex128, {2}, InvalidArgumentError("tensors do not hold complex128")},
           {DType::kString, {2}, InvalidArgumentError("tensors do not hold string")},
           {DType::kInt8,
            {2, -1},
            InvalidArgumentError("shape [2, -1] has an unknown dimension (-1)")},
           {DType::kInt8, {-2}, Shape{-2}.status()}}) {
    EXPECT_EQ(Tensor::Uninitialized(c.dtype, c.shape).status(), c.why);
    EXPECT_EQ(Tensor::Zeros(c.dtype, c.shape).status(), c.why);
    const int64_t memory = 0;
    EXPECT_EQ(
        Tensor::Borrow(c.dtype, c.shape, &memory, Device(), [&released] { ++released; }).status(),
        c.why);
  }
  EXPECT_EQ(released, 0) << "refused memory still belongs to the caller";
}

TEST(TensorTest, MoreBytesThanAnInt64CountsAreMemoryThatIsNotThere) {
  const absl::Status why = absl::ResourceExhaustedError(
      "a tensor of float64 [2305843009213693952] does not fit in memory");
  EXPECT_EQ(Tensor::Uninitialized(DType::kFloat64, {int64_t{1} << 61}).status(), why);
  EXPECT_EQ(Tensor::Zeros(DType::kFloat64, {int64_t{1} << 61}).status(), why);
}

// ---- Reading

TEST(TensorTest, AScalarIsTheOneElementWhateverTheRank) {
  EXPECT_EQ(*Tensor::Vector<float>({3}).scalar<float>(), 3);
  EXPECT_EQ(*Tensor::Copy<float>({1, 1, 1}, {4})->scalar<float>(), 4);
}

TEST(TensorTest, AScalarIsNeitherOfSeveralNorOfNoElements) {
  EXPECT_EQ(Tensor::Vector<float>({1, 2}).scalar<float>().status(),
            InvalidArgumentError("wanted one element, not float32 [2]"));
  EXPECT_EQ(Tensor().scalar<float>().status(),
            InvalidArgumentError("wanted one element, not float32 [0]"));
}

TEST(TensorTest, NothingIsConvertedWhereItIsRead) {
  Tensor one = Tensor::Scalar<float>(1);
  const absl::Status why = InvalidArgumentError("the tensor is float32 []; wanted float64");
  EXPECT_EQ(one.scalar<double>().status(), why);
  EXPECT_EQ(one.values<double>().status(), why);
  EXPECT_EQ(one.mutable_values<double>().status(), why);
}

// ---- Writing

TEST(TensorTest, AWriteThroughOneHandleIsSeenByNoOther) {
  Tensor written = Tensor::Vector<int32_t>({1, 2, 3});
  const Tensor other = written;
  EXPECT_EQ(other.data(), written.data());
  (*written.mutable_values<int32_t>())[0] = 9;
  EXPECT_THAT(*written.values<int32_t>(), ElementsAre(9, 2, 3));
  EXPECT_THAT(*other.values<int32_t>(), ElementsAre(1, 2, 3));
}

TEST(TensorTest, AWriteThroughRowsOrAnotherShapeIsSeenByNoOther) {
  const Tensor whole = *Tensor::Copy<int32_t>({2, 2}, {1, 2, 3, 4});
  Tensor row = *whole.Rows(1, 2), flat = *whole.Reshape({4});
  (*row.mutable_values<int32_t>())[0] = 9;
  (*flat.mutable_values<int32_t>())[0] = 8;
  EXPECT_THAT(*row.values<int32_t>(), ElementsAre(9, 4));
  EXPECT_THAT(*flat.values<int32_t>(), ElementsAre(8, 2, 3, 4));
  EXPECT_THAT(*whole.values<int32_t>(), ElementsAre(1, 2, 3, 4));
}

TEST(TensorTest, WhatNobodyElseHoldsIsWrittenInPlace) {
  Tensor tensor = Tensor::Vector<int32_t>({1, 2});
  { const Tensor gone = tensor; }
  const void* const before = tensor.data();
  (*tensor.mutable_values<int32_t>())[1] = 5;
  EXPECT_EQ(tensor.data(), before);
  EXPECT_THAT(*tensor.values<int32_t>(), ElementsAre(1, 5));
}

TEST(TensorTest, ThereMayBeNothingToWrite) {
  Tensor none, row = *Tensor::Vector<float>({1, 2}).Rows(1, 1);
  EXPECT_THAT(*none.mutable_values<float>(), IsEmpty());
  EXPECT_THAT(*row.mutable_values<float>(), IsEmpty());
}

// ---- Memory of the caller

TEST(BorrowTest, ReadsTheMemoryItselfAndReleasesItOnceWithTheLastHandle) {
  const int32_t memory[4] = {1, 2, 3, 4};
  int released = 0;
  {
    Tensor last;
    {
      const Tensor whole =
          *Tensor::Borrow(DType::kInt32, {2, 2}, memory, Device(), [&released] { ++released; });
      EXPECT_EQ(whole.data(), memory);
      last = *whole.Reshape({4})->Rows(2, 4);
    }
    EXPECT_EQ(released, 0);
    EXPECT_THAT(*last.values<int32_t>(), ElementsAre(3, 4));
  }
  EXPECT_EQ(released, 1);
}

TEST(BorrowTest, AWriteCopiesFirstEvenForTheOnlyHandle) {
  const int32_t memory[2] = {1, 2};
  int released = 0;
  Tensor tensor =
      *Tensor::Borrow(DType::kInt32, {2}, memory, Device(), [&released] { ++released; });
  (*tensor.mutable_values<int32_t>())[0] = 9;
  EXPECT_EQ(memory[0], 1);
  EXPECT_THAT(*tensor.values<int32_t>(), ElementsAre(9, 2));
  EXPECT_EQ(released, 1) << "the copy was the last to need it";
}

TEST(BorrowTest, MayDoWithoutARelease) {
  const int32_t memory[2] = {1, 2};
  Tensor tensor = *Tensor::Borrow(DType::kInt32, {2}, memory, Device(), nullptr);
  (*tensor.mutable_values<int32_t>())[0] = 9;
  EXPECT_EQ(memory[0], 1);
}

TEST(BorrowTest, NoElementsAreReleasedToo) {
  int released = 0;
  {
    const Tensor none =
        *Tensor::Borrow(DType::kInt32, {0}, nullptr, Device(), [&released] { ++released; });
  }
  EXPECT_EQ(released, 1);
}

TEST(TensorTest, WithoutBytesThereIsNoData) {
  const int32_t memory = 1;
  EXPECT_EQ(Tensor::Vector<float>({1, 2}).Rows(1, 1)->data(), nullptr);
  EXPECT_EQ(Tensor::Borrow(DType::kInt32, {0}, &memory, Device(), nullptr)->data(), nullptr);
  EXPECT_EQ(Tensor::Zeros(DType::kInt32, {4, 0})->data(), nullptr);
}

// ---- Other shapes of the same buffer

TEST(ReshapeTest, SharesTheBufferAndInfersOneDimension) {
  const Tensor six = Tensor::Vector<int32_t>({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(six.Reshape({3, 2})->ToString(), "int32 [3, 2]");
  EXPECT_EQ(six.Reshape({3, 2})->data(), six.data());
  EXPECT_EQ(six.Reshape({2, -1})->shape(), (Shape{2, 3}));
  EXPECT_EQ(six.Reshape({-1, 1, 6})->shape(), (Shape{1, 1, 6}));
  EXPECT_EQ(Tensor::Scalar<int32_t>(1).Reshape({-1})->shape(), (Shape{1}));
  EXPECT_EQ(Tensor::Vector<int32_t>({1}).Reshape({})->shape(), Shape());
}

TEST(ReshapeTest, OfNoElementsInfersZero) {
  EXPECT_EQ(Tensor().Reshape({-1, 5})->shape(), (Shape{0, 5}));
  EXPECT_EQ(Tensor().Reshape({3, 0})->shape(), (Shape{3, 0}));
}

TEST(ReshapeTest, RefusesWhatDoesNotHoldAsMany) {
  const Tensor six = Tensor::Vector<int32_t>({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(six.Reshape({4}).status(),
            InvalidArgumentError("Reshape: [6] has 6 elements, which do not fit the shape [4]"));
  EXPECT_EQ(
      six.Reshape({4, -1}).status(),
      InvalidArgumentError("Reshape: [6] has 6 elements, which do not fit the shape [4, -1]"));
  EXPECT_EQ(six.Reshape({-1, 2, -1}).status(),
            InvalidArgumentError("Reshape to [-1, 2, -1]: only one dimension may be -1"));
  EXPECT_EQ(six.Reshape({-3}).status(), Shape{-3}.status());
  EXPECT_EQ(
      Tensor().Reshape({0, -1}).status(),
      InvalidArgumentError("Reshape: [0] has 0 elements, which do not fit the shape [0, -1]"));
}

TEST(RowsTest, ShareTheBuffer) {
  const Tensor table = *Tensor::Copy<int32_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = *table.Rows(1, 3);
  EXPECT_EQ(rows.ToString(), "int32 [2, 2]");
  EXPECT_THAT(*rows.values<int32_t>(), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(rows.data(), table.data_as<int32_t>() + 2);
  EXPECT_THAT(*rows.Rows(1, 2)->values<int32_t>(), ElementsAre(5, 6))
      << "rows of a result count from its first row";
  EXPECT_EQ(table.Rows(3, 3)->shape(), (Shape{0, 2}));
  EXPECT_EQ(Tensor::Zeros(DType::kFloat32, {3, 0})->Rows(1, 3)->shape(), (Shape{2, 0}));
}

TEST(RowsTest, RefusesWhatIsNotThere) {
  const Tensor table = *Tensor::Copy<int32_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(table.Rows(1, 4).status(), InvalidArgumentError("rows [1, 4) of [3, 2]"));
  EXPECT_EQ(table.Rows(-1, 2).status(), InvalidArgumentError("rows [-1, 2) of [3, 2]"));
  EXPECT_EQ(table.Rows(2, 1).status(), InvalidArgumentError("rows [2, 1) of [3, 2]"));
  EXPECT_EQ(Tensor::Scalar<float>(1).Rows(0, 1).status(),
            InvalidArgumentError("Rows: a scalar has no axis to take rows from"));
}

TEST(BitwiseEqualTest, ANaNEqualsItselfAndZeroIsNotMinusZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(BitwiseEqual(Tensor::Vector<float>({nan, 1}), Tensor::Vector<float>({nan, 1})));
  EXPECT_FALSE(BitwiseEqual(Tensor::Scalar<float>(0.0f), Tensor::Scalar<float>(-0.0f)));
}

TEST(BitwiseEqualTest, TheSameBytesOfAnotherKindAreNotEqual) {
  EXPECT_FALSE(BitwiseEqual(Tensor::Scalar<int32_t>(0), Tensor::Scalar<float>(0)));
  EXPECT_FALSE(BitwiseEqual(Tensor::Scalar<float>(1), Tensor::Vector<float>({1})));
  EXPECT_FALSE(BitwiseEqual(Tensor::Vector<float>({1, 2}), Tensor::Vector<float>({1, 3})));
  EXPECT_TRUE(BitwiseEqual(Tensor(), Tensor()));
}

// ---- Devices

// Plays the memory of two GPUs with memory of this process. Records the calls, and fails on demand.
class FakeDeviceMemory : public DeviceMemory {
 public:
  FakeDeviceMemory() { SetGpuMemory(this); }
  ~FakeDeviceMemory() override {
    SetGpuMemory(nullptr);
    EXPECT_EQ(held_, 0) << "all memory was returned";
  }

  absl::StatusOr<void*> Allocate(Device device, int64_t bytes) override {
    return Take(absl::StrCat("Allocate ", device.ToString(), " ", bytes));
  }
  void Free(Device device, void* data) override {
    Give(absl::StrCat("Free ", device.ToString()), data);
  }
  absl::StatusOr<void*> Upload(Device device, const void* from, int64_t bytes,
                               std::shared_ptr<const void> owner) override {
    return Copied(Take(absl::StrCat("Upload ", device.ToString(), " ", bytes)), from, bytes,
                  std::move(owner));
  }
  absl::StatusOr<void*> CopyAcross(Device device, const Download& from) override {
    marks.push_back(from.written);
    return Copied(Take(absl::StrCat("CopyAcross ", from.from_device.ToString(), " to ",
                                    device.ToString(), " ", from.bytes)),
                  from.from, from.bytes, nullptr);
  }
  absl::Status Bring(absl::Span<const Download> values) override {
    for (const Download& value : values) {
      calls.push_back(absl::StrCat("Bring ", value.from_device.ToString(), " ", value.bytes));
      marks.push_back(value.written);
      std::memcpy(value.to, value.from, value.bytes);
    }
    ++brings;
    return fault;
  }
  std::shared_ptr<const DeviceMark> Mark(Device device) override {
    calls.push_back(absl::StrCat("Mark ", device.ToString()));
    return made_marks.emplace_back(std::make_shared<DeviceMark>());
  }
  DeviceFailures FindFailures(Device) override { return {}; }
  void* AllocateHost(int64_t bytes) override {
    if (!pool) return nullptr;
    return *Take(absl::StrCat("AllocateHost ", bytes));
  }
  void FreeHost(void* data) override { Give("FreeHost", data); }

  std::vector<std::string> calls;
  // The marks that came with copies, and the marks that Mark returned.
  std::vector<std::shared_ptr<const DeviceMark>> marks, made_marks;
  // The owner of the last upload.
  std::shared_ptr<const void> reading;
  absl::Status fault;
  int brings = 0;
  bool pool = false;

 private:
  absl::StatusOr<void*> Take(std::string call) {
    calls.push_back(std::move(call));
    if (!fault.ok()) return fault;
    ++held_;
    return std::malloc(size_t{1} << 17);
  }
  void Give(std::string call, void* data) {
    calls.push_back(std::move(call));
    --held_;
    std::free(data);
  }
  absl::StatusOr<void*> Copied(absl::StatusOr<void*> to, const void* from, int64_t bytes,
                               std::shared_ptr<const void> owner) {
    if (!to.ok()) return to;
    std::memcpy(*to, from, bytes);
    reading = std::move(owner);
    return to;
  }
  int held_ = 0;
};

TEST(WithoutAGpuTest, WhoAsksForOneLearnsHowToHaveIt) {
  const absl::Status why = absl::UnimplementedError(
      "no GPU is in use: this process computes on the CPU (GPUs need --gpus and a build with "
      "--config=cuda)");
  EXPECT_EQ(Tensor::Uninitialized(DType::kFloat32, {2}, kGpu).status(), why);
  EXPECT_EQ(Tensor::Scalar<float>(1).To(kGpu).status(), why);
  EXPECT_EQ(GpuMemory().status(), why);
  EXPECT_EQ(GpuMemoryIfAny(), nullptr);
}

TEST(DeviceMemoryTest, OfATensorIsTheDevicesAndGivenBackWithTheLastHandle) {
  FakeDeviceMemory memory;
  {
    Tensor last;
    {
      const Tensor there = *Tensor::Uninitialized(DType::kFloat32, {3, 2}, kOtherGpu);
      EXPECT_EQ(there.device(), kOtherGpu);
      last = *there.Rows(1, 2);
    }
    EXPECT_EQ(last.device(), kOtherGpu);
    EXPECT_THAT(memory.calls, ElementsAre("Allocate GPU:1 24"));
  }
  EXPECT_THAT(memory.calls, ElementsAre("Allocate GPU:1 24", "Free GPU:1"));
}

TEST(DeviceMemoryTest, WhatItCannotIsTheErrorOfWhoAsked) {
  FakeDeviceMemory memory;
  const Tensor here = Tensor::Scalar<float>(1), there = *here.To(kGpu);
  for (const absl::Status& fault :
       {absl::ResourceExhaustedError("full"), absl::NotFoundError("no such GPU"),
        absl::InternalError("lost")}) {
    memory.fault = fault;
    EXPECT_EQ(Tensor::Uninitialized(DType::kFloat32, {2}, kGpu).status(), fault);
    EXPECT_EQ(here.To(kGpu).status(), fault);
    EXPECT_EQ(there.To(kOtherGpu).status(), fault);
    EXPECT_EQ(there.To(Device()).status(), fault);
    EXPECT_EQ(ToHost({here, there}).status(), fault);
  }
}

TEST(DeviceMemoryTest, NoElementsHaveAPlaceButNoMemory) {
  FakeDeviceMemory memory;
  const Tensor none = *Tensor::Uninitialized(DType::kInt8, {0, 3}, kGpu);
  EXPECT_EQ(none.device(), kGpu);
  EXPECT_EQ(none.To(kOtherGpu)->device(), kOtherGpu);
  EXPECT_EQ(none.To(Device())->device(), Device());
  EXPECT_EQ(Tensor().To(kGpu)->device(), kGpu);
  EXPECT_EQ((*ToHost({none}))[0].ToString(), "int8 [0, 3]");
  EXPECT_THAT(memory.calls, IsEmpty());
}

TEST(DeviceMemoryTest, ValuesGoThereAcrossAndBack) {
  FakeDeviceMemory memory;
  const Tensor here = Tensor::Vector<float>({1, 2});
  EXPECT_EQ(here.To(Device())->data(), here.data()) << "they are on the CPU already";
  const Tensor there = *here.To(kGpu);
  EXPECT_EQ(there.To(kGpu)->data(), there.data());
  const Tensor back = *there.Rows(1, 2)->To(kOtherGpu)->To(Device());
  EXPECT_EQ(back.device(), Device());
  EXPECT_EQ(back.ToString(), "float32 [1]");
  EXPECT_THAT(*back.values<float>(), ElementsAre(2));
  EXPECT_THAT(memory.calls, ElementsAre("Upload GPU:0 8", "CopyAcross GPU:0 to GPU:1 4",
                                        "Bring GPU:1 4", "Free GPU:1"));
}

TEST(DeviceMemoryTest, SmallTensorsTravelToAGpuTogether) {
  FakeDeviceMemory memory;
  const Tensor a = Tensor::Vector<float>({1, 2}), b = Tensor::Vector<int64_t>({3}),
               large = *Tensor::Zeros(DType::kFloat32, {20'000});
  std::vector<Tensor> there = *ToDevice({a, large, b, Tensor()}, kGpu);
  EXPECT_THAT(memory.calls, ElementsAre("Upload GPU:0 512", "Upload GPU:0 80000"));
  EXPECT_EQ(there[0].ToString(), "float32 [2]");
  EXPECT_EQ(there[3].device(), kGpu);
  EXPECT_EQ(there[2].To(Device())->data(), b.data()) << "integers are taken from their origin";
  EXPECT_THAT(*there[0].To(Device())->values<float>(), ElementsAre(1, 2));
  const Tensor last = there[2];
  there.clear();
  EXPECT_EQ(std::count(memory.calls.begin(), memory.calls.end(), "Free GPU:0"), 1)
      << "the large one; of the small ones only the packed copy is held";
}

TEST(DeviceMemoryTest, ASmallTensorAloneAndThoseOfTheCpuTravelAsTheyAre) {
  FakeDeviceMemory memory;
  const Tensor a = Tensor::Vector<float>({1, 2});
  EXPECT_EQ((*ToDevice({a, a}, Device()))[1].data(), a.data());
  ASSERT_TRUE(ToDevice({a}, kGpu).ok());
  EXPECT_THAT(memory.calls, ElementsAre("Upload GPU:0 8", "Free GPU:0"));
}

TEST(NoteTest, BelongsToTheValuesThatItIsAbout) {
  const Tensor ids = Tensor::Vector<int64_t>({1, 2, 3});
  EXPECT_EQ(ids.note(), nullptr);
  const auto note = std::make_shared<const TensorNote>();
  ids.SetNote(note);
  EXPECT_EQ(ids.Reshape({3, 1})->note(), note);
  EXPECT_EQ(ids.Rows(1, 3)->note(), nullptr);
  Tensor changed = ids;
  (*changed.mutable_values<int64_t>())[0] = 7;
  EXPECT_EQ(changed.note(), nullptr);
  EXPECT_EQ(ids.note(), note);
  Tensor alone = Tensor::Vector<int64_t>({1});
  alone.SetNote(note);
  (*alone.mutable_values<int64_t>())[0] = 7;
  EXPECT_EQ(alone.note(), nullptr);
}

TEST(DeviceMemoryTest, WhatADeviceStillReadsIsNeitherWrittenNorReleased) {
  FakeDeviceMemory memory;
  int32_t borrowed[2] = {1, 2};
  bool released = false;
  Tensor here = *Tensor::Vector<int32_t>({1, 2}).Reshape({2});
  const int32_t* const read = here.data_as<int32_t>();
  const Tensor there = *here.To(kGpu);
  (*here.mutable_values<int32_t>())[0] = 9;
  EXPECT_EQ(read[0], 1);
  {
    const Tensor two = *Tensor::Borrow(DType::kInt32, {2}, borrowed, Device(), [&released] {
                          released = true;
                        })->To(kGpu);
  }
  EXPECT_FALSE(released);
  memory.reading = nullptr;
  EXPECT_TRUE(released);
}

TEST(DeviceMemoryTest, BorrowedIntegersAreBroughtBackFromThereForTheirOwnerMayHaveWrittenOthers) {
  FakeDeviceMemory memory;
  int64_t borrowed[2] = {1, 2};
  const Tensor there = *Tensor::Borrow(DType::kInt64, {2}, borrowed, Device(), nullptr)->To(kGpu);
  borrowed[0] = 9;
  EXPECT_THAT(*(*there.To(Device())).values<int64_t>(), ElementsAre(1, 2));
}

TEST(DeviceMemoryTest, NoRowsOfIntegersComeBackAsNoData) {
  FakeDeviceMemory memory;
  const Tensor there = *Tensor::Vector<int64_t>({1, 2}).To(kGpu);
  const Tensor here = (*ToHost({*there.Rows(1, 1)}))[0];
  EXPECT_EQ(here.shape(), Shape({0}));
  EXPECT_EQ(here.data(), nullptr);
}

TEST(DeviceMemoryTest, WhatLiesThereIsNotReadHere) {
  FakeDeviceMemory memory;
  Tensor there = *Tensor::Scalar<float>(1).To(kGpu);
  const absl::Status why = InvalidArgumentError("the tensor is on GPU:0: use To(Device()) first");
  EXPECT_EQ(there.values<float>().status(), why);
  EXPECT_EQ(there.scalar<float>().status(), why);
  EXPECT_EQ(there.mutable_values<float>().status(), why);
  EXPECT_FALSE(BitwiseEqual(there, there));
  EXPECT_FALSE(BitwiseEqual(Tensor::Scalar<float>(1), there));
}

TEST(DeviceMemoryTest, SeveralAreBroughtAtOnceInTheirOrder) {
  FakeDeviceMemory memory;
  const Tensor one = Tensor::Scalar<float>(1), two = *Tensor::Vector<float>({2, 3}).To(kGpu),
               three = *Tensor::Scalar<double>(4).To(kOtherGpu);
  memory.calls.clear();
  const std::vector<Tensor> here = *ToHost({two, one, three});
  EXPECT_THAT(*here[0].values<float>(), ElementsAre(2, 3));
  EXPECT_EQ(here[1].data(), one.data());
  EXPECT_EQ(*here[2].scalar<double>(), 4);
  EXPECT_THAT(memory.calls, ElementsAre("Bring GPU:0 8", "Bring GPU:1 8"));
  EXPECT_EQ(memory.brings, 1);
}

TEST(DeviceMemoryTest, NothingIsAskedForWhatIsHereAlready) {
  FakeDeviceMemory memory;
  memory.fault = absl::InternalError("lost");
  EXPECT_TRUE(ToHost({Tensor::Scalar<float>(1), Tensor()}).ok());
  EXPECT_THAT(*ToHost({}), IsEmpty());
  Tensor::Scalar<float>(1).MarkWritten();
  Tensor().MarkWritten();
  EXPECT_THAT(memory.calls, IsEmpty());
}

TEST(DeviceMemoryTest, ACopyWaitsForTheLastMarkOfItsBuffer) {
  FakeDeviceMemory memory;
  const Tensor there = *Tensor::Vector<float>({1, 2}).To(kGpu);
  ASSERT_TRUE(there.To(Device()).ok());
  there.MarkWritten();
  there.Rows(0, 1)->MarkWritten();  // marks the buffer, and so every handle
  ASSERT_TRUE(there.To(Device()).ok());
  ASSERT_TRUE(there.To(kOtherGpu).ok());
  ASSERT_EQ(memory.made_marks.size(), 2u);
  EXPECT_THAT(memory.marks, ElementsAre(nullptr, memory.made_marks[1], memory.made_marks[1]));
}

TEST(DeviceMemoryTest, BorrowedMemoryOfADeviceIsReleasedAndNotFreed) {
  FakeDeviceMemory memory;
  const float value = 5;
  int released = 0;
  {
    const Tensor there =
        *Tensor::Borrow(DType::kFloat32, {1}, &value, kGpu, [&released] { ++released; });
    EXPECT_EQ(there.device(), kGpu);
    EXPECT_EQ(*there.To(Device())->scalar<float>(), 5);
  }
  EXPECT_EQ(released, 1);
  EXPECT_THAT(memory.calls, ElementsAre("Bring GPU:0 4"));
}

TEST(DeviceMemoryTest, LargeTensorsOfTheCpuLieInItsPoolWhileThereIsRoom) {
  FakeDeviceMemory memory;
  memory.pool = true;
  {
    const Tensor large = *Tensor::Zeros(DType::kInt8, {64 << 10}),
                 small = *Tensor::Zeros(DType::kInt8, {100});
  }
  EXPECT_THAT(memory.calls, ElementsAre("AllocateHost 65536", "FreeHost"));
  memory.pool = false;
  EXPECT_THAT(*Tensor::Zeros(DType::kInt8, {64 << 10})->values<int8_t>(), Each(0));
  EXPECT_EQ(memory.calls.size(), 2u);
}

// ---- Sparse forms

IndexedSlices Slices(std::initializer_list<int64_t> ids, Tensor rows, int64_t num_rows) {
  return {Tensor::Vector<int64_t>(ids), std::move(rows), num_rows};
}

TEST(IndexedSlicesTest, IdsMayRepeatInAnyOrderAndBeNone) {
  EXPECT_EQ(Validate(Slices({3, 0, 3}, *Tensor::Zeros(DType::kFloat32, {3, 2}), 4)),
            absl::OkStatus());
  EXPECT_EQ(Validate(Slices({}, *Tensor::Zeros(DType::kFloat32, {0, 2}), 0)), absl::OkStatus());
}

TEST(IndexedSlicesTest, AnIdOutsideTheRowsIsNamed) {
  const Tensor rows = *Tensor::Zeros(DType::kFloat32, {2, 2});
  EXPECT_EQ(Validate(Slices({0, 4}, rows, 4)),
            InvalidArgumentError("IndexedSlices: id 4 is outside [0, 4)"));
  EXPECT_EQ(Validate(Slices({-1, 0}, rows, 4)),
            InvalidArgumentError("IndexedSlices: id -1 is outside [0, 4)"));
  EXPECT_EQ(Validate(Slices({0, 1}, rows, -4)),
            InvalidArgumentError("IndexedSlices: num_rows is -4; it must be at least 0"));
}

TEST(IndexedSlicesTest, IdsAndRowsMustFit) {
  const absl::Status fewer = InvalidArgumentError(
      "IndexedSlices: ids int64 [1] and rows float32 [2, 2] do not fit: want [n] and [n, ...]");
  EXPECT_EQ(Validate(Slices({0}, *Tensor::Zeros(DType::kFloat32, {2, 2}), 4)), fewer);
  const Tensor one = Tensor::Scalar<int64_t>(0);
  EXPECT_EQ(
      Validate(IndexedSlices{one, *one.Reshape({1}), 4}),
      InvalidArgumentError(
          "IndexedSlices: ids int64 [] and rows int64 [1] do not fit: want [n] and [n, ...]"));
  EXPECT_EQ(
      Validate(Slices({0}, one, 4)),
      InvalidArgumentError(
          "IndexedSlices: ids int64 [1] and rows int64 [] do not fit: want [n] and [n, ...]"));
  EXPECT_EQ(Validate(IndexedSlices{Tensor::Vector<int32_t>({0}), *one.Reshape({1}), 4}),
            InvalidArgumentError("the tensor is int32 [1]; wanted int64"));
}

TEST(IndexedSlicesTest, IdsLieOnTheCpuAndRowsAnywhere) {
  FakeDeviceMemory memory;
  const Tensor here = Tensor::Vector<int64_t>({0}), there = *here.To(kGpu);
  EXPECT_EQ(Validate(IndexedSlices{here, there, 1}), absl::OkStatus());
  EXPECT_EQ(Validate(IndexedSlices{there, here, 1}),
            InvalidArgumentError("the tensor is on GPU:0: use To(Device()) first"));
}

SparseIds Lists(const std::vector<int64_t>& ids, const std::vector<int64_t>& row_splits) {
  return {Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(row_splits), std::nullopt};
}

TEST(SparseIdsTest, ListsMayBeEmptyAndTheirIdsAnyNumbers) {
  EXPECT_EQ(Validate(Lists({3, -1, 7}, {0, 2, 2, 3})), absl::OkStatus());
  EXPECT_EQ(Validate(Lists({}, {0})), absl::OkStatus());
}

TEST(SparseIdsTest, SplitsThatDoNotRiseFromZeroToAllAreRefused) {
  const absl::Status why =
      InvalidArgumentError("SparseIds: row_splits must rise from 0 to 3, for ids int64 [3]");
  for (const std::vector<int64_t>& splits :
       std::vector<std::vector<int64_t>>{{1, 3}, {0, 2}, {0, 4}, {0, 2, 1, 3}, {0, -1, 3}, {0}}) {
    EXPECT_EQ(Validate(Lists({3, 1, 7}, splits)), why);
  }
  EXPECT_EQ(
      Validate(Lists({3}, {})),
      InvalidArgumentError("SparseIds: row_splits int64 [0]: want [batch + 1], for ids int64 [1]"));
}

TEST(SparseIdsTest, WeightsAreFloatsAsManyAsIds) {
  SparseIds sparse = Lists({3, 1}, {0, 2});
  sparse.weights = Tensor::Vector<float>({1, 2});
  EXPECT_EQ(Validate(sparse), absl::OkStatus());
  sparse.weights = Tensor::Vector<float>({1});
  EXPECT_EQ(Validate(sparse), InvalidArgumentError("SparseIds: weights float32 [1] do not fit ids "
                                                   "int64 [2]: want float32, one for each id"));
  sparse.weights = Tensor::Vector<double>({1, 2});
  EXPECT_EQ(Validate(sparse), InvalidArgumentError("SparseIds: weights float64 [2] do not fit ids "
                                                   "int64 [2]: want float32, one for each id"));
}

TEST(SparseIdsTest, IdsAndSplitsAreInt64OfOneDimensionOnTheCpu) {
  FakeDeviceMemory memory;
  const Tensor ids = Tensor::Vector<int64_t>({3}), splits = Tensor::Vector<int64_t>({0, 1});
  EXPECT_EQ(Validate(SparseIds{*ids.Reshape({1, 1}), splits, {}}),
            InvalidArgumentError("SparseIds: ids int64 [1, 1]: want [n]"));
  EXPECT_EQ(Validate(SparseIds{Tensor::Vector<float>({3}), splits, {}}),
            InvalidArgumentError("the tensor is float32 [1]; wanted int64"));
  EXPECT_EQ(Validate(SparseIds{*ids.To(kGpu), splits, {}}),
            InvalidArgumentError("the tensor is on GPU:0: use To(Device()) first"));
  EXPECT_EQ(Validate(SparseIds{ids, *splits.To(kGpu), {}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateRowSplits(*splits.Reshape({1, 2}), 1),
            InvalidArgumentError("row_splits int64 [1, 2]: want [batch + 1]"));
  EXPECT_EQ(ValidateRowSplits(Tensor::Vector<int32_t>({0, 1}), 1),
            InvalidArgumentError("the tensor is int32 [2]; wanted int64"));
  EXPECT_EQ(ValidateRowSplits(splits, 1), absl::OkStatus());
}

}  // namespace
}  // namespace divvy
