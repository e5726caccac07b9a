// Datasets read from files: CSV, libsvm and IDX, plain and compressed, one file and many, valid and
// broken; and the data of the examples.
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/testing/in_memory_file_system.h"
#include "data/dataset.h"
#include "data/testing/seek_suite.h"
#include "formats/example.h"
#include "formats/tfrecord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Zlib(absl::string_view text) {
  std::string out(compressBound(text.size()), '\0');
  uLongf size = out.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(out.data()), &size,
                     reinterpret_cast<const Bytef*>(text.data()), text.size()),
            Z_OK);
  out.resize(size);
  return out;
}

std::string Bytes(std::initializer_list<int> bytes) {
  return std::string(bytes.begin(), bytes.end());
}

template <typename T>
std::vector<T> Values(const Nest& leaf) {
  const Tensor tensor = *leaf.tensor();
  const absl::Span<const T> values = *tensor.values<T>();
  return std::vector<T>(values.begin(), values.end());
}

const std::vector<CsvColumn> kXAndY = {{"x", DType::kFloat32, 0, /*width=*/2},
                                       {"y", DType::kInt64}};

class FileDatasetsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, absl::string_view bytes) {
    ASSERT_TRUE(files_.ReplaceFile(name, bytes).ok());
  }

  std::vector<Nest> Read(const Dataset& dataset) { return PlainPass(dataset, environment_); }
  absl::Status FirstError(const Dataset& dataset) {
    return dataset.Iterate(environment_)->Next().status();
  }

  // The elements of a pass as text; an error is the last one.
  std::vector<std::string> Shown(const Dataset& dataset) {
    std::vector<std::string> shown;
    const auto iterator = dataset.Iterate(environment_);
    while (true) {
      const absl::StatusOr<std::optional<Nest>> element = iterator->Next();
      if (!element.ok()) shown.emplace_back(element.status().message());
      if (!element.ok() || !element->has_value()) return shown;
      shown.push_back(absl::StrCat(absl::StrJoin(Values<float>((**element)["x"]), " "), " -> ",
                                   *(**element)["y"].tensor()->scalar<int64_t>()));
    }
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

// ---- CSV

TEST_F(FileDatasetsTest, CsvColumnsStandByPosition) {
  Write("a.csv", "1,2.5,3\r\n\r\n\"4\",-5,6");
  EXPECT_THAT(Shown(Dataset::Csv("a.csv", kXAndY)), ElementsAre("1 2.5 -> 3", "4 -5 -> 6"));
  EXPECT_EQ(Read(Dataset::Csv("a.csv", kXAndY))[0].ToString(),
            "{\"x\": float32 [2], \"y\": int64 []}");
}

TEST_F(FileDatasetsTest, CsvColumnsStandByNameUnderAHeaderThatHasThemAll) {
  Write("a.csv", "\xEF\xBB\xBFy,other,x,x2\n1,?,2,3\n4,,5,6\n");
  EXPECT_THAT(Shown(Dataset::Csv("a.csv", kXAndY)), ElementsAre("2 3 -> 1", "5 6 -> 4"));
  Write("short.csv", "y,x\n1,2\n");
  EXPECT_THAT(
      Shown(Dataset::Csv("short.csv", kXAndY)),
      ElementsAre("short.csv: line 1: column \"x\" has 2 fields, but the header has only 1 from "
                  "its name on"));
  Write("empty.csv", "y,x,x2\n");
  EXPECT_THAT(Shown(Dataset::Csv("empty.csv", kXAndY)), IsEmpty());
}

TEST_F(FileDatasetsTest, BlanksAroundNumbersAndNamesDoNotCountAndTextIsAsItIs) {
  const std::vector<CsvColumn> columns = {
      {"x"}, {"t", DType::kString}, {"y", DType::kInt64}, {"b", DType::kBool}};
  for (const char* const header : {"", "x, t, y, b\n"}) {
    Write("a.csv", absl::StrCat(header, " 1.5 , a b,\t-2, true\n"));
    const Nest row = Read(Dataset::Csv("a.csv", columns)).at(0);
    EXPECT_EQ(*row["x"].tensor()->scalar<float>(), 1.5f);
    EXPECT_EQ(row["t"].text().value(), " a b");
    EXPECT_EQ(*row["y"].tensor()->scalar<int64_t>(), -2);
    EXPECT_TRUE(*row["b"].tensor()->scalar<bool>());
  }
  Write("a.csv", "1 000, a, 3, 0\n");
  EXPECT_THAT(Shown(Dataset::Csv("a.csv", columns)).back(),
              HasSubstr("\"1 000\" is not a float32"));
  CsvColumn x{"x"};
  x.if_empty = 7;
  Write("a.csv", "  \n1\n");
  EXPECT_EQ(*Read(Dataset::Csv("a.csv", {x}))[0]["x"].tensor()->scalar<float>(), 7);
}

TEST_F(FileDatasetsTest, CsvReadsEveryTypeThatTensorsHold) {
  Write("a.csv", "true,-128,255,-7,8,1.5,1.5,1.5,1.5\n");
  const Dataset all = Dataset::Csv("a.csv", {{"b", DType::kBool},
                                             {"i8", DType::kInt8},
                                             {"u8", DType::kUInt8},
                                             {"i32", DType::kInt32},
                                             {"i64", DType::kInt64},
                                             {"f16", DType::kFloat16},
                                             {"bf16", DType::kBFloat16},
                                             {"f32", DType::kFloat32},
                                             {"f64", DType::kFloat64}});
  const Nest row = Read(all).at(0);
  EXPECT_TRUE(*row["b"].tensor()->scalar<bool>());
  EXPECT_EQ(*row["i8"].tensor()->scalar<int8_t>(), -128);
  EXPECT_EQ(*row["u8"].tensor()->scalar<uint8_t>(), 255);
  EXPECT_EQ(*row["i32"].tensor()->scalar<int32_t>(), -7);
  EXPECT_EQ(*row["i64"].tensor()->scalar<int64_t>(), 8);
  EXPECT_EQ(row["f16"].tensor()->scalar<Half>()->ToFloat(), 1.5f);
  EXPECT_EQ(row["bf16"].tensor()->scalar<BFloat16>()->ToFloat(), 1.5f);
  EXPECT_EQ(*row["f32"].tensor()->scalar<float>(), 1.5f);
  EXPECT_EQ(*row["f64"].tensor()->scalar<double>(), 1.5);
}

TEST_F(FileDatasetsTest, EmptyFieldsAreRefusedOrStandForANumber) {
  // The second row is in one piece only with quotes.
  Write("a.csv", "1,2,3\n,,\n\"\",5,\"\"\n");
  EXPECT_THAT(Shown(Dataset::Csv("a.csv", {{"x"}, {"y", DType::kInt64}, {"z"}})).back(),
              HasSubstr("a.csv: line 2: column \"x\": "));
  CsvColumn x{"x"}, y{"y", DType::kInt64}, z{"z", DType::kFloat16};
  x.if_empty = -1.5;
  y.if_empty = 7;
  y.below = 8;
  z.if_empty = 0.5;
  const std::vector<Nest> rows = Read(Dataset::Csv("a.csv", {x, y, z}));
  ASSERT_EQ(rows.size(), 3u);
  for (const size_t row : {1u, 2u}) {
    EXPECT_EQ(*rows[row]["x"].tensor()->scalar<float>(), -1.5f);
    EXPECT_EQ(*rows[row]["y"].tensor()->scalar<int64_t>(), row == 1 ? 7 : 5);
    EXPECT_EQ(rows[row]["z"].tensor()->scalar<Half>()->ToFloat(), 0.5f);
  }
  // Element by element, as behind a Map.
  const auto pass = [](const Nest& row) -> absl::StatusOr<Nest> { return row["x"]; };
  EXPECT_EQ(Read(Dataset::Csv("a.csv", {x, y, z}).Map(pass)).size(), 3u);
  for (const double bad : {8.0, -1.0, 0.5}) {
    y.if_empty = bad;
    EXPECT_THAT(std::string(FirstError(Dataset::Csv("a.csv", {x, y, z})).message()),
                HasSubstr("column \"y\" has if_empty = "));
  }
  CsvColumn text{"t", DType::kString, 10};
  text.if_empty = 0;
  EXPECT_THAT(std::string(FirstError(Dataset::Csv("a.csv", {text})).message()),
              HasSubstr("text may be empty"));
}

TEST_F(FileDatasetsTest, OtherEncodingsAreNamed) {
  const std::string utf16(
      "\xFF\xFE"
      "1\0,\0",
      6),
      utf32(
          "\0\0\xFE\xFF\0\0\0"
          "1",
          8);
  for (const auto& [bytes, name] : {std::pair(utf16, "UTF-16"), std::pair(utf32, "UTF-32")}) {
    Write("a.csv", bytes);
    for (const Dataset& dataset : {Dataset::Csv("a.csv", kXAndY), Dataset::Libsvm("a.csv"),
                                   Dataset::CriteoTsv("a.csv"), Dataset::TextLines("a.csv")}) {
      const absl::Status error = FirstError(dataset);
      EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(error.message()),
                  HasSubstr(absl::StrCat("a.csv: the file is ", name, ": convert it to UTF-8")));
    }
  }
}

