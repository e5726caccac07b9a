// Text as keys: tokens, hashes with the salt of a feature, and every source of text.
#include "data/text_keys.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

std::vector<int64_t> Values(const Nest& leaf) {
  const Tensor tensor = *leaf.tensor();
  const absl::Span<const int64_t> values = *tensor.values<int64_t>();
  return std::vector<int64_t>(values.begin(), values.end());
}

Vocabulary Words(const VocabularyOptions& options = {}) {
  return *Vocabulary::FromTokens({"cat", "dog", "fish"}, options);
}

Vocabulary WordsWithoutUnknown() {
  VocabularyOptions none;
  none.num_oov_indices = 0;
  return Words(none);
}

class TextSourcesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, absl::string_view bytes) {
    ASSERT_TRUE(files_.ReplaceFile(name, bytes).ok());
  }
  std::vector<Nest> Read(const Dataset& dataset) { return PlainPass(dataset, environment_); }
  absl::Status FirstError(const Dataset& dataset) {
    return dataset.Iterate(environment_)->Next().status();
  }
  std::string FirstMessage(const Dataset& dataset) {
    return std::string(FirstError(dataset).message());
  }
  void ExpectSeeks(const Dataset& dataset) {
    for (uint64_t seed = 1; seed <= 5; ++seed)
      ExpectEveryPositionCanBeSought(dataset, seed, environment_);
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

// ---- Tokenizer

TEST(TokenizerTest, CutsAtWhiteSpaceAndDropsIt) {
  const Tokenizer tokens = Tokenizer::Whitespace();
  EXPECT_THAT(tokens.Split(" The\tcat,\r\n sat.  "), ElementsAre("The", "cat,", "sat."));
  EXPECT_THAT(tokens.Split("one"), ElementsAre("one"));
  EXPECT_THAT(tokens.Split(""), IsEmpty());
  EXPECT_THAT(tokens.Split(" \v\f "), IsEmpty());
}

TEST(TokenizerTest, WordsKeepDigitsAndAllBytesBeyondAscii) {
  EXPECT_THAT(Tokenizer::Words().Split("It's 3 °C, Z\xC3\xBCrich! \xFF\xFE"),
              ElementsAre("It", "s", "3", "°C", "Z\xC3\xBCrich", "\xFF\xFE"));
  EXPECT_THAT(Tokenizer::Words(Tokenizer::Case::kLower).Split("ABC Z\xC3\x9C"),
              ElementsAre("abc", "z\xC3\x9C"));
}

TEST(TokenizerTest, TakesAnySetOfBytesOrItsComplement) {
  EXPECT_THAT(Tokenizer::SeparatedBy("|").Split("Action||Sci Fi|"),
              ElementsAre("Action", "Sci Fi"));
  EXPECT_THAT(Tokenizer::SeparatedBy("").Split("a b"), ElementsAre("a b"));
  EXPECT_THAT(Tokenizer::Runs("ACGT").Split("ACxGTnA"), ElementsAre("AC", "GT", "A"));
  EXPECT_THAT(Tokenizer::Runs("").Split("abc"), IsEmpty());
  const std::string with_nul("a\0b", 3);
  EXPECT_THAT(Tokenizer::SeparatedBy(absl::string_view("\0", 1)).Split(with_nul),
              ElementsAre("a", "b"));
  EXPECT_THAT(Tokenizer::Whitespace().Split(with_nul), ElementsAre(with_nul));
}

// ---- keys

// Tables are trained with these: they never change.
TEST(TextKeyTest, HasTheseValuesForEver) {
  EXPECT_EQ(TextKey("Paris"), 6296793518602303193);
  EXPECT_EQ(TextKey("Paris", "city"), 8803449383923102025);
  EXPECT_EQ(TextKey("Paris", "name"), -3141501369337748512);
  EXPECT_EQ(TextKey("", "city"), -4716751170547413027);
  EXPECT_EQ(TextKey(absl::string_view("\xFF\0", 2), "city"), -2605121449037897873);
  EXPECT_EQ(TextKey("Z\xC3\xBCrich", "C1"), -5655102463678652154);
}

TEST(TextKeyTest, WithoutASaltIsTheHashOfTheText) {
  EXPECT_EQ(TextKey("cat"), static_cast<int64_t>(HashText("cat")));
  EXPECT_EQ(*TextKeys::Hashed("").Key("cat"), TextKey("cat"));
}

TEST(TextKeysTest, OfOneTextDifferFromFeatureToFeature) {
  const TextKeys home = TextKeys::Hashed("home"), work = TextKeys::Hashed("work");
  EXPECT_NE(*home.Key("Paris"), *work.Key("Paris"));
  EXPECT_EQ(*home.Key("Paris"), TextKey("Paris", "home"));
  int64_t key = 0;
  ASSERT_TRUE(home.TryKey("Paris", &key));
  EXPECT_EQ(key, TextKey("Paris", "home"));
}

TEST(TextKeysTest, InBucketsAreThe64BitsModuloTheirNumber) {
  EXPECT_EQ(*TextKeys::Hashed("", 1000).Key("dog"), 583);
  EXPECT_EQ(*TextKeys::Hashed("w", 1000).Key("dog"), 416);
  EXPECT_EQ(*TextKeys::Hashed("w", 1).Key("dog"), 0);
  const int64_t most = std::numeric_limits<int64_t>::max();
  Random random(7);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = absl::StrCat(random.Next());
    EXPECT_GE(*TextKeys::Hashed("w", most).Key(text), 0);
    EXPECT_LT(*TextKeys::Hashed("w", 3).Key(text), 3);
  }
}

