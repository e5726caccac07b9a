// Tests of the readers of all formats: what they accept, what they refuse and with which message,
// and that no bytes crash them.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "formats/csv.h"
#include "formats/event_file.h"
#include "formats/example.h"
#include "formats/idx.h"
#include "formats/inflate.h"
#include "formats/libsvm.h"
#include "formats/png.h"
#include "formats/text.h"
#include "formats/tfrecord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMegabyte = 1 << 20;

// ---- text

TEST(TakeLineTest, LinesEndWithLfOrCrlfAndTheLastNeedsNoEnd) {
  const absl::string_view text = "a\r\n\nb\rc\nd";
  TextPosition at;
  std::vector<std::string> lines;
  absl::string_view line;
  while (TakeLine(text, at, &line)) lines.emplace_back(line);
  EXPECT_THAT(lines, ElementsAre("a", "", "b\rc", "d"));
  EXPECT_EQ(at.offset, text.size());
  EXPECT_EQ(at.line, 5);
}

TEST(TakeLineTest, AnEmptyTextHasNoLine) {
  TextPosition at;
  absl::string_view line;
  EXPECT_FALSE(TakeLine("", at, &line));
}

TEST(StartOfTextTest, IsBehindAByteOrderMark) {
  EXPECT_EQ(StartOfText("\xEF\xBB\xBFx").offset, 3u);
  EXPECT_EQ(StartOfText("x").offset, 0u);
}

