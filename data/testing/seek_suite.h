// What every dataset must do, to be tried on each kind.
#ifndef DIVVY_DATA_TESTING_SEEK_SUITE_H_
#define DIVVY_DATA_TESTING_SEEK_SUITE_H_

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace divvy {

// The elements of one plain pass, without seeking. An error is a failure of the test, and ends it.
std::vector<Nest> PlainPass(const Dataset& dataset, const DataEnvironment& environment = {});

// Expects of an iterator that wanders about (as `seed` says) that Next after Seek(p) gives element
// p of the plain pass or, behind it, the end; and that size(), whenever it is known, is the length
// of the pass.
void ExpectEveryPositionCanBeSought(const Dataset& dataset, uint64_t seed,
                                    const DataEnvironment& environment = {});

}  // namespace divvy

#endif  // DIVVY_DATA_TESTING_SEEK_SUITE_H_
