// Tests of safetensors: files that are written can be read, their bytes are those of the reference
// writer, and a damaged or incomplete file is always refused.
#include "formats/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/testing/in_memory_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr char kName[] = "/out/model.safetensors";

using Bytes = std::map<std::string, std::string>;

// A source that passes the bytes of each tensor in `bytes`, in two pieces.
SafetensorsSource From(const Bytes& bytes) {
  return [&bytes](const SafetensorsSpec& tensor,
                  const std::function<absl::Status(absl::string_view)>& append) {
    const absl::string_view all = bytes.at(tensor.name);
    RETURN_IF_ERROR(append(all.substr(0, all.size() / 2)));
    return append(all.substr(all.size() / 2));
  };
}

absl::StatusOr<SafetensorsHeader> Parse(absl::string_view json, uint64_t data_bytes) {
  return ParseSafetensorsHeader(json, 8 + json.size() + data_bytes);
}

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    EXPECT_TRUE(files_.CreateDirectory("/out").ok() && files_.SyncDirectory("/").ok());
  }
  void Put(absl::string_view bytes) {
    const auto file = files_.OpenForWrite(kName, WriteMode::kReplace);
    ASSERT_TRUE(file.ok() && (*file)->Append(bytes).ok());
  }
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open() {
    return SafetensorsReader::Open(files_, kName);
  }

  InMemoryFileSystem files_;
};

TEST_F(SafetensorsTest, AFileHasTheBytesOfTheReferenceWriter) {
  const std::vector<SafetensorsSpec> specs = {{"b", DType::kInt8, {3}},
                                              {"z", DType::kFloat32, {2}},
                                              {"a", DType::kFloat32, {}},
                                              {"h", DType::kBFloat16, {1, 1}},
                                              {"none", DType::kFloat64, {0, 4}}};
  ASSERT_EQ(WriteSafetensors(
                files_, kName, specs, {{"step", "7"}},
                From({{"b", "xyz"}, {"z", "ZZZZzzzz"}, {"a", "AAAA"}, {"h", "hh"}, {"none", ""}})),
            absl::OkStatus());
  const std::string json =
      "{\"__metadata__\":{\"step\":\"7\"},\"none\":{\"dtype\":\"F64\",\"shape\":[0,4],\"data_"
      "offsets\":[0,0]},\"a\":{\"dtype\":\"F32\",\"shape\":[],"
      "\"data_offsets\":[0,4]},\"z\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
      "\"h\":{\"dtype\":\"BF16\",\"shape\":[1,1],"
      "\"data_offsets\":[12,14]},\"b\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[14,17]}}";
  const std::string padding((8 - json.size() % 8) % 8, ' ');
  const std::string length{static_cast<char>((json + padding).size() & 0xff),
                           static_cast<char>((json + padding).size() >> 8),
                           0,
                           0,
                           0,
                           0,
                           0,
                           0};
  EXPECT_EQ(*files_.ReadFile(kName), absl::StrCat(length, json, padding, "AAAAZZZZzzzzhhxyz"));
  EXPECT_THAT(*files_.ListDirectory("/out"), ElementsAre("model.safetensors"));
}

