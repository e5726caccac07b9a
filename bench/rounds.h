// Comparing speeds fairly: contenders take turns, so that what else the machine does falls on all
// of them alike.
#ifndef DIVVY_BENCH_ROUNDS_H_
#define DIVVY_BENCH_ROUNDS_H_

#include <functional>
#include <string>
#include <vector>

namespace divvy::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = {};  // before each run, and not counted; none: nothing
};

// How `figure` did beside `ceiling`, both doing the same `units` of work in a run.
struct Comparison {
  // "" for no ceiling: then its rates and the ratio say nothing
  std::string figure, ceiling;
  // units per second, the median of the rounds
  double rate = 0, ceiling_rate = 0;
  // The median of each round's own ratio: a disturbance that lasts hits both.
  double ratio = 0;
  // Of each round.
  std::vector<double> rates;
  // Of each round.
  std::vector<double> ceiling_rates;
};

// `rounds` rounds, in each of which both run once, and one before them to warm up, which does not
// count. Blocks for as long as that takes. REQUIRES: rounds >= 1.
Comparison Compare(const Contender& figure, const Contender& ceiling, double units, int rounds);

// The same for several figures beside one ceiling, all in each round.
std::vector<Comparison> CompareAll(const std::vector<Contender>& figures, const Contender& ceiling,
                                   double units, int rounds);

// The figure alone, where there is no ceiling to hold it against.
Comparison MeasureAlone(const Contender& figure, double units, int rounds);

// How often `a`'s rate goes into `b`'s, two figures of one CompareAll: the median of each round's
// own ratio.
double TimesAsFast(const Comparison& a, const Comparison& b);

// Of the upper middle, where there are two. REQUIRES: some.
double Median(std::vector<double> values);

// Of all processors that this process has used so far.
double OwnCpuSeconds();

// One line: "Adam, dense  412.3 M elements/s   memcpy of the same bytes  530.1 M elements/s   0.78
// of it". A `unit` is so many of the units of work: 1e6 for "M elements/s".
struct Unit {
  std::string name;
  double scale = 1;
};
void Print(const Comparison& comparison, const Unit& unit);
// The same as one JSON object, of the benchmark with this name.
void PrintJson(const std::string& bench, const Comparison& comparison, const Unit& unit);

// "peak memory of the process: 123.4 MB".
void PrintPeakMemory();

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_ROUNDS_H_
