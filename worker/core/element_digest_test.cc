#include "worker/core/element_digest.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tensor/tensor.h"

namespace divvy {
namespace {

Nest Floats(const std::vector<float>& values) {
  return Nest(Tensor::Vector<float>(absl::MakeConstSpan(values)));
}
Nest Ints(const std::vector<int64_t>& values) {
  return Nest(Tensor::Vector<int64_t>(absl::MakeConstSpan(values)));
}
bool Same(const ElementDigest& a, const ElementDigest& b) {
  return a.exact == b.exact && a.projection == b.projection && a.magnitude == b.magnitude;
}

TEST(ElementDigestTest, EqualElementsAreEqual) {
  const auto make = [] {
    return Nest({{"x", Floats({1, 2})}, {"y", Ints({3})}, {"name", Nest("a")}});
  };
  EXPECT_TRUE(Same(DigestOf(make()), DigestOf(make())));
}

TEST(ElementDigestTest, OtherIntegersTextsShapesKeysAndDtypesDifferExactly) {
  const uint64_t exact = DigestOf(Nest({{"x", Ints({1, 2})}})).exact;
  for (const Nest& other : {Nest({{"x", Ints({2, 1})}}), Nest({{"y", Ints({1, 2})}}),
                            Nest({{"x", Nest("1 2")}}), Nest({{"x", Floats({1, 2})}}), Ints({1, 2}),
                            Nest({{"x", Nest(*Ints({1, 2}).tensor()->Reshape({2, 1}))}})}) {
    EXPECT_NE(DigestOf(other).exact, exact) << other.ToString();
  }
}

TEST(ElementDigestTest, FloatsDifferInTheirProjectionAlsoInAnotherOrder) {
  const ElementDigest digest = DigestOf(Floats({1, 2, -3}));
  EXPECT_EQ(digest.magnitude, 6);
  EXPECT_NE(DigestOf(Floats({2, 1, -3})).projection, digest.projection);
  EXPECT_EQ(DigestOf(Floats({2, 1, -3})).exact, digest.exact);
}

TEST(ElementDigestTest, TheLastBitOfAFloatChangesLittle) {
  const float more = std::nextafter(1.0f, 2.0f);
  EXPECT_NEAR(DigestOf(Floats({more, 2})).projection, DigestOf(Floats({1, 2})).projection, 1e-6);
}

TEST(ElementDigestTest, ValuesThatAreNotFiniteCountByTheirPlace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ElementDigest digest = DigestOf(Floats({nan, 1}));
  EXPECT_TRUE(std::isfinite(digest.projection));
  EXPECT_NE(DigestOf(Floats({1, nan})).exact, digest.exact);
  const double most = std::numeric_limits<double>::max();
  EXPECT_TRUE(std::isfinite(DigestOf(Nest(Tensor::Vector<double>({most, most}))).magnitude));
}

}  // namespace
}  // namespace divvy
