// Initial values from checkpoints: TensorFlow's own files (tests/golden), and small ones in memory.
#include "strategy/warm_start.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/in_memory_file_system.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "variables/dynamic_table.h"
#include "variables/first_rows.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

// ---- tables

const DynamicTable kUsers("user", {.width = 2, .initializer = Constant{9}});

class TableFilesTest : public ::testing::Test {
 protected:
  TableFilesTest() { EXPECT_TRUE(files_.CreateDirectory("/models").ok()); }

  // "/models/ckpt-1" with these tensors.
  struct Named {
    std::string name;
    Tensor tensor;
  };
  void Write(const std::vector<Named>& tensors) {
    const auto file = BundleDataWriter::Create(files_, "/models/ckpt-1", 0, 1);
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<BundleSlice> slices;
    for (const auto& [name, tensor] : tensors) {
      const int64_t rows = tensor.shape().dim(0);
      const auto slice =
          (*file)->Append(name, tensor.dtype(), tensor.shape(), 0, rows,
                          {tensor.data_as<char>(), static_cast<size_t>(tensor.size_bytes())});
      ASSERT_TRUE(slice.ok()) << slice.status();
      slices.push_back(*slice);
    }
    ASSERT_TRUE((*file)->Finish().ok());
    const absl::Status written = WriteBundleIndex(files_, "/models/ckpt-1", 1, slices);
    ASSERT_TRUE(written.ok()) << written;
  }
  void WriteTable(const std::string& name, const std::vector<int64_t>& keys) {
    Write({{absl::StrCat(name, "-keys"), Tensor::Vector<int64_t>(keys)},
           {absl::StrCat(name, "-values"), Rows(static_cast<int64_t>(keys.size()))},
           {absl::StrCat(name, "-freqs"), Counts(static_cast<int64_t>(keys.size()))}});
  }
  // Row i is [i, -i].
  static Tensor Rows(int64_t n, int64_t width = 2) {
    std::vector<float> values;
    for (int64_t i = 0; i < n * width; ++i)
      values.push_back(static_cast<float>(i / width) * (i % 2 == 0 ? 1.0f : -1.0f));
    return *Tensor::Vector<float>(values).Reshape({n, width});
  }
  // Count i is 10 + i.
  static Tensor Counts(int64_t n) {
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < n; ++i) counts.push_back(10 + i);
    return Tensor::Vector<int64_t>(counts);
  }
  absl::StatusOr<VariableSpec> Apply(const VariableSpec& spec,
                                     std::map<std::string, std::string> names = {{"", ""}}) {
    ASSIGN_OR_RETURN(const WarmStart start,
                     WarmStart::Open("/models/ckpt-1", std::move(names), files_));
    return start.Apply(spec);
  }

  InMemoryFileSystem files_;
};

template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  const absl::Span<const T> values = *tensor.values<T>();
  return {values.begin(), values.end()};
}

