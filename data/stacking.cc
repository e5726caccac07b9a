#include "data/stacking.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

std::string Join(absl::string_view path, absl::string_view key) {
  return path.empty() ? std::string(key) : absl::StrCat(path, "/", key);
}

// The name of a leaf, for messages.
std::string Leaf(absl::string_view path) {
  return path.empty() ? "the element" : absl::StrCat("\"", path, "\"");
}

// Calls `visit(path, leaf)` for each leaf in key order; SparseIds count as one leaf. Stops at the
// first error.
template <typename Visit>
absl::Status ForEachLeaf(const std::string& path, const Nest& nest, const Visit& visit) {
  RETURN_IF_ERROR(nest.status());
  if (IsSparseIds(nest)) return visit(path, nest);
  if (nest.dict() != nullptr) {
    for (const auto& [key, child] : *nest.dict())
      RETURN_IF_ERROR(ForEachLeaf(Join(path, key), child, visit));
    return absl::OkStatus();
  }
  if (nest.list() == nullptr) return visit(path, nest);
  for (size_t i = 0; i < nest.size(); ++i)
    RETURN_IF_ERROR(ForEachLeaf(Join(path, absl::StrCat(i)), (*nest.list())[i], visit));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LeafRows(const std::string& path, const Nest& leaf) {
  if (IsSparseIds(leaf)) {
    ASSIGN_OR_RETURN(const SparseIds ids, leaf.sparse_ids());
    RETURN_IF_ERROR(Validate(ids));
    return ids.row_splits.shape().dim(0) - 1;
  }
  if (leaf.kind() != Nest::Kind::kTensor)
    return absl::InvalidArgumentError(
        absl::StrCat(Leaf(path), " has no rows: it is ", leaf.ToString()));
  ASSIGN_OR_RETURN(const Tensor tensor, leaf.tensor());
  if (tensor.shape().rank() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat(Leaf(path), " has no rows: it is ", tensor.ToString()));
  return tensor.shape().dim(0);
}

// Rows [begin, end) of SparseIds.
absl::StatusOr<Nest> SparseRows(const SparseIds& ids, int64_t begin, int64_t end) {
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> splits, ids.row_splits.values<int64_t>());
  std::vector<int64_t> rebased;
  for (int64_t row = begin; row <= end; ++row) rebased.push_back(splits[row] - splits[begin]);
  SparseIds rows;
  rows.row_splits = Tensor::Vector<int64_t>(rebased);
  ASSIGN_OR_RETURN(rows.ids, ids.ids.Rows(splits[begin], splits[end]));
  if (ids.weights) {
    ASSIGN_OR_RETURN(rows.weights, ids.weights->Rows(splits[begin], splits[end]));
  }
  return Nest(std::move(rows));
}

absl::StatusOr<Nest> TensorRow(const Tensor& tensor, int64_t row) {
  ASSIGN_OR_RETURN(const Tensor slice, tensor.Rows(row, row + 1));
  ASSIGN_OR_RETURN(Tensor element, slice.Reshape(Shape(tensor.shape().dims().subspan(1))));
  return Nest(std::move(element));
}

// Returns `rows` with its leaves replaced by `of_sparse(SparseIds)` and `of_tensor(Tensor)`.
template <typename OfSparse, typename OfTensor>
absl::StatusOr<Nest> MapRows(const Nest& rows, const OfSparse& of_sparse,
                             const OfTensor& of_tensor) {
  if (IsSparseIds(rows)) {
    ASSIGN_OR_RETURN(const SparseIds ids, rows.sparse_ids());
    return of_sparse(ids);
  }
  if (rows.dict() != nullptr) {
    Nest::Dict dict;
    for (const auto& [key, child] : *rows.dict()) {
      ASSIGN_OR_RETURN(Nest child_rows, MapRows(child, of_sparse, of_tensor));
      dict.emplace_hint(dict.end(), key, std::move(child_rows));
    }
    return Nest(std::move(dict));
  }
  if (rows.list() != nullptr) {
    Nest::List list;
    for (const Nest& child : *rows.list()) {
      ASSIGN_OR_RETURN(Nest child_rows, MapRows(child, of_sparse, of_tensor));
      list.push_back(std::move(child_rows));
    }
    return Nest(std::move(list));
  }
  ASSIGN_OR_RETURN(const Tensor tensor, rows.tensor());
  return of_tensor(tensor);
}

// ---- stacking

