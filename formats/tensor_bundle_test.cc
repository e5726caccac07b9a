// Tests of tensor bundles: tensors that are written can be read, however they are cut; damage is
// found; a fault or a crash leaves a complete checkpoint or none.
#include "formats/tensor_bundle.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/testing/in_memory_file_system.h"
#include "formats/bundle_index.h"
#include "formats/sorted_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPrefix[] = "/ckpt/ckpt-1-2";

struct Value {
  DType dtype;
  Shape shape;
  std::string bytes;
  int64_t row_bytes() const { return shape.row_elements() * DTypeSize(dtype); }
};
using Values = std::map<std::string, Value>;

Value RandomValue(DType dtype, Shape shape, Random& random) {
  Value value{dtype, shape, ""};
  for (int64_t i = 0; i < shape.num_elements() * DTypeSize(dtype); ++i)
    value.bytes.push_back(static_cast<char>(random.Next()));
  return value;
}

// Small tensors of all types, with one shape of each kind. One of them has a name that makes the
// bundle Divvy's own.
Values RandomValues(Random& random) {
  constexpr DType kTypes[] = {DType::kBool,    DType::kInt8,     DType::kUInt8,    DType::kInt32,
                              DType::kInt64,   DType::kFloat16,  DType::kBFloat16, DType::kFloat32,
                              DType::kFloat64, DType::kComplex64};
  Values values;
  for (int i = 0; i < 8; ++i) {
    std::vector<int64_t> dims;
    for (uint64_t rank = random.Below(4); dims.size() < rank;)
      dims.push_back(static_cast<int64_t>(random.Below(6)));
    values[absl::StrCat("v", random.Below(4), "/", i)] =
        RandomValue(kTypes[random.Below(10)], Shape(dims), random);
  }
  values["_divvy/job"] =
      RandomValue(DType::kUInt8, {static_cast<int64_t>(random.Below(50))}, random);
  return values;
}

absl::StatusOr<BundleSlice> AppendRows(BundleDataWriter& file, const std::string& name,
                                       const Value& value, int64_t begin, int64_t end) {
  const auto bytes = absl::string_view(value.bytes)
                         .substr(begin * value.row_bytes(), (end - begin) * value.row_bytes());
  return file.Append(name, value.dtype, value.shape, begin, end, bytes);
}

// Writes all tensors. Each is cut at random into slices, which go to random files.
absl::Status Write(FileSystem& files, const std::string& prefix, const Values& values,
                   int num_files, Random random) {
  std::vector<std::unique_ptr<BundleDataWriter>> out;
  for (int i = 0; i < num_files; ++i) {
    ASSIGN_OR_RETURN(out.emplace_back(), BundleDataWriter::Create(files, prefix, i, num_files));
  }
  std::vector<BundleSlice> slices;
  for (const auto& [name, value] : values) {
    int64_t begin = 0;
    do {
      const int64_t rows = value.shape.rows() - begin;
      const int64_t end =
          value.shape.rank() == 0
              ? 1
              : begin + static_cast<int64_t>(random.Below(static_cast<uint64_t>(rows) + 1));
      ASSIGN_OR_RETURN(slices.emplace_back(),
                       AppendRows(*out[random.Below(static_cast<uint64_t>(num_files))], name, value,
                                  begin, end));
      begin = end;
    } while (begin < value.shape.rows());
  }
  for (const auto& file : out) RETURN_IF_ERROR(file->Finish());
  return WriteBundleIndex(files, prefix, num_files, slices);
}

absl::StatusOr<std::string> ReadBytes(const BundleReader& reader, const std::string& name,
                                      const Value& value, int64_t begin, int64_t end) {
  std::string bytes(static_cast<size_t>((end - begin) * value.row_bytes()), '?');
  RETURN_IF_ERROR(reader.ReadRows(
      name, begin, end, absl::MakeSpan(bytes.empty() ? nullptr : &bytes[0], bytes.size())));
  return bytes;
}

// OK if all values are there. An error is the reader's. Values that differ fail the test.
absl::Status ReadAll(FileSystem& files, const std::string& prefix, const Values& values) {
  ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(files, prefix));
  EXPECT_EQ(reader->index().tensors.size(), values.size());
  for (const auto& [name, value] : values) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadBytes(*reader, name, value, 0, value.shape.rows()));
    EXPECT_EQ(bytes, value.bytes) << name;
    RETURN_IF_ERROR(reader->Verify(name));
  }
  return absl::OkStatus();
}

// Replaces the content of a file at once, in a way that no crash could.
void Put(FileSystem& files, const std::string& name, absl::string_view bytes) {
  ASSERT_TRUE(files.CreateDirectory("/ckpt").ok());
  const auto file = files.OpenForWrite(name, WriteMode::kReplace);
  ASSERT_TRUE(file.ok() && (*file)->Append(bytes).ok() && (*file)->Close().ok());
}

class TensorBundleTest : public ::testing::Test {
 protected:
  TensorBundleTest() {
    EXPECT_TRUE(files_.CreateDirectory("/ckpt").ok() && files_.SyncDirectory("/").ok());
  }
  absl::StatusOr<std::unique_ptr<BundleReader>> Open() {
    return BundleReader::Open(files_, kPrefix);
  }

  InMemoryFileSystem files_;
};

// ---- tensors that are written can be read

