#include "strategy/warm_start.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/edit_distance.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "formats/tensor_bundle.h"
#include "kernels/halves.h"
#include "variables/first_rows.h"
#include "variables/table_keys.h"
#include "variables/table_tensors.h"

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

// Rows of float32, float16 or bfloat16, as float32.
absl::StatusOr<Tensor> FloatRowsOf(const BundleReader& reader, const std::string& name,
                                   int64_t first, int64_t count) {
  ASSIGN_OR_RETURN(Tensor rows, RowsOf(reader, name, first, count));
  if (rows.dtype() == DType::kFloat32) return rows;
  ASSIGN_OR_RETURN(Tensor floats, Tensor::Uninitialized(DType::kFloat32, rows.shape()));
  FromHalves(rows.dtype(), rows.data_as<char>(), rows.shape().num_elements(),
             floats.fresh_data<float>());
  return floats;
}

bool HoldsFloats(const BundleTensor& tensor) {
  return tensor.dtype == DType::kFloat32 || tensor.dtype == DType::kFloat16 ||
         tensor.dtype == DType::kBFloat16;
}

absl::Status NoTableValues(const VariableSpec& spec, const BundleTensor& tensor,
                           const std::string& prefix) {
  return absl::InvalidArgumentError(absl::StrCat(
      "variable \"", spec.name,
      "\" is a dynamic table, whose rows begin with float32, float16 or "
      "bfloat16, and \"",
      tensor.name, "\" in ", prefix, " is ", tensor.type,
      ": use a checkpoint that has the values in one of these dtypes, or let no name of the warm "
      "start match the table"));
}

// So many keys are read at a time, and so many are kept in memory to find a key that comes twice.
constexpr int64_t kKeysAtATime = int64_t{1} << 20, kMostKeysKept = int64_t{8} << 20;

absl::Status ForEachKey(const BundleReader& reader, const BundleTensor& keys,
                        absl::FunctionRef<void(int64_t key)> visit) {
  const int64_t all = keys.shape.dim(0);
  for (int64_t first = 0; first < all; first += kKeysAtATime) {
    ASSIGN_OR_RETURN(const Tensor some,
                     RowsOf(reader, keys.name, first, std::min(kKeysAtATime, all - first)));
    ASSIGN_OR_RETURN(const absl::Span<const int64_t> values, some.values<int64_t>());
    for (const int64_t key : values) visit(key);
  }
  return absl::OkStatus();
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

absl::Status WarmStart::Refused(const VariableSpec& spec, const BundleTensor& tensor,
                                absl::string_view declared) const {
  const std::string is = tensor.unreadable.empty() ? tensor.shape.ToString()
                                                   : absl::StrCat("(", tensor.unreadable, ")");
  return absl::InvalidArgumentError(
      absl::StrCat("variable \"", spec.name, "\" is ", declared, ", and \"", tensor.name, "\" in ",
                   prefix(), " is ", tensor.type, " ", is,
                   ": declare the variable so, or let no name of the warm start match it"));
}

// The keys of a checkpoint of Divvy rise in the order of their ranks. Keys in another order are
// read several times if they are many, each time another part of them.
absl::Status WarmStart::CheckKeysAreUnique(const BundleTensor& keys) const {
  std::optional<int64_t> last, twice;
  bool rise = true;
  RETURN_IF_ERROR(ForEachKey(*reader_, keys, [&](int64_t key) {
    const int64_t rank = KeyRank(key);
    if (last && rank <= *last) rise = false;
    if (last && rank == *last && !twice) twice = key;
    last = rank;
  }));
  if (rise) return absl::OkStatus();
  const auto parts = static_cast<uint64_t>(keys.shape.dim(0) / kMostKeysKept + 1);
  for (uint64_t part = 0; part < parts && !twice; ++part) {
    std::vector<int64_t> kept;
    RETURN_IF_ERROR(ForEachKey(*reader_, keys, [&](int64_t key) {
      if (MixKey(key) % parts == part) kept.push_back(key);
    }));
    std::sort(kept.begin(), kept.end());
    const auto found = std::adjacent_find(kept.begin(), kept.end());
    if (found != kept.end()) twice = *found;
  }
  if (!twice) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("\"", keys.name, "\" in ", prefix(), " has the key ",
                                          *twice, " twice: use another checkpoint"));
}

