// Splits names of files. Pure: no file is accessed.
#ifndef DIVVY_BASE_PATH_H_
#define DIVVY_BASE_PATH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// The directory part of `name`: "a/b" of "a/b/c", "/" of "/c", "." of "c".
inline std::string DirectoryOf(absl::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : name.substr(0, slash));
}

// The name without its directory: "c" of "a/b/c". Without a slash rfind returns npos, and npos + 1
// is 0.
inline std::string BaseNameOf(absl::string_view name) {
  return std::string(name.substr(name.rfind('/') + 1));
}

}  // namespace divvy

#endif  // DIVVY_BASE_PATH_H_
