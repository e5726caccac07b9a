#include "tests/sim/beside.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace divvy::sim {

void Beside::BeginLife(int life) {
  life_ = life;
  under_way_ = 0;
  open_ = false;
  then_ = nullptr;
}

void Beside::Start() {
  open_ = true;
  if (!config_.beside) return;
  if (config_.assign_in_steps) Begin([this] { AssignCells(), End(); });
  for (uint64_t n = site_.random().Below(5); n > 0; --n) Begin([this] { CallSomething(); });
}

// Makes the call a little later. It counts as in flight from now on.
void Beside::Begin(std::function<void()> call) {
  ++under_way_;
  const uint64_t most = site_.random().Chance(0.6) ? 50 : 3'000;
  site_.After(absl::Microseconds(static_cast<int64_t>(site_.random().Below(1'000 * most))),
              std::move(call));
}

void Beside::End() {
  if (--under_way_ > 0 || then_ == nullptr) return;
  open_ = false;
  std::exchange(then_, nullptr)();
}

void Beside::WhenDone(std::function<void()> then) {
  if (under_way_ > 0) {
    then_ = std::move(then);
    return;
  }
  open_ = false;
  then();
}

void Beside::CallSomething() {
  const uint64_t kind = site_.random().Below(100);
  if (kind < 30 && config_.cells) {
    AssignCells();
    End();
  } else if (kind < 50) {
    Add();
  } else if (kind < 70) {
    Read();
  } else if (kind < 75 && config_.tight_memory) {
    CreateHuge();
  } else if (kind < 80) {
    CreateWithValues();
    End();
  } else if (kind < 90) {
    SetScale();
  } else {
    Save();
  }
}

void Beside::AssignCells() {
  DirectWrite write;
  if (site_.random().Chance(0.3)) {
    for (int64_t cell = 0; cell < kCells; ++cell) write.cells.push_back(cell);
  } else {
    write.cells.push_back(static_cast<int64_t>(site_.random().Below(kCells)));
  }
  ++under_way_;
  site_.Write(std::move(write), Ending());
}

void Beside::Add() {
  DirectWrite write;
  write.deltas.push_back({static_cast<int>(site_.random().Below(config_.num_variables)), {}, 0});
  site_.Write(std::move(write), Ending());
}

// Checks that the values hold at least what the program saw finished.
void Beside::Read() {
  const int variable = static_cast<int>(site_.random().Below(config_.num_variables));
  const std::vector<int64_t> floor = site_.values()[variable];
  const auto check = [this, variable, floor](const absl::StatusOr<std::vector<Tensor>>& values) {
    if (site_.EndsProgram(values.status())) return;
    if (!values.ok())
      return site_.Violated("X9",
                            absl::StrCat("a read beside steps: ", values.status().ToString()));
    if (config_.changing_steps || config_.lying_ps) return End();
    const absl::Span<const int64_t> read = *(*values)[0].values<int64_t>();
    for (size_t i = 0; i < floor.size(); ++i) {
      if (read[i] < floor[i])
        site_.Violated("X9", absl::StrCat("the program read ", read[i], " although ", floor[i],
                                          " had finished (v", variable, "[", i, "])"));
    }
    End();
  };
  site_.core().Read({{absl::StrCat("v", variable), std::nullopt}}, Mine(check));
}

void Beside::CreateWithValues() {
  const std::string name = absl::StrCat("x", life_, "_", ++next_variable_);
  site_.Tell(absl::StrCat("program: creates ", name, " with values"));
  ++under_way_;
  site_.core().ExpectValues(+1);
  const VariableSpec spec{name, {kBroughtRows, kBroughtWidth}, Zeros(), {}, DType::kInt64};
  site_.core().CreateVariable(spec, std::nullopt, Mine([this, name](const absl::Status& created) {
                                if (site_.EndsProgram(created)) return;
                                if (!created.ok())
                                  return site_.Violated("create", created.ToString());
                                DirectWrite write;
                                write.brought = name;
                                site_.Write(std::move(write), [this] {
                                  site_.core().ExpectValues(-1);
                                  End();
                                });
                              }));
}

// The creation must be refused, and leave nothing behind.
void Beside::CreateHuge() {
  const VariableSpec spec{kHuge, {kTightMemory / 2, 3}, Zeros(), {}, DType::kInt64};
  site_.core().CreateVariable(
      spec, std::nullopt, Mine([this](const absl::Status& created) {
        if (site_.EndsProgram(created)) return;
        site_.Tell(absl::StrCat("program: no memory for ", kHuge, ": ", created.ToString()));
        if (!absl::IsResourceExhausted(created) || site_.core().layout()->Find(kHuge) != nullptr)
          site_.Violated("create", absl::StrCat("of a variable that no server has the memory for: ",
                                                created.ToString()));
        End();
      }));
}

void Beside::SetScale() {
  // The model of a table takes a learning rate of 1.
  const bool halves = !site_.random().Chance(0.5) && !(config_.table && config_.table_gradients);
  site_.core().SetLearningRateScale(halves ? 0.5 : 1);
  End();
}

void Beside::Save() {
  if (!config_.checkpoints) return End();
  site_.core().SaveCheckpoint(Mine([this](const absl::StatusOr<CheckpointId>& saved) {
    if (site_.EndsProgram(saved.status())) return;
    site_.Tell(absl::StrCat("program: saved: ", saved.status().ToString()));
    End();
  }));
}

}  // namespace divvy::sim
