// Vocabularies: numbering, files, the most frequent tokens of a pass, and errors.
#include "data/vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/testing/in_memory_file_system.h"
#include "data/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The tokens in the order of their ids, without the special ones.
std::vector<std::string> Tokens(const Vocabulary& vocabulary) {
  std::vector<std::string> tokens;
  for (int64_t id = vocabulary.num_special(); id < vocabulary.size(); ++id)
    tokens.push_back(*vocabulary.Token(id));
  return tokens;
}

class VocabularyTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, absl::string_view bytes) {
    ASSERT_TRUE(files_.ReplaceFile(name, bytes).ok());
  }
  absl::StatusOr<Vocabulary> Load(const std::string& file, const VocabularyOptions& options = {}) {
    return Vocabulary::Load(file, options, environment_);
  }
  absl::Status LoadError(absl::string_view text, const VocabularyOptions& options = {}) {
    Write("words.txt", text);
    return Load("words.txt", options).status();
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

// ---- numbering, as of tf.keras.layers.StringLookup

TEST_F(VocabularyTest, ByDefaultId0IsEveryUnknownToken) {
  const Vocabulary words = *Vocabulary::FromTokens({"cat", "dog"});
  EXPECT_EQ(words.size(), 3);
  EXPECT_EQ(words.num_special(), 1);
  EXPECT_EQ(*words.Id("cat"), 1);
  EXPECT_EQ(*words.Id("dog"), 2);
  EXPECT_EQ(*words.Id("horse"), 0);
  EXPECT_EQ(*words.Id(""), 0);
  EXPECT_EQ(*words.Id("[UNK]"), 0);
  EXPECT_EQ(*words.Token(0), "[UNK]");
  EXPECT_EQ(*words.Token(2), "dog");
}

TEST_F(VocabularyTest, AMaskTokenHasId0AndUnknownTokensFollow) {
  VocabularyOptions options;
  options.mask_token = "";
  options.num_oov_indices = 3;
  const Vocabulary words = *Vocabulary::FromTokens({"cat", "dog"}, options);
  EXPECT_EQ(words.size(), 6);
  EXPECT_EQ(*words.Id(""), 0);
  EXPECT_EQ(*words.Id("cat"), 4);
  // HashText modulo 3 is 1, 0 and 2.
  EXPECT_EQ(*words.Id("x"), 2);
  EXPECT_EQ(*words.Id("y"), 1);
  EXPECT_EQ(*words.Id("z"), 3);
  EXPECT_EQ(*words.Token(0), "");
  EXPECT_EQ(*words.Token(1), "[UNK]");
  EXPECT_EQ(*words.Token(3), "[UNK]");
  EXPECT_EQ(*words.Token(5), "dog");
}

TEST_F(VocabularyTest, WithoutUnknownIdsAnUnknownTokenIsAnError) {
  VocabularyOptions options;
  options.num_oov_indices = 0;
  const Vocabulary words = *Vocabulary::FromTokens({"cat", "dog"}, options);
  EXPECT_EQ(words.size(), 2);
  EXPECT_EQ(*words.Id("cat"), 0);
  EXPECT_EQ(words.Id("horse").status().code(), absl::StatusCode::kInvalidArgument);
  int64_t id = 7;
  EXPECT_FALSE(words.TryId("horse", &id));
  options.mask_token = "cat horse";
  EXPECT_EQ(*Vocabulary::FromTokens({"cat"}, options)->Id("cat"), 1);
}

TEST_F(VocabularyTest, LeadingSpecialTokensAreNoTokensOfTheirOwn) {
  EXPECT_EQ(*Vocabulary::FromTokens({"[UNK]", "cat"})->Id("cat"), 1);
  VocabularyOptions options;
  options.mask_token = "";
  const Vocabulary words = *Vocabulary::FromTokens({"", "[UNK]", "cat"}, options);
  EXPECT_EQ(words.size(), 3);
  EXPECT_EQ(*words.Id("cat"), 2);
  // Only all of them together: a part is a mistake.
  EXPECT_EQ(Vocabulary::FromTokens({"[UNK]", "cat"}, options).status(),
            absl::InvalidArgumentError("a vocabulary: token 0: \"[UNK]\" is the oov_token: remove "
                                       "it, or choose another oov_token in VocabularyOptions"));
}

TEST_F(VocabularyTest, AnIdOutsideItsRangeIsRefused) {
  const Vocabulary words = *Vocabulary::FromTokens({"cat", "dog"});
  for (const int64_t id : {int64_t{-1}, int64_t{3}, INT64_MIN, INT64_MAX})
    EXPECT_EQ(words.Token(id).status().message(),
              absl::StrCat("id ", id, " is not in [0, 3), the ids of the vocabulary"));
}

TEST_F(VocabularyTest, RefusesBadOptionsAndListsWithTwins) {
  VocabularyOptions options;
  options.num_oov_indices = -1;
  EXPECT_THAT(std::string(Vocabulary::FromTokens({"a"}, options).status().message()),
              HasSubstr("-1 num_oov_indices: there must be at least 0"));
  EXPECT_EQ(Load("not there", options).status().code(), absl::StatusCode::kInvalidArgument);
  options = {};
  options.mask_token = "[UNK]";
  EXPECT_THAT(std::string(Vocabulary::FromTokens({"a"}, options).status().message()),
              HasSubstr("mask_token and oov_token are both \"[UNK]\": they must differ"));
  EXPECT_EQ(Vocabulary::FromTokens({"a", "b", "c", "b"}).status(),
            absl::InvalidArgumentError("a vocabulary: token 3: \"b\" is also token 1: remove one "
                                       "of them, since a token has one id"));
  EXPECT_EQ(Vocabulary::FromTokens({}).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- files

TEST_F(VocabularyTest, IsAFileOfOneTokenALine) {
  Write("words.txt",
        "\xEF\xBB\xBF"
        "cat\r\nbig dog\n\n\xFF\xFE raw\nlast");
  const Vocabulary words = *Load("words.txt");
  EXPECT_THAT(Tokens(words), ElementsAre("cat", "big dog", "", "\xFF\xFE raw", "last"));
  EXPECT_EQ(*words.Id(""), 3);
  EXPECT_EQ(*words.Id("\xFF\xFE raw"), 4);
}

TEST_F(VocabularyTest, EachBadFileIsAnErrorWithFileLineAndTheWayOut) {
  EXPECT_EQ(LoadError("cat\ndog\nfish\ndog\n"),
            absl::DataLossError("words.txt: line 4: \"dog\" is also line 2: remove one of them, "
                                "since a token has one id"));
  EXPECT_EQ(LoadError("[UNK]\ncat\ndog\ncat\n"),
            absl::DataLossError("words.txt: line 4: \"cat\" is also line 2: remove one of them, "
                                "since a token has one id"));
  EXPECT_EQ(LoadError("cat\n[UNK]\n"),
            absl::DataLossError("words.txt: line 2: \"[UNK]\" is the oov_token: remove it, or "
                                "choose another oov_token in VocabularyOptions"));
  VocabularyOptions options;
  options.mask_token = "";
  EXPECT_EQ(LoadError("cat\n\ndog\n", options),
            absl::DataLossError("words.txt: line 2: \"\" is the mask_token: remove it, or choose "
                                "another mask_token in VocabularyOptions"));
  for (const absl::string_view empty : {"", "\xEF\xBB\xBF", "[UNK]\n"})
    EXPECT_EQ(LoadError(empty), absl::DataLossError("words.txt: has no tokens: give it at least "
                                                    "one, one a line"));
  EXPECT_THAT(std::string(LoadError(absl::string_view("\xFF\xFE"
                                                      "c\0",
                                                      4))
                              .message()),
              HasSubstr("words.txt: the file is UTF-16: convert it to UTF-8"));
  EXPECT_EQ(LoadError("\x1F\x8B\x08 not gzip").code(), absl::StatusCode::kDataLoss);
}

TEST_F(VocabularyTest, AMissingFileIsNotFound) {
  const absl::Status missing = Load("no/words.txt").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr("no/words.txt"), HasSubstr("a file of one token a line")));
  EXPECT_EQ(Load("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(VocabularyTest, IsSavedWholeOrNotAtAll) {
  VocabularyOptions options;
  options.mask_token = "";
  const Vocabulary words = *Vocabulary::FromTokens({"b", "\xFF\xFE", " a "}, options);
  ASSERT_TRUE(words.Save("words.txt", environment_).ok());
  EXPECT_EQ(*files_.ReadFile("words.txt"), "b\n\xFF\xFE\n a \n");
  // Whatever the special ids are, the file is the same.
  EXPECT_EQ(*Load("words.txt")->Id(" a "), 3);
  EXPECT_EQ(*Load("words.txt", options)->Id(" a "), *words.Id(" a "));
  files_.SetFreeBytes(3);
  EXPECT_EQ(Vocabulary::FromTokens({"other"})->Save("words.txt", environment_).code(),
            absl::StatusCode::kResourceExhausted);
  files_.Crash();
  EXPECT_EQ(*files_.ReadFile("words.txt"), "b\n\xFF\xFE\n a \n");
}

TEST_F(VocabularyTest, IsNotSavedIfLoadWouldReturnAnother) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"a", "two\nlines"}, "token 1 of the vocabulary, \"two\\nlines\""},
      {{"a", "b\r", "c"}, "token 1 of the vocabulary, \"b\\r\""},
      {{"\xEF\xBB\xBF"
        "a"},
       "token 0 of the vocabulary"},
      {{"\xFF\xFE"
        "a"},
       "token 0 of the vocabulary"},
      {{"\x1F\x8B\x08"}, "token 0 of the vocabulary"},
  };
  for (const auto& [tokens, message] : cases) {
    const absl::Status refused = Vocabulary::FromTokens(tokens)->Save("words.txt", environment_);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("words.txt: "), HasSubstr(message)));
    EXPECT_FALSE(files_.Stat("words.txt").ok());
  }
}

