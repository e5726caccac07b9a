#include "tensor/scattered_tensor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

// Pieces are copied to chunks of this size, or of what is still to come.
constexpr int64_t kChunkBytes = 64 << 10;

}  // namespace

void ScatteredTensor::Add(absl::string_view bytes, std::shared_ptr<const void> keeper) {
  pieces_.push_back(
      {bytes.data(), added() + static_cast<int64_t>(bytes.size()), std::move(keeper)});
}

void ScatteredTensor::AddCopy(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (used_ == chunk_bytes_) {
      chunk_bytes_ = static_cast<size_t>(std::min(kChunkBytes, size_bytes() - added()));
      chunk_ = std::shared_ptr<char[]>(new char[chunk_bytes_]);
      used_ = 0;
    }
    const size_t some = std::min(bytes.size(), chunk_bytes_ - used_);
    char* const to = chunk_.get() + used_;
    std::memcpy(to, bytes.data(), some);
    // The last piece may be another one, or end at `to`.
    if (used_ == 0 || pieces_.back().keeper != chunk_) pieces_.push_back({to, added(), chunk_});
    pieces_.back().end += static_cast<int64_t>(some);
    used_ += some;
    bytes.remove_prefix(some);
  }
}

std::string ScatteredTensor::ToString() const {
  return absl::StrCat(DTypeName(dtype_), " ", shape_.ToString());
}

std::vector<Tensor> ScatteredTensor::Pieces() const {
  std::vector<Tensor> tensors;
  tensors.reserve(pieces_.size());
  int64_t begin = 0;
  for (const Piece& piece : pieces_) {
    // A tensor of bytes can always be made.
    tensors.push_back(*Tensor::Borrow(DType::kUInt8, {piece.end - begin}, piece.data, Device(),
                                      [keeper = piece.keeper] {}));
    begin = piece.end;
  }
  return tensors;
}

absl::StatusOr<Tensor> ScatteredTensor::Joined() const {
  ASSIGN_OR_RETURN(Tensor joined, Tensor::Uninitialized(dtype_, shape_));
  CopyTo(0, size_bytes(), joined.fresh_data<char>());
  return joined;
}

void ScatteredTensor::CopyTo(int64_t begin, int64_t size, char* to) const {
  auto piece = std::partition_point(pieces_.begin(), pieces_.end(),
                                    [=](const Piece& piece) { return piece.end <= begin; });
  int64_t first = piece == pieces_.begin() ? 0 : std::prev(piece)->end;
  for (; size > 0; first = piece++->end) {
    const int64_t some = std::min(size, piece->end - begin);
    std::memcpy(to, piece->data + (begin - first), static_cast<size_t>(some));
    begin += some;
    to += some;
    size -= some;
  }
}

}  // namespace divvy