absl::StatusOr<VariableSpec> WarmStart::ApplyToTable(VariableSpec spec,
                                                     const std::string& name) const {
  const int64_t width = spec.shape.row_elements();
  const TableTensors tensors(name, width, std::nullopt);
  ASSIGN_OR_RETURN(const BundleTensor* const keys, FindTensor(spec.name, tensors.keys.name));
  ASSIGN_OR_RETURN(const BundleTensor* const values, FindTensor(spec.name, tensors.values.name));
  const BundleTensor* const counts = reader_->index().Find(tensors.counts.name);
  if (keys->dtype != DType::kInt64 || keys->shape.rank() != 1)
    return Refused(spec, *keys, "a dynamic table with int64 [n] keys");
  if (!HoldsFloats(*values)) return NoTableValues(spec, *values, prefix());
  if (values->shape.rank() != 2 || values->shape.dim(1) != width)
    return Refused(spec, *values, absl::StrCat("a dynamic table with rows of ", width, " values"));
  if (counts != nullptr && (counts->dtype != DType::kInt64 || counts->shape.rank() != 1))
    return Refused(spec, *counts, "a dynamic table with int64 [n] counts");
  for (const BundleTensor* const other : {values, counts}) {
    if (other == nullptr || other->shape.dim(0) == keys->shape.dim(0)) continue;
    return absl::DataLossError(
        absl::StrCat(prefix(), ": \"", keys->name, "\" has ", keys->shape.dim(0), " rows, and \"",
                     other->name, "\" has ", other->shape.dim(0), ": use another checkpoint"));
  }
  for (const BundleTensor* const tensor : {keys, values, counts})
    if (tensor != nullptr) RETURN_IF_ERROR(reader_->Verify(tensor->name));
  RETURN_IF_ERROR(CheckKeysAreUnique(*keys));
  FirstRows first;
  first.num_rows = keys->shape.dim(0);
  first.others = std::move(spec.initializer);
  first.rows = [reader = reader_, keys = keys->name, values = values->name,
                counts = counts != nullptr ? counts->name : ""](
                   int64_t begin, int64_t count) -> absl::StatusOr<FirstRows::Block> {
    FirstRows::Block block;
    ASSIGN_OR_RETURN(block.keys, RowsOf(*reader, keys, begin, count));
    ASSIGN_OR_RETURN(block.values, FloatRowsOf(*reader, values, begin, count));
    if (!counts.empty()) {
      ASSIGN_OR_RETURN(block.counts, RowsOf(*reader, counts, begin, count));
    }
    return block;
  };
  spec.initializer = AsInitializer(std::move(first));
  return spec;
}

absl::StatusOr<VariableSpec> WarmStart::Apply(VariableSpec spec) const {
  const auto* const rule = Rule(spec.name);
  if (rule == nullptr) return spec;
  const std::string name = absl::StrCat(rule->second, spec.name.substr(rule->first.size()));
  if (spec.table) return ApplyToTable(std::move(spec), name);
  ASSIGN_OR_RETURN(const BundleTensor* const tensor, FindTensor(spec.name, name));
  if (!tensor->unreadable.empty() || tensor->dtype != spec.dtype || tensor->shape != spec.shape)
    return Refused(spec, *tensor, absl::StrCat(DTypeName(spec.dtype), " ", spec.shape.ToString()));
  RETURN_IF_ERROR(reader_->Verify(tensor->name));
  spec.initializer =
      FromRows{[reader = reader_, name = tensor->name](int64_t first, int64_t count) {
        return RowsOf(*reader, name, first, count);
      }};
  return spec;
}

}  // namespace divvy
