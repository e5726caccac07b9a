// Numbers as people read them.
#ifndef DIVVY_BASE_NUMBER_TEXT_H_
#define DIVVY_BASE_NUMBER_TEXT_H_

#include <cstdint>
#include <string>

namespace divvy {

// All are pure.

std::string CountText(double count);   // 41234.6 -> "41,235"
std::string BytesText(int64_t bytes);  // 98304 -> "96 KiB", 1536 -> "1.5 KiB"
std::string NumberText(double value);  // four significant digits: "0.03127", "0.991"

}  // namespace divvy

#endif  // DIVVY_BASE_NUMBER_TEXT_H_