TEST_F(FileDatasetsTest, CsvTextIsHashedIntoItsBuckets) {
  Write("a.csv", "cat,1\ndog,2\ncat,3\n,4\n");
  const std::vector<Nest> rows = Read(Dataset::Csv(
      "a.csv", {{"word", DType::kString, /*hash_buckets=*/1000}, {"y", DType::kInt64}}));
  std::vector<int64_t> words;
  for (const Nest& row : rows) words.push_back(*row["word"].tensor()->scalar<int64_t>());
  EXPECT_THAT(words, ElementsAre(static_cast<int64_t>(HashText("cat") % 1000),
                                 static_cast<int64_t>(HashText("dog") % 1000), words[0],
                                 static_cast<int64_t>(HashText("") % 1000)));
}

TEST_F(FileDatasetsTest, AnotherSeparatorTakesTheCommasPlace) {
  Write("u.data", "1\t2.5\t3\n4\t5\t6\n");
  EXPECT_THAT(Shown(Dataset::Csv("u.data", kXAndY, '\t')), ElementsAre("1 2.5 -> 3", "4 5 -> 6"));
  Write("named.tsv", "y\tother\tx\tx2\n1\t,\t2\t3\n");
  EXPECT_THAT(Shown(Dataset::Csv("named.tsv", kXAndY, '\t')), ElementsAre("2 3 -> 1"));
  EXPECT_EQ(FirstError(Dataset::Csv("u.data", kXAndY, '"')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileDatasetsTest, AnIdOutsideItsTableIsAnErrorWithFileLineAndColumn) {
  std::vector<CsvColumn> columns = {{"user", DType::kInt64}, {"item", DType::kInt32}};
  columns[0].below = columns[1].below = 10;
  Write("a.csv", "0,9\n3,10\n");
  EXPECT_EQ(Read(Dataset::Csv("a.csv", columns).Take(1)).size(), 1u);
  EXPECT_EQ(FirstError(Dataset::Csv("a.csv", columns).Skip(1)),
            absl::DataLossError("a.csv: line 2: column \"item\": 10 is not in [0, 10): correct the "
                                "line, or make the column's bound, and its table, larger"));
  Write("a.csv", "-1,0\n");
  EXPECT_THAT(FirstError(Dataset::Csv("a.csv", columns)).message(),
              HasSubstr("a.csv: line 1: column \"user\": -1 is not in [0, 10)"));
}

TEST_F(FileDatasetsTest, EachBadCsvLineIsAnErrorWithFileLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1,2,3\n4,5\n", "a.csv: line 2: has 2 fields, wanted 3: x, y"},
      {"1,2,3\n4,5,6,7\n", "a.csv: line 2: has 4 fields, wanted 3"},
      {"1,2,3\n4,five,6\n", "a.csv: line 2: column \"x\": \"five\" is not a float32 number"},
      {"1,2,3\n\n4,5,6.5\n", "a.csv: line 3: column \"y\": \"6.5\" is not an integer of 64 bits"},
      {"1,2,3\n4,5,\n", "a.csv: line 2: column \"y\": \"\" is not an integer"},
      {"1,2,3\n4,\"5,6\n", "a.csv: line 2: a quoted field is never closed"},
      {"y,xx,other\n1,2,3\n",
       "a.csv: line 1: column \"x\": \"y\" is not a float32 number; if this is a header, it must "
       "have all of x, y"},
  };
  for (const auto& [text, message] : cases) {
    Write("a.csv", text);
    const std::vector<std::string> shown = Shown(Dataset::Csv("a.csv", kXAndY));
    ASSERT_FALSE(shown.empty());
    EXPECT_THAT(shown.back(), HasSubstr(message));
  }
  Write("a.csv", "300\n");
  EXPECT_THAT(FirstError(Dataset::Csv("a.csv", {{"i", DType::kInt8}})).message(),
              HasSubstr("300 does not fit into int8"));
  EXPECT_EQ(FirstError(Dataset::Csv("a.csv", {{"b", DType::kBool}})).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(FileDatasetsTest, BehindABadLineOneCanGoOnBySeeking) {
  Write("a.csv", "1,2,3\nbad\n4,\"5,6\n7,8,9\n");
  const auto iterator = Dataset::Csv("a.csv", kXAndY).Iterate(environment_);
  ASSERT_TRUE(iterator->Seek(1).ok());
  EXPECT_THAT(iterator->Next().status().message(), HasSubstr("line 2"));
  EXPECT_THAT(iterator->Next().status().message(), HasSubstr("line 2"));
  ASSERT_TRUE(iterator->Seek(3).ok());
  EXPECT_EQ(*(**iterator->Next())["y"].tensor()->scalar<int64_t>(), 9);
  EXPECT_FALSE(iterator->Next()->has_value());
  EXPECT_EQ(iterator->size(), 4);
}

// ---- libsvm

TEST_F(FileDatasetsTest, LibsvmRowsAreSparseIdsOfOneRowAndBatchToCsr) {
  Write("a.libsvm", "# made by hand\n1 3:0.5 7:2 # first\n\n0\n-1 qid:2 9:1\n");
  const std::vector<Nest> batches = Read(Dataset::Libsvm("a.libsvm").Batch(3));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_TRUE(BitwiseEqual(*batches[0]["label"].tensor(), Tensor::Vector<float>({1, 0, -1})));
  EXPECT_TRUE(
      BitwiseEqual(*batches[0]["features"]["ids"].tensor(), Tensor::Vector<int64_t>({3, 7, 9})));
  EXPECT_TRUE(BitwiseEqual(*batches[0]["features"]["row_splits"].tensor(),
                           Tensor::Vector<int64_t>({0, 2, 2, 3})));
  EXPECT_TRUE(BitwiseEqual(*batches[0]["features"]["weights"].tensor(),
                           Tensor::Vector<float>({0.5, 2, 1})));
}

// A machine with more than 2 TiB of memory would read this file.
TEST(LargeFileTest, AFileThatMemoryCannotHoldIsRefusedUnread) {
  const std::string name = absl::StrCat(testing::TempDir(), "/large.csv");
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(name, "1,2\n").ok());
  ASSERT_EQ(truncate(name.c_str(), off_t{1} << 40), 0);
  const absl::Status refused = Dataset::Csv(name, kXAndY).Iterate({})->Next().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("large.csv: a file of a dataset is read whole"),
                    HasSubstr("split it into several files")));
}

