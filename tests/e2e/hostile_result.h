// The result of a hostile run, and its table.
#ifndef DIVVY_TESTS_E2E_HOSTILE_RESULT_H_
#define DIVVY_TESTS_E2E_HOSTILE_RESULT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace divvy {

// The result of one kind of attack.
struct HostileKind {
  std::string name;
  int64_t tries = 0;
  // "PERMISSION_DENIED" -> how many tries ended with that.
  std::map<std::string, int64_t> outcomes;
  // Tasks that ended.
  int64_t crashes = 0;
  // Calls, or rounds of the job, that did not end in time.
  int64_t hangs = 0;
  // Requests that had to be refused and were carried out.
  int64_t wrong_accepts = 0;
  // The most memory that one task held during the attack.
  int64_t peak_bytes = 0;
  // The memory that gRPC takes for the attack without counting it: each task may hold this much
  // more.
  int64_t burst_bytes = 0;
  // The first few faults in words: crashes, hangs, wrong accepts, and too much memory.
  std::vector<std::string> faults;

  void Note(absl::string_view outcome) { ++tries, ++outcomes[std::string(outcome)]; }
  void Crash(const std::string& what) { ++crashes, Say(what); }
  void Hang(const std::string& what) { ++hangs, Say(what); }
  void WrongAccept(const std::string& what) { ++wrong_accepts, Say(what); }
  void TooMuch(const std::string& what) { Say(what); }  // too much memory

 private:
  void Say(const std::string& what) {
    constexpr size_t kMost = 5;
    if (faults.size() < kMost) faults.push_back(what);
  }
};

// The most memory that a task ever held, and what it may hold: its memory at the beginning, its
// budgets, and 64 MiB. Kinds with burst_bytes are left out.
struct HostileMemory {
  std::string task;
  int64_t peak_bytes = 0, allowed_bytes = 0;
};

struct HostileResult {
  std::vector<HostileKind> kinds;
  std::vector<HostileMemory> memory;
  int64_t steps = 0;  // of the job, whose result was exact

  int64_t tries() const;
  // One line for each fault; empty: all is well.
  std::vector<std::string> Faults() const;
  // A table to print: a row for each kind, then one for each task's memory.
  std::string Table() const;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_RESULT_H_