TEST_F(TensorBundleTest, AnyRowsOfAnyTensorComeBackWhateverTheCut) {
  constexpr uint64_t kSeed = 20261121;
  std::cout << "seed " << kSeed << "\n";
  for (uint64_t round = 0; round < 200; ++round) {
    Random random(MixSeeds(kSeed, round));
    const std::string prefix = absl::StrCat("/ckpt/", round);
    const Values values = RandomValues(random);
    ASSERT_EQ(Write(files_, prefix, values, 1 + static_cast<int>(random.Below(4)), random),
              absl::OkStatus())
        << round;
    ASSERT_EQ(ReadAll(files_, prefix, values), absl::OkStatus()) << round;
    const auto reader = BundleReader::Open(files_, prefix);
    for (const auto& [name, value] : values) {
      const int64_t begin =
          static_cast<int64_t>(random.Below(static_cast<uint64_t>(value.shape.rows()) + 1));
      const int64_t end =
          begin +
          static_cast<int64_t>(random.Below(static_cast<uint64_t>(value.shape.rows() - begin) + 1));
      const auto bytes = ReadBytes(**reader, name, value, begin, end);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(*bytes,
                value.bytes.substr(begin * value.row_bytes(), (end - begin) * value.row_bytes()))
          << name << " in round " << round;
    }
  }
}

TEST_F(TensorBundleTest, TensorsAreListedByNameWithTypeShapeAndSlices) {
  Random random(1);
  Values values;
  values["w"] = RandomValue(DType::kFloat32, {5, 2}, random);
  values["_divvy/job"] = RandomValue(DType::kUInt8, {3}, random);
  auto first = *BundleDataWriter::Create(files_, kPrefix, 0, 2),
       second = *BundleDataWriter::Create(files_, kPrefix, 1, 2);
  std::vector<BundleSlice> slices = {*AppendRows(*second, "w", values["w"], 2, 5),
                                     *AppendRows(*second, "_divvy/job", values["_divvy/job"], 0, 3),
                                     *AppendRows(*first, "w", values["w"], 0, 2)};
  ASSERT_TRUE(first->Finish().ok() && second->Finish().ok());
  ASSERT_EQ(WriteBundleIndex(files_, kPrefix, 2, slices), absl::OkStatus());

  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  const BundleIndex& index = (*reader)->index();
  EXPECT_EQ(index.num_files, 2);
  EXPECT_TRUE(index.is_own());
  ASSERT_EQ(index.tensors.size(), 2u);
  EXPECT_EQ(index.tensors[0].name, "_divvy/job");
  EXPECT_FALSE(index.tensors[0].is_sliced);
  const BundleTensor* const w = index.Find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->type, "float32");
  EXPECT_EQ(w->shape, Shape({5, 2}));
  ASSERT_EQ(w->parts.size(), 2u);
  EXPECT_EQ(ShowBundleBox(w->parts[0]), "[0, 2) [0, 2)");
  EXPECT_THAT(w->parts[1].box, ElementsAre(BundleExtent{2, 3}, BundleExtent{0, 2}));
  EXPECT_EQ(w->parts[1].file, 1);
  EXPECT_EQ(w->parts[1].offset, 0u);
  EXPECT_EQ(w->parts[1].size_bytes, 24u);
  EXPECT_EQ(index.Find("v"), nullptr);
  const auto tensor = (*reader)->ReadTensor("w");
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(std::string(static_cast<const char*>(tensor->data()), 40), values["w"].bytes);
}

TEST_F(TensorBundleTest, ScalarsAndTensorsWithoutElementsComeBack) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  const std::vector<BundleSlice> slices = {
      *file->Append("empty", DType::kFloat32, {0, 16}, 0, 0, ""),
      *file->Append("flat", DType::kInt8, {4, 0}, 0, 2, ""),
      *file->Append("flat", DType::kInt8, {4, 0}, 2, 4, ""),
      *file->Append("scalar", DType::kInt64, {}, 0, 1, absl::string_view("\7\0\0\0\0\0\0\0", 8))};
  ASSERT_TRUE(file->Finish().ok());
  ASSERT_EQ(WriteBundleIndex(files_, kPrefix, 1, slices), absl::OkStatus());
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->ReadTensor("empty")->shape(), Shape({0, 16}));
  EXPECT_EQ((*reader)->ReadTensor("flat")->shape(), Shape({4, 0}));
  EXPECT_EQ(*(*reader)->ReadTensor("scalar")->scalar<int64_t>(), 7);
}

TEST_F(TensorBundleTest, ASliceInPiecesIsTheSameAsOneAtOnce) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  ASSERT_TRUE(file->Start("a", DType::kUInt8, {6}, 0, 6).ok());
  for (const char* piece : {"ab", "", "cdef"}) ASSERT_TRUE(file->Add(piece).ok());
  const BundleSlice pieces = *file->End(),
                    whole = *file->Append("b", DType::kUInt8, {6}, 0, 6, "abcdef");
  EXPECT_EQ(pieces.size_bytes, 6u);
  EXPECT_EQ(pieces.masked_crc32c, MaskCrc32c(Crc32c("abcdef")));
  EXPECT_EQ(whole.masked_crc32c, pieces.masked_crc32c);
  EXPECT_EQ(whole.offset, 6u);
  EXPECT_EQ(file->size_bytes(), 12u);
}