TEST(ParseNumberTest, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(*ParseInt64("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*ParseFloat("-1.5e2"), -150.0f);
  EXPECT_EQ(*ParseDouble("0.1"), 0.1);
  EXPECT_EQ(*ParseFloat("inf"), std::numeric_limits<float>::infinity());
  for (const char* bad : {"", " 1", "1 ", "1x", "x", "9223372036854775808", "1.0"})
    EXPECT_EQ(ParseInt64(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  for (const char* bad : {"", " 1", "1\t", "1,5", "--1", "1e39"})
    EXPECT_EQ(ParseFloat(bad).status().code(), absl::StatusCode::kDataLoss) << bad;
  EXPECT_FALSE(ParseDouble("1e999").ok());
}

TEST(ParseNumberTest, IsTheNearestNumberInEveryNotation) {
  constexpr uint64_t kSeed = 11;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  const std::string alphabet = "0123456789.-+e";
  for (int i = 0; i < 300'000; ++i) {
    std::string text;
    if (random.Chance(0.7)) {
      const uint64_t digits = random.Below(21);
      const uint64_t point = random.Below(22);
      if (random.Chance(0.3)) text += '-';
      for (uint64_t at = 0; at < digits; ++at) {
        if (at == point) text += '.';
        text += static_cast<char>('0' + random.Below(10));
      }
    } else if (random.Chance(0.5)) {
      // In the middle between two floats, or a little above it.
      const double middle = static_cast<double>(1 + 2 * random.Below(1 << 24)) / (1 << 25);
      text = absl::StrFormat("%.25g%s", middle, random.Chance(0.5) ? "1" : "");
    } else {
      for (uint64_t at = 0; at < random.Below(6); ++at)
        text += alphabet[random.Below(alphabet.size())];
    }
    float number = 0, nearest = 0;
    double wide = 0, nearest_wide = 0;
    int64_t whole = 0, nearest_whole = 0;
    const bool is_float = absl::SimpleAtof(text, &nearest) && std::isfinite(nearest);
    const bool is_whole = absl::SimpleAtoi(text, &nearest_whole);
    ASSERT_EQ(TryParseFloat(text, &number), is_float) << text;
    ASSERT_EQ(TryParseDouble(text, &wide),
              absl::SimpleAtod(text, &nearest_wide) && std::isfinite(nearest_wide))
        << text;
    ASSERT_EQ(TryParseInt64(text, &whole), is_whole) << text;
    if (is_float) {
      ASSERT_EQ(number, nearest) << text;
      ASSERT_EQ(std::signbit(number), std::signbit(nearest)) << text;
      ASSERT_EQ(number, std::strtof(text.c_str(), nullptr)) << text;
      ASSERT_EQ(wide, std::strtod(text.c_str(), nullptr)) << text;
    }
    ASSERT_EQ(whole, is_whole ? nearest_whole : whole) << text;
  }
}

TEST(ParseNumberTest, QuotesTheHeadOfWhatItRefuses) {
  EXPECT_EQ(ParseInt64("1\x01").status().message(), "\"1\\x01\" is not an integer of 64 bits");
  EXPECT_EQ(QuoteForMessage(std::string(50, 'a')),
            absl::StrCat("\"", std::string(40, 'a'), "...\""));
}

// ---- CSV

// All records as "line:field|field", and the first error.
std::vector<std::string> AllRecords(absl::string_view text, absl::Status* error = nullptr,
                                    char separator = ',') {
  std::vector<std::string> records;
  TextPosition at = StartOfText(text);
  CsvRecord record;
  while (true) {
    const absl::StatusOr<bool> got = ReadCsvRecord(text, at, record, separator);
    if (!got.ok() && error != nullptr) *error = got.status();
    if (!got.ok() || !*got) return records;
    std::string shown = absl::StrCat(record.line, ":");
    for (const std::string& field : record.fields) absl::StrAppend(&shown, field, "|");
    records.push_back(shown);
  }
}

TEST(MostUnpackedTest, IsTwoHundredTimesAsManyOrAGigabyte) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(MostUnpacked(1000, 16 * kGib), kGib);
  EXPECT_EQ(MostUnpacked(10'000'000, 16 * kGib), 2'000'000'000);
  EXPECT_EQ(MostUnpacked(kGib, 16 * kGib), 16 * kGib);
  EXPECT_EQ(MostUnpacked(std::numeric_limits<int64_t>::max(), 16 * kGib), 16 * kGib);
  EXPECT_EQ(MostUnpacked(1000, kGib / 2), kGib / 2);
}

TEST(CsvTest, FieldsAndRecordsArePartedByCommasAndLineEnds) {
  EXPECT_THAT(AllRecords("a,b\r\nc,,\n\n\r\nd"), ElementsAre("1:a|b|", "2:c|||", "5:d|"));
  EXPECT_THAT(AllRecords(""), IsEmpty());
  EXPECT_THAT(AllRecords("\n\r\n\n"), IsEmpty());
  EXPECT_THAT(AllRecords("a,\r"), ElementsAre("1:a||"));
}

TEST(CsvTest, QuotedFieldsHoldCommasLineEndsAndDoubledQuotes) {
  EXPECT_THAT(AllRecords("\"a,\"\"b\"\"\",\"\"\n\"two\r\nlines\",x\ny"),
              ElementsAre("1:a,\"b\"||", "2:two\r\nlines|x|", "4:y|"));
}

TEST(CsvTest, AnotherSeparatorTakesTheCommasPlace) {
  EXPECT_THAT(AllRecords("a,b\tc\r\n\t\n\"d\te\"\t\r\n", nullptr, '\t'),
              ElementsAre("1:a,b|c|", "2:||", "3:d\te||"));
  absl::Status error;
  AllRecords("\"a\",b\n", &error, '\t');
  EXPECT_THAT(error.message(), HasSubstr("line 1: text after a closing quote"));
}

TEST(CsvTest, EachWrongQuoteIsAnErrorWithItsLine) {
  absl::Status error;
  AllRecords("ok\na\"b\n", &error);
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr("line 2: a quote inside a field"));
  AllRecords("\"a\"b\n", &error);
  EXPECT_THAT(error.message(), HasSubstr("line 1: text after a closing quote"));
  AllRecords("x\n\"a\nb\nc", &error);
  EXPECT_THAT(error.message(), HasSubstr("line 2: a quoted field is never closed"));
}

TEST(CsvTest, ARecordHasAMillionFieldsAtMost) {
  const std::string text = std::string(kMaxCsvFields, ',') + "\n1,2\n";
  TextPosition at;
  CsvRecord record;
  const auto read = ReadCsvRecord(text, at, record);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(read.status().message(), "line 1: the record has more than 1048576 fields");
  EXPECT_TRUE(*ReadCsvRecord(text, at, record));
  EXPECT_EQ(record.fields.size(), 2u);
}

TEST(CsvTest, APlainRecordIsReadAndSkippedAsAnyOther) {
  constexpr uint64_t kSeed = 12;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  const std::string alphabet = "abc,,,\r\n\n\"";
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint64_t left = random.Below(60); left > 0; --left)
      text += alphabet[random.Below(alphabet.size() - (round % 2 == 0 ? 1 : 0))];
    TextPosition at;
    CsvRecord record, skipped;
    while (true) {
      TextPosition plain_at = at, skip_at = at;
      const auto read = ReadCsvRecord(text, at, record);
      const bool any = !read.ok() || *read;
      ASSERT_EQ(SkipCsvRecord(text, skip_at, skipped, ','), any);
      if (!any) break;
      ASSERT_EQ(skip_at.offset, at.offset);
      ASSERT_TRUE(skip_at.line == at.line || at.offset == text.size()) << text;
      std::vector<absl::string_view> fields(read.ok() ? record.fields.size() : 2);
      const size_t before = plain_at.offset;
      if (ReadPlainCsvRecord(text, plain_at, absl::MakeSpan(fields), ',')) {
        ASSERT_TRUE(read.ok()) << text;
        ASSERT_TRUE(std::equal(fields.begin(), fields.end(), record.fields.begin())) << text;
        ASSERT_EQ(plain_at.offset, at.offset);
        ASSERT_TRUE(plain_at.line == at.line || at.offset == text.size()) << text;
        fields.emplace_back();
        plain_at.offset = before;
        ASSERT_FALSE(ReadPlainCsvRecord(text, plain_at, absl::MakeSpan(fields), ','));
        ASSERT_EQ(plain_at.offset, before);
      } else {
        ASSERT_TRUE(absl::StrContains(text.substr(before), '"')) << text;
      }
    }
  }
}

TEST(CsvTest, ACallerCanGoOnBehindABadLine) {
  const absl::string_view text = "a\"\nb\n";
  TextPosition at;
  CsvRecord record;
  EXPECT_FALSE(ReadCsvRecord(text, at, record).ok());
  ASSERT_TRUE(ReadCsvRecord(text, at, record).value());
  EXPECT_THAT(record.fields, ElementsAre("b"));
  EXPECT_EQ(record.line, 2);
}

// ---- libsvm

TEST(LibsvmTest, ReadsLabelIdsAndValues) {
  LibsvmRow row;
  ASSERT_TRUE(ReadLibsvmLine("-1 3:0.5\t 7:2 1:1e1 # mushroom 9:9", row).value());
  EXPECT_EQ(row.label, -1.0f);
  EXPECT_THAT(row.ids, ElementsAre(3, 7, 1));
  EXPECT_THAT(row.values, ElementsAre(0.5f, 2.0f, 10.0f));
}

TEST(LibsvmTest, ALabelAloneIsARowAndARankingGroupIsDropped) {
  LibsvmRow row;
  ASSERT_TRUE(ReadLibsvmLine("1", row).value());
  EXPECT_THAT(row.ids, IsEmpty());
  ASSERT_TRUE(ReadLibsvmLine("2 qid:5 0:1", row).value());
  EXPECT_THAT(row.ids, ElementsAre(0));
}

TEST(LibsvmTest, BlankLinesAndCommentsAreNoRows) {
  LibsvmRow row;
  for (const char* line : {"", " \t", "# 1 2:3"})
    EXPECT_FALSE(ReadLibsvmLine(line, row).value()) << line;
}

TEST(LibsvmTest, RefusesWhatIsNoExample) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x 1:1", "\"x\" is not a float32 number"},
      {"1,2 1:1", "is not a float32 number"},
      {"1 3", "\"3\" is not \"id:value\""},
      {"1 a:1", "\"a\" is not an integer"},
      {"1 -1:1", "the id -1 is negative"},
      {"1 2:", "\"\" is not a float32 number"},
      {"1 2:1 2:1", "the id 2 occurs more"},
      {"1 9:1 2:1 9:3", "the id 9 occurs more"},
      {"1 qid:x 1:1", "\"x\" is not an integer"},
      {"1 1:1 qid:3", "\"qid\" is not an integer"},
      {"1 99999999999999999999:1", "is not an integer"},
  };
  for (const auto& [line, message] : cases) {
    LibsvmRow row;
    const absl::Status status = ReadLibsvmLine(line, row).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << line;
    EXPECT_THAT(status.message(), HasSubstr(message)) << line;
  }
}

