#include "data/recipes.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "data/transform.h"

namespace divvy::data_internal {

Element PositionedIterator::Next() {
  Element element = At(position_);
  if (!element.ok()) return element;
  if (element->has_value()) {
    behind_last_seen_ = ++position_;
  } else if (position_ == behind_last_seen_) {
    learnt_size_ = position_;
  }
  return element;
}

std::optional<int64_t> PositionedIterator::size() {
  return learnt_size_ ? learnt_size_ : KnownSize();
}

absl::Status PositionedIterator::Seek(int64_t position) {
  if (position < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("cannot seek position ", position, " of a dataset: positions count from 0"));
  position_ = position;
  return absl::OkStatus();
}

Element Source::At(int64_t position) {
  if (position_ != position) {
    position_.reset();
    RETURN_IF_ERROR(iterator_->Seek(position));
  }
  Element element = iterator_->Next();
  if (element.ok() && element->has_value()) {
    position_ = position + 1;
  } else {
    position_.reset();
  }
  return element;
}

std::optional<BatchCut> BatchCutOf(const DatasetRecipe& recipe) {
  const auto* telling = dynamic_cast<const DescribedRecipe*>(&recipe);
  return telling != nullptr ? telling->batch_cut() : std::nullopt;
}

std::optional<int64_t> MultiplyAdd(int64_t a, int64_t b, int64_t c) {
  int64_t product = 0;
  int64_t sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum))
    return std::nullopt;
  return sum;
}

absl::Status WithContext(const absl::Status& status, absl::string_view where) {
  return WithMessage(status, absl::StrCat(where, ": ", status.message()));
}

}  // namespace divvy::data_internal
