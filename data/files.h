// File names and contents, as datasets use them. Internal to data/.
#ifndef DIVVY_DATA_FILES_H_
#define DIVVY_DATA_FILES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "data/dataset.h"

namespace divvy::data_internal {

// The environment's file system; if it has none, the machine's.
FileSystem& FilesOf(const DataEnvironment& environment);

// Returns the files of `pattern` in name order; at least one. Blocks.
//   name@N              if there is no other wildcard: name-00000-of-0000N and so on, whether they
//                       exist or not
//   "*", "?", "[...]"   the files that match. Wildcards do not match a slash, and may be in the
//                       last part of the path only
//   otherwise           `pattern` itself
// NotFound: no file matches. InvalidArgument: an empty pattern, name@0, or a wildcard in a
// directory's name.
absl::StatusOr<std::vector<std::string>> ExpandFiles(FileSystem& files, absl::string_view pattern);

// Returns the content of a file, decompressed. If `is_plain` is true for its bytes, they are
// returned unchanged. A read that takes long is logged. Blocks. Errors begin with the file's name:
// those of the file system and of Inflate (formats/inflate.h). ResourceExhausted: the file exceeds
// 16 GiB, or half of the memory that this process may use, before or after decompression; or its
// content exceeds MostUnpacked (formats/inflate.h).
using IsPlain = std::function<bool(absl::string_view bytes)>;
absl::StatusOr<std::string> ReadDecompressed(FileSystem& files, const Clock& clock,
                                             const std::string& name,
                                             const IsPlain& is_plain = nullptr);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_FILES_H_
