#include "python/native/metrics.h"

#include "absl/strings/str_cat.h"
#include "python/native/errors.h"
#include "python/native/values.h"
#include "strategy/metrics.h"

namespace divvy::python {
namespace {

Metric MeanOfValues(const py::object& values) {
  const Tensor tensor = TensorOf(values, "Mean: the values", Passing::kBorrowed);
  return ValueOf(MeanOf(tensor));
}

Metric OfTwo(const char* name, const py::object& a, const py::object& b,
             absl::StatusOr<Metric> (*compute)(const Var&, const Var&)) {
  const Tensor first = TensorOf(a, absl::StrCat(name, ": the first argument"), Passing::kBorrowed);
  const Tensor second =
      TensorOf(b, absl::StrCat(name, ": the second argument"), Passing::kBorrowed);
  return ValueOf(compute(Var(first), Var(second)));
}

}  // namespace

void DefineMetrics(py::module_& module) {
  py::class_<Metric>(module, "Metric",
                     "A statistic that steps return and that Divvy merges over steps and workers. "
                     "Mean, Auc, Rmse, Accuracy and RecallAt make one.")
      .def_property_readonly("value", &Metric::value,
                             "The statistic, a float; 0 if it is undefined.")
      .def_property_readonly("count", &Metric::count, "The number of examples or elements.")
      .def(
          "merge",
          [](const Metric& self, const Metric& other) {
            Metric merged = self;
            Check(merged.Merge(other));
            return merged;
          },
          py::arg("other"), "The statistic of both. ValueError: another kind of metric.")
      .def("__float__", &Metric::value)
      .def("__repr__", [](const Metric& self) {
        return absl::StrCat("Metric(value=", self.value(), ", count=", self.count(), ")");
      });
  module.def("mean_of", &MeanOfValues);
  module.def("mean", &Metric::Mean);
  module.def("auc", [](const py::object& logits, const py::object& labels) {
    return OfTwo("Auc", logits, labels, &Auc);
  });
  module.def("rmse", [](const py::object& predictions, const py::object& labels) {
    return OfTwo("Rmse", predictions, labels, &Rmse);
  });
  module.def("accuracy", [](const py::object& logits, const py::object& labels) {
    return OfTwo("Accuracy", logits, labels, &Accuracy);
  });
  module.def("recall_at", [](int k, const py::object& scores) {
    return ValueOf(RecallAt(k, Var(TensorOf(scores, "RecallAt: the scores"))));
  });
}

}  // namespace divvy::python
