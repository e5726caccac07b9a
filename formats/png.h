// Writes images as PNG files.
#ifndef DIVVY_FORMATS_PNG_H_
#define DIVVY_FORMATS_PNG_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// A PNG file of an image with 8 bits for each channel. `pixels` has the rows from the top, in each
// row the pixels from the left, and for each pixel its channels: 1 gray, 2 gray and alpha, 3 red,
// green and blue, 4 these and alpha. Pure. REQUIRES: 1 <= channels <= 4; width and height are from
// 1 to 2^31 - 1; pixels has width * height * channels bytes.
std::string WritePng(int64_t width, int64_t height, int channels, absl::string_view pixels);

}  // namespace divvy

#endif  // DIVVY_FORMATS_PNG_H_
