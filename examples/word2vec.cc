// Finds words of like meaning: word2vec's skip-gram model with negative samples, on any text. Each
// word has a vector, near to those of words that stand beside it. The vocabulary grows while the
// model trains: the tables are dynamic, and a word gets its row when two steps have named it.
// Prints the nearest neighbours of some words. Without a text it trains on sentences of planted
// topics, and also prints how many of the neighbours have the topic of their word.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "examples/planted.h"

ABSL_FLAG(std::string, data, "", "files of text, a text in each line; a glob. Empty: planted ones");
ABSL_FLAG(std::string, vocabulary, "growing",
          "growing, or fixed: first reads the text and counts its words, then trains tables that "
          "have a row for each of the 50,000 most frequent ones");
ABSL_FLAG(int64_t, batch_size, 1024, "pairs of words per replica and step");
ABSL_FLAG(int, epochs, 3, "passes over the text");
ABSL_FLAG(int64_t, window, 5, "words before and behind a word that count as near");
ABSL_FLAG(std::string, neighbours_of, "",
          "print the neighbours of these words, separated by commas; empty: of the ten most "
          "frequent ones");

using namespace divvy;

constexpr int64_t kWidth = 64, kNegatives = 5, kMostWords = 50'000;
// Neighbours are looked for among so many of the most frequent words.
constexpr int64_t kCandidates = 5'000;
constexpr int kShown = 8;

const RowwiseAdagrad kRule{0.1, /*initial_accumulator=*/1e-6f};
const RandomUniform kFirstValues{-0.5f / kWidth, 0.5f / kWidth};
const DynamicTableOptions kAnyWord = {
    .width = kWidth, .optimizer = kRule, .initializer = kFirstValues, .admission = AdmitAfter{2}};
const Embedding kWords(DynamicTable("word", kAnyWord));
const Embedding kContexts(DynamicTable("context", kAnyWord));
const Embedding kFixedWords("word", kMostWords, kWidth, kRule, kFirstValues);
const Embedding kFixedContexts("context", kMostWords, kWidth, kRule, kFirstValues);

// For each pair the numbers of other pairs, whose contexts are its wrong answers. So contexts are
// drawn as often as the text has them, and nothing needs to know the vocabulary.
Tensor OtherPairs(int64_t pairs, uint64_t seed) {
  Random random(seed);
  Tensor others = *Tensor::Uninitialized(DType::kInt64, {pairs, kNegatives});
  int64_t* next = others.fresh_data<int64_t>();
  const auto distances = static_cast<uint64_t>(std::max<int64_t>(1, pairs - 1));
  for (int64_t i = 0; i < pairs * kNegatives; ++i)
    *next++ = (i / kNegatives + 1 + static_cast<int64_t>(random.Below(distances))) % pairs;
  return others;
}

ModelOutput Losses(GradientTape& tape, const Var& word, const Var& context) {
  Var others = Gather(context, OtherPairs(context.shape().dim(0), tape.seed()));
  Var right = ReduceSum(word * context, 1);
  Var wrong = ReduceSum(Reshape(word, {-1, 1, kWidth}) * others, 2);
  return {Softplus(-right) + ReduceSum(Softplus(wrong), 1)};
}
ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var word = kWords(tape, batch["word"]), context = kContexts(tape, batch["context"]);
  return Losses(tape, word, context);
}
ModelOutput FixedForward(GradientTape& tape, const Nest& batch) {
  Var word = kFixedWords(tape, batch["word"]), context = kFixedContexts(tape, batch["context"]);
  return Losses(tape, word, context);
}
const Model kGrowing("word2vec", {kWords, kContexts}, Forward);
const Model kFixed("fixed word2vec", {kFixedWords, kFixedContexts}, FixedForward);

bool Planted() { return absl::GetFlag(FLAGS_data).empty(); }

Dataset Texts() {
  return Planted() ? planted::Sentences() : Dataset::TextLines(absl::GetFlag(FLAGS_data));
}
Tokenizer Words() { return Tokenizer::Words(Tokenizer::Case::kLower); }

absl::StatusOr<Vocabulary> MostFrequentWords(int64_t most) {
  MostFrequentOptions options;
  options.max_tokens = most;
  options.tokens = Words();
  return Vocabulary::MostFrequent(Texts(), options);
}

