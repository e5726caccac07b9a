#include "bench/rounds.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/process.h"

namespace divvy::bench {
namespace {

double SecondsOf(const Contender& contender) {
  if (contender.prepare) contender.prepare();
  const absl::Duration began = Clock::Real().Elapsed();
  contender.run();
  return absl::ToDoubleSeconds(Clock::Real().Elapsed() - began);
}

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double OwnCpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::vector<Comparison> CompareAll(const std::vector<Contender>& figures, const Contender& ceiling,
                                   double units, int rounds) {
  for (const Contender& figure : figures) SecondsOf(figure);
  SecondsOf(ceiling);
  std::vector<std::vector<double>> rates(figures.size()), ratios(figures.size());
  std::vector<double> ceiling_rates;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < figures.size(); ++i) rates[i].push_back(units / SecondsOf(figures[i]));
    ceiling_rates.push_back(units / SecondsOf(ceiling));
    for (size_t i = 0; i < figures.size(); ++i)
      ratios[i].push_back(rates[i].back() / ceiling_rates.back());
  }
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < figures.size(); ++i) {
    comparisons.push_back({figures[i].name, ceiling.name, Median(rates[i]), Median(ceiling_rates),
                           Median(ratios[i]), rates[i], ceiling_rates});
  }
  return comparisons;
}

Comparison Compare(const Contender& figure, const Contender& ceiling, double units, int rounds) {
  return CompareAll({figure}, ceiling, units, rounds)[0];
}

Comparison MeasureAlone(const Contender& figure, double units, int rounds) {
  Comparison alone;
  alone.figure = figure.name;
  SecondsOf(figure);
  for (int round = 0; round < rounds; ++round) alone.rates.push_back(units / SecondsOf(figure));
  alone.rate = Median(alone.rates);
  return alone;
}

double TimesAsFast(const Comparison& a, const Comparison& b) {
  std::vector<double> ratios;
  for (size_t round = 0; round < a.rates.size(); ++round)
    ratios.push_back(b.rates[round] / a.rates[round]);
  return Median(ratios);
}

void Print(const Comparison& comparison, const Unit& unit) {
  if (comparison.ceiling.empty()) {
    std::printf("%-24s %9.1f %s\n", comparison.figure.c_str(), comparison.rate / unit.scale,
                unit.name.c_str());
    std::fflush(stdout);
    return;
  }
  std::printf("%-24s %9.1f %s   %-32s %9.1f %s   %.2f of it\n", comparison.figure.c_str(),
              comparison.rate / unit.scale, unit.name.c_str(), comparison.ceiling.c_str(),
              comparison.ceiling_rate / unit.scale, unit.name.c_str(), comparison.ratio);
  std::fflush(stdout);
}

void PrintJson(const std::string& bench, const Comparison& comparison, const Unit& unit) {
  std::printf("{\"bench\": \"%s\", \"what\": \"%s\", \"unit\": \"%s\", \"rate\": %.4g",
              bench.c_str(), comparison.figure.c_str(), unit.name.c_str(),
              comparison.rate / unit.scale);
  if (!comparison.ceiling.empty()) {
    std::printf(", \"ceiling\": \"%s\", \"ceiling_rate\": %.4g, \"ratio\": %.3f",
                comparison.ceiling.c_str(), comparison.ceiling_rate / unit.scale, comparison.ratio);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

void PrintPeakMemory() {
  std::printf("peak memory of the process: %.1f MB\n",
              static_cast<double>(PeakMemoryBytes()) / 1e6);
}

}  // namespace divvy::bench
