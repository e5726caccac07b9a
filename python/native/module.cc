// The extension module divvy._divvy. The package divvy wraps all of it: nothing here is public.
#include <pybind11/pybind11.h>

#include "python/native/coordinator.h"
#include "python/native/datasets.h"
#include "python/native/errors.h"
#include "python/native/forks.h"
#include "python/native/load.h"
#include "python/native/metrics.h"
#include "python/native/options.h"
#include "python/native/program.h"
#include "python/native/steps.h"
#include "python/native/values.h"
#include "python/native/variables.h"

namespace divvy::python {

PYBIND11_MODULE(_divvy, module) {
  LeaveJobInForks();
  DefineErrors(module);
  DefineMetrics(module);
  DefineValues(module);
  DefineOptimizers(module);
  DefineInitializers(module);
  DefineSpecs(module);
  DefineVariables(module);
  DefineSteps(module);
  DefineDatasets(module);
  DefineCoordinator(module);
  DefineProgram(module);
  DefineLoad(module);
}

}  // namespace divvy::python
