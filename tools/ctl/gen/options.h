// What `divvyctl gen` was asked for.
#ifndef DIVVY_TOOLS_CTL_GEN_OPTIONS_H_
#define DIVVY_TOOLS_CTL_GEN_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

namespace divvy::gen {

// What the flags say. flags.inc has the fields that are not here; absent: the flag was not given.
struct GenOptions {
  int ps = 2, workers = 2;
  bool evaluator = false;
  bool monitoring = false;
  // The program, then its arguments.
  std::vector<std::string> command;
#define DIVVY_GEN_FLAG(type, name, field, kinds, meaning) std::optional<type> field;
#include "tools/ctl/gen/flags.inc"
};

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_OPTIONS_H_