// Joins single rows along a new axis 0, or batches along their existing axis 0.
enum class Joining { kRows, kBatches };

absl::Status Differ(const std::string& path, size_t index, const std::string& is,
                    const std::string& first) {
  return absl::InvalidArgumentError(absl::StrCat("the elements of a batch must be alike, but ",
                                                 Leaf(path), " is ", is, " in its element ", index,
                                                 " and ", first, " in its first"));
}

absl::Status CheckSame(Joining joining, const std::string& path, size_t index, const Tensor& tensor,
                       const Tensor& first) {
  const bool but_rows =
      joining == Joining::kBatches && tensor.shape().rank() > 0 && first.shape().rank() > 0;
  const Shape shape = but_rows ? tensor.shape().WithRows(first.shape().dim(0)) : tensor.shape();
  if (tensor.dtype() == first.dtype() && shape == first.shape()) return absl::OkStatus();
  return Differ(path, index, tensor.ToString(), first.ToString());
}

absl::Status CheckOnCpu(const std::string& path, const Tensor& tensor) {
  if (tensor.device() == Device{}) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Leaf(path), " is on ", tensor.device().ToString(),
                                                 ": elements of datasets live on the CPU"));
}

// Joins tensors of equal row shape along axis 0; `shape` is that of the result.
absl::StatusOr<Tensor> Concatenate(absl::Span<const Tensor> parts, DType dtype,
                                   const Shape& shape) {
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(dtype, shape));
  char* to = result.fresh_data<char>();
  for (const Tensor& part : parts) {
    if (part.size_bytes() > 0) std::memcpy(to, part.data(), static_cast<size_t>(part.size_bytes()));
    to += part.size_bytes();
  }
  return result;
}

Shape JoinedShape(Joining joining, absl::Span<const Tensor> parts) {
  const Shape& first = parts[0].shape();
  if (joining == Joining::kBatches && first.rank() > 0) {
    int64_t rows = 0;
    for (const Tensor& part : parts) rows += part.shape().dim(0);
    return first.WithRows(rows);
  }
  std::vector<int64_t> dims = {static_cast<int64_t>(parts.size())};
  dims.insert(dims.end(), first.dims().begin(), first.dims().end());
  return Shape(absl::MakeConstSpan(dims));
}

absl::StatusOr<Nest> StackTensors(Joining joining, const std::string& path,
                                  absl::Span<const Nest> elements) {
  std::vector<Tensor> tensors;
  tensors.reserve(elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].kind() != Nest::Kind::kTensor)
      return Differ(path, i, elements[i].ToString(), elements[0].ToString());
    ASSIGN_OR_RETURN(Tensor tensor, elements[i].tensor());
    tensors.push_back(std::move(tensor));
    RETURN_IF_ERROR(CheckOnCpu(path, tensors[i]));
    RETURN_IF_ERROR(CheckSame(joining, path, i, tensors[i], tensors[0]));
  }
  ASSIGN_OR_RETURN(Tensor stacked,
                   Concatenate(tensors, tensors[0].dtype(), JoinedShape(joining, tensors)));
  return Nest(std::move(stacked));
}

// One part of a batch that is being joined.
absl::StatusOr<SparseIds> SparsePart(Joining joining, const std::string& path, size_t index,
                                     const Nest& element, const Nest& first) {
  if (!IsSparseIds(element) || element.size() != first.size())
    return Differ(path, index, element.ToString(), first.ToString());
  ASSIGN_OR_RETURN(SparseIds ids, element.sparse_ids());
  RETURN_IF_ERROR(CheckOnCpu(path, ids.ids));
  RETURN_IF_ERROR(Validate(ids));
  const int64_t rows = ids.row_splits.shape().dim(0) - 1;
  if (rows == 1 || joining == Joining::kBatches) return ids;
  return absl::InvalidArgumentError(absl::StrCat(Leaf(path), " has ", rows,
                                                 " rows of sparse ids in element ", index,
                                                 " of a batch: batches are made of single rows"));
}

