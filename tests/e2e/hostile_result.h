// What came of hostile tries, and the table of it.
#ifndef DIVVY_TESTS_E2E_HOSTILE_RESULT_H_
#define DIVVY_TESTS_E2E_HOSTILE_RESULT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace divvy {

// The tries of one kind.
struct HostileKind {
  std::string name;
  int64_t tries = 0;
  // "PERMISSION_DENIED" -> how many tries came to that
  std::map<std::string, int64_t> outcomes;
  // tasks that ended
  int64_t crashes = 0;
  // calls, or the job, that did not go on in time
  int64_t hangs = 0;
  // What had to be refused, and was done.
  int64_t wrong_accepts = 0;
  // The most that one task held meanwhile.
  int64_t peak_bytes = 0;
  // What each task may hold meanwhile beyond what it may else: that gRPC takes and counts nowhere.
  int64_t burst_bytes = 0;
  // The first few of these three, and too much memory, in words.
  std::vector<std::string> faults;

  void Note(absl::string_view outcome) { ++tries, ++outcomes[std::string(outcome)]; }
  void Crash(const std::string& what) { ++crashes, Say(what); }
  void Hang(const std::string& what) { ++hangs, Say(what); }
  void WrongAccept(const std::string& what) { ++wrong_accepts, Say(what); }
  void TooMuch(const std::string& what) { Say(what); }  // memory

 private:
  void Say(const std::string& what) {
    constexpr size_t kMost = 5;
    if (faults.size() < kMost) faults.push_back(what);
  }
};

// The most memory that a task ever held, and what it may hold: what it held before, its budgets,
// and 64 MiB. Kinds with burst_bytes are left out.
struct HostileMemory {
  std::string task;
  int64_t peak_bytes = 0, allowed_bytes = 0;
};

struct HostileResult {
  std::vector<HostileKind> kinds;
  std::vector<HostileMemory> memory;
  int64_t steps = 0;  // of the job, whose result was exact

  int64_t tries() const;
  // One line for each kind's fault; none: all is well.
  std::vector<std::string> Faults() const;
  // For people: a row for each kind, then one for each task's memory.
  std::string Table() const;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_RESULT_H_
