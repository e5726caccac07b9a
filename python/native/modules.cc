#include "python/native/modules.h"

#include <map>

namespace divvy::python {

pybind11::handle Module(const std::string& name) {
  // Guarded by the GIL. Never destroyed, because Python ends before this process does.
  static auto* const modules = new std::map<std::string, PyObject*>();
  const auto known = modules->find(name);
  if (known != modules->end()) return known->second;
  // An import may let other threads run, so another one may have been quicker.
  PyObject* const module = pybind11::module_::import(("divvy." + name).c_str()).release().ptr();
  return (*modules)[name] = module;
}

}  // namespace divvy::python
