#include "data/vocabulary.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "data/dataset.h"
#include "data/files.h"
#include "data/progress.h"
#include "data/recipes.h"
#include "data/texts.h"
#include "formats/inflate.h"
#include "formats/text.h"

namespace divvy {

using data_internal::WithContext;

struct Vocabulary::State {
  VocabularyOptions options;
  std::vector<std::string> tokens;
  // By token, which is one of `tokens`. The mask token has its id, too.
  absl::flat_hash_map<absl::string_view, int64_t> ids;
};

namespace {

constexpr int64_t kMostOovIndices = int64_t{1} << 40;

int64_t FirstOov(const VocabularyOptions& options) { return options.mask_token ? 1 : 0; }

// The number of ids that stand for no token.
int64_t NumSpecial(const VocabularyOptions& options) {
  return FirstOov(options) + options.num_oov_indices;
}

absl::Status CheckOptions(const VocabularyOptions& options) {
  if (options.num_oov_indices < 0 || options.num_oov_indices > kMostOovIndices)
    return absl::InvalidArgumentError(
        absl::StrCat("a vocabulary with ", options.num_oov_indices,
                     " num_oov_indices: there must be at least 0, and at most ", kMostOovIndices));
  if (options.mask_token == options.oov_token)
    return absl::InvalidArgumentError(
        absl::StrCat("a vocabulary whose mask_token and oov_token are both ",
                     QuoteForMessage(options.oov_token), ": they must differ"));
  return absl::OkStatus();
}

// The number of tokens at the beginning that are the mask and the unknown tokens.
size_t NumLeadingSpecial(const std::vector<std::string>& tokens, const VocabularyOptions& options) {
  const auto mask = static_cast<size_t>(FirstOov(options)),
             special = static_cast<size_t>(NumSpecial(options));
  if (tokens.size() < special) return 0;
  if (mask == 1 && tokens[0] != *options.mask_token) return 0;
  const bool all = std::all_of(
      tokens.begin() + static_cast<int64_t>(mask), tokens.begin() + static_cast<int64_t>(special),
      [&](const std::string& token) { return token == options.oov_token; });
  return all ? special : 0;
}

// The name of the option that `token` is. Empty: none.
std::string SpecialName(absl::string_view token, const VocabularyOptions& options) {
  if (token == options.oov_token) return "oov_token";
  return options.mask_token && token == *options.mask_token ? "mask_token" : "";
}

// Where tokens stand, and errors about them.
struct TokenPlaces {
  absl::string_view file;  // empty: a list
  size_t leading = 0;      // the number of special tokens before them

  std::string Of(size_t token) const {
    return file.empty() ? absl::StrCat("token ", leading + token)
                        : absl::StrCat("line ", leading + token + 1);
  }
  template <typename... What>
  absl::Status Error(const What&... what) const {
    return file.empty() ? absl::InvalidArgumentError(absl::StrCat("a vocabulary: ", what...))
                        : absl::DataLossError(absl::StrCat(file, ": ", what...));
  }
};

absl::Status CannotBeSaved(absl::string_view file, size_t token, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": token ", token, " of the vocabulary, ", QuoteForMessage(text),
      ", cannot be a line of a file: it has a line end, or is the first and begins as a byte order "
      "mark or a compressed file: leave it out, or use hashed keys"));
}

// The lines of a vocabulary's file.
absl::StatusOr<std::vector<std::string>> TokensOf(absl::string_view text) {
  RETURN_IF_ERROR(CheckEncoding(text));
  std::vector<std::string> tokens;
  TextPosition at = StartOfText(text);
  for (absl::string_view line; TakeLine(text, at, &line);) tokens.emplace_back(line);
  return tokens;
}

// ---- the most frequent tokens of a pass

using Counts = absl::flat_hash_map<std::string, int64_t>;

absl::Status CountTexts(const MostFrequentOptions& options, const Nest& texts, Counts& counts) {
  return data_internal::ForEachText(texts, [&](absl::string_view text) {
    data_internal::ForEachToken(options.tokens, text,
                                [&counts](absl::string_view token) { ++counts[token]; });
    return absl::OkStatus();
  });
}

