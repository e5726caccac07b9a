// Clicks in the form of Criteo's logs, drawn by a known model, so that the best possible figures
// are known. Click i depends on i alone.
#ifndef DIVVY_BENCH_RESULTS_PLANTED_CLICKS_H_
#define DIVVY_BENCH_RESULTS_PLANTED_CLICKS_H_

#include <cstdint>

#include "divvy.h"

namespace divvy::results {

constexpr int64_t kClickCounts = 13, kClickFields = 26;

// The numbers of categories of the fields of Criteo's data set at Kaggle. Together 33.8 million.
constexpr int64_t kClickCategories[kClickFields] = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

// Clicks [first, end) in batches, each {"label": float32 [batch], 0 or 1; "dense": float32 [batch,
// 13], counts; "sparse": int64 [batch, 26], a hash of each category; "planted": float32 [batch],
// the logit of a click}. The last batch may be smaller.
//
// The categories of a field follow Zipf's law: the probability of the k-th most frequent one is
// proportional to k^-1.05. The logit is a sum over the logarithms of the counts, the categories,
// and 13 pairs of fields, of which each is a dot of two vectors. From the hundredth category of a
// field on, rare ones tell less. The numbers of a category follow from its hash, so there is no
// table of 33.8 million.
//
// InvalidArgument: a batch below 1, or no click.
Dataset PlantedClicks(int64_t first, int64_t end, int64_t batch_size);

}  // namespace divvy::results

#endif  // DIVVY_BENCH_RESULTS_PLANTED_CLICKS_H_
