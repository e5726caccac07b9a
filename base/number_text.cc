#include "base/number_text.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_format.h"

namespace divvy {

std::string CountText(double count) {
  std::string digits = absl::StrFormat("%.0f", std::abs(count));
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, ",");
  return (count < 0 ? "-" : "") + digits;
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const bool whole = value == std::floor(value) || value >= 100;
  return absl::StrFormat("%.*f %s", whole ? 0 : 1, value, kUnits[unit]);
}

std::string NumberText(double value) { return absl::StrFormat("%.4g", value); }

}  // namespace divvy
