// Pairs of words that stand near each other: the examples of word2vec.
#ifndef DIVVY_DATA_SKIP_GRAMS_H_
#define DIVVY_DATA_SKIP_GRAMS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/text_keys.h"
#include "data/tokenizer.h"
#include "tensor/nest.h"

namespace divvy {

// A function for Dataset::FlatMap that replaces a text by its pairs of words (Mikolov et al.,
// "Efficient estimation of word representations in vector space", 2013). Each token makes a pair
// with each token of the text that is at most `window` tokens before or behind it. A pair is
// {"word": int64 [], "context": int64 []}, the keys of the two. Pairs are in the order of their
// words, then of their contexts. A text of less than two tokens has none.
//
//   Dataset::TextLines("speech*")
//       .FlatMap(SkipGrams(TextKeys::Hashed(""), Tokenizer::Words(), 5))
//       .Shuffle(100'000, input.seed)
//       .Batch(512)
//
// InvalidArgument: a window below 1, an element that is no text, or as TextKeys::Key.
std::function<absl::StatusOr<Dataset>(const Nest& text)> SkipGrams(TextKeys keys, Tokenizer tokens,
                                                                   int64_t window);

}  // namespace divvy

#endif  // DIVVY_DATA_SKIP_GRAMS_H_
