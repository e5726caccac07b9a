// Initial values from checkpoints: TensorFlow's own files (tests/golden), and small ones in memory.
#include "strategy/warm_start.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/in_memory_file_system.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr char kSingle[] = "tests/golden/bundle/single", kMerged[] = "tests/golden/bundle/merged";

// Rows [first, first + count) of the variable's initial value.
absl::StatusOr<Tensor> InitialValue(const WarmStart& start, const VariableSpec& variable,
                                    int64_t first, int64_t count) {
  ASSIGN_OR_RETURN(const VariableSpec spec, start.Apply(variable));
  RETURN_IF_ERROR(Validate(spec));
  return InitialRows(spec.initializer, {1, spec.name, spec.shape}, spec.dtype, first, count);
}

TEST(WarmStartTest, TensorsOfTensorFlowAreInitialValuesUnderOtherNamesInAnyBlocks) {
  // The same table, in five slices of one file and in four slices of two files.
  for (const char* const prefix : {kSingle, kMerged}) {
    SCOPED_TRACE(prefix);
    const auto start = WarmStart::Open(prefix, {{"items/", "emb/"}});
    ASSERT_TRUE(start.ok()) << start.status();
    const VariableSpec table{"items/table", {14, 8}};
    EXPECT_THAT((*InitialValue(*start, table, 0, 14)->values<float>())[0],
                FloatEq(-0.02207632176578045f));
    const auto rows = InitialValue(*start, table, 4, 7);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->shape(), Shape({7, 8}));
    EXPECT_THAT((*rows->values<float>())[0], FloatEq(-1.2149015665054321f));
    EXPECT_THAT((*rows->values<float>())[55], FloatEq(-0.025158360600471497f))
        << "the last element of row 10";
  }
}

TEST(WarmStartTest, ScalarsAndOtherDtypesAreTaken) {
  const auto start = WarmStart::Open(kSingle);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(*InitialValue(*start, {"t/scalar", {}}, 0, 1)->scalar<float>(), 1.5f);
  VariableSpec counts{"t/int32", {2, 3}};
  counts.dtype = DType::kInt32;
  EXPECT_EQ((*InitialValue(*start, counts, 1, 1)->values<int32_t>())[1], 6);
}

TEST(WarmStartTest, TheLongestNameThatFitsCountsAndWhereNoneDoesTheSpecStaysAsItIs) {
  const auto start = WarmStart::Open(kSingle, {{"a/", "t/"}, {"a/b/", "emb/"}});
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_TRUE(InitialValue(*start, {"a/float32", {3, 4}}, 0, 3).ok());
  EXPECT_TRUE(InitialValue(*start, {"a/b/table", {14, 8}}, 0, 14).ok());
  const auto other = start->Apply({"b/head", {2}, Constant{7}});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(std::get<Constant>(other->initializer).value, 7);
}

TEST(WarmStartTest, ANameThatIsNotThereIsToldWithTheNearest) {
  const absl::Status refused =
      WarmStart::Open(kSingle, {{"", "t/"}})->Apply({"float23", {3, 4}}).status();
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("variable \"float23\" is to start from \"t/float23\", which "
                      "tests/golden/bundle/single does not have"),
            HasSubstr("the most similar tensor: \"t/float32\""), HasSubstr("Correct the names")));
}

