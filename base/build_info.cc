#include "base/build_info.h"

#define DIVVY_TEXT_OF(macro) DIVVY_TEXT(macro)
#define DIVVY_TEXT(text) #text

namespace divvy {

std::string BuildCommit() {
#ifdef DIVVY_COMMIT
  return DIVVY_TEXT_OF(DIVVY_COMMIT);
#else
  return "";
#endif
}

std::string BuildCompiler() {
#ifdef __clang__
  return __VERSION__;
#else
  return "gcc " __VERSION__;
#endif
}

}  // namespace divvy