// What Save writes, Load returns, and what it refuses would not have come back.
TEST_F(VocabularyTest, RandomTokensComeBackFromTheirFile) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    std::map<std::string, int> distinct;
    for (int i = 0; i < 40; ++i) {
      std::string token(random.Below(4), ' ');
      for (char& byte : token) byte = static_cast<char>(random.Below(256));
      if (token.find('\n') == std::string::npos && !(!token.empty() && token.back() == '\r'))
        distinct.emplace(std::move(token), 0);
    }
    std::vector<std::string> tokens = {"first"};
    for (const auto& [token, unused] : distinct) tokens.push_back(token);
    const Vocabulary words = *Vocabulary::FromTokens(tokens);
    ASSERT_TRUE(words.Save("words.txt", environment_).ok());
    const absl::StatusOr<Vocabulary> loaded = Load("words.txt");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(Tokens(*loaded), tokens);
    for (const std::string& token : tokens) ASSERT_EQ(*loaded->Id(token), *words.Id(token));
  }
}

// ---- the most frequent of a pass

TEST_F(VocabularyTest, TheMostFrequentComeFirstAndOfEqualOnesTheGreaterBytes) {
  Write("a.txt", "b a c\nb  \xFF z\n");
  Write("b.txt", "c c\n\n a z\n");
  const Vocabulary words = *Vocabulary::MostFrequent({"a.txt", "b.txt"}, {}, environment_);
  EXPECT_THAT(Tokens(words), ElementsAre("c", "z", "b", "a", "\xFF"));
  // Neither the order of the files nor a pattern matters.
  EXPECT_EQ(Tokens(*Vocabulary::MostFrequent({"b.txt", "a.txt"}, {}, environment_)), Tokens(words));
  EXPECT_EQ(Tokens(*Vocabulary::MostFrequent({"*.txt"}, {}, environment_)), Tokens(words));
}