// ---- IDX

std::string Bytes(std::initializer_list<int> bytes) {
  return std::string(bytes.begin(), bytes.end());
}

TEST(IdxTest, ReadsEachTypeBigEndian) {
  EXPECT_TRUE(BitwiseEqual(*ParseIdx(Bytes({0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 255})),
                           *Tensor::Copy<uint8_t>({1, 2}, {7, 255})));
  EXPECT_TRUE(
      BitwiseEqual(*ParseIdx(Bytes({0, 0, 9, 1, 0, 0, 0, 1, 255})), Tensor::Vector<int8_t>({-1})));
  EXPECT_TRUE(BitwiseEqual(*ParseIdx(Bytes({0, 0, 11, 1, 0, 0, 0, 2, 255, 254, 1, 0})),
                           Tensor::Vector<int32_t>({-2, 256})));
  EXPECT_TRUE(BitwiseEqual(*ParseIdx(Bytes({0, 0, 12, 1, 0, 0, 0, 1, 0, 1, 0, 2})),
                           Tensor::Vector<int32_t>({65538})));
  EXPECT_TRUE(BitwiseEqual(*ParseIdx(Bytes({0, 0, 13, 1, 0, 0, 0, 1, 0x3f, 0x80, 0, 0})),
                           Tensor::Vector<float>({1.0f})));
  EXPECT_TRUE(BitwiseEqual(*ParseIdx(Bytes({0, 0, 14, 1, 0, 0, 0, 1, 0xc0, 0, 0, 0, 0, 0, 0, 0})),
                           Tensor::Vector<double>({-2.0})));
}

TEST(IdxTest, RankZeroIsOneElementAndNoRowsAreLegal) {
  EXPECT_TRUE(BitwiseEqual(*ParseIdx(Bytes({0, 0, 8, 0, 5})), Tensor::Scalar<uint8_t>(5)));
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 8, 1, 0, 0, 0, 0}))->shape(), Shape({0}));
}

