#include "strategy/warm_start.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/edit_distance.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "formats/tensor_bundle.h"

namespace divvy {
namespace {

constexpr char kObjectGraphEnding[] = "/.ATTRIBUTES/VARIABLE_VALUE";

// The newest checkpoint according to the directory's text file "checkpoint": model_checkpoint_path:
// "ckpt-3-17".
absl::StatusOr<std::string> NewestIn(FileSystem& files, const std::string& directory) {
  const std::string name = absl::StrCat(directory, "/checkpoint");
  const absl::StatusOr<std::string> text = files.ReadFile(name);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        directory,
        " has no file \"checkpoint\" that names the newest checkpoint: give the prefix of a "
        "checkpoint, such as ",
        directory, "/ckpt-3-17"));
  }
  RETURN_IF_ERROR(text.status());
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::ConsumePrefix(&line, "model_checkpoint_path: \"") ||
        !absl::ConsumeSuffix(&line, "\""))
      continue;
    return absl::StartsWith(line, "/") ? std::string(line) : absl::StrCat(directory, "/", line);
  }
  return absl::DataLossError(absl::StrCat(
      name, " has no line model_checkpoint_path: \"...\": give the prefix of a checkpoint"));
}

absl::StatusOr<std::string> PrefixOf(FileSystem& files, const std::string& path) {
  const absl::StatusOr<FileInfo> info = files.Stat(path);
  return info.ok() && info->is_directory ? NewestIn(files, path)
                                         : absl::StatusOr<std::string>(path);
}

absl::StatusOr<Tensor> RowsOf(const BundleReader& reader, const std::string& name, int64_t first,
                              int64_t count) {
  const BundleTensor& tensor = *reader.index().Find(name);
  const Shape shape = tensor.shape.rank() > 0 ? tensor.shape.WithRows(count) : tensor.shape;
  ASSIGN_OR_RETURN(Tensor rows, Tensor::Uninitialized(*tensor.dtype, shape));
  const auto out = absl::MakeSpan(rows.fresh_data<char>(), static_cast<size_t>(rows.size_bytes()));
  RETURN_IF_ERROR(reader.ReadVerifiedRows(name, first, first + count, out));
  return rows;
}

}  // namespace

WarmStart::WarmStart(std::shared_ptr<const BundleReader> reader,
                     std::map<std::string, std::string> names)
    : reader_(std::move(reader)), names_(std::move(names)) {}

const std::string& WarmStart::prefix() const { return reader_->prefix(); }

absl::StatusOr<WarmStart> WarmStart::Open(const std::string& path,
                                          std::map<std::string, std::string> names) {
  return Open(path, std::move(names), FileSystem::Real());
}

absl::StatusOr<WarmStart> WarmStart::Open(const std::string& path,
                                          std::map<std::string, std::string> names,
                                          FileSystem& files) {
  ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(files, path));
  ASSIGN_OR_RETURN(std::unique_ptr<BundleReader> reader, BundleReader::Open(files, prefix));
  return WarmStart(std::move(reader), std::move(names));
}

// The rule with the longest prefix of the variable's name. Null: none matches.
const std::pair<const std::string, std::string>* WarmStart::Rule(absl::string_view variable) const {
  const std::pair<const std::string, std::string>* longest = nullptr;
  for (const auto& rule : names_) {
    if (absl::StartsWith(variable, rule.first) &&
        (longest == nullptr || rule.first.size() > longest->first.size()))
      longest = &rule;
  }
  return longest;
}

absl::StatusOr<const BundleTensor*> WarmStart::FindTensor(const std::string& variable,
                                                          const std::string& name) const {
  const BundleIndex& index = reader_->index();
  if (const BundleTensor* const found = index.Find(name)) return found;
  if (const BundleTensor* const found = index.Find(absl::StrCat(name, kObjectGraphEnding)))
    return found;
  std::pair<size_t, absl::string_view> nearest = {std::string::npos, "none"};
  for (const BundleTensor& tensor : index.tensors) {
    const absl::string_view known = absl::StripSuffix(tensor.name, kObjectGraphEnding);
    if (!absl::StartsWith(known, kBundleOwnNames))
      nearest = std::min(nearest, {EditDistance(name, known), known});
  }
  return absl::NotFoundError(absl::StrCat(
      "variable \"", variable, "\" is to start from \"", name, "\", which ", prefix(),
      " does not have; the most similar tensor: \"", nearest.second,
      "\". Correct the names of the warm start, or let none of them match this variable"));
}

absl::StatusOr<VariableSpec> WarmStart::Apply(VariableSpec spec) const {
  const auto* const rule = Rule(spec.name);
  if (rule == nullptr) return spec;
  ASSIGN_OR_RETURN(
      const BundleTensor* const tensor,
      FindTensor(spec.name, absl::StrCat(rule->second, spec.name.substr(rule->first.size()))));
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", spec.name, "\" is ", DTypeName(spec.dtype), " ",
                     spec.shape.ToString(), ", and \"", tensor->name, "\" in ", prefix(), " is ",
                     why, ": declare the variable so, or let no name of the warm start match it"));
  };
  if (!tensor->unreadable.empty())
    return refused(absl::StrCat(tensor->type, " (", tensor->unreadable, ")"));
  if (tensor->dtype != spec.dtype || tensor->shape != spec.shape)
    return refused(absl::StrCat(tensor->type, " ", tensor->shape.ToString()));
  RETURN_IF_ERROR(reader_->Verify(tensor->name));
  spec.initializer =
      FromRows{[reader = reader_, name = tensor->name](int64_t first, int64_t count) {
        return RowsOf(*reader, name, first, count);
      }};
  return spec;
}

}  // namespace divvy
