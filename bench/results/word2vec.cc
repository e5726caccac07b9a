// word2vec's skip-gram model twice, side by side on the same pairs of words: with a vocabulary that
// grows, in dynamic tables, and with one that was counted before, in tables of fixed rows. Then the
// loss of both on other texts, and how many of the nearest neighbours of frequent words have the
// topic of their word, if the words name their topic ("topic3word17").
#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "bench/results/result.h"
#include "divvy.h"

ABSL_FLAG(
    int64_t, batch_size, 256,
    "pairs of words per replica and step, each of which has the contexts of the others as wrong "
    "answers");
ABSL_FLAG(int, epochs, 2, "passes over the training set");
ABSL_FLAG(int64_t, window, 3, "words before and behind a word that count as near");

namespace divvy::results {
namespace {

constexpr int64_t kWidth = 64, kMostWords = 50'000;
// Neighbours are looked for among so many of the most frequent words.
constexpr int64_t kCandidates = 1'000;
constexpr int kNearest = 5;

// The vectors of words and of contexts.
struct Tables {
  Embedding words, contexts;
};
DynamicTableOptions Growing() {
  return {.width = kWidth,
          .optimizer = RowwiseAdagrad{0.1, /*initial_accumulator=*/1e-6f},
          .initializer = RandomUniform{-0.5f / kWidth, 0.5f / kWidth},
          .admission = AdmitAfter{2}};
}
Embedding Fixed(const std::string& name) {
  const DynamicTableOptions growing = Growing();
  return {name, kMostWords, kWidth, growing.optimizer, growing.initializer};
}
const Tables kGrowing{Embedding(DynamicTable("growing/word", Growing())),
                      Embedding(DynamicTable("growing/context", Growing()))};
const Tables kFixed{Fixed("fixed/word"), Fixed("fixed/context")};
const ExampleCounter kCounter;

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  // The lookups come first, so that one message to each parameter server has all of them.
  const Var word = kGrowing.words(tape, batch["word"]),
            context = kGrowing.contexts(tape, batch["context"]),
            fixed_word = kFixed.words(tape, batch["fixed_word"]),
            fixed_context = kFixed.contexts(tape, batch["fixed_context"]);
  // The contexts of the other pairs are the wrong answers, except those that are the same word. So
  // they are drawn as often as the text has them, and nothing needs to know the vocabulary.
  InBatchSoftmaxOptions options;
  options.item_ids = batch["context"];
  const Var losses = InBatchSoftmax(word, context, options),
            fixed_losses = InBatchSoftmax(fixed_word, fixed_context, options);
  return {kCounter(tape, losses + fixed_losses),
          {{"growing", MeanOf(losses)}, {"fixed", MeanOf(fixed_losses)}}};
}
const Model kModel("word2vec",
                   {kGrowing.words, kGrowing.contexts, kFixed.words, kFixed.contexts, kCounter},
                   Forward);

Tokenizer Words() { return Tokenizer::Words(Tokenizer::Case::kLower); }

// The most frequent words of the training set, counted once in a process.
const absl::StatusOr<Vocabulary>& Counted() {
  const auto count = [] {
    MostFrequentOptions options;
    options.max_tokens = kMostWords;
    options.tokens = Words();
    return Vocabulary::MostFrequent(Dataset::TextLines(absl::GetFlag(FLAGS_train)), options);
  };
  static const auto& counted = *new absl::StatusOr<Vocabulary>(count());
  return counted;
}

// Leaves of a batch side by side.
absl::StatusOr<Nest> Flat(const Nest& pairs) {
  const Nest growing = pairs["growing"], fixed = pairs["fixed"];
  return Nest{{"word", growing["word"]},
              {"context", growing["context"]},
              {"fixed_word", fixed["word"]},
              {"fixed_context", fixed["context"]}};
}

absl::StatusOr<Dataset> Pairs(const InputContext& input, bool to_train) {
  RETURN_IF_ERROR(Counted().status());
  const Dataset texts = PartOf(Dataset::TextLines(absl::GetFlag(FLAGS_train)),
                               Dataset::TextLines(absl::GetFlag(FLAGS_test)), to_train);
  const auto pairs = [&](TextKeys keys) {
    return texts.FlatMap(SkipGrams(std::move(keys), Words(), absl::GetFlag(FLAGS_window)));
  };
  Dataset both =
      Dataset::ZipDict({{"growing", pairs(TextKeys::Hashed(""))}, {"fixed", pairs(*Counted())}})
          .MapBatches(Flat);
  if (to_train) both = both.Shuffle(20'000, input.seed);
  return both.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kPairs("pairs", Pairs);

std::string TopicOf(const std::string& word) { return word.substr(0, word.find("word")); }

// Prints the nearest words of the ten most frequent ones. Returns the share of the neighbours of
// all candidates that have the topic of their word.
absl::StatusOr<double> ShareOfTopic(Coordinator& coordinator) {
  std::vector<std::string> words;
  std::vector<int64_t> keys;
  const Vocabulary& counted = *Counted();
  const int64_t end = std::min(counted.size(), counted.num_special() + kCandidates);
  for (int64_t id = counted.num_special(); id < end; ++id) {
    ASSIGN_OR_RETURN(words.emplace_back(), counted.Token(id));
    keys.push_back(TextKey(words.back()));
  }
  ASSIGN_OR_RETURN(const Variable table,
                   coordinator.strategy().FindVariable(kGrowing.words.variables[0].name));
  ASSIGN_OR_RETURN(const Tensor rows, table.Rows(Tensor::Vector<int64_t>(keys)));
  const Var points = L2Normalize(rows);
  TopK best(kNearest + 1);  // the nearest one is the word itself
  RETURN_IF_ERROR(best.Add(0, MatMul(points, points, Transpose::kNo, Transpose::kYes)));
  const Tensor items = best.Items();
  double same = 0, all = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    std::vector<std::string> near;
    for (size_t rank = 0; rank <= kNearest; ++rank) {
      const int64_t item = items.data_as<int64_t>()[i * (kNearest + 1) + rank];
      if (item >= 0 && static_cast<size_t>(item) != i)
        near.push_back(words[static_cast<size_t>(item)]);
    }
    for (const std::string& word : near) same += TopicOf(word) == TopicOf(words[i]) ? 1 : 0;
    all += static_cast<double>(near.size());
    if (i < 10) absl::PrintF("nearest to %s: %s\n", words[i], absl::StrJoin(near, " "));
  }
  return all > 0 ? same / all : 0;
}

absl::Status Train(Coordinator& coordinator) {
  RETURN_IF_ERROR(Counted().status());
  Trainer trainer(coordinator, kModel, Sgd{});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  RETURN_IF_ERROR(trainer.Fit(kPairs(/*to_train=*/true), options).status());
  ASSIGN_OR_RETURN(auto losses, trainer.Evaluate(kPairs(/*to_train=*/false)));
  ASSIGN_OR_RETURN(const double of_topic, ShareOfTopic(coordinator));
  ASSIGN_OR_RETURN(const Counts expected,
                   CountPasses(kPairs(/*to_train=*/true), "word", options.epochs));
  return PrintResult(coordinator, "word2vec",
                     {{"loss", losses["growing"]},
                      {"fixed_loss", losses["fixed"]},
                      {"loss_over_fixed", losses["growing"] / losses["fixed"]},
                      {"neighbours_of_topic", of_topic}},
                     expected);
}

}  // namespace
}  // namespace divvy::results

DIVVY_PROGRAM(divvy::results::Train);
