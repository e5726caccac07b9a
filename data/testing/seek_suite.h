// A conformance suite for datasets: seeking and sizes.
#ifndef DIVVY_DATA_TESTING_SEEK_SUITE_H_
#define DIVVY_DATA_TESTING_SEEK_SUITE_H_

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace divvy {

// The elements of one pass without seeking. An error fails the test and ends the pass.
std::vector<Nest> PlainPass(const Dataset& dataset, const DataEnvironment& environment = {});

// Seeks an iterator to positions that `seed` determines. Expects that Next after Seek(p) returns
// element p of a plain pass, or nullopt if p is past the end. Also expects that size(), if it is
// known, is the length of the pass.
void ExpectEveryPositionCanBeSought(const Dataset& dataset, uint64_t seed,
                                    const DataEnvironment& environment = {});

}  // namespace divvy

#endif  // DIVVY_DATA_TESTING_SEEK_SUITE_H_