TEST_F(TensorBundleTest, SlicesOf64MiBAndNeverLessThanARow) {
  EXPECT_EQ(MaxRowsOfBundleSlice(DType::kFloat32, {1000000, 16}), 1048576);
  EXPECT_EQ(MaxRowsOfBundleSlice(DType::kFloat32, {3, 1 << 30}), 1);
  EXPECT_EQ(MaxRowsOfBundleSlice(DType::kFloat32, {}), 16777216);
  EXPECT_GE(MaxRowsOfBundleSlice(DType::kFloat32, {7, 0}), 7);
}

// A tensor of bytes that is cut into these boxes, as another writer may cut it.
BundleTensor TensorOfBoxes(const std::string& name, Shape shape,
                           std::vector<std::vector<BundleExtent>> boxes) {
  BundleTensor tensor;
  tensor.name = name;
  tensor.type = "uint8";
  tensor.dtype = DType::kUInt8;
  tensor.shape = shape;
  tensor.is_sliced = true;
  uint64_t offset = 0;
  for (std::vector<BundleExtent>& box : boxes) {
    uint64_t size = 1;
    for (const BundleExtent& extent : box) size *= static_cast<uint64_t>(extent.length);
    tensor.parts.push_back({std::move(box), 0, offset, size, 0});
    offset += size;
  }
  return tensor;
}

TEST_F(TensorBundleTest, KeysOfSlicesAreInTensorFlowsOrderedCode) {
  constexpr int64_t kFar = int64_t{1} << 56;
  const BundleIndex index{1,
                          {TensorOfBoxes("a\xff", {kFar + 1, 1},
                                         {{{0, 63}, {0, 1}},
                                          {{63, 1}, {0, 1}},
                                          {{64, 300}, {0, 1}},
                                          {{364, kFar - 364}, {0, 1}},
                                          {{kFar, 1}, {0, 1}}})}};
  const auto table = ReadSortedTable(EncodeBundleIndex(index));
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<std::string> keys;
  for (const TableEntry& entry : *table) keys.push_back(entry.key);
  // First the number 0, which has no digits. Then the name, with its byte 255 and its end escaped.
  // Then the rank.
  const std::string head("\0a\xff\0\0\1\1\2", 8), column("\x80\x81", 2);
  const std::string far_start("\xff\x81\0\0\0\0\0\0\0", 9),
      far_length("\xff\x80\xff\xff\xff\xff\xff\xfe\x94", 9);
  EXPECT_THAT(keys, ElementsAre("", absl::StrCat(head, "\x80\xbf", column),
                                absl::StrCat(head, "\xbf\x81", column),
                                absl::StrCat(head, "\xc0\x40\xc1\x2c", column),
                                absl::StrCat(head, "\xc1\x6c", far_length, column),
                                absl::StrCat(head, far_start, "\x81", column), "a\xff"));
  EXPECT_TRUE(DecodeBundleIndex(EncodeBundleIndex(index)).ok());
}

// ---- slices that do not fit together are refused

TEST_F(TensorBundleTest, ADataFileRefusesRowsThatAreNone) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  const auto refusal = [&](absl::string_view name, DType dtype, Shape shape, int64_t begin,
                           int64_t end, absl::string_view bytes) {
    const absl::Status status = file->Append(name, dtype, shape, begin, end, bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("", DType::kInt8, {1}, 0, 1, "a"),
              HasSubstr("is empty or begins with a NUL"));
  EXPECT_THAT(refusal(absl::string_view("\0a", 2), DType::kInt8, {1}, 0, 1, "a"),
              HasSubstr("begins with a NUL"));
  EXPECT_THAT(refusal("a", DType::kString, {1}, 0, 1, "a"),
              HasSubstr("Divvy writes no tensors of string"));
  EXPECT_THAT(refusal("a", DType::kInt8, {4}, 2, 5, "abc"),
              HasSubstr("tensor \"a\": rows [2, 5) of [4]"));
  EXPECT_THAT(refusal("a", DType::kInt8, {4}, 2, 1, ""), HasSubstr("rows [2, 1)"));
  EXPECT_THAT(refusal("a", DType::kInt8, {-1}, 0, 0, ""), HasSubstr("rows [0, 0) of [-1]"));
  EXPECT_THAT(refusal("a", DType::kInt8, {4}, 0, 4, "abc"),
              HasSubstr("rows [0, 4) do not have 3 bytes"));
  EXPECT_THAT(refusal("a", DType::kInt8, Shape({int64_t{1} << 40, int64_t{1} << 40}), 0, 0, ""),
              HasSubstr("invalid shape"));
  // A refusal leaves the file as it was.
  EXPECT_TRUE(file->Append("a", DType::kInt8, {4}, 0, 4, "abcd").ok());
  EXPECT_EQ(file->size_bytes(), 4u);
}