TEST(TextKeysTest, RefuseANegativeNumberOfBuckets) {
  const TextKeys bad = TextKeys::Hashed("w", -1);
  EXPECT_EQ(bad.status(),
            absl::InvalidArgumentError("TextKeys::Hashed with -1 buckets: give the number of rows "
                                       "of the table, or 0 for any int64"));
  EXPECT_EQ(bad.Key("x").status(), bad.status());
  int64_t key = 0;
  EXPECT_FALSE(bad.TryKey("x", &key));
}

TEST(TextKeysTest, OfAVocabularyAreItsIds) {
  const TextKeys keys = Words();
  EXPECT_TRUE(keys.status().ok());
  EXPECT_EQ(*keys.Key("dog"), 2);
  EXPECT_EQ(*keys.Key("horse"), 0);
  EXPECT_EQ(TextKeys(WordsWithoutUnknown()).Key("horse").status(),
            absl::InvalidArgumentError("\"horse\" is not in the vocabulary of 3 tokens: add it, or "
                                       "make num_oov_indices at least 1"));
}

// ---- CSV

TEST_F(TextSourcesTest, CsvColumnsOfOneTextHaveKeysOfTheirOwn) {
  Write("a.csv", "Paris,Paris,1\n\"Paris\",,2\n,\"a,\"\"b\"\"\",3\n");
  const Dataset rows = Dataset::Csv("a.csv", {CsvColumn::Text("home", TextKeys::Hashed("home")),
                                              CsvColumn::Text("work", TextKeys::Hashed("work")),
                                              {"y", DType::kInt64}});
  const std::vector<Nest> batches = Read(rows.Batch(3));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(Values(batches[0]["home"]),
              ElementsAre(TextKey("Paris", "home"), TextKey("Paris", "home"), TextKey("", "home")));
  EXPECT_THAT(Values(batches[0]["work"]), ElementsAre(TextKey("Paris", "work"), TextKey("", "work"),
                                                      TextKey("a,\"b\"", "work")));
  // Element by element, as before a Map, the same.
  EXPECT_EQ(Values(Read(rows)[1]["home"])[0], TextKey("Paris", "home"));
  EXPECT_EQ(Read(rows)[0].ToString(), "{\"home\": int64 [], \"work\": int64 [], \"y\": int64 []}");
  ExpectSeeks(rows);
  ExpectSeeks(rows.Shuffle(2, 5).Batch(2));
}

TEST_F(TextSourcesTest, CsvTextIsLookedUpInAVocabulary) {
  Write("a.csv", "word,other,y\ndog,cat,1\nhorse,fish,2\nDog,dog,3\n");
  const Dataset rows =
      Dataset::Csv("a.csv", {CsvColumn::Text("word", Words(), /*width=*/2), {"y", DType::kInt64}});
  std::vector<std::vector<int64_t>> words;
  for (const Nest& row : Read(rows)) words.push_back(Values(row["word"]));
  EXPECT_THAT(words, ElementsAre(ElementsAre(2, 1), ElementsAre(0, 3), ElementsAre(0, 2)));
  ExpectSeeks(rows.Batch(2));
}