TEST_F(FileDatasetsTest, ABadLibsvmLineIsAnErrorWithFileAndLine) {
  Write("a.libsvm", "1 3:1\n\n0 4:1 4:2\n");
  const auto iterator = Dataset::Libsvm("a.libsvm").Iterate(environment_);
  EXPECT_TRUE(iterator->Next().ok());
  EXPECT_EQ(iterator->Next().status(),
            absl::DataLossError("a.libsvm: line 3: the id 4 occurs more than once in the line"));
}

TEST_F(FileDatasetsTest, LibsvmLabelsBecomeZeroAndOneByOptionAndOthersAreErrors) {
  Write("signs.libsvm", "+1 1:1\n-1 1:1\n0 1:1\n");
  Write("classes.libsvm", "1 1:1\n2 1:1\n");
  EXPECT_TRUE(BitwiseEqual(
      *Read(Dataset::Libsvm("signs.libsvm", 0, LibsvmLabels::kBinary).Batch(3))[0]["label"]
           .tensor(),
      Tensor::Vector<float>({1, 0, 0})));
  EXPECT_TRUE(BitwiseEqual(
      *Read(Dataset::Libsvm("classes.libsvm", 0, LibsvmLabels::kOneTwo).Batch(2))[0]["label"]
           .tensor(),
      Tensor::Vector<float>({0, 1})));
  EXPECT_THAT(
      FirstError(Dataset::Libsvm("classes.libsvm", 0, LibsvmLabels::kBinary).Skip(1)).message(),
      AllOf(HasSubstr("classes.libsvm: line 2: the label 2 is none of -1, 0 and 1"),
            HasSubstr("kOneTwo is for 1 and 2")));
  EXPECT_THAT(
      FirstError(Dataset::Libsvm("signs.libsvm", 0, LibsvmLabels::kOneTwo).Skip(1)).message(),
      AllOf(HasSubstr("signs.libsvm: line 2: the label -1 is none of 1 and 2"),
            HasSubstr("kBinary")));
}

