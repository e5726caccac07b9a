#include "bench/rounds.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/process.h"

ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(int, rounds, 7, "rounds; every contender runs once in each");

namespace divvy::bench {
namespace {

double SecondsOf(const Contender& contender) {
  if (contender.prepare) contender.prepare();
  const absl::Duration began = Clock::Real().Elapsed();
  contender.run();
  return absl::ToDoubleSeconds(Clock::Real().Elapsed() - began);
}

double Quantile(std::vector<double> values, double q) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

bool IsJson() { return absl::GetFlag(FLAGS_format) == "json"; }

// Counts in full, other numbers with four digits.
std::string Number(double value) {
  return value == std::floor(value) ? absl::StrFormat("%.0f", value)
                                    : absl::StrFormat("%.4g", value);
}

void PrintRow(const Comparison& comparison, const Unit& unit, const Extras& extras) {
  absl::PrintF("%-24s %9.1f %s", comparison.figure, comparison.rate / unit.scale, unit.name);
  if (!comparison.ceiling.empty()) {
    absl::PrintF("   %-32s %9.1f %s   %.2f of it", comparison.ceiling,
                 comparison.ceiling_rate / unit.scale, unit.name, comparison.ratio);
  }
  absl::PrintF("\n");
  if (extras.empty()) return;
  absl::PrintF("  %s\n", absl::StrJoin(extras, ", ", [](std::string* out, const auto& extra) {
                 absl::StrAppend(out, extra.first, " ", Number(extra.second));
               }));
}

void PrintObject(const std::string& bench, const Comparison& comparison, const Unit& unit,
                 const Extras& extras) {
  absl::PrintF("{\"bench\": \"%s\", \"what\": \"%s\", \"unit\": \"%s\", \"rate\": %.4g", bench,
               comparison.figure, unit.name, comparison.rate / unit.scale);
  if (!comparison.ceiling.empty()) {
    absl::PrintF(", \"ceiling\": \"%s\", \"ceiling_rate\": %.4g, \"ratio\": %.4g",
                 comparison.ceiling, comparison.ceiling_rate / unit.scale, comparison.ratio);
  }
  for (const auto& [name, value] : extras) absl::PrintF(", \"%s\": %s", name, Number(value));
  absl::PrintF("}\n");
}

}  // namespace

int Rounds() { return std::max(1, absl::GetFlag(FLAGS_rounds)); }

double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

double OwnCpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::function<void()> CpuMeter::Metered(std::function<void()> run) {
  return [this, run = std::move(run)] {
    const double before = now_();
    run();
    if (runs_++ > 0) seconds_ += now_() - before;
  };
}

double CpuMeter::SecondsPerRun() const { return seconds_ / std::max(1, runs_ - 1); }

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

Comparison CompareLatencies(const Contender& figure, const Contender& ceiling, int calls,
                            Extras& extras) {
  std::vector<double> times, ceiling_times;
  for (int round = 0; round <= Rounds(); ++round) {
    if (round == 1) times.clear(), ceiling_times.clear();  // round 0 warms up
    for (int i = 0; i < calls; ++i) times.push_back(SecondsOf(figure));
    for (int i = 0; i < calls; ++i) ceiling_times.push_back(SecondsOf(ceiling));
  }
  const double p50 = Median(times), ceiling_p50 = Median(ceiling_times);
  extras.insert(extras.end(), {{"p50_us", 1e6 * p50},
                               {"p99_us", 1e6 * Quantile(times, 0.99)},
                               {"ceiling_p50_us", 1e6 * ceiling_p50},
                               {"ceiling_p99_us", 1e6 * Quantile(ceiling_times, 0.99)}});
  return {figure.name, ceiling.name, 1 / p50, 1 / ceiling_p50, ceiling_p50 / p50};
}

double TimesAsFast(const Comparison& a, const Comparison& b) {
  std::vector<double> ratios;
  for (size_t round = 0; round < a.rates.size(); ++round)
    ratios.push_back(b.rates[round] / a.rates[round]);
  return Median(ratios);
}

void Show(const std::string& bench, const Comparison& comparison, const Unit& unit,
          const Extras& extras) {
  IsJson() ? PrintObject(bench, comparison, unit, extras) : PrintRow(comparison, unit, extras);
  std::fflush(stdout);
}

void ShowText(const std::string& line) {
  if (!IsJson()) absl::PrintF("%s\n", line);
}

void ShowPeakMemory() {
  ShowText(absl::StrFormat("peak memory of the process: %.1f MB",
                           static_cast<double>(PeakMemoryBytes()) / 1e6));
}

}  // namespace divvy::bench
