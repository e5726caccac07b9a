// Files as datasets name them. Internal to data/.
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

// The environment's file system, or the machine's.
FileSystem& FilesOf(const DataEnvironment& environment);

// The files that `pattern` stands for, in the order of their names, at least one. "name@N", if it
// has no other wildcard: name-00000-of-0000N and so on, whether they exist or not. With "*", "?" or
// "[...]": the files that match, where no wildcard matches a slash; in the last part of the path
// only. Else `pattern` itself.
// NotFound: no file matches. InvalidArgument: an empty pattern, name@0, a wildcard in a directory's
// name. Blocks.
absl::StatusOr<std::vector<std::string>> ExpandFiles(FileSystem& files, absl::string_view pattern);

// The content of a file, which a slow disk tells of in the log, decompressed unless `is_plain` says
// of its bytes that they are no compressed ones. Blocks. Errors begin with the name: the file
// system's, and those of Inflate (formats/inflate.h); ResourceExhausted past 16 GiB, or half of the
// memory that this process may have, before or after decompression, and for MostUnpacked.
using IsPlain = std::function<bool(absl::string_view bytes)>;
absl::StatusOr<std::string> ReadDecompressed(FileSystem& files, const Clock& clock,
                                             const std::string& name,
                                             const IsPlain& is_plain = nullptr);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_FILES_H_
