#include "formats/idx.h"

#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr size_t kExtentBytes = 4;

// The unsigned integer type of this size, in which the bytes of an element are collected.
template <size_t size>
using Bits = std::conditional_t<
    size == 1, uint8_t,
    std::conditional_t<size == 2, uint16_t, std::conditional_t<size == 4, uint32_t, uint64_t>>>;

template <typename T>
T LoadBigEndian(const char* from) {
  Bits<sizeof(T)> bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    bits = static_cast<Bits<sizeof(T)>>((uint64_t{bits} << 8) | static_cast<uint8_t>(from[i]));
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The contents of the header.
struct IdxHead {
  uint8_t type = 0;
  size_t head_bytes = 0;
  std::vector<int64_t> dims;
};

absl::StatusOr<IdxHead> ParseHead(absl::string_view bytes) {
  if (bytes.size() < kMagicBytes)
    return absl::DataLossError(
        absl::StrCat("offset 0: IDX begins with 4 bytes, but there are only ", bytes.size()));
  if (bytes[0] != 0 || bytes[1] != 0)
    return absl::DataLossError(
        absl::StrFormat("offset 0: not IDX, which begins with 00 00, not %02x %02x",
                        uint8_t(bytes[0]), uint8_t(bytes[1])));
  IdxHead head;
  head.type = static_cast<uint8_t>(bytes[2]);
  const size_t rank = static_cast<uint8_t>(bytes[3]);
  if (rank > Shape::kMaxRank)
    return absl::DataLossError(
        absl::StrCat("offset 3: rank ", rank, " is above ", Shape::kMaxRank));
  head.head_bytes = kMagicBytes + rank * kExtentBytes;
  if (bytes.size() < head.head_bytes) {
    return absl::DataLossError(absl::StrCat("offset ", bytes.size(), ": the header for rank ", rank,
                                            " has ", head.head_bytes,
                                            " bytes, but the file ends within it"));
  }
  for (size_t at = kMagicBytes; at < head.head_bytes; at += kExtentBytes)
    head.dims.push_back(LoadBigEndian<uint32_t>(&bytes[at]));
  return head;
}

// Reads elements of type Stored into a tensor of type Kept.
template <typename Stored, typename Kept = Stored>
absl::StatusOr<Tensor> ParseElements(const IdxHead& head, absl::string_view bytes) {
  const Shape shape{absl::MakeConstSpan(head.dims)};
  if (!shape.status().ok())
    return absl::DataLossError(absl::StrCat("offset 4: the extents [",
                                            absl::StrJoin(head.dims, ", "),
                                            "] have more elements than can be counted"));
  const absl::string_view elements = bytes.substr(head.head_bytes);
  const uint64_t wanted = static_cast<uint64_t>(shape.num_elements());
  if (elements.size() % sizeof(Stored) != 0 || elements.size() / sizeof(Stored) != wanted) {
    return absl::DataLossError(absl::StrCat("offset ", head.head_bytes, ": elements ",
                                            shape.ToString(), " of ", sizeof(Stored),
                                            " bytes each should follow, but ", elements.size(),
                                            " bytes do: the file is truncated or too long"));
  }
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Uninitialized(DTypeOf<Kept>::value, shape));
  Kept* to = tensor.fresh_data<Kept>();
  if constexpr (sizeof(Stored) == 1) {
    if (wanted > 0) std::memcpy(to, elements.data(), wanted);
  } else {
    for (size_t i = 0; i < wanted; ++i)
      to[i] = LoadBigEndian<Stored>(elements.data() + i * sizeof(Stored));
  }
  return tensor;
}

}  // namespace

absl::StatusOr<Tensor> ParseIdx(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const IdxHead head, ParseHead(bytes));
  switch (head.type) {
    case 8: return ParseElements<uint8_t>(head, bytes);
    case 9: return ParseElements<int8_t>(head, bytes);
    case 11: return ParseElements<int16_t, int32_t>(head, bytes);
    case 12: return ParseElements<int32_t>(head, bytes);
    case 13: return ParseElements<float>(head, bytes);
    case 14: return ParseElements<double>(head, bytes);
    default:
      return absl::DataLossError(
          absl::StrCat("offset 2: element type ", head.type, " is none of 8, 9, 11, 12, 13, 14"));
  }
}

}  // namespace divvy