TEST_F(VocabularyTest, MaxTokensCountsTheSpecialIdsAndMinCountDropsTheRare) {
  Write("a.txt", "a a a b b c c d\n");
  MostFrequentOptions options;
  options.max_tokens = 3;
  EXPECT_THAT(Tokens(*Vocabulary::MostFrequent({"a.txt"}, options, environment_)),
              ElementsAre("a", "c"));
  options.ids.mask_token = "";
  EXPECT_EQ(Vocabulary::MostFrequent({"a.txt"}, options, environment_)->size(), 3);
  options = {};
  options.min_count = 2;
  EXPECT_THAT(Tokens(*Vocabulary::MostFrequent({"a.txt"}, options, environment_)),
              ElementsAre("a", "c", "b"));
  options.max_tokens = 100;
  EXPECT_EQ(Vocabulary::MostFrequent({"a.txt"}, options, environment_)->size(), 4);
}

TEST_F(VocabularyTest, SpecialTokensInTheTextAreNotCounted) {
  Write("a.txt", "[UNK] [UNK] pad pad a\n");
  MostFrequentOptions options;
  options.ids.mask_token = "pad";
  EXPECT_THAT(Tokens(*Vocabulary::MostFrequent({"a.txt"}, options, environment_)),
              ElementsAre("a"));
}

