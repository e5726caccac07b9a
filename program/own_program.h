// What this process runs, as the other processes of a job must run it.
#ifndef DIVVY_PROGRAM_OWN_PROGRAM_H_
#define DIVVY_PROGRAM_OWN_PROGRAM_H_

#include "cluster/messages.h"

namespace divvy {

// The steps that are registered now, the names of the program's own flags, and the build of the
// file that holds its Train ("": there is no program here). To be called before Train runs: what
// that registers is not the program's. Thread-safe.
ProgramDescription DescribeOwnProgram();

}  // namespace divvy

#endif  // DIVVY_PROGRAM_OWN_PROGRAM_H_