TEST_F(FileDatasetsTest, ALibsvmIdBeyondItsTableIsAnErrorWithFileLineAndBound) {
  Write("a.libsvm", "1 3:1\n0 123:1\n0 124:1 5:1\n");
  const auto iterator = Dataset::Libsvm("a.libsvm", 124).Iterate(environment_);
  EXPECT_TRUE(iterator->Next().ok() && iterator->Next().ok());
  EXPECT_EQ(iterator->Next().status(),
            absl::DataLossError("a.libsvm: line 3: the id 124 is not in [0, 124): correct the "
                                "line, or make the bound of Libsvm, and its table, larger"));
  EXPECT_EQ(FirstError(Dataset::Libsvm("a.libsvm", -1)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileDatasetsTest, WhatIsNotFiniteIsAnErrorWithFileAndLine) {
  for (const std::string wrong : {"nan", "inf", "-inf"}) {
    Write("label.libsvm", absl::StrCat(wrong, " 1:1\n"));
    Write("value.libsvm", absl::StrCat("1 1:", wrong, "\n"));
    Write("day_0", absl::StrCat("1\t", wrong, std::string(38, '\t'), "\n"));
    Write("a.csv", absl::StrCat("1,2\n3,", wrong, "\n"));
    for (const std::string file : {"label.libsvm", "value.libsvm"}) {
      EXPECT_THAT(
          FirstError(Dataset::Libsvm(file)).message(),
          HasSubstr(absl::StrCat(file, ": line 1: \"", wrong, "\" is not a finite number")));
    }
    EXPECT_THAT(FirstError(Dataset::CriteoTsv("day_0")).message(), HasSubstr("day_0: line 1: "));
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
      EXPECT_THAT(FirstError(Dataset::Csv("a.csv", {{"x"}, {"label", dtype}}).Skip(1)).message(),
                  AllOf(HasSubstr(absl::StrCat("a.csv: line 2: column \"label\": \"", wrong,
                                               "\" is not finite")),
                        HasSubstr("NotFinite::kTaken")));
    }
  }
  CsvColumn taken{"label"};
  taken.not_finite = CsvColumn::NotFinite::kTaken;
  Write("a.csv", "1,2\n3,nan\n");
  EXPECT_TRUE(std::isnan(
      *Read(Dataset::Csv("a.csv", {{"x"}, taken}))[1]["label"].tensor()->scalar<float>()));
}

// Read and Skip must agree on which lines are blank and which are bad.
TEST_F(FileDatasetsTest, LibsvmLinesHaveTheSameNumbersReadOrPassedOver) {
  const std::string kinds[] = {"1 1:1", "",     " \t",    "\f",  "\v",    " \r ",
                               "#",     " # 1", "#1 1:1", "qid", "0 # 1", "\f1 1:1"};
  std::string text;
  for (const std::string& kind : kinds) absl::StrAppend(&text, kind, "\n2 2:2\n");
  Write("a.libsvm", text);
  const auto reading = Dataset::Libsvm("a.libsvm").Iterate(environment_);
  for (int64_t position = 0; position < 24; ++position) {
    const auto seeking = Dataset::Libsvm("a.libsvm").Iterate(environment_);
    ASSERT_TRUE(seeking->Seek(position).ok() && reading->Seek(position).ok());
    const auto sought = seeking->Next(), read = reading->Next();
    ASSERT_EQ(sought.status(), read.status()) << position;
    if (sought.ok()) {
      ASSERT_EQ(sought->has_value(), read->has_value()) << position;
    }
  }
}

// ---- oversized records

TEST_F(FileDatasetsTest, ABombOfARecordIsRefusedBeforeItIsParsed) {
  std::string file;
  AppendTfRecord(std::string((size_t{256} << 20) + 1, 'x'), file);
  Write("large.tfrecord", file);
  const auto parse = [](absl::string_view) -> absl::StatusOr<Nest> {
    return absl::InternalError("parsed");
  };
  EXPECT_THAT(FirstError(Dataset::TfRecord("large.tfrecord", parse)).message(),
              HasSubstr("record 1: offset 0: has 268435457 bytes, and may have at most "
                        "268435456: write several smaller records"));
}

// ---- Criteo's logs

TEST_F(FileDatasetsTest, CriteoLinesAreALabelCountsAndHashedCategories) {
  const std::string counts = "1\t\t-2\t\t\t\t\t\t\t\t\t\t13";
  const std::string categories = absl::StrCat("68fd1e64", std::string(24, '\t'), "\tcat");
  Write("day_0",
        absl::StrCat("1\t", counts, "\t", categories, "\n\n0\t", counts, "\t", categories, "\n"));
  const std::vector<Nest> rows = Read(Dataset::CriteoTsv("day_0"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].ToString(),
            "{\"dense\": float32 [13], \"label\": float32 [], \"sparse\": int64 [26]}");
  EXPECT_EQ(*rows[0]["label"].tensor()->scalar<float>(), 1.0f);
  EXPECT_THAT(Values<float>(rows[0]["dense"]),
              ElementsAre(1, 0, -2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13));
  const std::vector<int64_t> sparse = Values<int64_t>(rows[0]["sparse"]);
  EXPECT_EQ(sparse[0], static_cast<int64_t>(HashText("68fd1e64") >> 1));
  EXPECT_EQ(sparse[1], static_cast<int64_t>(HashText("") >> 1));
  EXPECT_EQ(sparse[25], static_cast<int64_t>(HashText("cat") >> 1));
}

TEST_F(FileDatasetsTest, CriteoLinesMayBePartedByCommasUnderAHeader) {
  const std::string line =
      absl::StrCat("1,,3,260.0", std::string(10, ','), ",68fd1e64", std::string(25, ','), "\n");
  Write("plain.csv", line + line);
  EXPECT_EQ(Read(Dataset::CriteoTsv("plain.csv")).size(), 2u);
  Write("named.csv", "label,I1,I2,...\n" + line);
  const std::vector<Nest> rows = Read(Dataset::CriteoTsv("named.csv"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(*rows[0]["label"].tensor()->scalar<float>(), 1.0f);
  EXPECT_THAT(Values<float>(rows[0]["dense"]),
              ElementsAre(0, 3, 260, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(Values<int64_t>(rows[0]["sparse"])[0], static_cast<int64_t>(HashText("68fd1e64") >> 1));
  Write("short.csv", "label,I1\n1,2,3\n");
  EXPECT_THAT(FirstError(Dataset::CriteoTsv("short.csv")).message(),
              HasSubstr("short.csv: line 2: has 3 fields separated by commas, wanted a label, 13"));
}

TEST_F(FileDatasetsTest, ABadCriteoLineIsAnErrorWithFileAndLine) {
  const std::string rest(38, '\t');
  Write("day_0", absl::StrCat("0\t", rest, "\n0\t1", "\n"));
  EXPECT_THAT(
      FirstError(Dataset::CriteoTsv("day_0").Skip(1)).message(),
      HasSubstr("day_0: line 2: has 2 fields separated by tabs, wanted a label, 13 counts and 26"));
  Write("day_0", absl::StrCat("0\tmany", rest, "\n"));
  EXPECT_THAT(FirstError(Dataset::CriteoTsv("day_0")).message(),
              HasSubstr("day_0: line 1: \"many\" is not a float32 number"));
  Write("day_0", absl::StrCat("7\t", rest, "\n"));
  EXPECT_THAT(FirstError(Dataset::CriteoTsv("day_0")).message(),
              HasSubstr("day_0: line 1: the label (the first field) is 7, must be 0 or 1"));
  Write("day_0", absl::StrCat("?\t", rest, "\n"));
  EXPECT_EQ(FirstError(Dataset::CriteoTsv("day_0")).code(), absl::StatusCode::kDataLoss);
}

// ---- TFRecord

std::string TfRecords(int first, int count) {
  std::string file;
  for (int i = first; i < first + count; ++i)
    AppendTfRecord(
        WriteExample({{"y", std::vector<int64_t>{i}}, {"x", std::vector<float>{0.5f, 1.0f * i}}}),
        file);
  return file;
}

absl::StatusOr<Nest> ParseXAndY(absl::string_view record) {
  return ParseExample(record, {{"x", DType::kFloat32, {2}}, {"y", DType::kInt64}});
}

TEST_F(FileDatasetsTest, TfRecordsAreParsedPlainAndCompressed) {
  Write("a-0", TfRecords(1, 2));
  Write("a-1", Zlib(TfRecords(3, 1)));
  EXPECT_THAT(Shown(Dataset::TfRecord("a-*", ParseXAndY)),
              ElementsAre("0.5 1 -> 1", "0.5 2 -> 2", "0.5 3 -> 3"));
  Write("empty", "");
  EXPECT_THAT(Shown(Dataset::TfRecord("empty", ParseXAndY)), IsEmpty());
}

TEST_F(FileDatasetsTest, ATfRecordWhoseLengthLooksLikeCompressedDataIsPlain) {
  for (size_t length : {0x0178, 0x9c78, 0xda78, 0x088b1f}) {
    std::string file;
    AppendTfRecord(std::string(length, '\0'), file);
    Write("a", file);
    const Dataset lengths = Dataset::TfRecord(
        "a", [](absl::string_view record) { return Nest(static_cast<int64_t>(record.size())); });
    EXPECT_EQ(*Read(lengths).at(0).tensor()->scalar<int64_t>(), static_cast<int64_t>(length));
  }
}

TEST_F(FileDatasetsTest, ABadTfRecordIsAnErrorWithItsNumberAndPlaceAndTheNextCanBeSought) {
  std::string file = TfRecords(1, 3);
  const size_t second = file.size() / 3;
  file[second + 20] ^= 1;
  Write("a", file);
  const Dataset records = Dataset::TfRecord("a", ParseXAndY);
  EXPECT_THAT(
      Shown(records),
      ElementsAre("0.5 1 -> 1",
                  absl::StrCat("a: record 2: offset ", second,
                               ": the checksum of a record does not match: it is damaged")));
  EXPECT_THAT(Shown(records.Skip(2)), ElementsAre("0.5 3 -> 3"));
}

TEST_F(FileDatasetsTest, BadLinesAndRecordsCanBePassedOver) {
  Write("a.csv", "1,2,3\n4,five,6\n7,8,9\n10\n");
  EXPECT_THAT(Shown(Dataset::Csv("a.csv", kXAndY).IgnoreErrors(2)),
              ElementsAre("1 2 -> 3", "7 8 -> 9"));
  std::string file = TfRecords(1, 3);
  file[file.size() / 3 + 20] ^= 1;
  Write("a", file);
  EXPECT_THAT(Shown(Dataset::TfRecord("a", ParseXAndY).IgnoreErrors(1)),
              ElementsAre("0.5 1 -> 1", "0.5 3 -> 3"));
  Write("a", file.substr(0, file.size() - 1));
  Write("b", TfRecords(4, 1));
  EXPECT_THAT(Shown(Dataset::TfRecord("[ab]", ParseXAndY).IgnoreErrors(2)),
              ElementsAre("0.5 1 -> 1", "0.5 4 -> 4"));
}

TEST_F(FileDatasetsTest, AnErrorOfParsingSaysOfWhichRecord) {
  Write("a", TfRecords(1, 2));
  const Dataset records = Dataset::TfRecord("a", [](absl::string_view record) {
    return ParseExample(record, {{"z", DType::kInt64}});
  });
  EXPECT_EQ(
      FirstError(records.Skip(1)).message(),
      absl::StrCat("a: record 2: offset ", TfRecords(1, 1).size(), ": feature \"z\" is missing"));
  EXPECT_EQ(FirstError(records).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseExampleTest, TakesTheFeaturesAskedForInTheirShapes) {
  const std::string record = WriteExample({{"ints", std::vector<int64_t>{1, 2, 3, 4}},
                                           {"texts", std::vector<absl::string_view>{"a", "b"}},
                                           {"none", std::monostate()}});
  const Nest example = *ParseExample(record, {{"ints", DType::kInt64, {-1, 2}},
                                              {"texts", DType::kString, {-1}},
                                              {"none", DType::kFloat32, {-1}}});
  EXPECT_EQ(example.ToString(),
            "{\"ints\": int64 [2, 2], \"none\": float32 [0], \"texts\": [\"a\", \"b\"]}");
  EXPECT_EQ(*(*ParseExample(WriteExample({{"t", std::vector<absl::string_view>{"one"}}}),
                            {{"t", DType::kString}}))["t"]
                 .text(),
            "one");
}

TEST(ParseExampleTest, RefusesWhatIsNotAsAskedForAndNamesTheFeature) {
  const std::string record = WriteExample(
      {{"i", std::vector<int64_t>{1, 2, 3}}, {"t", std::vector<absl::string_view>{"a"}}});
  const std::vector<std::pair<ExampleFeature, std::string>> cases = {
      {{"x", DType::kInt64}, "feature \"x\" is missing"},
      {{"i", DType::kFloat32, {3}}, "feature \"i\" holds int64s, wanted float32"},
      {{"t", DType::kInt64}, "feature \"t\" holds bytes, wanted int64"},
      {{"i", DType::kInt64}, "feature \"i\" has 3 values, wanted []"},
      {{"i", DType::kInt64, {-1, 2}}, "feature \"i\" has 3 values, wanted [-1, 2]"},
      {{"i", DType::kInt64, {3, -1}},
       "feature \"i\" wanted as [3, -1]: only the first dimension may vary"},
      {{"i", DType::kInt32, {3}},
       "feature \"i\" wanted as int32: an Example holds int64, float32 and string"},
      {{"t", DType::kString, {1, 1}}, "feature \"t\" wanted as texts of shape [1, 1]"},
  };
  for (const auto& [feature, message] : cases) {
    const absl::Status status = ParseExample(record, {feature}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
  EXPECT_EQ(ParseExample("\xff", {}).status().code(), absl::StatusCode::kDataLoss);
}

// ---- IDX

TEST_F(FileDatasetsTest, IdxRowsAreImagesAndLabels) {
  Write("images", Zlib(Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4})));
  Write("labels", Bytes({0, 0, 8, 1, 0, 0, 0, 2, 5, 6}));
  const Dataset dataset = Dataset::Idx("images", "labels");
  const std::vector<Nest> rows = Read(dataset);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(BitwiseEqual(*rows[1]["image"].tensor(), *Tensor::Copy<uint8_t>({1, 2}, {3, 4})));
  EXPECT_TRUE(BitwiseEqual(*rows[1]["label"].tensor(), Tensor::Scalar<uint8_t>(6)));
  EXPECT_EQ(dataset.Iterate(environment_)->size(), 2);
  EXPECT_EQ(dataset.ElementSpec(environment_)->at("image").shape, Shape({1, 2}));
}

TEST_F(FileDatasetsTest, BrokenIdxFilesAreNamed) {
  Write("two", Bytes({0, 0, 8, 1, 0, 0, 0, 2, 5, 6}));
  Write("one", Bytes({0, 0, 8, 1, 0, 0, 0, 1, 5}));
  Write("cut", Bytes({0, 0, 8, 1, 0, 0, 0, 9, 5}));
  Write("number", Bytes({0, 0, 8, 0, 5}));
  Write("nothing", Bytes({0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 0}));
  EXPECT_THAT(FirstError(Dataset::Idx("nothing", "nothing")).message(),
              HasSubstr("nothing: has 4294967295 empty rows"));
  EXPECT_THAT(FirstError(Dataset::Idx("two", "one")).message(),
              HasSubstr("two has 2 images, but one has 1 labels"));
  EXPECT_THAT(FirstError(Dataset::Idx("cut", "one")).message(), HasSubstr("cut: offset 8"));
  EXPECT_THAT(FirstError(Dataset::Idx("one", "number")).message(),
              HasSubstr("number: is a single number"));
  EXPECT_EQ(FirstError(Dataset::Idx("one", "missing")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Dataset::Idx("one", "missing").Iterate(environment_)->size(), std::nullopt);
}

// ---- names of files

TEST_F(FileDatasetsTest, GlobsAndShardsAreReadInTheOrderOfTheirNames) {
  ASSERT_TRUE(files_.CreateDirectory("day").ok());
  Write("day/part-2.csv", "5,6,7\n");
  Write("day/part-1.csv", "");
  Write("day/part-0.csv", "1,2,3");
  Write("day/.part-9.csv", "bad");
  Write("s-00000-of-00002", "x,x2,y\n1,2,3\n");
  Write("s-00001-of-00002", "y,x,x2\n3,1,2\n");
  EXPECT_THAT(Shown(Dataset::Csv("day/*.csv", kXAndY)), ElementsAre("1 2 -> 3", "5 6 -> 7"));
  EXPECT_THAT(Shown(Dataset::Csv("day/part-[12].csv", kXAndY)), ElementsAre("5 6 -> 7"));
  EXPECT_THAT(Shown(Dataset::Csv("s-0000?-of-00002", kXAndY)), ElementsAre("1 2 -> 3", "1 2 -> 3"));
  EXPECT_THAT(Shown(Dataset::Csv("s@2", kXAndY)), ElementsAre("1 2 -> 3", "1 2 -> 3"));
}

TEST_F(FileDatasetsTest, LinesAreTextsInTheOrderOfTheFiles) {
  Write("a.txt", "one\r\n\n two \n");
  Write("b.txt", "three");
  const Dataset lines = Dataset::TextLines("*.txt");
  std::vector<std::string> texts;
  for (const Nest& element : PlainPass(lines, environment_)) texts.push_back(*element.text());
  EXPECT_EQ(texts, (std::vector<std::string>{"one", "", " two ", "three"}));
  for (uint64_t seed = 1; seed <= 5; ++seed)
    ExpectEveryPositionCanBeSought(lines, seed, environment_);
  const Dataset lengths = lines.Map([](const Nest& line) -> absl::StatusOr<Nest> {
    return Nest(static_cast<int64_t>(line.text()->size()));
  });
  EXPECT_EQ(PlainPass(lengths.Batch(3), environment_).size(), 2u);
  EXPECT_EQ(lines.Batch(2).Iterate(environment_)->Next().status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileDatasetsTest, FilesThatAreNotThereAreNamed) {
  Write("s-00000-of-00002", "1,2,3\n");
  EXPECT_EQ(FirstError(Dataset::Csv("missing.csv", kXAndY)).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(FirstError(Dataset::Csv("missing.csv", kXAndY)).message(), HasSubstr("missing.csv"));
  EXPECT_EQ(FirstError(Dataset::Csv("*.tsv", kXAndY)),
            absl::NotFoundError("no file matches *.tsv"));
  EXPECT_EQ(FirstError(Dataset::Csv("no/where/*.csv", kXAndY)).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Shown(Dataset::Csv("s@2", kXAndY)).back(), HasSubstr("s-00001-of-00002"));
  EXPECT_EQ(FirstError(Dataset::Csv("s@0", kXAndY)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FirstError(Dataset::Csv("*/a.csv", kXAndY)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileDatasetsTest, CompressionIsToldByContentAndDamageByFileAndOffset) {
  const std::string whole = Zlib("1,2,3\n");
  Write("a.csv", whole);
  EXPECT_THAT(Shown(Dataset::Csv("a.csv", kXAndY)), ElementsAre("1 2 -> 3"));
  Write("a.csv", whole.substr(0, whole.size() - 2));
  EXPECT_EQ(FirstError(Dataset::Csv("a.csv", kXAndY)),
            absl::DataLossError(absl::StrCat("a.csv: offset ", whole.size() - 2,
                                             ": the compressed data end too early")));
}

TEST_F(FileDatasetsTest, AnErrorOfTheDiskComesOutAndPasses) {
  Write("a.csv", "1,2,3\n");
  files_.FailNext(FileOperation::kRead, "a.csv", absl::DataLossError("the disk died"));
  const auto iterator = Dataset::Csv("a.csv", kXAndY).Iterate(environment_);
  EXPECT_EQ(iterator->Next().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE((*iterator->Next()).has_value());
}

// ---- any position, any bytes

// A CSV of x, x2, y with `lines` records. Some records span two lines, and blank lines stand
// between records.
std::string ManyLines(int lines, Random& random) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    if (random.Chance(0.1)) text += "\n";
    absl::StrAppend(&text, random.Chance(0.1) ? "\"1\"" : "1", ",", random.Below(100), ",", i,
                    random.Chance(0.5) ? "\r\n" : "\n");
  }
  return text;
}

TEST_F(FileDatasetsTest, AnyPositionOfTextInSeveralFilesCanBeSought) {
  constexpr uint64_t kSeed = 77;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  int part = 0;
  for (int lines : {300, 0, 1, 513, 255, 0}) {
    const std::string text = ManyLines(lines, random);
    Write(absl::StrCat("p", part), part % 2 == 0 ? text : Zlib(absl::StrCat("y,x,x2\n", text)));
    Write(absl::StrCat("q", part),
          lines == 0 ? "\n#\n"
                     : absl::StrCat("# comment\n1 3:4\n",
                                    absl::StrJoin(std::vector<int>(lines, 2), "\n\n")));
    ++part;
  }
  const Dataset csv = Dataset::Csv("p*", {{"x"}, {"x2"}, {"y"}});
  const Dataset libsvm = Dataset::Libsvm("q*");
  EXPECT_EQ(Read(csv).size(), 300u + 1 + 513 + 255);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const Dataset& dataset : {csv, libsvm, csv.Shuffle(100, seed).Batch(7), csv.Shard(3, 1),
                                   libsvm.Repeat(2).Batch(5)}) {
      ExpectEveryPositionCanBeSought(dataset, seed, environment_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(FileDatasetsTest, ABatchFarAheadSkipsLinesWithoutReadingThem) {
  std::vector<std::string> lines(1000, "not a number,2,3");
  lines[900] = "1,2,3";
  Write("a.csv", absl::StrJoin(lines, "\n"));
  const auto iterator = Dataset::Csv("a.csv", kXAndY).Iterate(environment_);
  ASSERT_TRUE(iterator->Seek(900).ok());
  EXPECT_TRUE(iterator->Next().ok());
}

TEST_F(FileDatasetsTest, AnyBytesEndInElementsOrInAnError) {
  constexpr uint64_t kSeed = 5;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  const std::vector<std::string> good = {"x,x2,y\r\n1,2,3\n\"4\",5,6\n",
                                         "1 3:4 5:6\n# c\n0 qid:1 2:3\n",
                                         Zlib("1,2,3\n4,5,6\n"),
                                         Bytes({0, 0, 8, 1, 0, 0, 0, 2, 5, 6}),
                                         TfRecords(1, 2),
                                         std::string(39, '\t') + "\n"};
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = good[random.Below(good.size())];
    for (uint64_t change = random.Below(3); change > 0; --change)
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    bytes.resize(random.Below(bytes.size() + 1));
    Write("any", bytes);
    const Dataset records = Dataset::TfRecord(
        "any", [](absl::string_view record) { return Nest(std::string(record)); });
    for (const Dataset& dataset :
         {Dataset::Csv("any", kXAndY), Dataset::Libsvm("any"), Dataset::Idx("any", "any"),
          Dataset::CriteoTsv("any"), records}) {
      const auto iterator = dataset.Iterate(environment_);
      for (size_t count = 0;; ++count) {
        ASSERT_LE(count, 1000u);
        const absl::StatusOr<std::optional<Nest>> element = iterator->Next();
        ASSERT_TRUE(element.ok() || element.status().code() == absl::StatusCode::kDataLoss)
            << element.status();
        if (!element.ok() || !element->has_value()) break;
      }
    }
  }
}

// ---- the data of the examples

TEST(ExampleDataTest, DigitsAre1797ImagesOfWhichEveryFifthIsHeldOut) {
  const Dataset digits =
      Dataset::Csv("examples/data/digits.csv.gz",
                   {{"image", DType::kFloat32, 0, /*width=*/64}, {"label", DType::kInt64}});
  std::vector<int> count(10, 0);
  for (const Nest& digit : PlainPass(digits)) {
    ++count.at(static_cast<size_t>(*digit["label"].tensor()->scalar<int64_t>()));
    for (const float pixel : Values<float>(digit["image"]))
      ASSERT_TRUE(pixel >= 0 && pixel <= 16) << pixel;
  }
  EXPECT_THAT(count, ElementsAre(178, 182, 177, 183, 181, 182, 181, 179, 174, 180));
  EXPECT_EQ(PlainPass(digits.Shard(5, 0)).size(), 360u);
  EXPECT_EQ(PlainPass(digits.HoldOut(5, 0).Shuffle(2000, 1).Batch(32)).size(), 45u);
}

TEST(ExampleDataTest, MushroomsAreReadFromBothFiles) {
  const auto read = [](const std::string& part) {
    double positive = 0;
    int64_t rows = 0;
    for (const Nest& batch :
         PlainPass(Dataset::Libsvm(absl::StrCat("examples/data/agaricus.", part, ".libsvm"))
                       .Shuffle(10'000, 1)
                       .Batch(32))) {
      rows += static_cast<int64_t>(Values<float>(batch["label"]).size());
      for (const float label : Values<float>(batch["label"])) positive += label;
      for (const int64_t id : Values<int64_t>(batch["features"]["ids"]))
        EXPECT_TRUE(id >= 1 && id <= 126) << id;
    }
    return std::make_pair(rows, positive);
  };
  EXPECT_EQ(read("train"), std::make_pair(int64_t{6513}, 3140.0));
  EXPECT_EQ(read("test"), std::make_pair(int64_t{1611}, 776.0));
}

}  // namespace
}  // namespace divvy
