// Blocks: elements of a dataset as rows of columns, so that an element needs no tensors of its own
// on its way from a file to a batch. Internal to data/.
//
// Sources make blocks of up to a few thousand rows. Transforms that do not look into elements pass
// on references to rows. Batch gathers the rows into new tensors, one copy for each leaf.
#ifndef DIVVY_DATA_BLOCK_H_
#define DIVVY_DATA_BLOCK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/nest.h"

namespace divvy::data_internal {

// The structure of the elements of a block, and the dtype and shape of each leaf. Immutable.
class BlockLayout {
 public:
  // A tensor, or SparseIds.
  struct Leaf {
    bool is_sparse = false, has_weights = false;
    // Of a tensor.
    DType dtype = DType::kFloat32;
    Shape row_shape;
    size_t row_bytes = 0;
  };

  // The layout of `rows`. Null: a leaf is not on the CPU, or is neither a tensor with rows nor
  // SparseIds.
  static std::shared_ptr<const BlockLayout> Of(const Nest& rows);

  // In the order of a depth-first walk, the keys of a dict in order.
  const std::vector<Leaf>& leaves() const { return leaves_; }
  // The Nest with this structure and these leaves. REQUIRES: as many as leaves().
  Nest Assemble(std::vector<Nest> leaves) const;
  friend bool operator==(const BlockLayout& a, const BlockLayout& b);

 private:
  struct Node {
    enum class Kind { kLeaf, kDict, kList } kind = Kind::kLeaf;
    std::vector<std::string> keys;  // of a dict
    std::vector<Node> children;
  };
  static bool Describe(const Nest& rows, Node& node, std::vector<Leaf>& leaves);
  static Nest Assemble(const Node& node, std::vector<Nest>& leaves, size_t& next);
  static bool Same(const Node& a, const Node& b);

  Node root_;
  std::vector<Leaf> leaves_;
};

// Rows in columns, or one element by itself. Immutable, thread-safe.
class Block {
 public:
  // Element i is RowOf(rows, i) (data/stacking.h). Shares the layout `like` if it is equal to its
  // own: only rows of one layout can be gathered. REQUIRES: NumRows(rows) is `count`.
  static std::shared_ptr<const Block> OfRows(Nest rows, int64_t count,
                                             const std::shared_ptr<const BlockLayout>& like);
  // One row: `element`.
  static std::shared_ptr<const Block> OfElement(Nest element);

  int64_t count() const { return count_; }
  // REQUIRES: 0 <= row < count()
  absl::StatusOr<Nest> Row(int64_t row) const;
  // Null: its rows cannot be gathered.
  const std::shared_ptr<const BlockLayout>& layout() const { return layout_; }

  // A leaf, and its memory.
  struct Column {
    const char* values = nullptr;     // of a tensor; of SparseIds the ids
    const int64_t* splits = nullptr;  // of SparseIds
    const float* weights = nullptr;   // of SparseIds with weights
    Tensor tensor;                    // or the ids
    Tensor weights_tensor;            // of SparseIds with weights
  };
  // One for each leaf of the layout.
  const std::vector<Column>& columns() const { return columns_; }

 private:
  Block() = default;

  Nest rows_;  // or the element
  bool is_element_ = false;
  int64_t count_ = 0;
  std::shared_ptr<const BlockLayout> layout_;
  std::vector<Column> columns_;
};

// An element: a row of a block that something else keeps alive.
struct RowRef {
  const Block* block = nullptr;
  int64_t row = 0;
};

// References to elements, with what keeps their blocks alive. Not thread-safe.
class RowList {
 public:
  bool empty() const { return refs_.empty(); }
  size_t size() const { return refs_.size(); }
  absl::Span<const RowRef> refs() const { return refs_; }
  RowRef* mutable_refs() { return refs_.data(); }
  // The number of rows whose memory this list keeps.
  int64_t kept_rows() const { return kept_rows_; }

  // Adds rows [first, first + count) of `block`, and so keeps `kept_rows` rows: all of the block,
  // or 0 if the dataset keeps the block anyway.
  void Add(const std::shared_ptr<const Block>& block, int64_t first, int64_t count,
           int64_t kept_rows);
  void Add(const std::shared_ptr<const Block>& block, int64_t first, int64_t count) {
    Add(block, first, count, block->count());
  }
  // Adds `refs`, which live as long as `owner`, which keeps `kept_rows` rows.
  void Add(const std::shared_ptr<const void>& owner, int64_t kept_rows,
           absl::Span<const RowRef> refs);
  void Clear();

  // Whether to look at a tail of any length, or only once it has many rows.
  enum class Tail { kIfLong, kAny };
  // Copies what was added since the last call into a block of its own, if that frees memory:
  // because the list holds few rows of large blocks, or many small blocks. So the memory of a list
  // is bounded by a small multiple of its rows.
  absl::Status Tidy(Tail tail);

 private:
  std::vector<RowRef> refs_;
  std::vector<std::shared_ptr<const void>> owners_;
  int64_t kept_rows_ = 0;
  // What was there after the last Tidy.
  size_t tidy_refs_ = 0, tidy_owners_ = 0;
  int64_t tidy_kept_rows_ = 0;
};

// One value whose row i is element i of `elements`, as StackRows makes it. Copies. REQUIRES: at
// least one element. Errors: as StackRows.
absl::StatusOr<Nest> StackRefs(absl::Span<const RowRef> elements);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_BLOCK_H_