TEST(IdxTest, EachBrokenHeadOrLengthIsAnErrorWithItsOffset) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "offset 0: IDX begins with 4 bytes, but there are only 0"},
      {Bytes({0, 1, 8, 1}), "offset 0: not IDX, which begins with 00 00, not 00 01"},
      {Bytes({0, 0, 10, 0, 1}), "offset 2: element type 10"},
      {Bytes({0, 0, 8, 9}), "offset 3: rank 9 is above 8"},
      {Bytes({0, 0, 8, 1, 0, 0}), "offset 6: the header for rank 1 has 8 bytes"},
      {Bytes({0, 0, 8, 1, 0, 0, 0, 2, 1}),
       "offset 8: elements [2] of 1 bytes each should follow, but 1 bytes do"},
      {Bytes({0, 0, 8, 1, 0, 0, 0, 1, 1, 1}),
       "offset 8: elements [1] of 1 bytes each should follow, but 2 bytes do"},
      {Bytes({0, 0, 12, 1, 0, 0, 0, 1, 1, 1}),
       "offset 8: elements [1] of 4 bytes each should follow, but 2 bytes do"},
      {Bytes({0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}),
       "[4294967295, 4294967295, 4294967295]"},
  };
  for (const auto& [bytes, message] : cases) {
    const absl::Status status = ParseIdx(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

// ---- inflate

// window_bits: 15 is zlib, 31 is gzip.
std::string Compress(absl::string_view text, int window_bits, int level = 9) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zlib(absl::string_view text, int level = 9) { return Compress(text, 15, level); }
std::string Gzip(absl::string_view text) { return Compress(text, 31); }

TEST(InflateTest, UndoesGzipAndZlibOfEveryLevelAndLeavesTheRestAlone) {
  Random random(1);
  std::string text;
  for (int i = 0; i < 200'000; ++i) text.push_back(static_cast<char>('a' + random.Below(20)));
  EXPECT_EQ(*Inflate(Gzip(text), kMegabyte), text);
  for (int level = 0; level <= 9; ++level)
    EXPECT_EQ(*Inflate(Zlib(text, level), kMegabyte), text) << level;
  EXPECT_EQ(*Inflate(text, kMegabyte), text);
  EXPECT_EQ(*Inflate("", kMegabyte), "");
  EXPECT_EQ(*Inflate(Gzip(""), kMegabyte), "");
}

TEST(InflateTest, TextThatLooksLikeCompressedDataIsText) {
  for (const char* text : {"80,1\n", "x", "x^2,y\n1,2\n", "\x1f\x8b", "x^"})
    EXPECT_EQ(DetectCompression(text), Compression::kNone) << text;
  EXPECT_EQ(DetectCompression(Zlib("short", 3)), Compression::kZlib);
}

TEST(InflateTest, AGzipFileMayHaveSeveralMembers) {
  EXPECT_EQ(*Inflate(Gzip("one,") + Gzip("") + Gzip("two"), kMegabyte), "one,two");
}

TEST(InflateTest, CutShortIsAnErrorWithTheOffset) {
  for (const std::string& whole : {Gzip("some text, some text"), Zlib("some text, some text")}) {
    for (size_t size = 3; size < whole.size(); ++size) {
      const absl::Status status = Inflate(whole.substr(0, size), kMegabyte).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
      EXPECT_THAT(status.message(),
                  HasSubstr(absl::StrCat("offset ", size, ": the compressed data end too early")));
    }
  }
}

TEST(InflateTest, DamageAndBytesBehindTheEndAreErrors) {
  std::string damaged = Gzip("some text, some text");
  damaged[damaged.size() - 6] ^= 1;  // in the checksum
  EXPECT_THAT(Inflate(damaged, kMegabyte).status().message(),
              HasSubstr("the compressed data are damaged: incorrect data check"));
  EXPECT_THAT(
      Inflate(Gzip("x") + "y", kMegabyte).status().message(),
      HasSubstr(absl::StrCat("offset ", Gzip("x").size(), ": there are bytes after the end")));
  EXPECT_THAT(Inflate(Zlib("x") + Zlib("y"), kMegabyte).status().message(),
              HasSubstr("there are bytes after the end"));
}

TEST(InflateTest, ABombIsRefusedAtTheLimitAndTheLimitItselfIsAllowed) {
  const std::string bomb = Gzip(std::string(8 * kMegabyte, '0'));
  EXPECT_EQ(Inflate(bomb, kMegabyte).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Inflate(bomb, 8 * kMegabyte)->size(), size_t{8 * kMegabyte});
  EXPECT_EQ(Inflate("abc", 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Inflate(Gzip(""), 0)->size(), 0u);
}

// ---- TFRecord

std::string TfRecords(std::initializer_list<absl::string_view> records) {
  std::string file;
  for (absl::string_view record : records) AppendTfRecord(record, file);
  return file;
}

// All records, and the messages of the first few errors.
std::vector<std::string> AllTfRecords(absl::string_view file) {
  std::vector<std::string> records;
  for (size_t offset = 0; records.size() < 10;) {
    const auto record = ReadTfRecord(file, offset);
    if (record.ok() && !record->has_value()) break;
    records.emplace_back(record.ok() ? **record : record.status().message());
  }
  return records;
}

TEST(TfRecordTest, RecordsAreFramedByLengthAndMaskedChecksums) {
  EXPECT_EQ(TfRecords({"x"}),
            Bytes({1, 0, 0, 0, 0, 0, 0, 0, 1, 0x75, 0xde, 0x41, 'x', 0x50, 0x3d, 0xaa, 0x61}));
  EXPECT_THAT(AllTfRecords(TfRecords({"one", "", "three"})), ElementsAre("one", "", "three"));
  EXPECT_THAT(AllTfRecords(""), IsEmpty());
}

TEST(TfRecordTest, ADamagedRecordIsAnErrorAndTheNextIsStillFound) {
  std::string file = TfRecords({"one", "two", "three"});
  file[12 + 3 + 4 + 12] ^= 1;  // the first byte of "two"
  EXPECT_THAT(
      AllTfRecords(file),
      ElementsAre("one", "offset 19: the checksum of a record does not match: it is damaged",
                  "three"));
}

TEST(TfRecordTest, BehindADamagedLengthNothingIsFound) {
  std::string file = TfRecords({"one", "two", "three"});
  file[19] ^= 1;  // where "two" begins
  EXPECT_THAT(
      AllTfRecords(file),
      ElementsAre("one", HasSubstr("offset 19: the checksum of a record's length does not match")));
  EXPECT_THAT(AllTfRecords("some text, which is not a TFRecord file"),
              ElementsAre(HasSubstr("this is not a TFRecord file")));
}

TEST(TfRecordTest, CutShortIsAnErrorWithTheOffset) {
  const std::string whole = TfRecords({"one", "two"});
  for (size_t size = 20; size < whole.size(); ++size)
    EXPECT_THAT(AllTfRecords(whole.substr(0, size)), ElementsAre("one", HasSubstr("offset 19: ")))
        << size;
  EXPECT_THAT(AllTfRecords(whole.substr(0, 33)),
              ElementsAre("one",
                          "offset 19: a record of 3 bytes and a checksum of 4, but the file has "
                          "only 2 bytes left"));
}

TEST(TfRecordTest, ALengthThatNoFileCanHaveIsRefused) {
  std::string file(8, '\xff');
  const uint32_t crc = MaskCrc32c(Crc32c(file));
  for (int i = 0; i < 4; ++i) file.push_back(static_cast<char>(crc >> (8 * i)));
  EXPECT_THAT(AllTfRecords(file + "abcdefgh"),
              ElementsAre(HasSubstr("a record of 18446744073709551615 bytes")));
}

// ---- tf.train.Example

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;
using Texts = std::vector<absl::string_view>;

TEST(ExampleTest, ReadsTheThreeListsPackedAndNot) {
  const std::string packed = WriteExample({{"f", Floats{1.5f, -2}},
                                           {"i", Ints{-1, 300}},
                                           {"s", Texts{"a", ""}},
                                           {"none", std::monostate()}});
  const auto features = ReadExample(packed).value();
  EXPECT_EQ(features.size(), 4u);
  EXPECT_EQ(std::get<Floats>(features.at("f")), (Floats{1.5f, -2}));
  EXPECT_EQ(std::get<Ints>(features.at("i")), (Ints{-1, 300}));
  EXPECT_EQ(std::get<Texts>(features.at("s")), (Texts{"a", ""}));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(features.at("none")));
  // {i: int64_list {value: 5 value: 300}} and {f: float_list {value: 1.5}}. Each value has a tag,
  // so the numbers are not packed.
  const std::string ints = Bytes({10, 14, 10, 12, 10, 1, 'i', 18, 7, 26, 5, 8, 5, 8, 0xac, 2});
  EXPECT_EQ(std::get<Ints>(ReadExample(ints)->at("i")), (Ints{5, 300}));
  const std::string floats =
      Bytes({10, 14, 10, 12, 10, 1, 'f', 18, 7, 18, 5, 13, 0, 0, 0xc0, 0x3f});
  EXPECT_EQ(std::get<Floats>(ReadExample(floats)->at("f")), (Floats{1.5f}));
}

TEST(ExampleTest, TheLastOfTwoWinsAndListsOfOneTypeAreJoined) {
  const std::string one = WriteExample({{"x", Ints{1}}});
  EXPECT_EQ(std::get<Ints>(ReadExample(one + WriteExample({{"x", Ints{2}}}))->at("x")), (Ints{2}));
  // x: {int64_list {value: [1]} int64_list {value: [2]}}
  const std::string twice =
      Bytes({10, 17, 10, 15, 10, 1, 'x', 18, 10, 26, 3, 10, 1, 1, 26, 3, 10, 1, 2});
  EXPECT_EQ(std::get<Ints>(ReadExample(twice)->at("x")), (Ints{1, 2}));
}

TEST(ExampleTest, UnknownFieldsArePassedOver) {
  const std::string example = WriteExample({{"x", Ints{1}}});
  EXPECT_EQ(
      ReadExample(example + Bytes({16, 1, 25, 1, 2, 3, 4, 5, 6, 7, 8, 37, 1, 2, 3, 4, 82, 1, 'u'}))
          ->size(),
      1u);
  EXPECT_TRUE(ReadExample("")->empty());
}

TEST(ExampleTest, WhatIsNotTheWireFormatIsAnErrorWithTheOffset) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {Bytes({10, 5, 1}), "offset 2: a field of 5 bytes, but only 1 are left"},
      {Bytes({10}), "offset 1: a number is cut off"},
      {Bytes({11, 1}), "offset 1: a field of wire type 3"},
      {std::string(11, '\xff'), "offset 10: a number of more than 10 bytes"},
      {Bytes({10, 15, 10, 13, 10, 1, 'f', 18, 8, 18, 6, 10, 3, 0, 0, 0, 8, 0}),
       "packed floats of 3 bytes"},
  };
  for (const auto& [bytes, message] : cases) {
    const absl::Status status = ReadExample(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

// ---- PNG

// The parts of a file as a reader finds them: "kind size", and the data of IHDR and the inflated
// data of IDAT.
struct PngParts {
  std::vector<std::string> kinds;
  std::string head, rows;
};

PngParts PartsOf(absl::string_view file) {
  PngParts parts;
  const std::string signature = Bytes({0x89, 'P', 'N', 'G', 13, 10, 26, 10});
  EXPECT_EQ(file.substr(0, 8), signature);
  file.remove_prefix(8);
  const auto number = [](absl::string_view at) {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(at[i]);
    return value;
  };
  while (file.size() >= 12) {
    const size_t size = number(file);
    const absl::string_view checked = file.substr(4, size + 4);
    EXPECT_EQ(number(file.substr(8 + size)),
              crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                    static_cast<uInt>(checked.size())));
    const absl::string_view kind = checked.substr(0, 4), data = checked.substr(4);
    parts.kinds.emplace_back(kind);
    if (kind == "IHDR") parts.head = std::string(data);
    if (kind == "IDAT") {
      parts.rows.resize(1000);
      uLongf length = parts.rows.size();
      EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(&parts.rows[0]), &length,
                           reinterpret_cast<const Bytef*>(data.data()), data.size()),
                Z_OK);
      parts.rows.resize(length);
    }
    file.remove_prefix(size + 12);
  }
  EXPECT_EQ(file, "");
  return parts;
}

TEST(PngTest, HasTheSizeTheColorTypeAndEachRowBehindItsFilter) {
  const PngParts parts = PartsOf(WritePng(2, 3, 3, "abcdefABCDEF012345"));
  EXPECT_EQ(parts.kinds, (std::vector<std::string>{"IHDR", "IDAT", "IEND"}));
  EXPECT_EQ(parts.head, Bytes({0, 0, 0, 2, 0, 0, 0, 3, 8, 2, 0, 0, 0}));
  EXPECT_EQ(parts.rows, Bytes({0}) + "abcdef" + Bytes({0}) + "ABCDEF" + Bytes({0}) + "012345");
}

TEST(PngTest, EachNumberOfChannelsHasItsColorType) {
  EXPECT_EQ(PartsOf(WritePng(1, 1, 1, "a")).head[9], 0);
  EXPECT_EQ(PartsOf(WritePng(1, 1, 2, "ab")).head[9], 4);
  EXPECT_EQ(PartsOf(WritePng(1, 1, 4, "abcd")).head[9], 6);
}

// ---- event files

using Buckets = std::vector<HistogramBucket>;

Event SomeEvent() {
  Event event;
  event.wall_time = 1700000000.5;
  event.step = 7;
  event.values = {{"loss", 0.25f},
                  {"note", std::string("# *a*")},
                  {"weights", Buckets{{-1, 0, 2}, {0, 1, 3}}},
                  {"image", std::monostate()}};
  return event;
}

std::string EventFileOf(const std::vector<Event>& events) {
  std::string file = EventFileHead(1700000000);
  for (const Event& event : events) AppendTfRecord(WriteEvent(event), file);
  return file;
}

TEST(EventTest, ReadsWhatItWrites) {
  const Event event = ReadEvent(WriteEvent(SomeEvent())).value();
  EXPECT_EQ(event.wall_time, 1700000000.5);
  EXPECT_EQ(event.step, 7);
  EXPECT_FALSE(event.session_starts);
  ASSERT_EQ(event.values.size(), 4u);
  EXPECT_EQ(event.values[0].tag, "loss");
  EXPECT_EQ(std::get<float>(event.values[0].data), 0.25f);
  EXPECT_EQ(std::get<std::string>(event.values[1].data), "# *a*");
  const Buckets& buckets = std::get<Buckets>(event.values[2].data);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[1].left, 0);
  EXPECT_EQ(buckets[1].right, 1);
  EXPECT_EQ(buckets[1].count, 3);
  EXPECT_EQ(event.values[3].tag, "image");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(event.values[3].data));
}

