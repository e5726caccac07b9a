#include "bench/rounds.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/process.h"

namespace divvy::bench {
namespace {

double SecondsOf(const std::function<void()>& run) {
  const absl::Duration began = Clock::Real().Elapsed();
  run();
  return absl::ToDoubleSeconds(Clock::Real().Elapsed() - began);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Comparison Compare(const Contender& figure, const Contender& ceiling, double units, int rounds) {
  figure.run();
  ceiling.run();
  std::vector<double> rates, ceiling_rates, ratios;
  for (int round = 0; round < rounds; ++round) {
    rates.push_back(units / SecondsOf(figure.run));
    ceiling_rates.push_back(units / SecondsOf(ceiling.run));
    ratios.push_back(rates.back() / ceiling_rates.back());
  }
  return {figure.name, ceiling.name, Median(rates), Median(ceiling_rates), Median(ratios)};
}

void Print(const Comparison& comparison, const Unit& unit) {
  std::printf("%-24s %9.1f %s   %-32s %9.1f %s   %.2f of it\n", comparison.figure.c_str(), comparison.rate / unit.scale, unit.name.c_str(),
              comparison.ceiling.c_str(), comparison.ceiling_rate / unit.scale, unit.name.c_str(), comparison.ratio);
  std::fflush(stdout);
}

void PrintPeakMemory() { std::printf("peak memory of the process: %.1f MB\n", static_cast<double>(PeakMemoryBytes()) / 1e6); }

}  // namespace divvy::bench
