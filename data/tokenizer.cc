#include "data/tokenizer.h"

#include "absl/strings/ascii.h"

namespace divvy {
namespace {

std::bitset<256> BytesOf(absl::string_view bytes) {
  std::bitset<256> set;
  for (const char byte : bytes) set.set(static_cast<unsigned char>(byte));
  return set;
}

}  // namespace

Tokenizer Tokenizer::Whitespace(Case letters) { return SeparatedBy(" \t\n\v\f\r", letters); }

Tokenizer Tokenizer::Words(Case letters) {
  ByteSet in_token;
  for (size_t byte = 0; byte < in_token.size(); ++byte)
    in_token.set(byte, byte >= 128 || absl::ascii_isalnum(static_cast<unsigned char>(byte)));
  return Tokenizer(in_token, letters);
}

Tokenizer Tokenizer::Runs(absl::string_view bytes, Case letters) {
  return Tokenizer(BytesOf(bytes), letters);
}

Tokenizer Tokenizer::SeparatedBy(absl::string_view bytes, Case letters) {
  return Tokenizer(~BytesOf(bytes), letters);
}

void Tokenizer::ForEach(absl::string_view text,
                        absl::FunctionRef<void(absl::string_view)> visit) const {
  const auto is_in_token = [this, text](size_t at) {
    return in_token_[static_cast<unsigned char>(text[at])];
  };
  std::string lower;
  for (size_t at = 0; at < text.size();) {
    if (!is_in_token(at)) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && is_in_token(at)) ++at;
    absl::string_view token = text.substr(begin, at - begin);
    if (letters_ == Case::kLower) {
      lower.assign(token.data(), token.size());
      absl::AsciiStrToLower(&lower);
      token = lower;
    }
    visit(token);
  }
}

std::vector<std::string> Tokenizer::Split(absl::string_view text) const {
  std::vector<std::string> tokens;
  ForEach(text, [&tokens](absl::string_view token) { tokens.emplace_back(token); });
  return tokens;
}

}  // namespace divvy