TEST(EventTest, ImagesHaveTheBytesThatTensorFlowWrites) {
  Event event;
  event.wall_time = 1;
  event.values = {{"x", EventImages{640, 48, {"PNG 1", "PNG 2"}}}};
  EXPECT_EQ(WriteEvent(event),
            Bytes({9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 42, 50, 10, 48, 10, 1, 'x'}) +
                Bytes({66, 31, 8, 7, 18, 4, 18, 2, 8, 4, 66, 3}) + "640" + Bytes({66, 2}) + "48" +
                Bytes({66, 5}) + "PNG 1" + Bytes({66, 5}) + "PNG 2" +
                Bytes({74, 10, 10, 8, 10, 6}) + "images");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ReadEvent(WriteEvent(event))->values[0].data));
}

TEST(EventTest, HyperparametersAreInTheMetadata) {
  Event event;
  event.wall_time = 1;
  event.values = {{"t", EventHParams{"g", 2, {{"b", true}, {"n", 0.5}, {"s", "a"}}}}};
  EXPECT_EQ(WriteEvent(event),
            Bytes({9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 42, 79, 10, 77, 10, 1, 't'}) +
                Bytes({66, 8, 8, 1, 18, 4, 18, 2, 8, 0, 74, 62, 10, 60, 10, 7}) + "hparams" +
                Bytes({18, 49, 26, 47, 10, 7, 10, 1, 'b', 18, 2, 32, 1}) +
                Bytes({10, 14, 10, 1, 'n', 18, 9, 17, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f}) +
                Bytes({10, 8, 10, 1, 's', 18, 3, 26, 1, 'a', 34, 1, 'g'}) +
                Bytes({41, 0, 0, 0, 0, 0, 0, 0, 64}));
}