TEST_F(TextSourcesTest, ACsvTokenThatTheVocabularyLacksIsAnErrorWithFileLineAndColumn) {
  Write("a.csv", "cat\ndog\n\nhorse\nfish\n");
  const Dataset rows = Dataset::Csv("a.csv", {CsvColumn::Text("word", WordsWithoutUnknown())});
  EXPECT_EQ(FirstError(rows.Skip(2)),
            absl::DataLossError("a.csv: line 4: column \"word\": \"horse\" is not in the "
                                "vocabulary of 3 tokens: add it, or make num_oov_indices at least "
                                "1"));
  EXPECT_EQ(Read(rows.IgnoreErrors(1)).size(), 3u);
}

TEST_F(TextSourcesTest, CsvTextWithoutKeysStaysText) {
  Write("a.csv", "cat,x,y\n\"big\ndog\",,z\n");
  const Dataset rows =
      Dataset::Csv("a.csv", {{"word", DType::kString}, {"pair", DType::kString, 0, /*width=*/2}});
  const std::vector<Nest> elements = Read(rows);
  ASSERT_EQ(elements.size(), 2u);
  EXPECT_EQ(*elements[0]["word"].text(), "cat");
  EXPECT_EQ(*elements[1]["word"].text(), "big\ndog");
  EXPECT_EQ(*elements[1]["pair"][0].text(), "");
  EXPECT_EQ(*elements[1]["pair"][1].text(), "z");
  ExpectSeeks(rows);
  EXPECT_EQ(FirstError(rows.Batch(2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(FirstMessage(rows.Batch(2)),
              AllOf(HasSubstr("\"pair/0\" is text, which tensors do not hold"),
                    HasSubstr("Make keys of it (CsvColumn::Text, ")));
}

TEST_F(TextSourcesTest, EachImpossibleCsvColumnOfTextIsRefusedByName) {
  Write("a.csv", "cat\n");
  CsvColumn both = CsvColumn::Text("t", TextKeys::Hashed("t"));
  both.hash_buckets = 10;
  CsvColumn empty = CsvColumn::Text("t", TextKeys::Hashed("t"));
  empty.if_empty = 0;
  CsvColumn bound = CsvColumn::Text("t", TextKeys::Hashed("t"));
  bound.below = 10;
  CsvColumn number{"t"};
  number.keys = TextKeys::Hashed("t");
  const std::vector<std::pair<CsvColumn, std::string>> cases = {
      {number,
       "column \"t\" is float32 and has keys, which only texts have: use CsvColumn::Text, or set "
       "dtype to kString"},
      {both, "column \"t\" has hash_buckets and keys: leave hash_buckets out"},
      {empty, "column \"t\" has if_empty, but text may be empty: leave it out"},
      {bound, "column \"t\" has below = 10: it must be at least 0, and only integers"},
      {CsvColumn::Text("t", TextKeys::Hashed("t", -2)),
       "column \"t\" TextKeys::Hashed with -2 buckets: give the number of rows"},
      {{"t", DType::kString, /*hash_buckets=*/-1}, "column \"t\" has -1 hash_buckets"},
  };
  for (const auto& [column, message] : cases) {
    const Dataset rows = Dataset::Csv("a.csv", {column});
    EXPECT_EQ(FirstError(rows).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(FirstMessage(rows), HasSubstr(message));
  }
}

// ---- Criteo's logs

TEST_F(TextSourcesTest, CriteoCategoriesMayHaveTheSaltOfTheirColumn) {
  // As text by text, the quote makes the second line another way.
  const std::string line =
      absl::StrCat("1", std::string(14, '\t'), "68fd1e64\tcat", std::string(24, '\t'), "cat\n");
  Write("day_0", line + "1" + line.substr(1, line.size() - 2) + "\"\n");
  const Dataset by_column = Dataset::CriteoTsv("day_0", CriteoKeys::kByColumn);
  const std::vector<Nest> rows = Read(by_column);
  ASSERT_EQ(rows.size(), 2u);
  const std::vector<int64_t> sparse = Values(rows[0]["sparse"]), second = Values(rows[1]["sparse"]);
  EXPECT_EQ(sparse[0], 8829137791505202666);
  EXPECT_EQ(sparse[1], 5561627771112996523);
  EXPECT_EQ(sparse[25], 1065283299219836039);
  EXPECT_THAT(std::vector<int64_t>(second.begin(), second.end() - 1),
              ::testing::ElementsAreArray(sparse.begin(), sparse.end() - 1));
  const std::vector<int64_t> by_text = Values(Read(Dataset::CriteoTsv("day_0"))[0]["sparse"]);
  EXPECT_EQ(by_text[1], by_text[25]);
  ExpectSeeks(by_column.Batch(2));
}

// ---- Examples

class ExampleTextTest : public TextSourcesTest {
 protected:
  void SetUp() override {
    std::string file;
    const std::vector<std::vector<absl::string_view>> tags = {
        {"cat", "horse", "dog"}, {}, {"dog"}, {absl::string_view("\xFF\0", 2), "cat"}};
    for (size_t i = 0; i < tags.size(); ++i) {
      AppendTfRecord(WriteExample({{"city", std::vector<absl::string_view>{"Paris"}},
                                   {"tags", tags[i]},
                                   {"pair", std::vector<absl::string_view>{"cat", ""}},
                                   {"y", std::vector<int64_t>{static_cast<int64_t>(i)}}}),
                     file);
    }
    Write("a.tfrecord", file);
  }

  Dataset Records(std::vector<ExampleFeature> features) {
    return Dataset::TfRecord("a.tfrecord", std::move(features));
  }
};

TEST_F(ExampleTextTest, BytesBecomeKeysAndListsBecomeSparseIds) {
  const Dataset records = Records({{"y", DType::kInt64},
                                   ExampleFeature::Text("city", TextKeys::Hashed("city")),
                                   ExampleFeature::Text("pair", TextKeys::Hashed("pair"), {2}),
                                   ExampleFeature::Text("tags", Words(), {-1})});
  const std::vector<Nest> batches = Read(records.Batch(4));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(Values(batches[0]["city"]), ::testing::Each(TextKey("Paris", "city")));
  EXPECT_EQ(batches[0]["pair"].ToString(), "int64 [4, 2]");
  EXPECT_EQ(Values(batches[0]["pair"])[1], TextKey("", "pair"));
  EXPECT_THAT(Values(batches[0]["tags"]["ids"]), ElementsAre(1, 0, 2, 2, 0, 1));
  EXPECT_THAT(Values(batches[0]["tags"]["row_splits"]), ElementsAre(0, 3, 3, 4, 6));
  ExpectSeeks(records);
  ExpectSeeks(records.Shuffle(3, 1).Batch(2));
}

// Records whose features have a fixed number of texts become columns.
TEST_F(ExampleTextTest, ColumnsOfKeysAreWhatParseExampleGives) {
  std::string file;
  Random random(3);
  for (int64_t i = 0; i < 3000; ++i) {
    const std::string word = absl::StrCat("w", random.Below(50)),
                      other(random.Below(200), static_cast<char>(random.Below(256)));
    const std::string example = WriteExample({{"word", std::vector<absl::string_view>{word}},
                                              {"pair", std::vector<absl::string_view>{other, word}},
                                              {"none", std::vector<absl::string_view>{}},
                                              {"y", std::vector<int64_t>{i}}});
    // Some in another encoding: a feature that is written twice.
    const std::string again = WriteExample({{"word", std::vector<absl::string_view>{"w1"}}});
    AppendTfRecord(random.Chance(0.1) ? example + again : example, file);
  }
  Write("words.tfrecord", file);
  const Vocabulary words = *Vocabulary::FromTokens({"w1", "w2", "w49"});
  const std::vector<ExampleFeature> features = {
      {"y", DType::kInt64},
      ExampleFeature::Text("word", words),
      ExampleFeature::Text("pair", TextKeys::Hashed("pair", 1000), {2, 1}),
      ExampleFeature::Text("none", TextKeys::Hashed(""), {0})};
  const Dataset columns = Dataset::TfRecord("words.tfrecord", features);
  const Dataset parsed = Dataset::TfRecord("words.tfrecord", [features](absl::string_view record) {
    return ParseExample(record, features);
  });
  const std::vector<Nest> a = Read(columns.Batch(100)), b = Read(parsed.Batch(100));
  ASSERT_EQ(a.size(), 30u);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(BitwiseEqual(a[i], b[i])) << "batch " << i;
  ExpectSeeks(columns.Shuffle(100, 3));
}

TEST_F(ExampleTextTest, ErrorsNameTheFeature) {
  EXPECT_THAT(FirstMessage(Records({ExampleFeature::Text("tags", WordsWithoutUnknown(), {-1})})),
              AllOf(HasSubstr("a.tfrecord: record 1: offset 0: feature \"tags\" has a bad value: "
                              "\"horse\" is not in the vocabulary of 3 tokens")));
  EXPECT_THAT(FirstMessage(Records({ExampleFeature::Text("y", Words())})),
              HasSubstr("feature \"y\" holds int64s, wanted string"));
  EXPECT_THAT(FirstMessage(Records({ExampleFeature::Text("pair", Words())})),
              HasSubstr("feature \"pair\" has 2 values, wanted []"));
  EXPECT_THAT(FirstMessage(Records({ExampleFeature::Text("city", TextKeys::Hashed("", -1))})),
              HasSubstr("feature \"city\" has a bad value: TextKeys::Hashed with -1 buckets"));
  EXPECT_THAT(FirstMessage(Records({ExampleFeature::Text("city", WordsWithoutUnknown())})),
              HasSubstr("a.tfrecord: record 1: offset 0: feature \"city\" has a bad value: "
                        "\"Paris\" is not in the vocabulary"));
  ExampleFeature number{"y", DType::kInt64};
  number.keys = Words();
  EXPECT_THAT(FirstMessage(Records({number})),
              HasSubstr("feature \"y\" wanted as int64 with keys: only texts (string)"));
}

// ---- Map

TEST_F(TextSourcesTest, LinesBecomeRaggedIds) {
  Write("a.txt", "The cat saw a dog.\n\nfish, FISH!\n");
  const Dataset lines = Dataset::TextLines("a.txt").Map(
      TextsToKeys({{"", Words(), Tokenizer::Words(Tokenizer::Case::kLower)}}));
  const std::vector<Nest> batches = Read(lines.Batch(3));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(Values(batches[0]["ids"]), ElementsAre(0, 1, 0, 0, 2, 3, 3));
  EXPECT_THAT(Values(batches[0]["row_splits"]), ElementsAre(0, 5, 5, 7));
  ExpectSeeks(lines);
  ExpectSeeks(lines.Shuffle(2, 3).Batch(2).Repeat(2));
}

TEST_F(TextSourcesTest, TextsOfDictsBecomeKeysAndTheRestStays) {
  Write("a.csv", "Paris,Action|Drama,x,z,5\n,|,y,cat,6\n");
  const Dataset rows =
      Dataset::Csv("a.csv", {{"city", DType::kString},
                             {"genres", DType::kString},
                             {"pair", DType::kString, 0, /*width=*/2},
                             {"y", DType::kInt64}})
          .Map(TextsToKeys({{"city", TextKeys::Hashed("city")},
                            {"genres", TextKeys::Hashed("genre", 100), Tokenizer::SeparatedBy("|")},
                            {"pair", Words()}}));
  const std::vector<Nest> batches = Read(rows.Batch(2));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(Values(batches[0]["city"]),
              ElementsAre(TextKey("Paris", "city"), TextKey("", "city")));
  EXPECT_THAT(Values(batches[0]["genres"]["ids"]),
              ElementsAre(*TextKeys::Hashed("genre", 100).Key("Action"),
                          *TextKeys::Hashed("genre", 100).Key("Drama")));
  EXPECT_THAT(Values(batches[0]["genres"]["row_splits"]), ElementsAre(0, 2, 2));
  EXPECT_THAT(Values(batches[0]["pair"]["ids"]), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Values(batches[0]["y"]), ElementsAre(5, 6));
  ExpectSeeks(rows);
}

TEST_F(TextSourcesTest, MapErrorsNameTheFeature) {
  Write("a.csv", "Paris,5\n");
  const Dataset rows = Dataset::Csv("a.csv", {{"city", DType::kString}, {"y", DType::kInt64}});
  EXPECT_THAT(FirstMessage(rows.Map(TextsToKeys({{"town", Words()}}))),
              AllOf(HasSubstr("feature \"town\": "), HasSubstr("\"city\"")));
  EXPECT_THAT(FirstMessage(rows.Map(TextsToKeys({{"y", Words()}}))),
              AllOf(HasSubstr("feature \"y\": "), HasSubstr("int64 []")));
  EXPECT_THAT(FirstMessage(rows.Map(TextsToKeys({{"city", WordsWithoutUnknown()}}))),
              HasSubstr("feature \"city\": \"Paris\" is not in the vocabulary of 3 tokens"));
  EXPECT_THAT(FirstMessage(rows.Map(TextsToKeys({{"", Words()}}))), HasSubstr("the text: "));
  EXPECT_EQ(FirstError(rows.Map(TextsToKeys({{"y", Words()}}))).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace divvy
