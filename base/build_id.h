// Which build of a file this process runs.
#ifndef DIVVY_BASE_BUILD_ID_H_
#define DIVVY_BASE_BUILD_ID_H_

#include <string>

namespace divvy {

// The build id (GNU's, a hash over what was linked, in hex) of the executable or shared library
// that holds `address`: a function's, say. "": the linker wrote none, or nothing that is loaded
// holds the address. Thread-safe; blocks on nothing but the loader's lock.
std::string BuildIdAt(const void* address);

}  // namespace divvy

#endif  // DIVVY_BASE_BUILD_ID_H_
