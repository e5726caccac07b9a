#include "tensor/scattered_tensor.h"

#include <numeric>
#include <string>

#include "base/random.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

std::string Read(const ScatteredTensor& tensor, int64_t begin, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '?');
  tensor.CopyTo(begin, size, bytes.data());
  return bytes;
}

// Pieces of random sizes, kept ones and copied ones mixed, read at random places.
TEST(ScatteredTensorTest, HasTheBytesOfItsPieces) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int64_t bytes = 4 * (1 + static_cast<int64_t>(random.Below(100'000)));
    std::string all(static_cast<size_t>(bytes), '\0');
    for (char& byte : all) byte = static_cast<char>(random.Below(256));
    ScatteredTensor tensor(DType::kFloat32, {bytes / 4});
    const uint64_t longest = random.Below(2) == 0 ? 100 : 20'000;
    for (size_t at = 0; at < all.size();) {
      // The memory of a piece is its own, so that a read of freed memory is seen.
      const auto piece =
          std::make_shared<const std::string>(all.substr(at, 1 + random.Below(longest)));
      random.Below(2) == 0 ? tensor.AddCopy(*piece) : tensor.Add(*piece, piece);
      at += piece->size();
    }
    EXPECT_EQ(tensor.size_bytes(), bytes);
    EXPECT_EQ(Read(tensor, 0, bytes), all);
    EXPECT_EQ(Read(tensor, bytes, 0), "");
    for (int i = 0; i < 100; ++i) {
      const uint64_t begin = random.Below(all.size()), size = random.Below(all.size() - begin + 1);
      ASSERT_EQ(Read(tensor, static_cast<int64_t>(begin), static_cast<int64_t>(size)),
                all.substr(begin, size));
    }
    std::string joined;
    for (const Tensor& piece : tensor.Pieces())
      joined.append(piece.data_as<char>(), static_cast<size_t>(piece.size_bytes()));
    EXPECT_EQ(joined, all);
  }
}

TEST(ScatteredTensorTest, ItsPiecesOutliveIt) {
  std::vector<Tensor> pieces;
  const auto bytes = std::make_shared<const std::string>(8000, 'x');
  {
    ScatteredTensor tensor(DType::kFloat32, {2000});
    tensor.Add(*bytes, bytes);
    EXPECT_EQ(tensor.ToString(), "float32 [2000]");
    pieces = tensor.Pieces();
  }
  EXPECT_EQ(bytes.use_count(), 2);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].data(), bytes->data());
  pieces.clear();
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST(ScatteredTensorTest, MayHaveNoBytes) {
  const ScatteredTensor tensor(DType::kInt64, {0, 3});
  EXPECT_EQ(tensor.size_bytes(), 0);
  EXPECT_TRUE(tensor.Pieces().empty());
  EXPECT_EQ(Read(tensor, 0, 0), "");
}

}  // namespace
}  // namespace divvy
