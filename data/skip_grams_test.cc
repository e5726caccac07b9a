#include "data/skip_grams.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing/in_memory_file_system.h"
#include "data/testing/seek_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Pair = std::pair<int64_t, int64_t>;

// "a" is 0, "b" is 1, and so on; an unknown token is an error.
TextKeys Letters() {
  VocabularyOptions none;
  none.num_oov_indices = 0;
  return *Vocabulary::FromTokens({"a", "b", "c", "d", "e"}, none);
}

class SkipGramsTest : public ::testing::Test {
 protected:
  Dataset Pairs(const std::string& text, TextKeys keys, int64_t window) {
    EXPECT_TRUE(files_.ReplaceFile("text", text).ok());
    return Dataset::TextLines("text").FlatMap(
        SkipGrams(std::move(keys), Tokenizer::Words(Tokenizer::Case::kLower), window));
  }
  std::vector<Pair> Read(const std::string& text, int64_t window) {
    std::vector<Pair> pairs;
    for (const Nest& pair : PlainPass(Pairs(text, Letters(), window), environment_))
      pairs.emplace_back(*pair["word"].tensor()->scalar<int64_t>(),
                         *pair["context"].tensor()->scalar<int64_t>());
    return pairs;
  }
  absl::Status FirstError(const Dataset& dataset) {
    return dataset.Iterate(environment_)->Next().status();
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

TEST_F(SkipGramsTest, AWordIsPairedWithThoseBeforeAndBehindIt) {
  EXPECT_THAT(Read("A, b. C!\n", 1), ElementsAre(Pair(0, 1), Pair(1, 0), Pair(1, 2), Pair(2, 1)));
  EXPECT_THAT(Read("a b c\n", 2),
              ElementsAre(Pair(0, 1), Pair(0, 2), Pair(1, 0), Pair(1, 2), Pair(2, 0), Pair(2, 1)));
}

TEST_F(SkipGramsTest, AWindowOfAnySizeEndsWithTheText) {
  EXPECT_THAT(Read("a b c d e\n", std::numeric_limits<int64_t>::max()), SizeIs(20));
  EXPECT_THAT(Read("a b c d e\n", 4), SizeIs(20));
  EXPECT_THAT(Read("a b c d e\n", 3), SizeIs(18));
}

TEST_F(SkipGramsTest, PairsDoNotReachIntoOtherTextsAndShortTextsHaveNone) {
  EXPECT_THAT(Read("a b\n\nc\n...\nd e\n", 5),
              ElementsAre(Pair(0, 1), Pair(1, 0), Pair(3, 4), Pair(4, 3)));
  EXPECT_THAT(Read("\n\na\n", 5), IsEmpty());
}

TEST_F(SkipGramsTest, AWordThatComesTwiceIsPairedWithItself) {
  EXPECT_THAT(Read("a a\n", 1), ElementsAre(Pair(0, 0), Pair(0, 0)));
}

TEST_F(SkipGramsTest, WordsAreHashesWithoutAVocabulary) {
  const std::vector<Nest> pairs =
      PlainPass(Pairs("Zebra quagga\n", TextKeys::Hashed(""), 2), environment_);
  ASSERT_THAT(pairs, SizeIs(2));
  EXPECT_EQ(*pairs[0]["word"].tensor()->scalar<int64_t>(), static_cast<int64_t>(HashText("zebra")));
  EXPECT_EQ(*pairs[0]["context"].tensor()->scalar<int64_t>(),
            static_cast<int64_t>(HashText("quagga")));
}

TEST_F(SkipGramsTest, EveryPositionCanBeSought) {
  const Dataset pairs = Pairs("a b c\n\nd\ne a b c d\nb c\n", Letters(), 2);
  for (uint64_t seed = 1; seed <= 5; ++seed)
    ExpectEveryPositionCanBeSought(pairs, seed, environment_);
}

TEST_F(SkipGramsTest, BadArgumentsAndTextsAreNamedWithTheFix) {
  const absl::Status window = FirstError(Pairs("a b\n", Letters(), 0)),
                     buckets = FirstError(Pairs("a b\n", TextKeys::Hashed("", -3), 1)),
                     unknown = FirstError(Pairs("a z\n", Letters(), 1));
  EXPECT_TRUE(absl::IsInvalidArgument(window)) << window;
  EXPECT_THAT(std::string(window.message()), HasSubstr("the window is 0; give"));
  EXPECT_TRUE(absl::IsInvalidArgument(buckets)) << buckets;
  EXPECT_THAT(std::string(buckets.message()), HasSubstr("-3 buckets"));
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("\"z\""));
  const Dataset numbers = Dataset::FromTensorSlices({{"x", Tensor::Vector<int64_t>({1, 2})}})
                              .FlatMap(SkipGrams(Letters(), Tokenizer::Words(), 1));
  EXPECT_TRUE(absl::IsInvalidArgument(FirstError(numbers))) << FirstError(numbers);
}

}  // namespace
}  // namespace divvy