absl::StatusOr<Nest> StackSparse(Joining joining, const std::string& path,
                                 absl::Span<const Nest> elements) {
  std::vector<Tensor> ids, weights;
  std::vector<int64_t> splits = {0};
  for (size_t i = 0; i < elements.size(); ++i) {
    ASSIGN_OR_RETURN(SparseIds part, SparsePart(joining, path, i, elements[i], elements[0]));
    ASSIGN_OR_RETURN(const absl::Span<const int64_t> ends, part.row_splits.values<int64_t>());
    const int64_t before = splits.back();
    for (const int64_t end : ends.subspan(1)) splits.push_back(before + end);
    ids.push_back(std::move(part.ids));
    if (part.weights) weights.push_back(*std::move(part.weights));
  }
  SparseIds batch;
  batch.row_splits = Tensor::Vector<int64_t>(splits);
  ASSIGN_OR_RETURN(batch.ids, Concatenate(ids, DType::kInt64, {splits.back()}));
  if (!weights.empty()) {
    ASSIGN_OR_RETURN(batch.weights, Concatenate(weights, DType::kFloat32, {splits.back()}));
  }
  return Nest(std::move(batch));
}

absl::StatusOr<Nest> Stack(Joining joining, const std::string& path,
                           absl::Span<const Nest> elements);

// Stacks the children that `child_of` returns for the elements.
template <typename ChildOf>
absl::StatusOr<Nest> StackChildren(Joining joining, const std::string& path,
                                   absl::Span<const Nest> elements, const ChildOf& child_of) {
  std::vector<Nest> children;
  children.reserve(elements.size());
  for (const Nest& element : elements) children.push_back(child_of(element));
  return Stack(joining, path, children);
}

absl::StatusOr<Nest> StackDicts(Joining joining, const std::string& path,
                                absl::Span<const Nest> elements) {
  const auto same_keys = [&first = *elements[0].dict()](const Nest& element) {
    const Nest::Dict* dict = element.dict();
    return dict != nullptr &&
           std::equal(dict->begin(), dict->end(), first.begin(), first.end(),
                      [](const auto& a, const auto& b) { return a.first == b.first; });
  };
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!same_keys(elements[i]))
      return Differ(path, i, elements[i].ToString(), elements[0].ToString());
  }
  Nest::Dict stacked;
  for (const auto& entry : *elements[0].dict()) {
    const std::string& key = entry.first;
    ASSIGN_OR_RETURN(Nest child,
                     StackChildren(joining, Join(path, key), elements, [&key](const Nest& element) {
                       return element.dict()->find(key)->second;
                     }));
    stacked.emplace(key, std::move(child));
  }
  return Nest(std::move(stacked));
}

absl::StatusOr<Nest> StackLists(Joining joining, const std::string& path,
                                absl::Span<const Nest> elements) {
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].list() == nullptr || elements[i].size() != elements[0].size())
      return Differ(path, i, elements[i].ToString(), elements[0].ToString());
  }
  Nest::List stacked;
  for (size_t at = 0; at < elements[0].size(); ++at) {
    ASSIGN_OR_RETURN(Nest child,
                     StackChildren(joining, Join(path, absl::StrCat(at)), elements,
                                   [at](const Nest& element) { return (*element.list())[at]; }));
    stacked.push_back(std::move(child));
  }
  return Nest(std::move(stacked));
}

absl::StatusOr<Nest> Stack(Joining joining, const std::string& path,
                           absl::Span<const Nest> elements) {
  for (const Nest& element : elements) RETURN_IF_ERROR(element.status());
  const Nest& first = elements[0];
  if (IsSparseIds(first)) return StackSparse(joining, path, elements);
  switch (first.kind()) {
    case Nest::Kind::kTensor: return StackTensors(joining, path, elements);
    case Nest::Kind::kDict: return StackDicts(joining, path, elements);
    case Nest::Kind::kList: return StackLists(joining, path, elements);
    case Nest::Kind::kText:
      return absl::InvalidArgumentError(
          absl::StrCat(Leaf(path), " is text, which tensors do not hold: it is ", first.ToString(),
                       ". Make keys of it (CsvColumn::Text, ExampleFeature::Text, Map with "
                       "TextsToKeys; in Python "
                       "divvy.Column with a salt, or divvy.text_key in a map)"));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(Leaf(path), " cannot be batched: it is ", first.ToString(),
                       ", and only tensors and sparse ids can; Map it to one"));
  }
}

}  // namespace

bool IsSparseIds(const Nest& nest) {
  const Nest::Dict* dict = nest.dict();
  if (dict == nullptr || dict->count("ids") == 0 || dict->count("row_splits") == 0) return false;
  if (dict->size() != 2 + dict->count("weights")) return false;
  return std::all_of(dict->begin(), dict->end(),
                     [](const auto& entry) { return entry.second.kind() == Nest::Kind::kTensor; });
}

