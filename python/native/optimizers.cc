#include <pybind11/stl.h>

#include "optimizers/learning_rate.h"
#include "optimizers/optimizer.h"
#include "python/native/errors.h"
#include "python/native/options.h"

namespace divvy::python {
namespace {

using py::arg;

void DefineLearningRates(py::module_& module) {
  py::class_<ExponentialDecay>(module, "ExponentialDecay")
      .def(py::init<double, int64_t, double, bool>(), arg("initial"), arg("decay_steps"),
           arg("rate"), arg("staircase") = false);
  py::class_<InverseTimeDecay>(module, "InverseTimeDecay")
      .def(py::init<double, int64_t, double, bool>(), arg("initial"), arg("decay_steps"),
           arg("rate"), arg("staircase") = false);
  py::class_<PolynomialDecay>(module, "PolynomialDecay")
      .def(py::init<double, int64_t, double, double>(), arg("initial"), arg("decay_steps"),
           arg("final_rate") = 1e-4, arg("power") = 1.0);
  py::class_<CosineDecay>(module, "CosineDecay")
      .def(py::init<double, int64_t, double, int64_t, std::optional<double>>(), arg("initial"),
           arg("decay_steps"), arg("final_fraction") = 0.0, arg("warmup_steps") = 0,
           arg("warmup_target") = py::none());
  py::class_<PiecewiseConstant>(module, "PiecewiseConstant")
      .def(py::init<std::vector<int64_t>, std::vector<double>>(), arg("boundaries"), arg("values"));
}

}  // namespace

void DefineOptimizers(py::module_& module) {
  DefineLearningRates(module);
  using Rate = LearningRate;
  py::class_<Sgd>(module, "Sgd").def(py::init<Rate>(), arg("learning_rate"));
  py::class_<Momentum>(module, "Momentum")
      .def(py::init<Rate, float, bool>(), arg("learning_rate"), arg("momentum") = 0.9f,
           arg("nesterov") = false);
  py::class_<Adagrad>(module, "Adagrad")
      .def(py::init<Rate, float, float>(), arg("learning_rate"), arg("initial_accumulator") = 0.1f,
           arg("epsilon") = 1e-7f);
  py::class_<RowwiseAdagrad>(module, "RowwiseAdagrad")
      .def(py::init<Rate, float, float>(), arg("learning_rate"), arg("initial_accumulator") = 0.1f,
           arg("epsilon") = 1e-7f);
  py::class_<Adam>(module, "Adam")
      .def(py::init<Rate, float, float, float, float, bool>(), arg("learning_rate"),
           arg("beta1") = 0.9f, arg("beta2") = 0.999f, arg("epsilon") = 1e-7f,
           arg("weight_decay") = 0.0f, arg("amsgrad") = false);
  py::class_<RmsProp>(module, "RmsProp")
      .def(py::init<Rate, float, float, float, bool>(), arg("learning_rate"), arg("rho") = 0.9f,
           arg("momentum") = 0.0f, arg("epsilon") = 1e-7f, arg("centered") = false);
  py::class_<Ftrl>(module, "Ftrl")
      .def(py::init<Rate, float, float, float, float, float, float>(), arg("learning_rate"),
           arg("l1") = 0.0f, arg("l2") = 0.0f, arg("learning_rate_power") = -0.5f,
           arg("initial_accumulator") = 0.1f, arg("beta") = 0.0f, arg("l2_shrinkage") = 0.0f);
  py::class_<GroupFtrl>(module, "GroupFtrl")
      .def(py::init<Rate, float, float, float, float, float, float, float>(), arg("learning_rate"),
           arg("l21") = 0.0f, arg("l1") = 0.0f, arg("l2") = 0.0f,
           arg("learning_rate_power") = -0.5f, arg("initial_accumulator") = 0.1f,
           arg("beta") = 0.0f, arg("l2_shrinkage") = 0.0f);
}

}  // namespace divvy::python