TEST(WarmStartTest, AnotherShapeOrDtypeIsToldWithBoth) {
  const auto start = WarmStart::Open(kSingle);
  const absl::Status shape = start->Apply({"t/float32", {4, 3}}).status(),
                     dtype = start->Apply({"t/float64", {5}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(shape)) << shape;
  EXPECT_THAT(std::string(shape.message()),
              HasSubstr("variable \"t/float32\" is float32 [4, 3], and \"t/float32\" in "
                        "tests/golden/bundle/single is float32 [3, 4]"));
  EXPECT_TRUE(absl::IsInvalidArgument(dtype)) << dtype;
  EXPECT_THAT(std::string(dtype.message()), HasSubstr("is float64 [5]: declare the variable so"));
}

TEST(WarmStartTest, TypesThatNoVariableHasAreRefused) {
  const auto start = WarmStart::Open(kSingle);
  EXPECT_TRUE(absl::IsInvalidArgument(start->Apply({"t/string", {3}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(start->Apply({"t/complex64", {2}}).status()));
}

class OwnFilesTest : public ::testing::Test {
 protected:
  // "/models/ckpt-1": float32 vectors of two elements, all `value`.
  OwnFilesTest() {
    EXPECT_TRUE(files_.CreateDirectory("/models").ok());
    const absl::Status written = Write({"dense/kernel/.ATTRIBUTES/VARIABLE_VALUE", "bias"}, 0.5f);
    EXPECT_TRUE(written.ok()) << written;
  }
  absl::Status Write(const std::vector<std::string>& names, float value) {
    const float values[] = {value, value};
    const absl::string_view bytes(reinterpret_cast<const char*>(values), sizeof values);
    std::vector<BundleSlice> slices;
    ASSIGN_OR_RETURN(const auto file, BundleDataWriter::Create(files_, "/models/ckpt-1", 0, 1));
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(slices.emplace_back(),
                       file->Append(name, DType::kFloat32, {2}, 0, 2, bytes));
    }
    RETURN_IF_ERROR(file->Finish());
    return WriteBundleIndex(files_, "/models/ckpt-1", 1, slices);
  }
  absl::StatusOr<WarmStart> Open(const std::string& path) {
    return WarmStart::Open(path, {{"", ""}}, files_);
  }

  InMemoryFileSystem files_;
};

TEST_F(OwnFilesTest, TheEndingOfTheObjectGraphNeedNotBeWritten) {
  const auto start = Open("/models/ckpt-1");
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ((*InitialValue(*start, {"dense/kernel", {2}}, 0, 2)->values<float>())[1], 0.5f);
  EXPECT_EQ((*InitialValue(*start, {"bias", {2}}, 1, 1)->values<float>())[0], 0.5f);
}

TEST_F(OwnFilesTest, OfADirectoryTheNewestIsTaken) {
  for (const std::string newest : {"ckpt-1", "/models/ckpt-1"}) {
    ASSERT_TRUE(files_
                    .ReplaceFile("/models/checkpoint",
                                 absl::StrCat("model_checkpoint_path: \"", newest,
                                              "\"\nall_model_checkpoint_paths: \"x\"\n"))
                    .ok());
    const auto start = Open("/models");
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->prefix(), "/models/ckpt-1");
  }
}

TEST_F(OwnFilesTest, ADirectoryThatDoesNotSayItsNewestIsToldWithTheFix) {
  const absl::Status missing = Open("/models").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("give the prefix of a checkpoint, such as /models/ckpt-3-17"));
  ASSERT_TRUE(files_.ReplaceFile("/models/checkpoint", "nothing\n").ok());
  EXPECT_TRUE(absl::IsDataLoss(Open("/models").status()));
}

TEST_F(OwnFilesTest, NoCheckpointIsNotFoundAndAFlippedBitIsDataLossBeforeAnythingIsCreated) {
  EXPECT_TRUE(absl::IsNotFound(Open("/models/ckpt-2").status()));
  const auto start = Open("/models/ckpt-1");
  ASSERT_TRUE(start.ok()) << start.status();
  ASSERT_TRUE(files_.FlipBit("/models/ckpt-1.data-00000-of-00001", 9, 0).ok());
  EXPECT_TRUE(absl::IsDataLoss(start->Apply({"bias", {2}}).status()));
  EXPECT_TRUE(start->Apply({"dense/kernel", {2}}).ok()) << "its bytes are intact";
}

}  // namespace
}  // namespace divvy