TEST_F(SafetensorsTest, AnyRowsOfAnyTensorComeBack) {
  constexpr uint64_t kSeed = 20261123;
  std::cout << "seed " << kSeed << "\n";
  constexpr DType kTypes[] = {DType::kBool,    DType::kInt8,     DType::kUInt8,    DType::kInt32,
                              DType::kInt64,   DType::kFloat16,  DType::kBFloat16, DType::kFloat32,
                              DType::kFloat64, DType::kComplex64};
  for (uint64_t round = 0; round < 100; ++round) {
    Random random(MixSeeds(kSeed, round));
    std::vector<SafetensorsSpec> specs;
    Bytes bytes;
    for (uint64_t i = random.Below(8); i-- > 0;) {
      std::vector<int64_t> dims;
      for (uint64_t rank = random.Below(4); dims.size() < rank;)
        dims.push_back(static_cast<int64_t>(random.Below(5)));
      specs.push_back(
          {absl::StrCat("\"v\\", i, "\xc3\xa9"), kTypes[random.Below(10)], Shape(dims)});
      std::string& value = bytes[specs.back().name];
      for (int64_t j = 0; j < specs.back().shape.num_elements() * DTypeSize(specs.back().dtype);
           ++j)
        value.push_back(static_cast<char>(random.Next()));
    }
    const std::string name = absl::StrCat("/out/", round);
    ASSERT_EQ(WriteSafetensors(files_, name, specs, {{"k\n", "\x01"}}, From(bytes)),
              absl::OkStatus());
    const auto reader = SafetensorsReader::Open(files_, name);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_THAT((*reader)->header().metadata, ElementsAre(Pair("k\n", "\x01")));
    ASSERT_EQ((*reader)->header().tensors.size(), specs.size());
    for (const SafetensorsSpec& spec : specs) {
      const int64_t row = spec.shape.row_elements() * DTypeSize(spec.dtype);
      const int64_t begin =
          static_cast<int64_t>(random.Below(static_cast<uint64_t>(spec.shape.rows()) + 1));
      std::string out(static_cast<size_t>((spec.shape.rows() - begin) * row), '?');
      ASSERT_EQ((*reader)->ReadRows(spec.name, begin, spec.shape.rows(),
                                    absl::MakeSpan(out.empty() ? nullptr : &out[0], out.size())),
                absl::OkStatus());
      EXPECT_EQ(out, bytes[spec.name].substr(static_cast<size_t>(begin * row)));
      EXPECT_EQ((*reader)->ReadTensor(spec.name).ok(), spec.dtype != DType::kComplex64)
          << spec.name;
    }
  }
}

TEST_F(SafetensorsTest, AHeaderMayBePaddedAndInAnyOrder) {
  const auto header = Parse(
      "{\"b\":{\"data_offsets\":[2,4],\"shape\":[2],\"dtype\":\"U8\"},\"a\":{\"dtype\":\"U16\","
      "\"shape\":[1],\"data_offsets\":[0,2]}}   ",
      4);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].unreadable, "Divvy has no tensors of U16");
  EXPECT_EQ(header->tensors[1].shape, Shape({2}));
  EXPECT_TRUE(Parse("{}", 0).ok());
  EXPECT_TRUE(Parse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", 3).ok());
}