TEST(EventTest, AScalarHasTheBytesThatTensorFlowWrites) {
  Event event;
  event.wall_time = 1;
  event.values = {{"x", 0.5f}};
  // wall_time
  EXPECT_EQ(WriteEvent(event), Bytes({9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
                                      // summary, value, tag
                                      0x2a, 30, 10, 28, 10, 1, 'x',
                                      // tensor: float, no dimensions, content
                                      0x42, 10, 8, 1, 18, 0, 34, 4, 0, 0, 0, 0x3f,
                                      // metadata, plugin
                                      0x4a, 11, 10, 9, 10, 7, 's', 'c', 'a', 'l', 'a', 'r', 's'}));
}

TEST(EventTest, ReadsScalarsOfOtherWriters) {
  const auto with_value = [](const std::string& value) {  // a value with the tag "x"
    const std::string tagged = Bytes({10, 1, 'x'}) + value;
    return Bytes({0x2a, static_cast<int>(tagged.size() + 2), 10, static_cast<int>(tagged.size())}) +
           tagged;
  };
  const std::string half = Bytes({0, 0, 0, 0x3f});
  // simple_value
  EXPECT_EQ(std::get<float>(ReadEvent(with_value(Bytes({21}) + half))->values[0].data), 0.5f);
  // float_val, packed
  EXPECT_EQ(
      std::get<float>(ReadEvent(with_value(Bytes({0x42, 8, 8, 1, 42, 4}) + half))->values[0].data),
      0.5f);
  // float_val, not packed
  EXPECT_EQ(
      std::get<float>(ReadEvent(with_value(Bytes({0x42, 7, 8, 1, 45}) + half))->values[0].data),
      0.5f);
  // double_val
  EXPECT_EQ(std::get<float>(
                ReadEvent(with_value(Bytes({0x42, 11, 8, 2, 49, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f})))
                    ->values[0]
                    .data),
            0.5f);
}