absl::StatusOr<Counts> CountPass(const Dataset& texts, const MostFrequentOptions& options,
                                 const DataEnvironment& environment) {
  constexpr int64_t kTicksPerLook = 256;
  data_internal::Progress progress(data_internal::ClockOf(environment), kTicksPerLook);
  Counts counts;
  const std::unique_ptr<DatasetIterator> pass = texts.Iterate(environment);
  for (int64_t number = 0;; ++number) {
    ASSIGN_OR_RETURN(const std::optional<Nest> element, pass->Next());
    if (!element) return counts;
    const Nest of_element = options.feature.empty() ? *element : (*element)[options.feature];
    const absl::Status counted = CountTexts(options, of_element, counts);
    if (!counted.ok())
      return WithContext(counted, absl::StrCat("Vocabulary::MostFrequent: element ", number));
    progress.Tick([&] {
      return absl::StrCat("Vocabulary::MostFrequent has read ", number, " elements with ",
                          counts.size(), " distinct tokens");
    });
  }
}

absl::Status CheckLimits(const MostFrequentOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options.ids));
  const int64_t special = NumSpecial(options.ids);
  if (options.min_count < 1)
    return absl::InvalidArgumentError(absl::StrCat("Vocabulary::MostFrequent with a min_count of ",
                                                   options.min_count, ": it must be at least 1"));
  if (options.max_tokens < 0 || (options.max_tokens > 0 && options.max_tokens <= special))
    return absl::InvalidArgumentError(
        absl::StrCat("Vocabulary::MostFrequent with max_tokens = ", options.max_tokens,
                     ": it must be 0 for no limit, or above the ", special,
                     " ids of the mask and of unknown tokens, which count"));
  return absl::OkStatus();
}

// The tokens that are kept, in their order.
std::vector<std::string> Select(const Counts& counts, const MostFrequentOptions& options) {
  std::vector<std::pair<int64_t, absl::string_view>> kept;
  for (const auto& [token, count] : counts) {
    if (count >= options.min_count && SpecialName(token, options.ids).empty())
      kept.emplace_back(count, token);
  }
  size_t most = kept.size();
  if (options.max_tokens > 0)
    most = std::min(most, static_cast<size_t>(options.max_tokens - NumSpecial(options.ids)));
  std::partial_sort(kept.begin(), kept.begin() + static_cast<int64_t>(most), kept.end(),
                    std::greater<>());
  std::vector<std::string> tokens;
  for (size_t i = 0; i < most; ++i) tokens.emplace_back(kept[i].second);
  return tokens;
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Make(std::vector<std::string> tokens,
                                            const VocabularyOptions& options,
                                            absl::string_view file) {
  RETURN_IF_ERROR(CheckOptions(options));
  const size_t leading = NumLeadingSpecial(tokens, options);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(leading));
  const TokenPlaces places{file, leading};
  if (tokens.empty()) return places.Error("has no tokens: give it at least one, one a line");
  auto state = std::make_shared<State>();
  state->options = options;
  state->tokens = std::move(tokens);
  state->ids.reserve(state->tokens.size() + 1);
  const int64_t first = NumSpecial(options);
  for (size_t i = 0; i < state->tokens.size(); ++i) {
    const std::string& token = state->tokens[i];
    if (const std::string what = SpecialName(token, options); !what.empty())
      return places.Error(places.Of(i), ": ", QuoteForMessage(token), " is the ", what,
                          ": remove it, or choose another ", what, " in VocabularyOptions");
    const auto [at, is_new] = state->ids.emplace(token, first + static_cast<int64_t>(i));
    if (!is_new)
      return places.Error(places.Of(i), ": ", QuoteForMessage(token), " is also ",
                          places.Of(static_cast<size_t>(at->second - first)),
                          ": remove one of them, since a token has one id");
  }
  if (options.mask_token) state->ids.emplace(*state->options.mask_token, 0);
  return Vocabulary(std::move(state));
}

absl::StatusOr<Vocabulary> Vocabulary::FromTokens(std::vector<std::string> tokens,
                                                  const VocabularyOptions& options) {
  return Make(std::move(tokens), options, /*file=*/"");
}

