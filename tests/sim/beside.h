// What a program does while its steps are in flight: reads, writes and assigns variables, creates
// others with values that it brings, saves checkpoints, changes the learning rate.
#ifndef DIVVY_TESTS_SIM_BESIDE_H_
#define DIVVY_TESTS_SIM_BESIDE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/program_site.h"
#include "tests/sim/sim_cluster.h"

namespace divvy::sim {

// Lives through all lives of the program. Not thread-safe, as the simulation is not.
class Beside {
 public:
  // REQUIRES: both outlive it.
  Beside(const SimConfig& config, ProgramSite& site) : config_(config), site_(site) {}

  // Another life of the program begins: nothing is under way.
  void BeginLife(int life);
  // A round of steps begins: calls are made in its first seconds.
  void Start();
  // Calls `then` when no call is under way. REQUIRES: the round's steps have ended.
  void WhenDone(std::function<void()> then);
  // Whether a round is under way, so that the program may make calls.
  bool open() const { return open_; }

  // The calls, made now. REQUIRES: open().
  void CreateWithValues();
  void CreateHuge();
  void AssignCells();

 private:
  void Begin(std::function<void()> call);
  void End();
  void CallSomething();
  void Read();
  void Add();
  void Save();
  void SetScale();
  std::function<void()> Ending() {
    return [this] { End(); };
  }
  // `body`, in this life of the program only.
  template <typename Body>
  auto Mine(Body body) {
    return [alive = site_.Alive(), body](auto&&... args) {
      if (alive()) body(std::forward<decltype(args)>(args)...);
    };
  }

  const SimConfig& config_;
  ProgramSite& site_;
  int life_ = 0, next_variable_ = 0;
  int under_way_ = 0;
  bool open_ = false;
  std::function<void()> then_;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_BESIDE_H_