SparseIds OneRow(Tensor ids) {
  SparseIds row;
  row.row_splits = Tensor::Vector<int64_t>({0, ids.shape().num_elements()});
  row.ids = std::move(ids);
  return row;
}

absl::StatusOr<int64_t> NumRows(const Nest& rows) {
  std::optional<int64_t> count;
  std::string counted;
  RETURN_IF_ERROR(
      ForEachLeaf("", rows, [&](const std::string& path, const Nest& leaf) -> absl::Status {
        ASSIGN_OR_RETURN(const int64_t leaf_rows, LeafRows(path, leaf));
        if (count.value_or(leaf_rows) != leaf_rows) {
          return absl::InvalidArgumentError(absl::StrCat(Leaf(counted), " has ", *count, " rows, ",
                                                         Leaf(path), " has ", leaf_rows,
                                                         ": all must have the same number"));
        }
        if (!count) counted = path;
        count = leaf_rows;
        return absl::OkStatus();
      }));
  if (!count) return absl::InvalidArgumentError("there are no rows, because there is no tensor");
  return *count;
}

absl::StatusOr<Nest> RowOf(const Nest& rows, int64_t row) {
  return MapRows(
      rows, [row](const SparseIds& ids) { return SparseRows(ids, row, row + 1); },
      [row](const Tensor& tensor) { return TensorRow(tensor, row); });
}

absl::StatusOr<Nest> RowsOf(const Nest& rows, int64_t begin, int64_t end) {
  return MapRows(
      rows, [=](const SparseIds& ids) { return SparseRows(ids, begin, end); },
      [=](const Tensor& tensor) -> absl::StatusOr<Nest> {
        ASSIGN_OR_RETURN(Tensor some, tensor.Rows(begin, end));
        return Nest(std::move(some));
      });
}

absl::StatusOr<Nest> StackRows(absl::Span<const Nest> elements) {
  return Stack(Joining::kRows, "", elements);
}

absl::StatusOr<Nest> JoinBatches(absl::Span<const Nest> batches) {
  return Stack(Joining::kBatches, "", batches);
}

absl::StatusOr<std::map<std::string, TensorSpec>> SpecOf(const Nest& element) {
  std::map<std::string, TensorSpec> specs;
  RETURN_IF_ERROR(
      ForEachLeaf("", element, [&specs](const std::string& path, const Nest& leaf) -> absl::Status {
        if (IsSparseIds(leaf)) {
          for (const auto& entry : *leaf.dict()) {
            ASSIGN_OR_RETURN(const Tensor tensor, entry.second.tensor());
            specs[Join(path, entry.first)] = {
                tensor.dtype(), entry.first == "row_splits" ? tensor.shape() : Shape{-1}};
          }
          return absl::OkStatus();
        }
        if (leaf.kind() == Nest::Kind::kText) {
          specs[path] = {DType::kString, {}};
          return absl::OkStatus();
        }
        ASSIGN_OR_RETURN(const Tensor tensor, leaf.tensor());
        specs[path] = {tensor.dtype(), tensor.shape()};
        return absl::OkStatus();
      }));
  return specs;
}

std::map<std::string, TensorSpec> BatchSpec(const std::map<std::string, TensorSpec>& element,
                                            int64_t rows) {
  // SparseIds do not gain an axis: Batch joins their ids and weights, and continues the row splits.
  const auto is_sparse = [&element](absl::string_view path) {
    for (absl::string_view name : {"ids", "weights", "row_splits"}) {
      absl::string_view group = path;
      if (!absl::ConsumeSuffix(&group, name) || !(group.empty() || absl::EndsWith(group, "/")))
        continue;
      const auto splits = element.find(absl::StrCat(group, "row_splits"));
      const auto ids = element.find(absl::StrCat(group, "ids"));
      if (splits != element.end() && ids != element.end() && ids->second.shape == Shape{-1})
        return true;
    }
    return false;
  };
  std::map<std::string, TensorSpec> batch;
  for (const auto& [path, spec] : element) {
    std::vector<int64_t> dims = {rows};
    dims.insert(dims.end(), spec.shape.dims().begin(), spec.shape.dims().end());
    Shape shape{absl::MakeConstSpan(dims)};
    if (is_sparse(path))
      shape = absl::EndsWith(path, "row_splits") ? Shape{rows < 0 ? -1 : rows + 1} : Shape{-1};
    batch[path] = {spec.dtype, shape};
  }
  return batch;
}

}  // namespace divvy
