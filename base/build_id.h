// The build id of the code that this process runs.
#ifndef DIVVY_BASE_BUILD_ID_H_
#define DIVVY_BASE_BUILD_ID_H_

#include <string>

namespace divvy {

// The GNU build id (a hash of the linked contents, in hex) of the executable or shared library that
// contains `address`, such as the address of a function. Empty if the linker wrote none, or if no
// loaded file contains the address. Thread-safe; blocks only for the loader's lock.
std::string BuildIdAt(const void* address);

}  // namespace divvy

#endif  // DIVVY_BASE_BUILD_ID_H_