absl::StatusOr<Vocabulary> Vocabulary::Load(const std::string& file,
                                            const VocabularyOptions& options,
                                            const DataEnvironment& environment) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (file.empty()) return absl::InvalidArgumentError("the name of a vocabulary's file is empty");
  const absl::StatusOr<std::string> text = data_internal::ReadDecompressed(
      data_internal::FilesOf(environment), data_internal::ClockOf(environment), file);
  if (absl::IsNotFound(text.status()))
    return absl::NotFoundError(absl::StrCat(
        text.status().message(),
        ": a vocabulary is a file of one token a line, which Vocabulary::Save also writes"));
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<std::vector<std::string>> tokens = TokensOf(*text);
  if (!tokens.ok()) return WithContext(tokens.status(), file);
  return Make(*std::move(tokens), options, file);
}

absl::StatusOr<Vocabulary> Vocabulary::MostFrequent(const Dataset& texts,
                                                    const MostFrequentOptions& options,
                                                    const DataEnvironment& environment) {
  RETURN_IF_ERROR(CheckLimits(options));
  ASSIGN_OR_RETURN(const Counts counts, CountPass(texts, options, environment));
  std::vector<std::string> tokens = Select(counts, options);
  if (tokens.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        "Vocabulary::MostFrequent: none of ", counts.size(), " distinct tokens occurs ",
        options.min_count, " times: check the texts, or make min_count smaller"));
  return Make(std::move(tokens), options.ids, /*file=*/"");
}

absl::StatusOr<Vocabulary> Vocabulary::MostFrequent(const std::vector<std::string>& files,
                                                    const MostFrequentOptions& options,
                                                    const DataEnvironment& environment) {
  if (files.empty())
    return absl::InvalidArgumentError(
        "Vocabulary::MostFrequent of 0 files: give it at least 1 name or pattern");
  Dataset lines = Dataset::TextLines(files[0]);
  for (size_t i = 1; i < files.size(); ++i) lines = lines.Concatenate(Dataset::TextLines(files[i]));
  MostFrequentOptions of_lines = options;
  if (!of_lines.tokens) of_lines.tokens = Tokenizer::Whitespace();
  return MostFrequent(lines, of_lines, environment);
}

absl::Status Vocabulary::Save(const std::string& file, const DataEnvironment& environment) const {
  std::string text;
  for (const std::string& token : state_->tokens) absl::StrAppend(&text, token, "\n");
  // A byte order mark, or a compressed file's first bytes, would change the meaning of all.
  const absl::StatusOr<std::vector<std::string>> read = TokensOf(text);
  if (DetectCompression(text) != Compression::kNone || !read.ok())
    return CannotBeSaved(file, 0, state_->tokens[0]);
  for (size_t i = 0; i < state_->tokens.size(); ++i) {
    if (i >= read->size() || (*read)[i] != state_->tokens[i])
      return CannotBeSaved(file, i, state_->tokens[i]);
  }
  return data_internal::FilesOf(environment).ReplaceFile(file, text);
}

int64_t Vocabulary::size() const {
  return num_special() + static_cast<int64_t>(state_->tokens.size());
}

int64_t Vocabulary::num_special() const { return NumSpecial(state_->options); }

bool Vocabulary::TryId(absl::string_view token, int64_t* id) const {
  const auto found = state_->ids.find(token);
  if (found != state_->ids.end()) {
    *id = found->second;
    return true;
  }
  const auto indices = static_cast<uint64_t>(state_->options.num_oov_indices);
  if (indices == 0) return false;
  *id = FirstOov(state_->options) +
        (indices == 1 ? 0 : static_cast<int64_t>(HashText(token) % indices));
  return true;
}

absl::StatusOr<int64_t> Vocabulary::Id(absl::string_view token) const {
  int64_t id = 0;
  if (TryId(token, &id)) return id;
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteForMessage(token), " is not in the vocabulary of ", state_->tokens.size(),
                   " tokens: add it, or make num_oov_indices at least 1"));
}

absl::StatusOr<std::string> Vocabulary::Token(int64_t id) const {
  if (id < 0 || id >= size())
    return absl::InvalidArgumentError(
        absl::StrCat("id ", id, " is not in [0, ", size(), "), the ids of the vocabulary"));
  if (id >= num_special()) return state_->tokens[static_cast<size_t>(id - num_special())];
  return id < FirstOov(state_->options) ? *state_->options.mask_token : state_->options.oov_token;
}

}  // namespace divvy
