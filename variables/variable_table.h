// The variables of a layout, in the order of their ids.
#ifndef DIVVY_VARIABLES_VARIABLE_TABLE_H_
#define DIVVY_VARIABLES_VARIABLE_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "variables/variable_layout.h"

namespace divvy {

// A sorted list of shared, immutable items, cut into chunks. A copy shares the chunks; a change
// copies one of them and the list of chunks. So a table of n items that differs from another in one
// of them costs about n / 64 pointers, and not n items. Thread-safe as a std::vector is.
//
// `KeyOf` is a function object: a const item -> its key, which has `<`.
template <typename Item, typename KeyOf>
class SharedSortedList {
 public:
  using ItemPtr = std::shared_ptr<const Item>;
  using Chunk = std::vector<ItemPtr>;  // not empty

  size_t size() const { return size_; }
  const std::vector<std::shared_ptr<const Chunk>>& chunks() const { return chunks_; }

  // Null: no item has this key.
  template <typename Key>
  const Item* Find(const Key& key) const {
    if (chunks_.empty()) return nullptr;
    const Chunk& chunk = *chunks_[ChunkOf(key)];
    const auto found = Place(chunk, key);
    return found == chunk.end() || key < KeyOf()(**found) ? nullptr : found->get();
  }
  // Adds the item, or puts it in place of the one with its key.
  void Put(ItemPtr item) {
    const auto& key = KeyOf()(*item);
    if (chunks_.empty()) {
      chunks_.push_back(std::make_shared<const Chunk>(Chunk{std::move(item)}));
      size_ = 1;
      return;
    }
    const size_t index = ChunkOf(key);
    Chunk chunk = *chunks_[index];
    const auto place = Place(chunk, key);
    if (place != chunk.end() && !(key < KeyOf()(**place))) {
      *place = std::move(item);
    } else {
      chunk.insert(place, std::move(item));
      ++size_;
    }
    Replace(index, std::move(chunk));
  }
  // Removes the item with this key, if there is one.
  template <typename Key>
  void Erase(const Key& key) {
    if (Find(key) == nullptr) return;
    const size_t index = ChunkOf(key);
    Chunk chunk = *chunks_[index];
    chunk.erase(Place(chunk, key));
    --size_;
    Replace(index, std::move(chunk));
  }

 private:
  static constexpr size_t kMostItems = 128;

  // The chunk that has `key`, or would get it. REQUIRES: there is a chunk.
  template <typename Key>
  size_t ChunkOf(const Key& key) const {
    const auto behind = std::upper_bound(
        chunks_.begin(), chunks_.end(), key,
        [](const Key& k, const auto& chunk) { return k < KeyOf()(*chunk->front()); });
    return behind == chunks_.begin() ? 0 : static_cast<size_t>(behind - chunks_.begin()) - 1;
  }
  // The first item of the chunk whose key is not less than `key`.
  template <typename AnyChunk, typename Key>
  static auto Place(AnyChunk& chunk, const Key& key) {
    return std::lower_bound(chunk.begin(), chunk.end(), key,
                            [](const ItemPtr& item, const Key& k) { return KeyOf()(*item) < k; });
  }
  void Replace(size_t index, Chunk chunk) {
    const auto at = chunks_.begin() + static_cast<std::ptrdiff_t>(index);
    if (chunk.empty()) {
      chunks_.erase(at);
      return;
    }
    if (chunk.size() > kMostItems) {
      const auto half = chunk.begin() + kMostItems / 2;
      chunks_.insert(at + 1, std::make_shared<const Chunk>(half, chunk.end()));
      chunk.erase(half, chunk.end());
    }
    chunks_[index] = std::make_shared<const Chunk>(std::move(chunk));
  }

  std::vector<std::shared_ptr<const Chunk>> chunks_;
  size_t size_ = 0;
};

// The variables of a layout. A plain value; a copy with one other variable is cheap (bench:scale).
//
//   for (const auto& [id, variable] : table) ...
class VariableTable {
  struct IdOf {
    VariableId operator()(const VariableLayout& variable) const { return variable.id; }
  };
  struct NameOf {
    absl::string_view operator()(const VariableLayout& variable) const {
      return variable.spec.name;
    }
  };
  using ById = SharedSortedList<VariableLayout, IdOf>;

 public:
  class const_iterator {
   public:
    using Value = std::pair<VariableId, const VariableLayout&>;
    using iterator_category = std::input_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Value;
    const_iterator(const ById* list, size_t chunk) : list_(list), chunk_(chunk) {}
    Value operator*() const {
      const VariableLayout& variable = *(*list_->chunks()[chunk_])[item_];
      return {variable.id, variable};
    }
    const_iterator& operator++() {
      if (++item_ < list_->chunks()[chunk_]->size()) return *this;
      ++chunk_;
      item_ = 0;
      return *this;
    }
    friend bool operator==(const const_iterator& a, const const_iterator& b) {
      return a.chunk_ == b.chunk_ && a.item_ == b.item_;
    }
    friend bool operator!=(const const_iterator& a, const const_iterator& b) { return !(a == b); }

   private:
    const ById* list_;
    size_t chunk_, item_ = 0;
  };

  // In the order of the ids. Valid while this table lives and is not changed.
  const_iterator begin() const { return {&by_id_, 0}; }
  const_iterator end() const { return {&by_id_, by_id_.chunks().size()}; }
  size_t size() const { return by_id_.size(); }
  bool empty() const { return size() == 0; }
  // The variable with the highest id. REQUIRES: not empty.
  const VariableLayout& last() const { return *by_id_.chunks().back()->back(); }

  // Null: no such variable. Valid while a table that has it lives.
  const VariableLayout* Find(VariableId id) const { return by_id_.Find(id); }
  const VariableLayout* Find(absl::string_view name) const { return by_name_.Find(name); }

  // Adds the variable, or puts it in place of the one with its id. REQUIRES: no other variable has
  // its name.
  void Put(VariableLayout variable);
  // Removes the variable, if there is one with this id.
  void Erase(VariableId id);

 private:
  ById by_id_;
  SharedSortedList<VariableLayout, NameOf> by_name_;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_VARIABLE_TABLE_H_
