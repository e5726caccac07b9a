#include "python/native/load.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "formats/safetensors.h"
#include "formats/tensor_bundle.h"
#include "python/native/errors.h"
#include "python/native/values.h"
#include "strategy/warm_start.h"

namespace divvy::python {
namespace {

using Tensors = std::map<std::string, Tensor>;

// Adds the tensors of one file, but for those that arrays cannot hold.
absl::Status AddSafetensors(const std::string& file, Tensors& tensors) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                   SafetensorsReader::Open(FileSystem::Real(), file));
  for (const SafetensorsTensor& tensor : reader->header().tensors) {
    if (!tensor.unreadable.empty()) continue;
    ASSIGN_OR_RETURN(tensors[tensor.name], reader->ReadTensor(tensor.name));
  }
  return absl::OkStatus();
}

absl::Status AddShardedSafetensors(const std::string& index, Tensors& tensors) {
  ASSIGN_OR_RETURN(const std::string json, FileSystem::Real().ReadFile(index));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ParseSafetensorsIndex(json));
  const std::string folder = index.substr(0, index.rfind('/') + 1);
  for (const std::string& file : files)
    RETURN_IF_ERROR(AddSafetensors(absl::StrCat(folder, file), tensors));
  return absl::OkStatus();
}

absl::Status AddBundle(const std::string& path, Tensors& tensors) {
  ASSIGN_OR_RETURN(const WarmStart newest, WarmStart::Open(path));
  ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader,
                   BundleReader::Open(FileSystem::Real(), newest.prefix()));
  for (const BundleTensor& tensor : reader->index().tensors) {
    const bool is_array = tensor.dtype && DTypeSize(*tensor.dtype) > 0 &&
                          *tensor.dtype <= DType::kFloat64 && tensor.unreadable.empty();
    if (!is_array || absl::StartsWith(tensor.name, kBundleOwnNames)) continue;
    ASSIGN_OR_RETURN(tensors[tensor.name], reader->ReadTensor(tensor.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Load(const std::string& path) {
  Tensors tensors;
  const std::string index = absl::StrCat(path, ".index.json");
  if (absl::EndsWith(path, ".index.json")) {
    RETURN_IF_ERROR(AddShardedSafetensors(path, tensors));
  } else if (!absl::EndsWith(path, kSafetensorsEnd)) {
    RETURN_IF_ERROR(AddBundle(path, tensors));
  } else if (FileSystem::Real().Stat(index).ok()) {
    RETURN_IF_ERROR(AddShardedSafetensors(index, tensors));
  } else {
    RETURN_IF_ERROR(AddSafetensors(path, tensors));
  }
  return tensors;
}

}  // namespace

void DefineLoad(py::module_& module) {
  module.def("load", [](const std::string& path) {
    py::dict arrays;
    const Tensors tensors = ValueOf(WithoutGil([&] { return Load(path); }));
    for (const auto& [name, tensor] : tensors) arrays[py::str(name)] = ArrayOf(tensor);
    return arrays;
  });
}

}  // namespace divvy::python
