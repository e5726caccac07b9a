// The main function of the stock binaries worker and coordinator, which have no program of their
// own.
#ifndef DIVVY_PROGRAM_STOCK_MAIN_H_
#define DIVVY_PROGRAM_STOCK_MAIN_H_

#include "cluster/role.h"

namespace divvy {

// As Main (program/main.h), for a binary that plays one role only: kWorker, or kChief, which plays
// an evaluator too. Loads --program=lib.so first. `binary` is its name, for messages. To be called
// once.
int StockMain(int argc, char** argv, const char* binary, Role role);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_STOCK_MAIN_H_