// The keys of words: their hashes, or rows of a vocabulary. Every process counts the words of the
// same text, once.
absl::StatusOr<TextKeys> KeysOfWords() {
  if (absl::GetFlag(FLAGS_vocabulary) == "growing") return TextKeys::Hashed("");
  if (absl::GetFlag(FLAGS_vocabulary) != "fixed")
    return absl::InvalidArgumentError(absl::StrCat("--vocabulary=", absl::GetFlag(FLAGS_vocabulary),
                                                   ": wanted growing or fixed"));
  static const auto& words = *new absl::StatusOr<Vocabulary>(MostFrequentWords(kMostWords));
  RETURN_IF_ERROR(words.status());
  return TextKeys(*words);
}

absl::StatusOr<Dataset> Pairs(const InputContext& input) {
  ASSIGN_OR_RETURN(const TextKeys keys, KeysOfWords());
  return Texts()
      .FlatMap(SkipGrams(keys, Words(), absl::GetFlag(FLAGS_window)))
      .Shuffle(100'000, input.seed)
      .Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kPairs("pairs", Pairs);

// The vectors of words, each of length 1: [words, width].
absl::StatusOr<Var> PointsOf(Coordinator& coordinator, const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const TextKeys keys, KeysOfWords());
  std::vector<int64_t> ids(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    ASSIGN_OR_RETURN(ids[i], keys.Key(words[i]));
  }
  ASSIGN_OR_RETURN(const Variable table, coordinator.strategy().FindVariable("word"));
  ASSIGN_OR_RETURN(const Tensor rows, table.Rows(Tensor::Vector<int64_t>(ids)));
  return L2Normalize(rows);
}

absl::StatusOr<std::vector<std::string>> FrequentWords() {
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, MostFrequentWords(kCandidates));
  std::vector<std::string> words;
  for (int64_t id = vocabulary.num_special(); id < vocabulary.size(); ++id) {
    ASSIGN_OR_RETURN(words.emplace_back(), vocabulary.Token(id));
  }
  return words;
}

// "topic3word17" -> "topic3"
absl::string_view TopicOf(absl::string_view word) { return word.substr(0, word.find("word")); }

// Prints the words whose vectors have the largest cosines with that of each word that was asked
// for.
absl::Status PrintNeighbours(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const std::vector<std::string> words, FrequentWords());
  std::vector<std::string> asked =
      absl::StrSplit(absl::GetFlag(FLAGS_neighbours_of), ',', absl::SkipEmpty());
  if (asked.empty())
    asked.assign(words.begin(), words.begin() + std::min<size_t>(10, words.size()));
  ASSIGN_OR_RETURN(const Var from, PointsOf(coordinator, asked));
  ASSIGN_OR_RETURN(const Var to, PointsOf(coordinator, words));
  TopK best(kShown + 1);  // the nearest one is the word itself
  RETURN_IF_ERROR(best.Add(0, MatMul(from, to, Transpose::kNo, Transpose::kYes)));
  const Tensor nearest = best.Items();
  int shown = 0, same = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    absl::PrintF("nearest to %s:", asked[i]);
    int left = kShown;
    for (size_t rank = 0; rank <= kShown && left > 0; ++rank) {
      const int64_t item = nearest.data_as<int64_t>()[i * (kShown + 1) + rank];
      if (item < 0 || words[static_cast<size_t>(item)] == asked[i]) continue;
      absl::PrintF(" %s", words[static_cast<size_t>(item)]);
      same += TopicOf(words[static_cast<size_t>(item)]) == TopicOf(asked[i]) ? 1 : 0;
      ++shown, --left;
    }
    absl::PrintF("\n");
  }
  if (Planted()) absl::PrintF("%d of %d neighbours have the topic of their word\n", same, shown);
  return absl::OkStatus();
}

absl::Status Train(Coordinator& coordinator) {
  RETURN_IF_ERROR(KeysOfWords().status());  // before anything is created
  const bool is_fixed = absl::GetFlag(FLAGS_vocabulary) == "fixed";
  Trainer trainer(coordinator, is_fixed ? kFixed : kGrowing, kRule);
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  ASSIGN_OR_RETURN(auto metrics, trainer.Fit(kPairs(), options));
  absl::PrintF("last pass: loss %.4f\n", metrics["loss"]);
  return PrintNeighbours(coordinator);
}
DIVVY_PROGRAM(Train);