TEST_F(TensorBundleTest, PiecesComeBetweenStartAndEnd) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  EXPECT_EQ(file->Add("a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->End().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(file->Start("a", DType::kInt8, {2}, 0, 2).ok());
  EXPECT_EQ(file->Start("b", DType::kInt8, {2}, 0, 2).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->Add("abc").code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(file->Add("a").ok());
  EXPECT_THAT(file->End().status().message(), HasSubstr("1 of its 2 bytes"));
}

TEST_F(TensorBundleTest, NoFileIsWrittenTwice) {
  EXPECT_EQ(BundleDataWriter::Create(files_, kPrefix, 2, 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BundleDataWriter::Create(files_, kPrefix, -1, 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto file = BundleDataWriter::Create(files_, kPrefix, 0, 1);
  ASSERT_TRUE(file.ok() && (*file)->Finish().ok());
  EXPECT_EQ(BundleDataWriter::Create(files_, kPrefix, 0, 1).status().code(),
            absl::StatusCode::kAlreadyExists);
  ASSERT_EQ(WriteBundleIndex(files_, kPrefix, 1, {}), absl::OkStatus());
  EXPECT_EQ(WriteBundleIndex(files_, kPrefix, 1, {}).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(TensorBundleTest, AnIndexIsRefusedWhoseSlicesDoNotFitTogether) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  const BundleSlice a = *file->Append("a", DType::kInt8, {4}, 0, 2, "ab"),
                    b = *file->Append("a", DType::kInt8, {4}, 2, 4, "cd");
  ASSERT_TRUE(file->Finish().ok());
  const auto refusal = [&](std::vector<BundleSlice> slices) {
    const absl::Status status = WriteBundleIndex(files_, kPrefix, 1, slices);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const auto with = [&](const std::function<void(BundleSlice&)>& change) {
    BundleSlice slice = b;
    change(slice);
    return slice;
  };
  EXPECT_THAT(refusal({a}), HasSubstr("tensor \"a\": its slices end at row 2 of 4"));
  EXPECT_THAT(refusal({b, with([](auto& s) { s.begin_row = 1, s.end_row = 2, s.size_bytes = 1; })}),
              HasSubstr("have a gap or an overlap at row 0"));
  EXPECT_THAT(refusal({a, a}), HasSubstr("have a gap or an overlap at row 2"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.end_row = 3, s.size_bytes = 1; })}),
              HasSubstr("end at row 3 of 4"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.shape = {5}; })}),
              HasSubstr("slices of int8 [4] and of int8 [5]"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.dtype = DType::kBool; })}),
              HasSubstr("slices of int8 [4] and of bool [4]"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.size_bytes = 3; })}),
              HasSubstr("2 elements of int8 in 3 bytes"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.file = 1; })}), HasSubstr("data file 1 of 1"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.offset = 1; })}),
              HasSubstr("share bytes of data file 0 at offset 1"));
  EXPECT_THAT(refusal({a, with([](auto& s) { s.end_row = 5; })}), HasSubstr("rows [2, 5) of [4]"));
  BundleSlice scalar{"s", DType::kInt8, {}, 0, 1, 0, 0, 1, 0};
  EXPECT_THAT(refusal({scalar, scalar}), HasSubstr("tensor \"s\": its slices overlap"));
  EXPECT_EQ(WriteBundleIndex(files_, kPrefix, 1, {b, a}), absl::OkStatus());
}

