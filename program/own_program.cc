#include "program/own_program.h"

#include "base/build_id.h"
#include "program/program_flags.h"
#include "strategy/program.h"
#include "strategy/step.h"

namespace divvy {

ProgramDescription DescribeOwnProgram() {
  ProgramDescription own;
  for (const RegisteredStep* step : StepRegistry::All())
    own.steps.emplace(step->name, step->signature);
  own.flags = ProgramFlagNames();
  if (const auto program = FindProgram(); program.ok())
    own.build = BuildIdAt(reinterpret_cast<const void*>((*program)->train));
  return own;
}

}  // namespace divvy
