// A small checkpoint for tests of code that reads one.
#ifndef DIVVY_COORDINATOR_CHECKPOINT_TESTING_SOME_CHECKPOINT_H_
#define DIVVY_COORDINATOR_CHECKPOINT_TESTING_SOME_CHECKPOINT_H_

#include <string>

#include "base/file_system.h"

namespace divvy {

// Writes a checkpoint with two data files. Its tensors are "table", int8 [4, 2] with the bytes
// "abcdefgh", in two slices; "z", a complex128; and Divvy's own tensors, with `steps` finished
// steps. Fails the test if it cannot write. REQUIRES: the directory exists.
void WriteSomeCheckpoint(FileSystem& files, const std::string& prefix, char steps);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_TESTING_SOME_CHECKPOINT_H_
