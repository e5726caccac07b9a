#include "tensor/nest.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {

struct Nest::Node {
  std::variant<absl::Status, Tensor, IndexedSlices, std::string, PerWorkerHandle, List, Dict> value;
};

namespace {

// Keys of `dict` for a message: "image", "label".
std::string KeyList(const Nest::Dict& dict) {
  if (dict.empty()) return "nothing";
  return absl::StrJoin(dict, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, "\"", entry.first, "\"");
  });
}

// Walks `leaves` in the order of Flatten.
absl::Status Collect(const Nest& nest, std::vector<Tensor>& leaves) {
  return nest
      .MapLeaves([&leaves](const Nest& leaf) -> absl::StatusOr<Nest> {
        ASSIGN_OR_RETURN(Tensor tensor, leaf.tensor());
        leaves.push_back(std::move(tensor));
        return leaf;
      })
      .status();
}

}  // namespace

Nest::Nest() : Nest(List{}) {}
Nest::Nest(Tensor tensor) : node_(std::make_shared<Node>(Node{std::move(tensor)})) {}
Nest::Nest(IndexedSlices slices) : node_(std::make_shared<Node>(Node{std::move(slices)})) {}
Nest::Nest(std::string text) : node_(std::make_shared<Node>(Node{std::move(text)})) {}
Nest::Nest(PerWorkerHandle handle) : node_(std::make_shared<Node>(Node{handle})) {}
Nest::Nest(List list) : node_(std::make_shared<Node>(Node{std::move(list)})) {}
Nest::Nest(Dict dict) : node_(std::make_shared<Node>(Node{std::move(dict)})) {}
Nest::Nest(std::initializer_list<std::pair<const std::string, Nest>> dict) : Nest(Dict(dict)) {}
Nest::Nest(SparseIds ids) : Nest() {
  Dict dict{{"ids", Nest(std::move(ids.ids))}, {"row_splits", Nest(std::move(ids.row_splits))}};
  if (ids.weights) dict.emplace("weights", Nest(*std::move(ids.weights)));
  *this = Nest(std::move(dict));
}
Nest Nest::Failed(absl::Status reason) {
  return Nest(std::make_shared<Node>(Node{std::move(reason)}));
}

Nest::Kind Nest::kind() const { return static_cast<Kind>(node_->value.index()); }

const Nest::List* Nest::list() const { return std::get_if<List>(&node_->value); }
const Nest::Dict* Nest::dict() const { return std::get_if<Dict>(&node_->value); }

size_t Nest::size() const {
  if (list() != nullptr) return list()->size();
  return dict() != nullptr ? dict()->size() : 0;
}

absl::Status Nest::status() const {
  const auto* failure = std::get_if<absl::Status>(&node_->value);
  return failure == nullptr ? absl::OkStatus() : *failure;
}

absl::Status Nest::KindError(absl::string_view wanted) const {
  RETURN_IF_ERROR(status());
  return absl::InvalidArgumentError(absl::StrCat("wanted ", wanted, ", not ", ToString()));
}

Nest Nest::operator[](absl::string_view key) const {
  if (dict() == nullptr) return Failed(KindError(absl::StrCat("a dict with \"", key, "\"")));
  const auto found = dict()->find(std::string(key));
  if (found == dict()->end())
    return Failed(absl::InvalidArgumentError(
        absl::StrCat("no \"", key, "\" here; there is ", KeyList(*dict()))));
  return found->second;
}

Nest Nest::operator[](size_t index) const {
  if (list() == nullptr) return Failed(KindError(absl::StrCat("a list with element ", index)));
  if (index >= list()->size())
    return Failed(absl::InvalidArgumentError(
        absl::StrCat("no element ", index, " in a list of ", list()->size())));
  return (*list())[index];
}

Nest Nest::operator[](int index) const {
  if (list() == nullptr) return Failed(KindError(absl::StrCat("a list with element ", index)));
  if (index < 0)
    return Failed(absl::InvalidArgumentError(
        absl::StrCat("element ", index, " of a list: elements count from 0")));
  return (*this)[static_cast<size_t>(index)];
}

absl::StatusOr<Tensor> Nest::tensor() const {
  if (const auto* tensor = std::get_if<Tensor>(&node_->value)) return *tensor;
  return KindError("a tensor");
}

absl::StatusOr<IndexedSlices> Nest::indexed_slices() const {
  if (const auto* slices = std::get_if<IndexedSlices>(&node_->value)) return *slices;
  return KindError("indexed slices");
}

absl::StatusOr<std::string> Nest::text() const {
  if (const auto* text = std::get_if<std::string>(&node_->value)) return *text;
  return KindError("a text");
}

absl::StatusOr<PerWorkerHandle> Nest::handle() const {
  if (const auto* handle = std::get_if<PerWorkerHandle>(&node_->value)) return *handle;
  return KindError("a per-worker handle");
}

absl::StatusOr<SparseIds> Nest::sparse_ids() const {
  if (dict() == nullptr)
    return KindError("sparse ids, a dict of \"ids\", \"row_splits\" and perhaps \"weights\"");
  SparseIds sparse;
  ASSIGN_OR_RETURN(sparse.ids, (*this)["ids"].tensor());
  ASSIGN_OR_RETURN(sparse.row_splits, (*this)["row_splits"].tensor());
  if (dict()->count("weights") > 0) {
    ASSIGN_OR_RETURN(sparse.weights, (*this)["weights"].tensor());
  }
  RETURN_IF_ERROR(Validate(sparse));
  return sparse;
}

