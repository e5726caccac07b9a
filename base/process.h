// What this process may use and has used.
#ifndef DIVVY_BASE_PROCESS_H_
#define DIVVY_BASE_PROCESS_H_

#include <cstdint>

namespace divvy {

int NumCores();              // processors this process may run on; at least 1
int64_t PeakMemoryBytes();   // the most memory it ever held resident

}  // namespace divvy

#endif  // DIVVY_BASE_PROCESS_H_
