// From text to int64 keys. Text becomes numbers where it is read, and tensors hold none
// (docs/adr/0024): a key is a hash or an id of a Vocabulary.
#ifndef DIVVY_DATA_TEXT_KEYS_H_
#define DIVVY_DATA_TEXT_KEYS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"
#include "tensor/nest.h"

namespace divvy {

// A 64-bit hash of a text of the feature `salt`; negative ones, too. The same text has other keys
// in other features, so several features can share one table. Without a salt it is HashText. It
// never changes between versions, because tables are trained with it. Not for untrusted texts:
// collisions are easy to construct. Pure.
int64_t TextKey(absl::string_view text, absl::string_view salt = "");

// How the texts of a feature become keys. An immutable value, cheap to copy; thread-safe.
//
//   TextKeys::Hashed("city")          any int64: for tables that hold any key
//   TextKeys::Hashed("city", 10'000)  row numbers below 10,000
//   jobs                              ids of the Vocabulary `jobs`
class TextKeys {
 public:
  // TextKey(text, salt); if `buckets` is above 0, reduced to [0, buckets). A negative `buckets` is
  // an error that status() and Key return.
  static TextKeys Hashed(absl::string_view salt, int64_t buckets = 0);
  // The ids of a vocabulary.
  TextKeys(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // InvalidArgument: the arguments were bad.
  absl::Status status() const;
  // InvalidArgument: as status(), or an unknown token of a vocabulary without ids for these.
  absl::StatusOr<int64_t> Key(absl::string_view text) const;
  // As Key. False: an error.
  bool TryKey(absl::string_view text, int64_t* key) const;

 private:
  TextKeys() = default;

  std::optional<Vocabulary> vocabulary_;
  // Of hashes.
  std::optional<uint64_t> salt_;
  int64_t buckets_ = 0;
};

// A feature whose texts become keys.
struct TextFeature {
  // Its key in elements that are dicts. Empty: the element itself.
  std::string name;
  TextKeys keys;
  // How a text is cut. nullopt: a text is one token.
  std::optional<Tokenizer> tokens = {};
};

// A function for Dataset::Map that replaces the texts of these features by their keys. A text that
// is not cut becomes int64 []. A text that is cut, and a list of texts, become SparseIds of one row
// with all tokens in order, so that Batch makes a CSR batch of them. Other features stay.
//
//   Dataset::TextLines("speech*").Map(TextsToKeys({{"", words, Tokenizer::Words()}})).Batch(64)
//
// InvalidArgument, with the feature's name: there is no such feature, it is no text, or as
// TextKeys::Key.
std::function<absl::StatusOr<Nest>(const Nest& element)> TextsToKeys(
    std::vector<TextFeature> features);

}  // namespace divvy

#endif  // DIVVY_DATA_TEXT_KEYS_H_
