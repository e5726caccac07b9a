// Fair comparison of speeds: the contenders take turns, so that other load of the machine affects
// all of them alike. Every benchmark that links this has the flags --format and --rounds.
#ifndef DIVVY_BENCH_ROUNDS_H_
#define DIVVY_BENCH_ROUNDS_H_

#include <functional>
#include <string>
#include <utility>
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
  std::vector<double> rates = {};
  std::vector<double> ceiling_rates = {};
};

// The value of --rounds, or 1 if that is smaller.
int Rounds();

// Runs both once in each of `rounds` rounds, after one round to warm up, which does not count.
// Blocks until the end. REQUIRES: rounds >= 1.
Comparison Compare(const Contender& figure, const Contender& ceiling, double units,
                   int rounds = Rounds());

// The same for several figures and one ceiling; all run in each round.
std::vector<Comparison> CompareAll(const std::vector<Contender>& figures, const Contender& ceiling,
                                   double units, int rounds = Rounds());

// Measures the figure alone, without a ceiling.
Comparison MeasureAlone(const Contender& figure, double units, int rounds = Rounds());

// Named numbers of a figure, such as {"hit_rate", 0.44}. A name begins with a letter; the unit is
// its end ("p99_us").
using Extras = std::vector<std::pair<std::string, double>>;

// Runs both `calls` times in a row in each round. A rate is 1 / the median time of a call, over all
// rounds; `extras` gets the 50th and 99th percentiles of both.
Comparison CompareLatencies(const Contender& figure, const Contender& ceiling, int calls,
                            Extras& extras);

// `b`'s rate divided by `a`'s, for two figures of one CompareAll: the median of the ratios of
// single rounds.
double TimesAsFast(const Comparison& a, const Comparison& b);

// The median; of two middle values, the upper one. REQUIRES: `values` is not empty.
double Median(std::vector<double> values);

// The processor time of this process so far, over all its threads.
double OwnCpuSeconds();

// The processor time of a contender's runs. The first run warms up and does not count.
class CpuMeter {
 public:
  // `now`: the processor time so far of all processes that take part.
  explicit CpuMeter(std::function<double()> now = OwnCpuSeconds) : now_(std::move(now)) {}
  // REQUIRES: this object outlives the result.
  std::function<void()> Metered(std::function<void()> run);
  double SecondsPerRun() const;

 private:
  const std::function<double()> now_;
  double seconds_ = 0;
  int runs_ = 0;
};

// The unit of printed rates. `scale` is the number of units of work in it: 1e6 for "M elements/s".
struct Unit {
  std::string name;
  double scale = 1;
};
// Prints a figure of the benchmark `bench`. With --format=table, one line, and a second one if
// there are extras:
//   pull, 16 MB     1.3 GB/s   raw TCP, 2 outstanding     2.5 GB/s   0.54 of it
//     cpu_s_per_gb 0.92, ceiling_cpu_s_per_gb 0.51
// With --format=json, an object with the fields bench, what, unit, rate; ceiling, ceiling_rate and
// ratio if there is a ceiling; and the extras.
void Show(const std::string& bench, const Comparison& comparison, const Unit& unit,
          const Extras& extras = {});
// Prints a line that is no figure. With --format=json, prints nothing.
void ShowText(const std::string& line);
// Shows the text "peak memory of the process: 123.4 MB".
void ShowPeakMemory();

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_ROUNDS_H_
