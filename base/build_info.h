// How the binary was built.
#ifndef DIVVY_BASE_BUILD_INFO_H_
#define DIVVY_BASE_BUILD_INFO_H_

#include <string>

namespace divvy {

// The commit of the sources. Empty unless the build names it:
//   bazel build --per_file_copt=base/build_info.cc$@-DDIVVY_COMMIT=$(git rev-parse HEAD) ...
std::string BuildCommit();
// "gcc 12.2.0"
std::string BuildCompiler();

}  // namespace divvy

#endif  // DIVVY_BASE_BUILD_INFO_H_
