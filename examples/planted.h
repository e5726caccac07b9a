// Data whose truth is known, for examples that are run without a file: a planted model makes it,
// with noise of a known law, so what is learnt can stand beside the best there is.
//
// Each has a leaf "planted", what the planted model itself says of each record. Record i is a
// function of the options and i alone: the same in every process, and longer data begins with the
// shorter. An option that is not above 0 gives a failed Nest: InvalidArgument, with its name; or
// ResourceExhausted, where memory does not hold so many records. Pure; thread-safe; some
// microseconds for each record.
#ifndef DIVVY_EXAMPLES_PLANTED_H_
#define DIVVY_EXAMPLES_PLANTED_H_

#include <cstdint>

#include "divvy.h"

namespace divvy::planted {

// Stars that users give to items: 3.5 + bias of the user + bias of the item + dot of their factors
// + noise, not cut or rounded. Deviations: 0.4 for each bias, 0.6 for the dot. Users and items are
// drawn evenly.
struct RatingsOptions {
  int64_t ratings = 300'000;
  // MovieLens-100k's numbers; ids count from 1, as there
  int64_t users = 943, items = 1682;
  int factors = 4;
  double noise = 0.5;  // its deviation: no model's error is smaller
  uint64_t seed = 1;
};
// {"user", "item": int64 [ratings], "rating", "planted": float32 [ratings]}; planted: the rating
// without its noise.
Nest Ratings(const RatingsOptions& options = {});

// What is clicked, in the form of Criteo's logs: 13 counts and 26 fields of one category each, few
// of them frequent. The logit of a click is a sum over the logarithms of the counts, the
// categories, and 13 pairs of fields, whose part, a dot of two vectors, no sum over single fields
// can express.
struct ClicksOptions {
  int64_t impressions = 300'000;
  int64_t categories = 30;  // of each field
  uint64_t seed = 1;
};
// {"label": float32 [n], 0 or 1, "dense": float32 [n, 13], "sparse": int64 [n, 26]} as
// Dataset::CriteoTsv, and "planted", "additive": float32 [n], the logit of a click, and that
// without the pairs.
Nest Clicks(const ClicksOptions& options = {});

// Which items users visit: both are points on a sphere in 8 dimensions, items near the centre of
// their tag, and a user visits item i with a probability that is in proportion to exp(6 cosine).
struct VisitsOptions {
  int64_t visits = 200'000;
  int64_t users = 2000, items = 1000, tags = 40;
  uint64_t seed = 1;
};
// {"user", "item", "tag": int64 [visits], "planted": {"user", "item": float32 [visits, 8]}};
// planted: the points, whose dots rank the items. Ids count from 0.
//
Nest Visits(const VisitsOptions& options = {});

}  // namespace divvy::planted

#endif  // DIVVY_EXAMPLES_PLANTED_H_
