// Describes the program of this process, so that tasks can check that they run the same one.
#ifndef DIVVY_PROGRAM_OWN_PROGRAM_H_
#define DIVVY_PROGRAM_OWN_PROGRAM_H_

#include "protocol/messages.h"

namespace divvy {

// The steps that are registered now, the names of the program's own flags, and the build ID of the
// file that defines its Train (empty: there is no program here). Call it before Train runs, because
// steps that Train registers are not part of the program. Thread-safe; does not block.
ProgramDescription DescribeOwnProgram();

}  // namespace divvy

#endif  // DIVVY_PROGRAM_OWN_PROGRAM_H_
