// A checkpoint for tests of what reads one.
#ifndef DIVVY_COORDINATOR_CHECKPOINT_TESTING_SOME_CHECKPOINT_H_
#define DIVVY_COORDINATOR_CHECKPOINT_TESTING_SOME_CHECKPOINT_H_

#include <string>

#include "base/file_system.h"

namespace divvy {

// Two data files: "table", int8 [4, 2], "abcdefgh" in two slices; "z", a complex128; and what Divvy
// keeps for itself, of so many steps. Fails the test if it cannot be written. REQUIRES: the
// directory is there.
void WriteSomeCheckpoint(FileSystem& files, const std::string& prefix, char steps);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_TESTING_SOME_CHECKPOINT_H_