TEST_F(TensorBundleTest, AnIndexIsRefusedWhoseDataFilesAreNotThere) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 2);
  const BundleSlice slice = *file->Append("a", DType::kInt8, {2}, 0, 2, "ab");
  ASSERT_TRUE(file->Finish().ok());
  const absl::Status missing = WriteBundleIndex(files_, kPrefix, 2, {slice});
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(missing.message(), HasSubstr("data-00001-of-00002 is missing: do all tasks that "
                                           "write the checkpoint see the same directory?"));
  Put(files_, BundleDataFile(kPrefix, 1, 2), "x");
  EXPECT_THAT(WriteBundleIndex(files_, kPrefix, 2, {slice}).message(),
              HasSubstr("has 1 bytes, but its tensors have 0"));
  EXPECT_EQ(files_.Stat(BundleIndexFile(kPrefix)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TensorBundleTest, AReaderSaysWhatIsNotThere) {
  EXPECT_EQ(Open().status(),
            absl::NotFoundError("no checkpoint /ckpt/ckpt-1-2: there is no /ckpt/ckpt-1-2.index"));
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  const std::vector<BundleSlice> slices = {*file->Append("a", DType::kInt8, {2}, 0, 2, "ab")};
  ASSERT_TRUE(file->Finish().ok());
  ASSERT_EQ(WriteBundleIndex(files_, kPrefix, 1, slices), absl::OkStatus());
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  char out[2];
  EXPECT_EQ((*reader)->ReadTensor("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*reader)->ReadRows("a", 1, 3, absl::MakeSpan(out)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*reader)->ReadRows("a", 0, 1, absl::MakeSpan(out)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*reader)->ReadStrings("a").status().code(), absl::StatusCode::kInvalidArgument);
  files_.FailNext(FileOperation::kRead, "data-", absl::DataLossError("EIO"));
  EXPECT_EQ((*reader)->ReadTensor("a").status(),
            absl::UnavailableError("EIO: try again, or check the disk"));
  EXPECT_TRUE((*reader)->ReadTensor("a").ok());
}

// ---- damage is found

class DamagedBundleTest : public TensorBundleTest {
 protected:
  static constexpr int kNumFiles = 3;

  DamagedBundleTest() {
    Random random(7);
    values_["table"] = RandomValue(DType::kFloat32, {6, 2}, random);
    values_["table/adam/t"] = RandomValue(DType::kInt32, {6}, random);
    values_["step"] = RandomValue(DType::kInt64, {}, random);
    values_["_divvy/job"] = RandomValue(DType::kUInt8, {17}, random);
    EXPECT_EQ(Write(files_, kPrefix, values_, kNumFiles, Random(3)), absl::OkStatus());
    EXPECT_EQ(Read(), absl::OkStatus());
    names_.push_back(BundleIndexFile(kPrefix));
    for (int i = 0; i < kNumFiles; ++i) names_.push_back(BundleDataFile(kPrefix, i, kNumFiles));
  }
  absl::Status Read() { return ReadAll(files_, kPrefix, values_); }

  Values values_;
  std::vector<std::string> names_;
};

TEST_F(DamagedBundleTest, EachBitOfEachByteThatIsFlippedIsFound) {
  int flips = 0;
  for (const std::string& name : names_) {
    for (uint64_t byte = 0; byte < files_.Stat(name)->size_bytes; ++byte) {
      for (int bit = 0; bit < 8; ++bit, ++flips) {
        ASSERT_TRUE(files_.FlipBit(name, byte, bit).ok());
        const absl::Status status = Read();
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss)
            << name << " byte " << byte << " bit " << bit << ": " << status;
        EXPECT_THAT(status.message(), HasSubstr(name));
        ASSERT_TRUE(files_.FlipBit(name, byte, bit).ok());
      }
    }
  }
  std::cout << flips << " flips\n";
  EXPECT_EQ(Read(), absl::OkStatus());
}

TEST_F(DamagedBundleTest, EachTruncationAndEachAddedByteIsFound) {
  for (const std::string& name : names_) {
    const std::string whole = *files_.ReadFile(name);
    for (size_t length = 0; length < whole.size(); ++length) {
      Put(files_, name, absl::string_view(whole).substr(0, length));
      EXPECT_EQ(Read().code(), absl::StatusCode::kDataLoss) << name << " of " << length << " bytes";
    }
    Put(files_, name, whole + "\n");
    EXPECT_EQ(Read().code(), absl::StatusCode::kDataLoss) << name;
    Put(files_, name, whole);
  }
  EXPECT_EQ(Read(), absl::OkStatus());
}

TEST_F(DamagedBundleTest, AMissingAForeignAndASwappedDataFileAreFound) {
  ASSERT_TRUE(files_.Rename(names_[1], "/ckpt/aside").ok());
  EXPECT_EQ(Read(), absl::DataLossError(names_[1] + " is missing"));

  Random other(99);  // the same tensors and cuts, other numbers
  Values others = values_;
  for (auto& [name, value] : others) value = RandomValue(value.dtype, value.shape, other);
  ASSERT_EQ(Write(files_, "/ckpt/other", others, kNumFiles, Random(3)), absl::OkStatus());
  ASSERT_TRUE(files_.Rename(BundleDataFile("/ckpt/other", 0, kNumFiles), names_[1]).ok());
  EXPECT_THAT(Read().message(), HasSubstr("data-00000-of-00003: offset 0: tensor"));
  EXPECT_THAT(Read().message(), HasSubstr("the checksum does not match the bytes"));

  ASSERT_TRUE(files_.Rename(names_[2], names_[1]).ok() &&
              files_.Rename("/ckpt/aside", names_[2]).ok());
  EXPECT_EQ(Read().code(), absl::StatusCode::kDataLoss);
}

// ---- faults and crashes while a checkpoint is written

constexpr FileOperation kWrites[] = {FileOperation::kOpenForWrite, FileOperation::kAppend,
                                     FileOperation::kSync,         FileOperation::kRename,
                                     FileOperation::kStat,         FileOperation::kSyncDirectory};

// Calls `attempt(files, fail)` on a directory with the checkpoint /ckpt/old, once for each
// operation that writing a second checkpoint needs. `fail()` makes that operation fail. Ends with
// the attempt in which no operation fails.
template <typename Attempt>
void ForEachFault(const Values& values, const Attempt& attempt) {
  int hits = 0;
  for (const FileOperation operation : kWrites) {
    for (int n = 0;; ++n) {
      InMemoryFileSystem files;
      ASSERT_TRUE(files.CreateDirectory("/ckpt").ok() && files.SyncDirectory("/").ok());
      ASSERT_EQ(Write(files, "/ckpt/old", values, 2, Random(1)), absl::OkStatus());
      if (n > 0) files.FailNext(operation, "", absl::OkStatus(), n);
      files.FailNext(operation, "", absl::DataLossError("EIO"));
      if (attempt(files).ok()) break;
      ++hits;
    }
  }
  std::cout << hits << " faults\n";
  EXPECT_GT(hits, 20);
}

// Expects a complete checkpoint or none.
void ExpectWholeOrNone(FileSystem& files, const std::string& prefix, const Values& values) {
  const absl::Status status = ReadAll(files, prefix, values);
  EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
}

TEST(BundleFaultTest, AnErrorOfAnyOperationLeavesAWholeCheckpointOrNoneAndTheOldOneStands) {
  Random random(5);
  const Values values = RandomValues(random), newer = RandomValues(random);
  ForEachFault(values, [&](InMemoryFileSystem& files) {
    const absl::Status written = Write(files, "/ckpt/new", newer, 3, Random(2));
    EXPECT_TRUE(written.ok() || written == absl::DataLossError("EIO")) << written;
    ExpectWholeOrNone(files, "/ckpt/new", newer);
    EXPECT_EQ(ReadAll(files, "/ckpt/old", values), absl::OkStatus());
    return written;
  });
}

TEST(BundleFaultTest, ACrashAtAnyOperationLeavesAWholeCheckpointOrNoneAndTheOldOneStands) {
  Random random(6);
  const Values values = RandomValues(random), newer = RandomValues(random);
  ForEachFault(values, [&](InMemoryFileSystem& files) {
    const absl::Status written = Write(files, "/ckpt/new", newer, 3, Random(2));
    files.Crash();
    ExpectWholeOrNone(files, "/ckpt/new", newer);
    EXPECT_TRUE(!written.ok() || files.Stat("/ckpt/new.index").ok());
    EXPECT_EQ(ReadAll(files, "/ckpt/old", values), absl::OkStatus());
    return written;
  });
}

TEST(BundleFaultTest, ADiskThatIsFullAtAnyByteLeavesNoCheckpointAndTheOldOneStands) {
  Random random(8);
  const Values values = RandomValues(random), newer = RandomValues(random);
  for (uint64_t free = 0;; ++free) {
    InMemoryFileSystem files;
    ASSERT_TRUE(files.CreateDirectory("/ckpt").ok());
    ASSERT_EQ(Write(files, "/ckpt/old", values, 2, Random(1)), absl::OkStatus());
    files.SetFreeBytes(free);
    const absl::Status written = Write(files, "/ckpt/new", newer, 3, Random(2));
    EXPECT_EQ(ReadAll(files, "/ckpt/old", values), absl::OkStatus());
    if (written.ok()) break;
    EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
    EXPECT_EQ(ReadAll(files, "/ckpt/new", newer).code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(TensorBundleTest, AnErrorIsFinalForItsFile) {
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  files_.FailNext(FileOperation::kAppend, "data", absl::DataLossError("EIO"));
  EXPECT_EQ(file->Append("a", DType::kInt8, {1}, 0, 1, "a").status(), absl::DataLossError("EIO"));
  EXPECT_EQ(file->Append("a", DType::kInt8, {1}, 0, 1, "a").status(), absl::DataLossError("EIO"));
  EXPECT_EQ(file->Finish(), absl::DataLossError("EIO"));
  auto other = *BundleDataWriter::Create(files_, "/ckpt/other", 0, 1);
  files_.FailNext(FileOperation::kSyncDirectory, "/ckpt", absl::DataLossError("EIO"));
  EXPECT_EQ(other->Finish(), absl::DataLossError("EIO"));
  EXPECT_EQ(other->Finish(), absl::DataLossError("EIO"));
}

// ---- bundles of other writers

class ForeignBundleTest : public TensorBundleTest {
 protected:
  // Opens a bundle of one data file, whose header and whose entry "a" are these messages.
  absl::Status OpenOf(const std::string& header, const std::string& entry,
                      const std::string& data = "abcdef") {
    Put(files_, BundleDataFile(kPrefix, 0, 1), data);
    Put(files_, BundleIndexFile(kPrefix),
        WriteSortedTable(std::vector<TableEntry>{{"", header}, {"a", entry}}));
    return Open().status();
  }
  absl::Status OpenOf(const std::string& entry) { return OpenOf(kHeader, entry); }

  const std::string kHeader = "\x08\x01\x1a\x02\x08\x01";
};

TEST_F(ForeignBundleTest, ATensorCutAlongSeveralAxesIsReadByRows) {
  // Three boxes of a 3 x 4 tensor: columns 0 to 1 of rows 0 to 1, columns 2 to 3 of the same rows,
  // and row 2.
  BundleIndex index{
      1, {TensorOfBoxes("a", {3, 4}, {{{0, 2}, {0, 2}}, {{0, 2}, {2, 2}}, {{2, 1}, {0, 4}}})}};
  const std::string data = "abefcdghijkl";
  for (BundlePart& part : index.tensors[0].parts)
    part.masked_crc32c = MaskCrc32c(Crc32c(data.substr(part.offset, part.size_bytes)));
  Put(files_, BundleDataFile(kPrefix, 0, 1), data);
  Put(files_, BundleIndexFile(kPrefix), EncodeBundleIndex(index));
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  const Value whole{DType::kUInt8, {3, 4}, "abcdefghijkl"};
  for (int64_t begin = 0; begin <= 3; ++begin) {
    for (int64_t end = begin; end <= 3; ++end) {
      const std::string wanted = whole.bytes.substr(begin * 4, (end - begin) * 4);
      EXPECT_EQ(*ReadBytes(**reader, "a", whole, begin, end), wanted) << begin << " " << end;
      std::string verified(wanted.size(), '\0');
      EXPECT_TRUE((*reader)->ReadVerifiedRows("a", begin, end, absl::MakeSpan(verified)).ok());
      EXPECT_EQ(verified, wanted) << begin << " " << end;
    }
  }
  ASSERT_TRUE(files_.FlipBit(BundleDataFile(kPrefix, 0, 1), 5, 0).ok());
  EXPECT_EQ(ReadBytes(**reader, "a", whole, 0, 1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(*ReadBytes(**reader, "a", whole, 2, 3), "ijkl");  // the damage is elsewhere
}

TEST_F(ForeignBundleTest, BoxesMustTileTheTensor) {
  const auto refusal = [&](std::vector<std::vector<BundleExtent>> boxes) {
    return std::string(
        DecodeBundleIndex(EncodeBundleIndex({1, {TensorOfBoxes("a", {2, 2}, std::move(boxes))}}))
            .status()
            .message());
  };
  EXPECT_THAT(refusal({{{0, 2}, {0, 1}}, {{0, 1}, {1, 1}}}),
              HasSubstr("1 of its elements are in no slice"));
  EXPECT_THAT(refusal({{{0, 2}, {0, 1}}, {{0, 1}, {0, 2}}}), HasSubstr("its slices overlap"));
  EXPECT_THAT(refusal({{{0, 2}, {0, 1}}, {{0, 2}, {1, 2}}}),
              HasSubstr("extends beyond the tensor"));
}

TEST_F(ForeignBundleTest, AnIndexMayBeCompressed) {
  Random random(11);
  Values values = RandomValues(random);
  values.erase("_divvy/job");
  ASSERT_EQ(Write(files_, kPrefix, values, 2, random), absl::OkStatus());
  const std::string name = BundleIndexFile(kPrefix), plain = *files_.ReadFile(name);
  const std::string packed = WriteSortedTable(*ReadSortedTable(plain), TableCompression::kSnappy);
  EXPECT_LT(packed.size(), plain.size());
  Put(files_, name, packed);
  EXPECT_EQ(ReadAll(files_, kPrefix, values), absl::OkStatus());
}

TEST_F(ForeignBundleTest, DataFilesMayHaveGapsAndMayBeLonger) {
  Random random(12);
  const Value value = RandomValue(DType::kInt8, {2}, random);
  auto file = *BundleDataWriter::Create(files_, kPrefix, 0, 1);
  const std::vector<BundleSlice> slices = {*AppendRows(*file, "a", value, 0, 2)};
  ASSERT_TRUE(file->Finish().ok());
  ASSERT_EQ(WriteBundleIndex(files_, kPrefix, 1, slices), absl::OkStatus());
  Put(files_, BundleDataFile(kPrefix, 0, 1), value.bytes + "more");
  EXPECT_EQ(ReadAll(files_, kPrefix, {{"a", value}}), absl::OkStatus());
}

TEST_F(ForeignBundleTest, WhatDivvyLacksIsListedAndSaysWhy) {
  // 2 bytes, checksum 0
  const std::string tail = std::string("\x28\x02\x35", 3) + std::string("\x00\x00\x00\x00", 4);
  // uint16, [1]
  ASSERT_EQ(OpenOf("\x08\x11\x12\x04\x12\x02\x08\x01" + tail), absl::OkStatus());
  auto reader = Open();
  EXPECT_EQ((*reader)->index().tensors[0].type, "uint16");
  EXPECT_EQ((*reader)->index().tensors[0].shape, Shape({1}));
  EXPECT_EQ((*reader)->ReadTensor("a").status().message(),
            "/ckpt/ckpt-1-2: tensor \"a\": Divvy has no tensors of uint16");
  EXPECT_EQ((*reader)->Verify("a").code(), absl::StatusCode::kDataLoss);
  std::string nine = "\x08\x01\x12\x24";
  for (int i = 0; i < 9; ++i) nine += "\x12\x02\x08\x01";
  ASSERT_EQ(OpenOf(nine + tail), absl::OkStatus());
  reader = Open();
  EXPECT_THAT((*reader)->ReadTensor("a").status().message(),
              HasSubstr("at most 8 axes; this one has 9"));
  ASSERT_EQ(OpenOf("\x08\x63" + tail), absl::OkStatus());
  EXPECT_EQ((*Open())->index().tensors[0].type, "type 99");
  ASSERT_EQ(OpenOf("\x08\x15" + tail), absl::OkStatus());
  EXPECT_THAT((*Open())->Verify("a").message(), HasSubstr("the checksum of a variant"));
}

TEST_F(ForeignBundleTest, StringsAreReadAndEachFlippedBitIsFound) {
  const std::string lengths("\1\0\0\0\0\0\0\0", 8), inner = lengths;  // 1 and 0 as uint32
  std::string data("\1\0", 2);
  const uint32_t masked = MaskCrc32c(Crc32c(lengths));
  std::string checksum;
  for (int i = 0; i < 4; ++i) checksum.push_back(static_cast<char>(masked >> (8 * i)));
  data += checksum + "x";
  const uint32_t whole = MaskCrc32c(Crc32c(lengths + checksum + "x"));
  std::string entry("\x08\x07\x12\x04\x12\x02\x08\x02\x28\x07\x35", 11);
  for (int i = 0; i < 4; ++i) entry.push_back(static_cast<char>(whole >> (8 * i)));
  ASSERT_EQ(OpenOf(kHeader, entry, data), absl::OkStatus());
  EXPECT_THAT(*(*Open())->ReadStrings("a"), ElementsAre("x", ""));
  for (uint64_t byte = 0; byte < data.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      ASSERT_TRUE(files_.FlipBit(BundleDataFile(kPrefix, 0, 1), byte, bit).ok());
      EXPECT_EQ((*Open())->Verify("a").code(), absl::StatusCode::kDataLoss) << byte << " " << bit;
      ASSERT_TRUE(files_.FlipBit(BundleDataFile(kPrefix, 0, 1), byte, bit).ok());
    }
  }
}

TEST_F(ForeignBundleTest, BigEndianAndLaterVersionsAreRefused) {
  EXPECT_EQ(OpenOf(std::string("\x08\x01\x10\x01"), "").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(OpenOf(std::string("\x08\x01\x1a\x02\x10\x02"), "").code(),
            absl::StatusCode::kUnimplemented);
}

// ---- hostile bytes: claims are checked

TEST_F(ForeignBundleTest, WhatAnIndexClaimsIsCheckedBeforeItIsUsed) {
  const auto refusal = [&](const std::string& entry) {
    const absl::Status status = OpenOf(entry);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f";  // 2^63 - 1
  EXPECT_THAT(OpenOf("\x08" + huge, "").message(), HasSubstr("data files"));
  EXPECT_THAT(refusal("\x08\x01\x12\x0c\x12\x0a\x08" + huge),
              HasSubstr("9223372036854775807 elements of float32 in 0 bytes"));
  EXPECT_THAT(refusal("\x08\x06\x12\x0c\x12\x0a\x08" + huge),
              HasSubstr("9223372036854775807 elements of int8 in 0 bytes"));
  EXPECT_THAT(refusal("\x08\x06\x12\x04\x12\x02\x08\x02\x28\x03"),
              HasSubstr("2 elements of int8 in 3 bytes"));
  EXPECT_THAT(refusal("\x08\x06\x12\x04\x12\x02\x08\x02\x18\x01\x28\x02"),
              HasSubstr("data file 1 of 1"));
  EXPECT_THAT(refusal("\x08\x06\x12\x04\x12\x02\x08\x02\x20" + huge + "\x28\x02"),
              HasSubstr("2 bytes at offset 9223372036854775807"));
  EXPECT_THAT(refusal("\x08\x06\x12\x04\x12\x02\x08\x07\x28\x07"),
              HasSubstr("has 6 bytes, but its tensors end at 7"));
  EXPECT_THAT(refusal("\x08\x06\x12\x04\x12\x02\x08\x02\x3a\x06\x0a\x04\x08\x01\x10\x05"),
              HasSubstr("a slice is missing or extends beyond"));
  EXPECT_THAT(refusal("\x08"), HasSubstr("not a tensorflow.BundleEntryProto: offset 1"));
}

TEST(SortedTableTest, WhatATableClaimsIsCheckedBeforeItIsUsed) {
  const auto message = [](absl::string_view bytes) {
    return std::string(ReadSortedTable(bytes).status().message());
  };
  EXPECT_EQ(message(""), "offset 0: not a table: it has 0 bytes, and a footer alone has 48");
  EXPECT_EQ(message(std::string(48, 'x')), "offset 0: not the footer of a table");
  const std::string magic("\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8);
  EXPECT_EQ(message(std::string(40, '\xff') + magic),
            "offset 0: the footer does not have the places of the blocks");
  std::string far(
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 20);
  EXPECT_THAT(message(far + std::string(20, '\0') + magic),
              HasSubstr("extends beyond the end of the file"));
}

TEST(SortedTableTest, ATableThatWouldGrowBeyondMeasureIsRefused) {
  // Keys that share all but their last bytes: a few bytes each in the file, 10,000 in memory.
  std::vector<TableEntry> table;
  for (int i = 0; i < 1000; ++i)
    table.push_back({absl::StrCat(std::string(10000, 'k'), i + 1000), ""});
  const std::string bytes = WriteSortedTable(table);
  ASSERT_LT(bytes.size(), 1u << 20);
  EXPECT_TRUE(ReadSortedTable(bytes).ok());
  table.clear();
  for (int i = 0; i < 1000; ++i)
    table.push_back({absl::StrCat(std::string(10000, 'k'), i + 1000), std::string(1000, 'v')});
  EXPECT_THAT(
      ReadSortedTable(WriteSortedTable(table, TableCompression::kSnappy)).status().message(),
      HasSubstr("claims more than 32 times"));
}

TEST(BundleIndexTest, NoBytesWhateverBringTheReaderDown) {
  constexpr uint64_t kSeed = 20261122;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  const BundleIndex index{
      1, {TensorOfBoxes("a", {3, 4}, {{{0, 2}, {0, 2}}, {{0, 2}, {2, 2}}, {{2, 1}, {0, 4}}})}};
  const std::string good = EncodeBundleIndex(index);
  std::vector<TableEntry> table = *ReadSortedTable(good);
  for (int round = 0; round < 20000; ++round) {
    // Damages a value before the checksums are computed: the table is built again with the damaged
    // row.
    std::vector<TableEntry> damaged = table;
    std::string& value = damaged[random.Below(damaged.size())].value;
    for (uint64_t i = 0; i <= random.Below(3) && !value.empty(); ++i)
      value[random.Below(value.size())] = static_cast<char>(random.Next());
    const auto decoded = DecodeBundleIndex(WriteSortedTable(damaged));
    if (!decoded.ok()) continue;
    for (const BundleTensor& tensor : decoded->tensors) {
      EXPECT_TRUE(!tensor.unreadable.empty() || CheckBundleTensor(tensor).ok());
    }
  }
}

}  // namespace
}  // namespace divvy
