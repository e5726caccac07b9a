#include "data/text_keys.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "data/recipes.h"
#include "data/stacking.h"
#include "data/texts.h"

namespace divvy {
namespace {

// Adds the keys of all tokens of `text`.
absl::Status AddKeys(const TextFeature& feature, absl::string_view text,
                     std::vector<int64_t>& keys) {
  absl::Status first_error;
  const auto add = [&](absl::string_view token) {
    int64_t key = 0;
    if (feature.keys.TryKey(token, &key))
      keys.push_back(key);
    else
      first_error.Update(feature.keys.Key(token).status());
  };
  data_internal::ForEachToken(feature.tokens, text, add);
  return first_error;
}

absl::StatusOr<Nest> KeysOf(const TextFeature& feature, const Nest& texts) {
  std::vector<int64_t> keys;
  RETURN_IF_ERROR(data_internal::ForEachText(
      texts, [&](absl::string_view text) { return AddKeys(feature, text, keys); }));
  if (texts.list() == nullptr && !feature.tokens) return Nest(Tensor::Scalar<int64_t>(keys[0]));
  return Nest(OneRow(Tensor::Vector<int64_t>(keys)));
}

absl::StatusOr<Nest> ReplaceTexts(const std::vector<TextFeature>& features, Nest element) {
  for (const TextFeature& feature : features) {
    const bool is_element = feature.name.empty();
    absl::StatusOr<Nest> keys = KeysOf(feature, is_element ? element : element[feature.name]);
    if (!keys.ok())
      return data_internal::WithContext(
          keys.status(), is_element ? "the text" : absl::StrCat("feature \"", feature.name, "\""));
    if (is_element) {
      element = *std::move(keys);
      continue;
    }
    Nest::Dict dict = *element.dict();
    dict.insert_or_assign(feature.name, *std::move(keys));
    element = Nest(std::move(dict));
  }
  return element;
}

}  // namespace

int64_t TextKey(absl::string_view text, absl::string_view salt) {
  int64_t key = 0;
  TextKeys::Hashed(salt).TryKey(text, &key);  // a hash of 64 bits cannot fail
  return key;
}

TextKeys TextKeys::Hashed(absl::string_view salt, int64_t buckets) {
  TextKeys keys;
  if (!salt.empty()) keys.salt_ = HashText(salt);
  keys.buckets_ = buckets;
  return keys;
}

absl::Status TextKeys::status() const {
  if (buckets_ >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("TextKeys::Hashed with ", buckets_,
                   " buckets: give the number of rows of the table, or 0 for any int64"));
}

absl::StatusOr<int64_t> TextKeys::Key(absl::string_view text) const {
  RETURN_IF_ERROR(status());
  if (vocabulary_) return vocabulary_->Id(text);
  int64_t key = 0;
  TryKey(text, &key);
  return key;
}

bool TextKeys::TryKey(absl::string_view text, int64_t* key) const {
  if (vocabulary_) return vocabulary_->TryId(text, key);
  if (buckets_ < 0) return false;
  uint64_t hash = HashText(text);
  if (salt_) hash = MixSeeds(*salt_, hash);
  *key = static_cast<int64_t>(buckets_ > 0 ? hash % static_cast<uint64_t>(buckets_) : hash);
  return true;
}

std::function<absl::StatusOr<Nest>(const Nest& element)> TextsToKeys(
    std::vector<TextFeature> features) {
  return [features = std::move(features)](const Nest& element) {
    return ReplaceTexts(features, element);
  };
}

}  // namespace divvy