TEST_F(TableFilesTest, ATableTakesKeysValuesAndCountsInAnyBlocksUnderAnotherName) {
  WriteTable("old/user", {5, -7, 0, INT64_MIN, INT64_MAX});
  const auto spec = Apply(kUsers, {{"", "old/"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(Validate(*spec).ok()) << Validate(*spec);
  const FirstRows* const first = FirstRowsOf(spec->initializer);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->num_rows, 5);
  EXPECT_EQ(std::get<Constant>(first->others).value, 9);
  const auto block = first->rows(1, 3);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_THAT(ValuesOf<int64_t>(block->keys), ElementsAre(-7, 0, INT64_MIN));
  EXPECT_THAT(ValuesOf<float>(block->values), ElementsAre(1, -1, 2, -2, 3, -3));
  EXPECT_THAT(ValuesOf<int64_t>(*block->counts), ElementsAre(11, 12, 13));
}

TEST_F(TableFilesTest, CountsNeedNotBeThere) {
  Write({{"user-keys", Tensor::Vector<int64_t>({3})}, {"user-values", Rows(1)}});
  const auto spec = Apply(kUsers);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(FirstRowsOf(spec->initializer)->rows(0, 1)->counts.has_value());
}

TEST_F(TableFilesTest, ATableThatNoNameMatchesStaysAsItIs) {
  WriteTable("user", {1});
  const auto spec = Apply(kUsers, {{"ad", "ad"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(FirstRowsOf(spec->initializer), nullptr);
}

TEST_F(TableFilesTest, AnotherWidthIsToldWithBoth) {
  Write({{"user-keys", Tensor::Vector<int64_t>({3, 4})}, {"user-values", Rows(2, 3)}});
  const absl::Status refused = Apply(kUsers).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("variable \"user\" is a dynamic table with rows of 2 values, and "
                        "\"user-values\" in /models/ckpt-1 is float32 [2, 3]: declare"));
}

// As a table of half precision writes them.
TEST_F(TableFilesTest, ValuesOfHalfPrecisionBecomeFloat32InAnyBlocks) {
  // 0x3555 is the float16 next to 1/3, and 0x3eab the bfloat16.
  const Tensor halves =
      *Tensor::Vector<Half>({Half::FromFloat(1), Half::FromFloat(-2.5f), Half{0x3555},
                             Half::FromFloat(65504), Half::FromFloat(0), Half::FromFloat(-0.125f)})
           .Reshape({3, 2});
  const Tensor bfloats =
      *Tensor::Vector<BFloat16>({BFloat16::FromFloat(1), BFloat16::FromFloat(-2.5f),
                                 BFloat16{0x3eab}, BFloat16::FromFloat(0x1p100f),
                                 BFloat16::FromFloat(0), BFloat16::FromFloat(-0.125f)})
           .Reshape({3, 2});
  Write({{"user-keys", Tensor::Vector<int64_t>({3, 4, 5})},
         {"user-values", halves},
         {"ad-keys", Tensor::Vector<int64_t>({3, 4, 5})},
         {"ad-values", bfloats}});
  const auto user = Apply(kUsers), ad = Apply(kUsers, {{"user", "ad"}});
  ASSERT_TRUE(user.ok()) << user.status();
  ASSERT_TRUE(ad.ok()) << ad.status();
  const auto of_halves = FirstRowsOf(user->initializer)->rows(0, 3),
             of_bfloats = FirstRowsOf(ad->initializer)->rows(0, 3);
  ASSERT_TRUE(of_halves.ok()) << of_halves.status();
  ASSERT_TRUE(of_bfloats.ok()) << of_bfloats.status();
  EXPECT_THAT(ValuesOf<float>(of_halves->values),
              ElementsAre(1, -2.5f, 0x1.554p-2f, 65504, 0, -0.125f));
  EXPECT_THAT(ValuesOf<float>(of_bfloats->values),
              ElementsAre(1, -2.5f, 0x1.56p-2f, 0x1p100f, 0, -0.125f));
  const auto block = FirstRowsOf(user->initializer)->rows(1, 1);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(block->values.shape(), (Shape{1, 2}));
  EXPECT_THAT(ValuesOf<float>(block->values), ElementsAre(0x1.554p-2f, 65504));
}

TEST_F(TableFilesTest, ValuesThatAreNoFloatsAreToldWithTheDtypesThatAreTaken) {
  Write({{"user-keys", Tensor::Vector<int64_t>({3})},
         {"user-values", *Tensor::Vector<int32_t>({1, 2}).Reshape({1, 2})}});
  const absl::Status refused = Apply(kUsers).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("begin with float32, float16 or bfloat16, and \"user-values\" in "
                        "/models/ckpt-1 is int32: use a checkpoint that has"));
}

TEST_F(TableFilesTest, OtherDtypesOfKeysAndCountsAreToldWithBoth) {
  Write({{"user-keys", Tensor::Vector<int32_t>({3})},
         {"user-values", Rows(1)},
         {"ad-keys", Tensor::Vector<int64_t>({3})},
         {"ad-values", Rows(1)},
         {"ad-freqs", Tensor::Vector<float>({3})}});
  const absl::Status keys = Apply(kUsers).status(),
                     counts = Apply(kUsers, {{"user", "ad"}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(keys)) << keys;
  EXPECT_THAT(std::string(keys.message()), HasSubstr("\"user-keys\" in /models/ckpt-1 is int32"));
  EXPECT_TRUE(absl::IsInvalidArgument(counts)) << counts;
  EXPECT_THAT(std::string(counts.message()), HasSubstr("\"ad-freqs\" in /models/ckpt-1 is float"));
}

TEST_F(TableFilesTest, NumbersOfRowsThatDifferAreDataLossWithTheFile) {
  Write({{"user-keys", Tensor::Vector<int64_t>({3, 4})},
         {"user-values", Rows(3)},
         {"ad-keys", Tensor::Vector<int64_t>({3, 4})},
         {"ad-values", Rows(2)},
         {"ad-freqs", Counts(1)}});
  const absl::Status values = Apply(kUsers).status(),
                     counts = Apply(kUsers, {{"user", "ad"}}).status();
  EXPECT_TRUE(absl::IsDataLoss(values)) << values;
  EXPECT_THAT(std::string(values.message()),
              HasSubstr("/models/ckpt-1: \"user-keys\" has 2 rows, and \"user-values\" has 3"));
  EXPECT_TRUE(absl::IsDataLoss(counts)) << counts;
  EXPECT_THAT(std::string(counts.message()), HasSubstr("\"ad-freqs\" has 1"));
}

TEST_F(TableFilesTest, AKeyThatComesTwiceIsDataLossWithTheFileInAnyOrder) {
  WriteTable("user", {8, -1, 7, 12, -1});
  const absl::Status refused = Apply(kUsers).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("\"user-keys\" in /models/ckpt-1 has the key -1 twice"));
}

// In the order in which Divvy writes keys, equal ones are neighbours.
TEST_F(TableFilesTest, AKeyThatComesTwiceInOrderIsDataLossToo) {
  std::vector<int64_t> keys = {1, 2, 3, 3, 4};
  std::sort(keys.begin(), keys.end(), [](int64_t a, int64_t b) { return KeyRank(a) < KeyRank(b); });
  WriteTable("user", keys);
  EXPECT_THAT(std::string(Apply(kUsers).status().message()), HasSubstr("has the key 3 twice"));
}

TEST_F(TableFilesTest, WithoutKeysOrValuesTheNearestNameIsTold) {
  Write({{"user-keys", Tensor::Vector<int64_t>({3})}, {"users-values", Rows(1)}});
  const absl::Status refused = Apply(kUsers).status();
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("to start from \"user-values\""), HasSubstr("\"users-values\"")));
}

TEST_F(TableFilesTest, AFlippedBitIsDataLossBeforeAnythingIsCreated) {
  WriteTable("user", {1, 2, 3});
  ASSERT_TRUE(files_.FlipBit("/models/ckpt-1.data-00000-of-00001", 30, 0).ok());
  EXPECT_TRUE(absl::IsDataLoss(Apply(kUsers).status()));
}

TEST_F(TableFilesTest, TheRowsOfATableAreNoInitialValuesOfAVariable) {
  WriteTable("user", {1});
  VariableSpec variable{"weights", {3, 2}};
  variable.initializer = Apply(kUsers)->initializer;
  const auto rows =
      InitialRows(variable.initializer, {1, "weights", variable.shape}, variable.dtype, 0, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(rows.status())) << rows.status();
}

}  // namespace
}  // namespace divvy