TEST(EventTest, TheStartOfASessionIsKept) {
  Event event;
  event.step = 40;
  event.session_starts = true;
  EXPECT_TRUE(ReadEvent(WriteEvent(event))->session_starts);
  EXPECT_EQ(ReadEvent(WriteEvent(event))->step, 40);
}

TEST(EventFileTest, BeginsWithTheFileVersion) {
  const EventFile file = ReadEventFile(EventFileOf({SomeEvent()})).value();
  EXPECT_TRUE(file.end.ok());
  ASSERT_EQ(file.events.size(), 2u);
  EXPECT_EQ(file.events[0].file_version, "brain.Event:2");
  EXPECT_EQ(file.events[0].source_writer, "divvy");
  EXPECT_EQ(file.events[1].step, 7);
}

TEST(EventFileTest, ARecordThatIsPartlyWrittenLosesNoEarlierOne) {
  const std::string two = EventFileOf({SomeEvent(), SomeEvent()});
  for (size_t size = EventFileOf({SomeEvent()}).size() + 1; size < two.size(); ++size) {
    const auto file = ReadEventFile(absl::string_view(two).substr(0, size));
    ASSERT_EQ(file->events.size(), 2u) << size;
    ASSERT_EQ(file->end.code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST(EventFileTest, AnotherFileIsRefused) {
  EXPECT_THAT(std::string(ReadEventFile("").status().message()),
              HasSubstr("does not begin with the file version brain.Event:2"));
  EXPECT_THAT(std::string(ReadEventFile(TfRecords({WriteEvent(SomeEvent())})).status().message()),
              HasSubstr("does not begin with the file version"));
  EXPECT_THAT(std::string(ReadEventFile(TfRecords({"text"})).status().message()),
              HasSubstr("offset 0: not a tensorflow.Event: offset 1: "));
  EXPECT_THAT(
      std::string(ReadEventFile("some text, which is not a TFRecord file").status().message()),
      HasSubstr("this is not a TFRecord file"));
}

// ---- arbitrary bytes

// Calls `parse` with prefixes of `good` and with copies that have a few bytes changed, doubled or
// dropped.
void ForMutationsOf(const std::string& good, uint64_t seed,
                    const std::function<void(const std::string&)>& parse) {
  std::cout << "seed " << seed << "\n";
  for (size_t size = 0; size <= good.size(); ++size) parse(good.substr(0, size));
  Random random(seed);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = good;
    for (uint64_t change = random.Below(4) + 1; change > 0 && !bytes.empty(); --change) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(3)) {
        case 0: bytes[at] = static_cast<char>(random.Below(256)); break;
        case 1: bytes.insert(at, 1, "\",\n:0-\r #"[random.Below(9)]); break;
        default: bytes.erase(at, random.Below(3)); break;
      }
    }
    parse(bytes);
  }
}

