// Fair comparison of speeds: the contenders take turns, so that other load of the machine affects
// all of them alike.
#ifndef DIVVY_BENCH_ROUNDS_H_
#define DIVVY_BENCH_ROUNDS_H_

#include <functional>
#include <string>
#include <vector>

namespace divvy::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = {};  // called before each run, outside the measured time
};

// The rates of `figure` and `ceiling`. Both do the same `units` of work in a run.
struct Comparison {
  // Their names. An empty `ceiling` means that there is none; its rates and the ratio are then
  // unset.
  std::string figure, ceiling;
  // Units per second: the median of the rounds.
  double rate = 0, ceiling_rate = 0;
  // The median of the ratios of single rounds, because a disturbance usually affects a whole round.
  double ratio = 0;
  // Units per second in each round.
  std::vector<double> rates;
  std::vector<double> ceiling_rates;
};

// Runs both once in each of `rounds` rounds, after one round to warm up, which does not count.
// Blocks until the end. REQUIRES: rounds >= 1.
Comparison Compare(const Contender& figure, const Contender& ceiling, double units, int rounds);

// The same for several figures and one ceiling; all run in each round.
std::vector<Comparison> CompareAll(const std::vector<Contender>& figures, const Contender& ceiling,
                                   double units, int rounds);

// Measures the figure alone, without a ceiling.
Comparison MeasureAlone(const Contender& figure, double units, int rounds);

// `b`'s rate divided by `a`'s, for two figures of one CompareAll: the median of the ratios of
// single rounds.
double TimesAsFast(const Comparison& a, const Comparison& b);

// The median; of two middle values, the upper one. REQUIRES: `values` is not empty.
double Median(std::vector<double> values);

// The processor time of this process so far, over all its threads.
double OwnCpuSeconds();

// The unit of printed rates. `scale` is the number of units of work in it: 1e6 for "M elements/s".
struct Unit {
  std::string name;
  double scale = 1;
};
// Prints one line: "Adam, dense  412.3 M elements/s   memcpy of the same bytes  530.1 M elements/s
// 0.78 of it".
void Print(const Comparison& comparison, const Unit& unit);
// Prints the same as one JSON object; `bench` is the benchmark's name.
void PrintJson(const std::string& bench, const Comparison& comparison, const Unit& unit);

// Prints "peak memory of the process: 123.4 MB".
void PrintPeakMemory();

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_ROUNDS_H_
