#include "data/recipes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "data/progress.h"
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

absl::Status PositionedIterator::RowsAt(int64_t position, int64_t most, RowList& rows) {
  const size_t had = rows.size();
  RETURN_IF_ERROR(Rows(position, most, rows));
  if (rows.size() > had) {
    behind_last_seen_ = position + static_cast<int64_t>(rows.size() - had);
  } else if (position == behind_last_seen_) {
    learnt_size_ = position;
  }
  return absl::OkStatus();
}

absl::Status PositionedIterator::EveryRowAt(int64_t position, int64_t step, int64_t most,
                                            RowList& rows) {
  if (step == 1) return RowsAt(position, most, rows);
  const size_t had = rows.size();
  RETURN_IF_ERROR(EveryRow(position, step, most, rows));
  const int64_t added = static_cast<int64_t>(rows.size() - had);
  if (added > 0) {
    behind_last_seen_ = position + (added - 1) * step + 1;
  } else if (position == behind_last_seen_) {
    learnt_size_ = position;
  }
  return absl::OkStatus();
}

absl::Status PositionedIterator::Rows(int64_t position, int64_t, RowList& rows) {
  ASSIGN_OR_RETURN(std::optional<Nest> element, At(position));
  if (element) rows.Add(Block::OfElement(*std::move(element)), 0, 1);
  return absl::OkStatus();
}

Element RowIterator::At(int64_t position) {
  one_.Clear();
  RETURN_IF_ERROR(Rows(position, 1, one_));
  if (one_.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(Nest element, one_.refs()[0].block->Row(one_.refs()[0].row));
  one_.Clear();
  return element;
}

absl::Status BlockIterator::Load(int64_t position, int64_t step, int64_t most) {
  if (block_ != nullptr && position >= first_ && position < end_ && step == step_ &&
      (position - first_) % step == 0)
    return absl::OkStatus();
  rows_ahead_ = position == end_ ? std::min(2 * rows_ahead_, kMostRows) : 1;
  block_.reset();
  ASSIGN_OR_RETURN(block_, BlockAt(position, step, std::clamp(most, rows_ahead_, kMostRows)));
  first_ = position;
  step_ = step;
  end_ = position + (block_ == nullptr ? 0 : block_->count() * step);
  return absl::OkStatus();
}

Element BlockIterator::At(int64_t position) {
  RETURN_IF_ERROR(Load(position, 1, 1));
  if (block_ == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(Nest element, block_->Row(position - first_));
  return element;
}

absl::Status BlockIterator::EveryRow(int64_t position, int64_t step, int64_t most, RowList& rows) {
  RETURN_IF_ERROR(Load(position, step, most));
  if (block_ == nullptr) return absl::OkStatus();
  const int64_t row = (position - first_) / step;
  rows.Add(block_, row, std::min(most, block_->count() - row));
  return absl::OkStatus();
}

MeasuredSource::MeasuredSource(Source source, const DataEnvironment& environment,
                               std::string reader)
    : source_(std::move(source)), clock_(&ClockOf(environment)), reader_(std::move(reader)) {}

absl::Status MeasuredSource::Rows(int64_t position, int64_t most, RowList& rows) {
  if (!std::exchange(asked_, true)) length_ = source_.size();
  if (length_) {
    if (position >= *length_) return absl::OkStatus();
    return source_.Rows(position, std::min(most, *length_ - position), rows);
  }
  const size_t had = rows.size();
  RETURN_IF_ERROR(source_.Rows(position, most, rows));
  if (rows.size() > had) return absl::OkStatus();
  ASSIGN_OR_RETURN(length_, Count());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MeasuredSource::Count() {
  if (const std::optional<int64_t> known = source_.size()) return *known;
  Progress progress(*clock_);
  int64_t position = 0;
  while (true) {
    RowList rows;
    RETURN_IF_ERROR(source_.Rows(position, BlockIterator::kMostRows, rows));
    if (rows.empty()) return position;
    position += static_cast<int64_t>(rows.size());
    progress.Tick(
        [&] { return absl::StrCat(reader_, " has counted ", position, " elements of a pass"); });
  }
}

absl::Status Source::EveryRow(int64_t position, int64_t step, int64_t most, RowList& rows) {
  return positioned_ != nullptr ? positioned_->EveryRowAt(position, step, most, rows)
                                : Rows(position, 1, rows);
}

absl::Status Source::Rows(int64_t position, int64_t most, RowList& rows) {
  if (positioned_ != nullptr) return positioned_->RowsAt(position, most, rows);
  ASSIGN_OR_RETURN(std::optional<Nest> element, At(position));
  if (element) rows.Add(Block::OfElement(*std::move(element)), 0, 1);
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