TEST_F(VocabularyTest, CountsAColumnOfTextWholeOrInTokens) {
  Write("a.csv", "Drama|Action,1\nDrama,2\nAction|Drama,3\nDrama,4\n");
  const Dataset rows = Dataset::Csv("a.csv", {{"genres", DType::kString}, {"y", DType::kInt64}});
  MostFrequentOptions options;
  options.feature = "genres";
  EXPECT_THAT(Tokens(*Vocabulary::MostFrequent(rows, options, environment_)),
              ElementsAre("Drama", "Drama|Action", "Action|Drama"));
  options.tokens = Tokenizer::SeparatedBy("|");
  EXPECT_THAT(Tokens(*Vocabulary::MostFrequent(rows, options, environment_)),
              ElementsAre("Drama", "Action"));
}

TEST_F(VocabularyTest, CountsListsOfTexts) {
  const Dataset lists = Dataset::Generator(
      [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
        return Nest(Nest::List{"x", absl::StrCat(i % 2), Nest("x y")});
      },
      3);
  EXPECT_THAT(Tokens(*Vocabulary::MostFrequent(lists)), ElementsAre("x y", "x", "0", "1"));
}

TEST_F(VocabularyTest, TheOrderOfTheTextsDoesNotMatter) {
  std::vector<std::string> words;
  Random random(11);
  for (int i = 0; i < 2000; ++i) words.push_back(absl::StrCat("w", random.Below(300)));
  Write("a.txt", absl::StrJoin(words, " "));
  std::sort(words.begin(), words.end());
  Write("b.txt", absl::StrJoin(words, "\n"));
  MostFrequentOptions options;
  options.max_tokens = 100;
  const std::vector<std::string> tokens =
      Tokens(*Vocabulary::MostFrequent({"a.txt"}, options, environment_));
  EXPECT_EQ(tokens.size(), 99u);
  EXPECT_EQ(Tokens(*Vocabulary::MostFrequent({"b.txt"}, options, environment_)), tokens);
}

TEST_F(VocabularyTest, MostFrequentRefusesWhatItCannotCount) {
  Write("a.csv", "a,1\n");
  const Dataset rows = Dataset::Csv("a.csv", {{"t", DType::kString}, {"y", DType::kInt64}});
  const auto message = [&](const MostFrequentOptions& options) {
    const absl::Status error = Vocabulary::MostFrequent(rows, options, environment_).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return std::string(error.message());
  };
  MostFrequentOptions options;
  EXPECT_THAT(message(options), HasSubstr("Vocabulary::MostFrequent: element 0: "));
  options.feature = "y";
  EXPECT_THAT(message(options), AllOf(HasSubstr("element 0: "), HasSubstr("int64 []")));
  options.feature = "u";
  EXPECT_THAT(message(options), AllOf(HasSubstr("element 0: "), HasSubstr("\"t\"")));
  options.feature = "t";
  options.min_count = 2;
  EXPECT_THAT(message(options), HasSubstr("none of 1 distinct tokens occurs 2 times: check the "
                                          "texts, or make min_count smaller"));
  options.min_count = 0;
  EXPECT_THAT(message(options), HasSubstr("min_count of 0: it must be at least 1"));
  options.min_count = 1;
  options.max_tokens = 1;
  EXPECT_THAT(message(options), HasSubstr("max_tokens = 1: it must be 0 for no limit, or above"));
  options.max_tokens = -1;
  EXPECT_THAT(message(options), HasSubstr("max_tokens = -1"));
  const std::vector<std::string> no_files;
  EXPECT_THAT(std::string(Vocabulary::MostFrequent(no_files).status().message()),
              HasSubstr("0 files: give it at least 1"));
  EXPECT_EQ(Vocabulary::MostFrequent({"none*"}, {}, environment_).status().code(),
            absl::StatusCode::kNotFound);
  Write("bad.csv", "a,b\n");
  const absl::Status bad =
      Vocabulary::MostFrequent(
          Dataset::Csv("bad.csv", {{"t", DType::kString}, {"y", DType::kInt64}}), {}, environment_)
          .status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("bad.csv: line 1: column \"y\""));
}

}  // namespace
}  // namespace divvy
