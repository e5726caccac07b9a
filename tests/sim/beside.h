// The calls that a program makes while its steps are in flight: it reads, writes and assigns
// variables, creates variables with initial values of its own, saves checkpoints and changes the
// learning rate.
#ifndef DIVVY_TESTS_SIM_BESIDE_H_
#define DIVVY_TESTS_SIM_BESIDE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/program_site.h"
#include "tests/sim/sim_cluster.h"

namespace divvy::sim {

// Lives as long as the cluster, over all lives of the program. Not thread-safe: the simulation has
// one thread.
class Beside {
 public:
  // REQUIRES: `config` and `site` outlive this object.
  Beside(const SimConfig& config, ProgramSite& site) : config_(config), site_(site) {}

  // Another life of the program begins: no call is in flight.
  void BeginLife(int life);
  // Starts a round of steps. The calls of the round are made within its first seconds.
  void Start();
  // Calls `then` when no call is in flight. REQUIRES: the round's steps have ended.
  void WhenDone(std::function<void()> then);
  // Whether a round is running, so that the program may make calls.
  bool open() const { return open_; }

  // Make one call at once. REQUIRES: open().
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
  // Wraps `body`: it runs only while this life of the program goes on.
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
