// The main function of the stock binaries worker and coordinator, which contain no program.
#ifndef DIVVY_PROGRAM_STOCK_MAIN_H_
#define DIVVY_PROGRAM_STOCK_MAIN_H_

#include "protocol/role.h"

namespace divvy {

// Like Main (program/main.h), for a binary that runs one role: kWorker, or kChief, which also runs
// an evaluator. Loads --program=lib.so first. `binary` is its name, for messages. REQUIRES: called
// once, on the main thread.
int StockMain(int argc, char** argv, const char* binary, Role role);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_STOCK_MAIN_H_
