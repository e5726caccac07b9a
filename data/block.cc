#include "data/block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "data/stacking.h"

namespace divvy::data_internal {
namespace {

bool IsOnCpu(const Tensor& tensor) { return tensor.device() == Device{}; }

// Whether all refs have the layout of the first, and it is known.
bool AreAlike(absl::Span<const RowRef> refs) {
  const BlockLayout* const layout = refs[0].block->layout().get();
  return layout != nullptr && std::all_of(refs.begin(), refs.end(), [layout](const RowRef& ref) {
           return ref.block->layout().get() == layout;
         });
}

// Whether a row takes little beside what a block takes by itself.
bool HasSmallRows(const Block& block) {
  constexpr size_t kSmallBytes = 4096;
  if (block.layout() == nullptr) return false;
  size_t bytes = 0;
  for (const BlockLayout::Leaf& leaf : block.layout()->leaves()) bytes += leaf.row_bytes;
  return bytes <= kSmallBytes;
}

// Copies rows of a size that the compiler knows: one load and one store each.
template <size_t kBytes>
void GatherFixed(absl::Span<const RowRef> refs, size_t leaf, char* to) {
  for (const RowRef& ref : refs) {
    std::memcpy(to, ref.block->columns()[leaf].values + static_cast<size_t>(ref.row) * kBytes,
                kBytes);
    to += kBytes;
  }
}

void GatherRows(absl::Span<const RowRef> refs, size_t leaf, size_t row_bytes, char* to) {
  switch (row_bytes) {
    case 0: return;
    case 1: return GatherFixed<1>(refs, leaf, to);
    case 2: return GatherFixed<2>(refs, leaf, to);
    case 4: return GatherFixed<4>(refs, leaf, to);
    case 8: return GatherFixed<8>(refs, leaf, to);
    default: break;
  }
  for (const RowRef& ref : refs) {
    std::memcpy(to, ref.block->columns()[leaf].values + static_cast<size_t>(ref.row) * row_bytes,
                row_bytes);
    to += row_bytes;
  }
}

absl::StatusOr<Nest> GatherTensor(absl::Span<const RowRef> refs, size_t leaf,
                                  const BlockLayout::Leaf& spec) {
  std::vector<int64_t> dims = {static_cast<int64_t>(refs.size())};
  dims.insert(dims.end(), spec.row_shape.dims().begin(), spec.row_shape.dims().end());
  ASSIGN_OR_RETURN(Tensor tensor,
                   Tensor::Uninitialized(spec.dtype, Shape(absl::MakeConstSpan(dims))));
  GatherRows(refs, leaf, spec.row_bytes, tensor.fresh_data<char>());
  return Nest(std::move(tensor));
}

absl::StatusOr<Nest> GatherSparse(absl::Span<const RowRef> refs, size_t leaf,
                                  const BlockLayout::Leaf& spec) {
  const int64_t rows = static_cast<int64_t>(refs.size());
  ASSIGN_OR_RETURN(Tensor splits, Tensor::Uninitialized(DType::kInt64, {rows + 1}));
  int64_t* end = splits.fresh_data<int64_t>();
  *end = 0;
  for (const RowRef& ref : refs) {
    const int64_t* of_row = ref.block->columns()[leaf].splits + ref.row;
    end[1] = end[0] + of_row[1] - of_row[0];
    ++end;
  }
  SparseIds batch;
  ASSIGN_OR_RETURN(batch.ids, Tensor::Uninitialized(DType::kInt64, {*end}));
  if (spec.has_weights) {
    ASSIGN_OR_RETURN(batch.weights, Tensor::Uninitialized(DType::kFloat32, {*end}));
  }
  int64_t* ids = batch.ids.fresh_data<int64_t>();
  float* weights = batch.weights ? batch.weights->fresh_data<float>() : nullptr;
  for (const RowRef& ref : refs) {
    const Block::Column& column = ref.block->columns()[leaf];
    const int64_t first = column.splits[ref.row];
    const size_t count = static_cast<size_t>(column.splits[ref.row + 1] - first);
    if (count == 0) continue;
    std::memcpy(ids, column.values + static_cast<size_t>(first) * sizeof(int64_t),
                count * sizeof(int64_t));
    ids += count;
    if (weights == nullptr) continue;
    std::memcpy(weights, column.weights + first, count * sizeof(float));
    weights += count;
  }
  batch.row_splits = std::move(splits);
  return Nest(std::move(batch));
}

// REQUIRES: AreAlike(refs)
absl::StatusOr<Nest> Gather(absl::Span<const RowRef> refs) {
  const BlockLayout& layout = *refs[0].block->layout();
  std::vector<Nest> leaves;
  leaves.reserve(layout.leaves().size());
  for (size_t leaf = 0; leaf < layout.leaves().size(); ++leaf) {
    const BlockLayout::Leaf& spec = layout.leaves()[leaf];
    ASSIGN_OR_RETURN(Nest gathered, spec.is_sparse ? GatherSparse(refs, leaf, spec)
                                                   : GatherTensor(refs, leaf, spec));
    leaves.push_back(std::move(gathered));
  }
  return layout.Assemble(std::move(leaves));
}

// The columns of `rows`, in the order of the layout's leaves. REQUIRES: BlockLayout::Of(rows) is
// not null.
void CollectColumns(const Nest& rows, std::vector<Block::Column>& columns) {
  if (rows.kind() == Nest::Kind::kTensor) {
    Block::Column& column = columns.emplace_back();
    column.tensor = *rows.tensor();
    column.values = column.tensor.data_as<char>();
  } else if (IsSparseIds(rows)) {
    const Nest::Dict& dict = *rows.dict();
    Block::Column& column = columns.emplace_back();
    column.tensor = *dict.at("ids").tensor();
    column.values = column.tensor.data_as<char>();
    column.splits = dict.at("row_splits").tensor()->data_as<int64_t>();
    const auto weights = dict.find("weights");
    if (weights == dict.end()) return;
    column.weights_tensor = *weights->second.tensor();
    column.weights = column.weights_tensor.data_as<float>();
  } else if (rows.dict() != nullptr) {
    for (const auto& entry : *rows.dict()) CollectColumns(entry.second, columns);
  } else {
    for (const Nest& child : *rows.list()) CollectColumns(child, columns);
  }
}

// Row `row` of a leaf; shares its buffer.
absl::StatusOr<Nest> LeafOfRow(const Block::Column& column, const BlockLayout::Leaf& spec,
                               int64_t row) {
  if (!spec.is_sparse) {
    ASSIGN_OR_RETURN(const Tensor slice, column.tensor.Rows(row, row + 1));
    ASSIGN_OR_RETURN(Tensor element, slice.Reshape(spec.row_shape));
    return Nest(std::move(element));
  }
  const int64_t begin = column.splits[row], end = column.splits[row + 1];
  ASSIGN_OR_RETURN(Tensor values, column.tensor.Rows(begin, end));
  SparseIds ids = OneRow(std::move(values));
  if (spec.has_weights) {
    ASSIGN_OR_RETURN(ids.weights, column.weights_tensor.Rows(begin, end));
  }
  return Nest(std::move(ids));
}

}  // namespace

// ---- BlockLayout

bool BlockLayout::Describe(const Nest& rows, Node& node, std::vector<Leaf>& leaves) {
  if (IsSparseIds(rows)) {
    const absl::StatusOr<SparseIds> ids = rows.sparse_ids();
    if (!ids.ok() || (ids->weights && !IsOnCpu(*ids->weights))) return false;
    Leaf leaf;
    leaf.is_sparse = true;
    leaf.has_weights = ids->weights.has_value();
    leaves.push_back(leaf);
    return true;
  }
  if (rows.kind() == Nest::Kind::kTensor) {
    const Tensor tensor = *rows.tensor();
    if (!IsOnCpu(tensor) || tensor.shape().rank() == 0) return false;
    Leaf leaf;
    leaf.dtype = tensor.dtype();
    leaf.row_shape = Shape(tensor.shape().dims().subspan(1));
    leaf.row_bytes = static_cast<size_t>(leaf.row_shape.num_elements() * DTypeSize(leaf.dtype));
    leaves.push_back(std::move(leaf));
    return true;
  }
  if (rows.dict() != nullptr) {
    node.kind = Node::Kind::kDict;
    for (const auto& [key, child] : *rows.dict()) {
      node.keys.push_back(key);
      if (!Describe(child, node.children.emplace_back(), leaves)) return false;
    }
    return true;
  }
  if (rows.list() == nullptr) return false;
  node.kind = Node::Kind::kList;
  return std::all_of(rows.list()->begin(), rows.list()->end(), [&](const Nest& child) {
    return Describe(child, node.children.emplace_back(), leaves);
  });
}

std::shared_ptr<const BlockLayout> BlockLayout::Of(const Nest& rows) {
  auto layout = std::make_shared<BlockLayout>();
  return Describe(rows, layout->root_, layout->leaves_) ? layout : nullptr;
}

Nest BlockLayout::Assemble(const Node& node, std::vector<Nest>& leaves, size_t& next) {
  if (node.kind == Node::Kind::kLeaf) return std::move(leaves[next++]);
  if (node.kind == Node::Kind::kList) {
    Nest::List list;
    list.reserve(node.children.size());
    for (const Node& child : node.children) list.push_back(Assemble(child, leaves, next));
    return Nest(std::move(list));
  }
  Nest::Dict dict;
  for (size_t i = 0; i < node.children.size(); ++i)
    dict.emplace_hint(dict.end(), node.keys[i], Assemble(node.children[i], leaves, next));
  return Nest(std::move(dict));
}

Nest BlockLayout::Assemble(std::vector<Nest> leaves) const {
  size_t next = 0;
  return Assemble(root_, leaves, next);
}

bool BlockLayout::Same(const Node& a, const Node& b) {
  return a.kind == b.kind && a.keys == b.keys &&
         std::equal(a.children.begin(), a.children.end(), b.children.begin(), b.children.end(),
                    Same);
}

bool operator==(const BlockLayout& a, const BlockLayout& b) {
  const auto same_leaf = [](const BlockLayout::Leaf& x, const BlockLayout::Leaf& y) {
    return x.is_sparse == y.is_sparse && x.has_weights == y.has_weights && x.dtype == y.dtype &&
           x.row_shape == y.row_shape;
  };
  return BlockLayout::Same(a.root_, b.root_) &&
         std::equal(a.leaves_.begin(), a.leaves_.end(), b.leaves_.begin(), b.leaves_.end(),
                    same_leaf);
}

// ---- Block

std::shared_ptr<const Block> Block::OfRows(Nest rows, int64_t count,
                                           const std::shared_ptr<const BlockLayout>& like) {
  std::shared_ptr<Block> block(new Block());
  block->layout_ = BlockLayout::Of(rows);
  if (block->layout_ != nullptr && like != nullptr && *block->layout_ == *like)
    block->layout_ = like;
  if (block->layout_ != nullptr) CollectColumns(rows, block->columns_);
  block->rows_ = std::move(rows);
  block->count_ = count;
  return block;
}

std::shared_ptr<const Block> Block::OfElement(Nest element) {
  std::shared_ptr<Block> block(new Block());
  block->rows_ = std::move(element);
  block->is_element_ = true;
  block->count_ = 1;
  return block;
}

absl::StatusOr<Nest> Block::Row(int64_t row) const {
  if (is_element_) return rows_;
  if (layout_ == nullptr) return RowOf(rows_, row);
  std::vector<Nest> leaves;
  leaves.reserve(columns_.size());
  for (size_t leaf = 0; leaf < columns_.size(); ++leaf) {
    ASSIGN_OR_RETURN(Nest of_row, LeafOfRow(columns_[leaf], layout_->leaves()[leaf], row));
    leaves.push_back(std::move(of_row));
  }
  return layout_->Assemble(std::move(leaves));
}

// ---- RowList

void RowList::Add(const std::shared_ptr<const Block>& block, int64_t first, int64_t count,
                  int64_t kept_rows) {
  const size_t had = refs_.size();
  refs_.resize(had + static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    refs_[had + static_cast<size_t>(i)] = {block.get(), first + i};
  if (!owners_.empty() && owners_.back() == block) return;
  owners_.push_back(block);
  kept_rows_ += kept_rows;
}

void RowList::Add(const std::shared_ptr<const void>& owner, int64_t kept_rows,
                  absl::Span<const RowRef> refs) {
  refs_.insert(refs_.end(), refs.begin(), refs.end());
  if (!owners_.empty() && owners_.back() == owner) return;
  owners_.push_back(owner);
  kept_rows_ += kept_rows;
}

void RowList::Clear() {
  refs_.clear();
  owners_.clear();
  kept_rows_ = tidy_kept_rows_ = 0;
  tidy_refs_ = tidy_owners_ = 0;
}

absl::Status RowList::Tidy(Tail tail) {
  constexpr size_t kLong = 1024;       // rows
  constexpr size_t kRowsOfOwner = 16;  // fewer on average: the blocks take more than their rows
  const absl::Span<const RowRef> added = refs().subspan(tidy_refs_);
  if (added.empty() || (tail == Tail::kIfLong && added.size() < kLong)) return absl::OkStatus();
  const bool is_sparse = kept_rows_ - tidy_kept_rows_ > 2 * static_cast<int64_t>(added.size());
  const bool is_cut_small = (owners_.size() - tidy_owners_) * kRowsOfOwner > added.size() &&
                            HasSmallRows(*added[0].block);
  if ((is_sparse || is_cut_small) && added.size() > 1 && AreAlike(added)) {
    const std::shared_ptr<const BlockLayout> layout = added[0].block->layout();
    ASSIGN_OR_RETURN(Nest rows, Gather(added));
    const auto block = Block::OfRows(std::move(rows), static_cast<int64_t>(added.size()), layout);
    refs_.resize(tidy_refs_);
    owners_.resize(tidy_owners_);
    kept_rows_ = tidy_kept_rows_;
    Add(block, 0, block->count());
  }
  tidy_refs_ = refs_.size();
  tidy_owners_ = owners_.size();
  tidy_kept_rows_ = kept_rows_;
  return absl::OkStatus();
}

absl::StatusOr<Nest> StackRefs(absl::Span<const RowRef> elements) {
  if (AreAlike(elements)) return Gather(elements);
  std::vector<Nest> rows;
  rows.reserve(elements.size());
  for (const RowRef& ref : elements) {
    ASSIGN_OR_RETURN(Nest row, ref.block->Row(ref.row));
    rows.push_back(std::move(row));
  }
  return StackRows(rows);
}

}  // namespace divvy::data_internal
