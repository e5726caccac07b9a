#include "data/skip_grams.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

absl::StatusOr<Dataset> PairsOf(const TextKeys& keys, const Tokenizer& tokens, int64_t window,
                                const Nest& text) {
  if (window < 1)
    return absl::InvalidArgumentError(absl::StrCat(
        "SkipGrams: the window is ", window, "; give the number of tokens on each side, from 1"));
  RETURN_IF_ERROR(keys.status());
  ASSIGN_OR_RETURN(const Nest of_tokens, TextsToKeys({{"", keys, tokens}})(text));
  ASSIGN_OR_RETURN(const SparseIds row, of_tokens.sparse_ids());
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> all, row.ids.values<int64_t>());
  const auto count = static_cast<int64_t>(all.size());
  std::vector<int64_t> words, contexts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = count - i > window ? i + window + 1 : count;
    for (int64_t j = i > window ? i - window : 0; j < end; ++j) {
      if (j == i) continue;
      words.push_back(all[static_cast<size_t>(i)]);
      contexts.push_back(all[static_cast<size_t>(j)]);
    }
  }
  return Dataset::FromTensorSlices(
      {{"word", Tensor::Vector<int64_t>(words)}, {"context", Tensor::Vector<int64_t>(contexts)}});
}

}  // namespace

std::function<absl::StatusOr<Dataset>(const Nest& text)> SkipGrams(TextKeys keys, Tokenizer tokens,
                                                                   int64_t window) {
  return [keys = std::move(keys), tokens = std::move(tokens), window](const Nest& text) {
    return PairsOf(keys, tokens, window, text);
  };
}

}  // namespace divvy
