// Data for examples that run without a file. A known model, the planted model, generates it with
// noise of a known distribution, so a trained model can be compared with the best possible one.
//
// The leaf "planted" has the prediction of the planted model for each record. Record i depends only
// on the options and on i: it is the same in every process, and a longer data set begins with the
// records of a shorter one. The functions return a failed Nest on errors, and Sentences a dataset
// whose iterator returns them. InvalidArgument: an
// option that is not above 0; the message names it. ResourceExhausted: memory cannot hold so many
// records. Pure; thread-safe; some microseconds for each record.
#ifndef DIVVY_EXAMPLES_PLANTED_H_
#define DIVVY_EXAMPLES_PLANTED_H_

#include <cstdint>

#include "divvy.h"

namespace divvy::planted {

// Stars that users give to items: 3.5 + bias of the user + bias of the item + dot of their factors
// + noise, not clipped or rounded. Standard deviations: 0.4 for each bias, 0.6 for the dot. Users
// and items are drawn uniformly.
struct RatingsOptions {
  int64_t ratings = 300'000;
  // MovieLens-100k's numbers. Ids count from 1, as in its files.
  int64_t users = 943, items = 1682;
  int factors = 4;
  double noise = 0.5;  // its standard deviation: no model's error is smaller
  uint64_t seed = 1;
};
// Returns {"user", "item": int64 [ratings], "rating", "planted": float32 [ratings]}. "planted" is
// the rating without its noise.
Nest Ratings(const RatingsOptions& options = {});

// Clicks in the form of Criteo's logs: 13 counts, and 26 fields with one category each. Few
// categories are frequent. The logit of a click is a sum over the logarithms of the counts, the
// categories, and 13 pairs of fields. The term of a pair is a dot of two vectors, which no sum over
// single fields can express.
struct ClicksOptions {
  int64_t impressions = 300'000;
  int64_t categories = 30;  // of each field
  uint64_t seed = 1;
};
// Returns {"label": float32 [n], 0 or 1, "dense": float32 [n, 13], "sparse": int64 [n, 26]} as
// Dataset::CriteoTsv. Also "planted": float32 [n], the logit of a click, and "additive": float32
// [n], the logit without the pairs.
Nest Clicks(const ClicksOptions& options = {});

// Visits of users to items. Users and items are points on a sphere in 8 dimensions; items are near
// the centre of their tag. A user visits an item with a probability proportional to exp(6 cosine of
// their angle).
struct VisitsOptions {
  int64_t visits = 200'000;
  int64_t users = 2000, items = 1000, tags = 40;
  uint64_t seed = 1;
};
// Returns {"user", "item", "tag": int64 [visits], "planted": {"user", "item": float32 [visits,
// 8]}}. "planted" has the points, whose dots rank the items. Ids count from 0.
Nest Visits(const VisitsOptions& options = {});

// Sentences of made-up words. Each is about one topic, and has words of that topic alone, the first
// ones more often. So words of one topic stand near each other, and words of two topics never do.
struct SentencesOptions {
  int64_t sentences = 20'000;
  int64_t topics = 20, words = 50;  // words of each topic
  int64_t length = 12;              // words of each sentence
  uint64_t seed = 1;
};
// A dataset of texts. A word names its topic and itself, as in "topic3word17"; both count from 0.
Dataset Sentences(const SentencesOptions& options = {});

}  // namespace divvy::planted

#endif  // DIVVY_EXAMPLES_PLANTED_H_