TEST_F(SafetensorsTest, EachBrokenRuleOfTheHeaderIsNamed) {
  const auto message = [](absl::string_view json, uint64_t data_bytes = 4) {
    const absl::Status status = Parse(json, data_bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << json;
    return std::string(status.message());
  };
  const std::string a = "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
  const auto tensor = [](absl::string_view dtype, absl::string_view shape,
                         absl::string_view offsets) {
    return absl::StrCat("{\"a\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape,
                        "],\"data_offsets\":[", offsets, "]}}");
  };
  EXPECT_TRUE(Parse("{" + a + "}", 4).ok());
  EXPECT_EQ(message(""), "not a safetensors file: its header does not begin with {");
  EXPECT_EQ(message(" {}"), "not a safetensors file: its header does not begin with {");
  EXPECT_THAT(message("{" + a), HasSubstr("not JSON at byte"));
  EXPECT_THAT(message("{" + a + "}x"), HasSubstr("not JSON at byte"));
  EXPECT_THAT(message("{\"\xff\":1}"), HasSubstr("not JSON at byte"));
  EXPECT_EQ(message("{" + a + "," + a + "}"), "\"a\" occurs twice");
  EXPECT_EQ(message("{\"__metadata__\":{},\"__metadata__\":{}}"), "\"__metadata__\" occurs twice");
  EXPECT_EQ(message("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"),
            "\"dtype\" occurs twice in \"a\"");
  EXPECT_EQ(message("{\"__metadata__\":{\"k\":1}}"),
            "\"__metadata__\": a number is not allowed here");
  EXPECT_EQ(message("{\"__metadata__\":{\"k\":{}}}"),
            "\"__metadata__\": an object is not allowed here");
  EXPECT_EQ(message("{\"a\":1}"), "\"a\": a number is not allowed here");
  EXPECT_EQ(message("{\"a\":[]}"), "\"a\": a list is not allowed here");
  EXPECT_EQ(message("{\"a\":null}"), "\"a\": a null is not allowed here");
  EXPECT_EQ(message("{\"a\":{\"shape\":\"F32\"}}"), "\"a\": a text is not allowed here");
  EXPECT_EQ(message("{\"a\":{\"shape\":[[1]]}}"), "\"a\": a list is not allowed here");
  EXPECT_EQ(message("{\"a\":{\"shape\":[true]}}"), "\"a\": true or false is not allowed here");
  EXPECT_EQ(message(tensor("F32", "-1", "0,4")), "\"a\": a negative number is not allowed here");
  EXPECT_EQ(message(tensor("F32", "1.0", "0,4")),
            "\"a\": a number that is not an integer is not allowed here");
  EXPECT_EQ(message("{\"a\":{\"stride\":[1]}}"), "tensor \"a\": unknown key \"stride\"");
  EXPECT_EQ(message("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}"),
            "tensor \"a\": it needs \"dtype\", \"shape\" and \"data_offsets\" of two numbers");
  EXPECT_EQ(message(tensor("F32", "1", "0,4,4")),
            "tensor \"a\": it needs \"dtype\", \"shape\" and \"data_offsets\" of two numbers");
  EXPECT_EQ(message(tensor("f32", "1", "0,4")), "tensor \"a\": unknown type f32");
  EXPECT_EQ(message(tensor("F32", "1", "4,0")),
            "tensor \"a\": its bytes [4, 0) are not within the file's 4 bytes of data");
  EXPECT_EQ(message(tensor("F32", "2", "0,8")),
            "tensor \"a\": its bytes [0, 8) are not within the file's 4 bytes of data");
  EXPECT_EQ(message(tensor("F32", "2", "0,4")), "tensor \"a\": its shape does not fit its 4 bytes");
  EXPECT_EQ(message(tensor("F4", "1", "0,0")), "tensor \"a\": its shape does not fit its 0 bytes");
  EXPECT_EQ(message(tensor("F32", "4294967296,4294967296,4294967296", "0,0")),
            "tensor \"a\": its shape does not fit its 0 bytes");
  EXPECT_EQ(message(tensor("U8", "3", "1,4")),
            "tensor \"a\": it begins at byte 1, but the tensor before it ends at 0");
  EXPECT_EQ(message("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}," + a + "}"),
            "tensor \"b\": it begins at byte 2, but the tensor before it ends at 4");
  EXPECT_THAT(message("{" + a + "}", 5), HasSubstr("the tensors end at byte"));
  EXPECT_EQ(ParseSafetensorsHeader("{}", 9).status().message(), "the file ends within the header");
  EXPECT_FALSE(Parse(std::string(100000, '{'), 0).ok());
  EXPECT_FALSE(Parse("{\"a\":" + std::string(100000, '['), 0).ok());
}

TEST_F(SafetensorsTest, EachTruncationAndEachAddedByteIsFound) {
  ASSERT_EQ(WriteSafetensors(files_, kName, {{"a", DType::kFloat32, {3}}}, {},
                             From({{"a", "123456789012"}})),
            absl::OkStatus());
  const std::string whole = *files_.ReadFile(kName);
  for (size_t length = 0; length < whole.size(); ++length) {
    Put(whole.substr(0, length));
    EXPECT_EQ(Open().status().code(), absl::StatusCode::kDataLoss) << length;
  }
  Put(whole + "x");
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kDataLoss);
  Put(whole);
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  Put(whole.substr(0, whole.size() - 1));
  EXPECT_THAT((*reader)->ReadTensor("a").status().message(),
              HasSubstr("the file ends within tensor \"a\""));
}

