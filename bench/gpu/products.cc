#include "bench/gpu/device_ceilings.h"

namespace divvy::bench {

std::vector<Product> PerceptronProducts(int64_t batch, const std::vector<int64_t>& widths) {
  std::vector<Product> products;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const int64_t in = widths[i], out = widths[i + 1];
    products.push_back({batch, out, in});
    products.push_back({in, out, batch, /*a_transposed=*/true});
    if (i > 0) products.push_back({batch, in, out, false, /*b_transposed=*/true});
  }
  return products;
}

}  // namespace divvy::bench