absl::StatusOr<Nest> Nest::MapLeaves(
    const std::function<absl::StatusOr<Nest>(const Nest& leaf)>& fn) const {
  RETURN_IF_ERROR(status());
  if (const List* children = list()) {
    List mapped;
    for (const Nest& child : *children) {
      ASSIGN_OR_RETURN(Nest result, child.MapLeaves(fn));
      mapped.push_back(std::move(result));
    }
    return Nest(std::move(mapped));
  }
  if (const Dict* children = dict()) {
    Dict mapped;
    for (const auto& [key, child] : *children) {
      ASSIGN_OR_RETURN(Nest result, child.MapLeaves(fn));
      mapped.emplace(key, std::move(result));
    }
    return Nest(std::move(mapped));
  }
  return fn(*this);
}

absl::StatusOr<std::vector<Tensor>> Nest::Flatten() const {
  std::vector<Tensor> leaves;
  RETURN_IF_ERROR(Collect(*this, leaves));
  return leaves;
}

absl::StatusOr<Nest> Nest::PackAs(absl::Span<const Tensor> leaves) const {
  size_t next = 0;
  ASSIGN_OR_RETURN(Nest packed, MapLeaves([&](const Nest&) -> absl::StatusOr<Nest> {
                     ++next;
                     return next <= leaves.size() ? Nest(leaves[next - 1]) : Nest();
                   }));
  if (next != leaves.size())
    return absl::InvalidArgumentError(
        absl::StrCat("PackAs: ", leaves.size(), " tensors for a structure with ", next, " leaves"));
  return packed;
}

int64_t Nest::size_bytes() const {
  int64_t bytes = 32;
  switch (kind()) {
    case Kind::kTensor: return bytes + std::get<Tensor>(node_->value).size_bytes();
    case Kind::kIndexedSlices: {
      const auto& slices = std::get<IndexedSlices>(node_->value);
      return bytes + slices.ids.size_bytes() + slices.rows.size_bytes();
    }
    case Kind::kText:
      return bytes + static_cast<int64_t>(std::get<std::string>(node_->value).size());
    case Kind::kFailed:
    case Kind::kHandle: return bytes;
    case Kind::kList:
      for (const Nest& child : *list()) bytes += child.size_bytes();
      return bytes;
    case Kind::kDict:
      for (const auto& [key, child] : *dict())
        bytes += static_cast<int64_t>(key.size()) + child.size_bytes();
      return bytes;
  }
  return bytes;
}

std::string Nest::ToString() const {
  switch (kind()) {
    case Kind::kFailed: return absl::StrCat("(failed: ", status().message(), ")");
    case Kind::kTensor: return std::get<Tensor>(node_->value).ToString();
    case Kind::kIndexedSlices: {
      const IndexedSlices& slices = std::get<IndexedSlices>(node_->value);
      return absl::StrCat("slices of ", slices.num_rows, " rows: ", slices.rows.ToString());
    }
    case Kind::kText: return absl::StrCat("\"", std::get<std::string>(node_->value), "\"");
    case Kind::kHandle:
      return absl::StrCat("per-worker handle ", std::get<PerWorkerHandle>(node_->value).id);
    case Kind::kList:
      return absl::StrCat("[",
                          absl::StrJoin(*list(), ", ",
                                        [](std::string* out, const Nest& child) {
                                          absl::StrAppend(out, child.ToString());
                                        }),
                          "]");
    case Kind::kDict:
      return absl::StrCat("{",
                          absl::StrJoin(*dict(), ", ",
                                        [](std::string* out, const auto& entry) {
                                          absl::StrAppend(out, "\"", entry.first,
                                                          "\": ", entry.second.ToString());
                                        }),
                          "}");
  }
  return "";
}

bool BitwiseEqual(const Nest& a, const Nest& b) {
  if (a.kind() != b.kind() || a.size() != b.size()) return false;
  switch (a.kind()) {
    case Nest::Kind::kFailed: return a.status() == b.status();
    case Nest::Kind::kTensor: return BitwiseEqual(*a.tensor(), *b.tensor());
    case Nest::Kind::kIndexedSlices: {
      const IndexedSlices x = *a.indexed_slices(), y = *b.indexed_slices();
      return x.num_rows == y.num_rows && BitwiseEqual(x.ids, y.ids) && BitwiseEqual(x.rows, y.rows);
    }
    case Nest::Kind::kText: return *a.text() == *b.text();
    case Nest::Kind::kHandle: return a.handle()->id == b.handle()->id;
    case Nest::Kind::kList:
      return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(),
                        [](const Nest& x, const Nest& y) { return BitwiseEqual(x, y); });
    case Nest::Kind::kDict:
      return std::equal(a.dict()->begin(), a.dict()->end(), b.dict()->begin(),
                        [](const auto& x, const auto& y) {
                          return x.first == y.first && BitwiseEqual(x.second, y.second);
                        });
  }
  return false;
}

namespace internal {

absl::Status WantElements(const Nest& nest, size_t elements) {
  RETURN_IF_ERROR(nest.status());
  if (nest.list() != nullptr && nest.size() == elements) return absl::OkStatus();
  // A caller that accepts a list of any length passes the list's own size as `elements`.
  const bool any = nest.size() == elements;
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a list", any ? "" : absl::StrCat(" of ", elements), ", not ", nest.ToString()));
}

absl::Status OutOfRangeScalar(const Nest& nest) {
  return absl::InvalidArgumentError(
      absl::StrCat("a number that does not fit the wanted type: ", nest.ToString()));
}

}  // namespace internal
}  // namespace divvy