TEST_F(SafetensorsTest, AHeaderThatClaimsMoreThanTheFileHasTakesNoMemory) {
  Put(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_THAT(
      Open().status().message(),
      HasSubstr("its header claims 18446744073709551615 bytes; at most 100000000 are allowed"));
  Put(std::string("\0\0\0\5\0\0\0\0{}", 10));
  EXPECT_THAT(Open().status().message(), HasSubstr("the file ends within the header"));
}

TEST_F(SafetensorsTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(WriteSafetensors(files_, kName, {{"a", DType::kComplex64, {1}}}, {},
                             From({{"a", "12345678"}})),
            absl::OkStatus());
  const auto reader = Open();
  char out[8];
  EXPECT_EQ((*reader)->ReadTensor("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*reader)->ReadTensor("a").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*reader)->ReadRows("a", 0, 2, absl::MakeSpan(out)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*reader)->ReadRows("a", 0, 1, absl::MakeSpan(out, 4)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE((*reader)->ReadRows("a", 0, 1, absl::MakeSpan(out)).ok());
}

TEST_F(SafetensorsTest, TensorsThatCannotBeWrittenAreRefused) {
  const auto refusal = [&](std::vector<SafetensorsSpec> specs, Bytes bytes = {{"a", "1"}}) {
    const absl::Status status = WriteSafetensors(files_, kName, std::move(specs), {}, From(bytes));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const SafetensorsSpec a{"a", DType::kInt8, {1}};
  EXPECT_EQ(refusal({a, a}), "two tensors are named \"a\"");
  EXPECT_EQ(refusal({{"__metadata__", DType::kInt8, {1}}}),
            "two tensors are named \"__metadata__\"");
  EXPECT_EQ(refusal({{"\xff", DType::kInt8, {1}}}), "the name of a tensor is not UTF-8");
  EXPECT_EQ(refusal({{"a", DType::kString, {1}}}), "tensor \"a\": safetensors has no string");
  EXPECT_EQ(refusal({{"a", DType::kInt8, {-1}}}),
            "tensor \"a\": shape [-1] has an unknown dimension");
  EXPECT_EQ(refusal({a}, {{"a", ""}}), "tensor \"a\": the source passed 0 bytes; the tensor has 1");
  EXPECT_EQ(refusal({a}, {{"a", "123"}}),
            "tensor \"a\": the source passed 3 bytes; the tensor has 1");
  EXPECT_EQ(WriteSafetensors(files_, kName, {a}, {}, From({{"a", "1"}})), absl::OkStatus());
  EXPECT_EQ(WriteSafetensors(files_, kName, {a}, {}, From({{"a", "1"}})).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(SafetensorsTest, AFileThatFailsOrACrashIsNotThere) {
  for (const FileOperation operation : {FileOperation::kOpenForWrite, FileOperation::kAppend,
                                        FileOperation::kSync, FileOperation::kRename}) {
    files_.FailNext(operation, "", absl::DataLossError("EIO"));
    EXPECT_EQ(WriteSafetensors(files_, kName, {{"a", DType::kInt8, {1}}}, {}, From({{"a", "1"}})),
              absl::DataLossError("EIO"));
    files_.Crash();
    EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  }
  ASSERT_EQ(WriteSafetensors(files_, kName, {{"a", DType::kInt8, {1}}}, {}, From({{"a", "1"}})),
            absl::OkStatus());
  files_.Crash();
  EXPECT_TRUE(Open().ok());
}

TEST_F(SafetensorsTest, ALargeModelIsCutBetweenTensors) {
  const std::vector<SafetensorsSpec> specs = {{"c", DType::kInt8, {3}},
                                              {"a", DType::kInt8, {2}},
                                              {"b", DType::kInt8, {2}},
                                              {"d", DType::kInt8, {9}}};
  const Bytes bytes = {{"a", "aa"}, {"b", "bb"}, {"c", "ccc"}, {"d", "ddddddddd"}};
  const auto names = WriteShardedSafetensors(files_, "/out/model.safetensors", specs, {{"k", "v"}},
                                             5, From(bytes));
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  const std::string index = *files_.ReadFile("/out/model.safetensors.index.json");
  EXPECT_EQ(
      index,
      "{\n  \"metadata\": {\n    \"total_size\": 16\n  },\n  \"weight_map\": {\n    \"a\": "
      "\"model-00001-of-00003.safetensors\",\n    \"b\": "
      "\"model-00001-of-00003.safetensors\",\n    \"c\": \"model-00002-of-00003.safetensors\",\n   "
      " \"d\": \"model-00003-of-00003.safetensors\"\n  }\n}\n");
  EXPECT_THAT(*ParseSafetensorsIndex(index),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors"));
  const auto second = SafetensorsReader::Open(files_, "/out/model-00002-of-00003.safetensors");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->header().tensors.size(), 1u);
  EXPECT_EQ(WriteShardedSafetensors(files_, "/out/model.safetensors", specs, {}, 5, From(bytes))
                .status()
                .code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(WriteShardedSafetensors(files_, "/out/model.safetensors", specs, {}, 0, From(bytes))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

class ReplacedModelTest : public SafetensorsTest {
 protected:
  absl::Status Write(const Bytes& bytes, int64_t max_shard_bytes) {
    const std::vector<SafetensorsSpec> specs = {
        {"a", DType::kInt8, {2}}, {"b", DType::kInt8, {2}}, {"c", DType::kInt8, {2}}};
    return WriteShardedSafetensors(files_, "/out/towers.safetensors", specs, {}, max_shard_bytes,
                                   From(bytes), Existing::kReplaced)
        .status();
  }
  std::vector<std::string> Files() { return *files_.ListDirectory("/out"); }
  // The bytes of the tensors, read by the index if there is one.
  std::string Model() {
    const auto index = files_.ReadFile("/out/towers.safetensors.index.json");
    std::string bytes;
    for (const std::string& name : index.ok() ? *ParseSafetensorsIndex(*index)
                                              : std::vector<std::string>{"towers.safetensors"}) {
      const auto file = files_.ReadFile("/out/" + name);
      bytes += file.ok() ? file->substr(file->rfind('}') + 1) : file.status().ToString();
    }
    bytes.erase(std::remove(bytes.begin(), bytes.end(), ' '), bytes.end());
    return bytes;
  }

  const Bytes old_ = {{"a", "aa"}, {"b", "bb"}, {"c", "cc"}},
              fresh_ = {{"a", "AA"}, {"b", "BB"}, {"c", "CC"}};
};

TEST_F(ReplacedModelTest, OfTheFormerOneNothingIsLeftWhateverTheNumberOfFiles) {
  const std::vector<std::string> one = {"towers.safetensors"};
  const std::vector<std::string> two = {"towers-00001-of-00002.safetensors",
                                        "towers-00002-of-00002.safetensors",
                                        "towers.safetensors.index.json"};
  const std::vector<std::string> three = {
      "towers-00001-of-00003.safetensors", "towers-00002-of-00003.safetensors",
      "towers-00003-of-00003.safetensors", "towers.safetensors.index.json"};
  const std::map<int64_t, std::vector<std::string>> files_of = {{6, one}, {4, two}, {2, three}};
  for (const auto& [before, unused] : files_of) {
    for (const auto& [after, files] : files_of) {
      ASSERT_EQ(Write(old_, before), absl::OkStatus());
      EXPECT_EQ(Model(), "aabbcc");
      ASSERT_EQ(Write(fresh_, after), absl::OkStatus());
      EXPECT_EQ(Model(), "AABBCC");
      EXPECT_EQ(Files(), files) << before << " bytes a file, then " << after;
    }
  }
}

TEST_F(ReplacedModelTest, AFullDiskLeavesItAsItWas) {
  for (const int64_t before : {6, 2}) {
    for (const int64_t after : {6, 4, 2}) {
      ASSERT_EQ(Write(old_, before), absl::OkStatus());
      const std::vector<std::string> files = Files();
      for (uint64_t free = 0; free < 500; free += 20) {
        files_.SetFreeBytes(free);
        const absl::Status written = Write(fresh_, after);
        if (written.ok()) break;
        ASSERT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
        ASSERT_EQ(Model(), "aabbcc")
            << free << " bytes free, " << before << " bytes a file, then " << after;
        ASSERT_EQ(Files(), files) << free << " bytes free";
      }
      files_.SetFreeBytes(1'000'000);
      ASSERT_EQ(Write(fresh_, after), absl::OkStatus());
    }
  }
}

TEST_F(ReplacedModelTest, NoIndexEverNamesFilesOfTwo) {
  for (const char* file : {"-00001-of", "-00002-of", "-00003-of", "index.json"}) {
    ASSERT_EQ(Write(old_, 2), absl::OkStatus());
    files_.FailNext(FileOperation::kRename, file, absl::DataLossError("EIO"));
    ASSERT_EQ(Write(fresh_, 2), absl::DataLossError("EIO"));
    EXPECT_THAT(Model(), HasSubstr("NOT_FOUND")) << file;
    for (const std::string& name : Files()) EXPECT_THAT(name, Not(EndsWith(".tmp")));
  }
}

TEST_F(ReplacedModelTest, FilesThatAreNoneOfItsOwnAreLeftAlone) {
  ASSERT_TRUE(files_.ReplaceFile("/out/notes.txt", "mine").ok());
  ASSERT_TRUE(files_
                  .ReplaceFile("/out/towers.safetensors.index.json",
                               "{\"weight_map\":{\"a\":\"notes.txt\"}}")
                  .ok());
  ASSERT_EQ(Write(fresh_, 6), absl::OkStatus());
  EXPECT_THAT(Files(), ElementsAre("notes.txt", "towers.safetensors"));
  ASSERT_TRUE(files_.ReplaceFile("/out/towers.safetensors.index.json", "no index").ok());
  ASSERT_EQ(Write(fresh_, 6), absl::OkStatus());
  EXPECT_THAT(Files(), ElementsAre("notes.txt", "towers.safetensors"));
}

TEST_F(SafetensorsTest, AFileThatCannotHaveItsNameIsNotLeftUnderAnother) {
  ASSERT_TRUE(files_.CreateDirectory(kName).ok());
  for (const Existing existing : {Existing::kKept, Existing::kReplaced}) {
    EXPECT_FALSE(WriteSafetensors(files_, kName, {{"a", DType::kInt8, {1}}}, {}, From({{"a", "1"}}),
                                  existing)
                     .ok());
  }
  EXPECT_THAT(*files_.ListDirectory("/out"), ElementsAre("model.safetensors"));
}

TEST_F(SafetensorsTest, AModelsNameSaysWhatItIs) {
  const absl::Status refused =
      WriteShardedSafetensors(files_, "/out/model", {}, {}, 1, From({})).status();
  EXPECT_EQ(refused, absl::InvalidArgumentError("\"/out/model\" does not end in .safetensors"));
}

TEST_F(SafetensorsTest, ASmallModelIsOneFileWithoutAnIndex) {
  EXPECT_THAT(*WriteShardedSafetensors(files_, "/out/model.safetensors", {{"a", DType::kInt8, {2}}},
                                       {}, 2, From({{"a", "aa"}})),
              ElementsAre("model.safetensors"));
  EXPECT_TRUE(Open().ok());
}

TEST_F(SafetensorsTest, AnIndexNamesFilesOfItsOwnDirectory) {
  for (const char* bad :
       {"", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"../b\"}}", "{\"weight_map\":{\"a\":\"..\"}}",
        "{\"weight_map\":{\"a\":\"\"}}", "{\"weight_map\":{\"a\":{\"b\":{\"c\":{}}}}}"}) {
    EXPECT_EQ(ParseSafetensorsIndex(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  }
}

TEST_F(SafetensorsTest, WhateverIsAcceptedFillsTheFile) {
  constexpr uint64_t kSeed = 20261124;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  const std::string good =
      "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":["
      "0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":["
      "8,9]}}";
  int accepted = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string json = good;
    for (uint64_t i = random.Below(4); i-- > 0;)
      json[random.Below(json.size())] = "0123456789,:[]{}\"aUF\\"[random.Below(21)];
    const auto header = Parse(json, 9);
    if (!header.ok()) continue;
    ++accepted;
    uint64_t at = 8 + json.size();
    for (const SafetensorsTensor& tensor : header->tensors) {
      EXPECT_EQ(tensor.begin, at) << json;
      at = tensor.end;
    }
    EXPECT_EQ(at, 8 + json.size() + 9) << json;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace divvy
