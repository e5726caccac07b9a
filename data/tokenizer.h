// Cuts a text into tokens.
#ifndef DIVVY_DATA_TOKENIZER_H_
#define DIVVY_DATA_TOKENIZER_H_

#include <bitset>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace divvy {

// Tokens are the longest runs of bytes of one set; the bytes between them are dropped. So no token
// is empty, and a text may have no token. A text is bytes: invalid UTF-8 is no error. An immutable
// value; thread-safe.
//
//   Tokenizer::Words(Tokenizer::Case::kLower).Split("It's 3 °C")  // {"it", "s", "3", "°c"}
//   Tokenizer::SeparatedBy("|").Split("Action|Sci-Fi")            // {"Action", "Sci-Fi"}
class Tokenizer {
 public:
  // kLower: A-Z become a-z. Other letters stay as they are.
  enum class Case { kAsWritten, kLower };

  // Tokens are separated by the white space of ASCII.
  static Tokenizer Whitespace(Case letters = Case::kAsWritten);
  // Tokens are runs of ASCII letters, digits, and bytes from 128 on. So all characters of UTF-8
  // beyond ASCII belong to words.
  static Tokenizer Words(Case letters = Case::kAsWritten);
  // Tokens are runs of bytes that `bytes` contains.
  static Tokenizer Runs(absl::string_view bytes, Case letters = Case::kAsWritten);
  // Tokens are runs of bytes that `bytes` does not contain.
  static Tokenizer SeparatedBy(absl::string_view bytes, Case letters = Case::kAsWritten);

  // Calls `visit` for each token in order. The token is valid during the call only.
  void ForEach(absl::string_view text, absl::FunctionRef<void(absl::string_view)> visit) const;
  std::vector<std::string> Split(absl::string_view text) const;

 private:
  using ByteSet = std::bitset<256>;
  Tokenizer(const ByteSet& in_token, Case letters) : in_token_(in_token), letters_(letters) {}

  ByteSet in_token_;
  Case letters_;
};

}  // namespace divvy

#endif  // DIVVY_DATA_TOKENIZER_H_