bool IsDataError(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss && !status.message().empty();
}

TEST(AnyBytesTest, CsvEndsAndEitherReadsOrRefuses) {
  ForMutationsOf("a,\"b\"\"c\",3\r\n\"x\ny\",,1\n4,5,6", 11, [](const std::string& text) {
    TextPosition at = StartOfText(text);
    CsvRecord record;
    for (size_t count = 0;; ++count) {
      ASSERT_LE(count, text.size());
      const size_t before = at.offset;
      const absl::StatusOr<bool> got = ReadCsvRecord(text, at, record);
      if (got.ok() && !*got) break;
      ASSERT_GT(at.offset, before);
      ASSERT_LE(at.offset, text.size());
      ASSERT_TRUE(got.ok() ? !record.fields.empty() : IsDataError(got.status()));
    }
  });
}

TEST(AnyBytesTest, LibsvmEitherReadsOrRefuses) {
  ForMutationsOf("-1.5 qid:3 1:0.5 22:1e3 333:-7 # note", 12, [](const std::string& line) {
    LibsvmRow row;
    const absl::StatusOr<bool> got = ReadLibsvmLine(line, row);
    ASSERT_TRUE(got.ok() || IsDataError(got.status()));
    ASSERT_TRUE(!got.ok() || !*got || row.ids.size() == row.values.size());
  });
}

TEST(AnyBytesTest, IdxEitherReadsAllBytesOrRefuses) {
  ForMutationsOf(
      Bytes({0, 0, 12, 2, 0, 0, 0, 2, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8}), 13,
      [](const std::string& bytes) {
        const absl::StatusOr<Tensor> got = ParseIdx(bytes);
        ASSERT_TRUE(got.ok() || IsDataError(got.status()));
        ASSERT_TRUE(!got.ok() || got->shape().num_elements() < static_cast<int64_t>(bytes.size()));
      });
}

TEST(AnyBytesTest, InflateStaysBelowItsLimit) {
  for (const std::string& good : {Gzip("some text, some text, some more text"),
                                  Zlib("some text, some text, some more text")}) {
    ForMutationsOf(good, 14, [](const std::string& bytes) {
      const absl::StatusOr<std::string> got = Inflate(bytes, 1000);
      ASSERT_TRUE(got.ok() || IsDataError(got.status()) ||
                  got.status().code() == absl::StatusCode::kResourceExhausted);
      ASSERT_TRUE(!got.ok() || got->size() <= 1000);
    });
  }
}

TEST(AnyBytesTest, TfRecordEndsAndEitherReadsOrRefuses) {
  ForMutationsOf(TfRecords({"one", "", "three and some more"}), 15, [](const std::string& file) {
    size_t offset = 0;
    while (true) {
      const size_t before = offset;
      const auto record = ReadTfRecord(file, offset);
      if (record.ok() && !record->has_value()) break;
      ASSERT_GT(offset, before);
      ASSERT_LE(offset, file.size());
      ASSERT_TRUE(record.ok() || IsDataError(record.status()));
    }
  });
}

TEST(AnyBytesTest, ExampleEitherReadsOrRefuses) {
  ForMutationsOf(
      WriteExample({{"f", Floats{1.5f, -2}}, {"i", Ints{-1, 300}}, {"s", Texts{"a", ""}}}), 16,
      [](const std::string& record) {
        const auto features = ReadExample(record);
        ASSERT_TRUE(features.ok() || IsDataError(features.status()));
      });
}

TEST(AnyBytesTest, EventEitherReadsOrRefuses) {
  ForMutationsOf(WriteEvent(SomeEvent()), 17, [](const std::string& record) {
    const auto event = ReadEvent(record);
    ASSERT_TRUE(event.ok() || IsDataError(event.status()));
  });
}

TEST(AnyBytesTest, EventFileEitherReadsOrRefuses) {
  ForMutationsOf(EventFileOf({SomeEvent(), SomeEvent()}), 18, [](const std::string& bytes) {
    const auto file = ReadEventFile(bytes);
    ASSERT_TRUE(file.ok() ? file->end.ok() || IsDataError(file->end) : IsDataError(file.status()));
  });
}

}  // namespace
}  // namespace divvy
