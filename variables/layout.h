// Where the rows of every variable live.
#ifndef DIVVY_VARIABLES_LAYOUT_H_
#define DIVVY_VARIABLES_LAYOUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "variables/variable_layout.h"
#include "variables/variable_table.h"

namespace divvy {

// All variables of a job. Immutable, so thread-safe: each change makes the next version. Shared by
// pointer: code that works with a version holds that pointer.
//
//   layout = layout->With(variable);
//   const VariableLayout* const found = layout->Find(name);
//   if (found == nullptr) return layout->UnknownVariable(name);
class Layout {
 public:
  static std::shared_ptr<const Layout> Empty();
  // Makes a layout from a version and variables that another process sent. REQUIRES: each key is
  // its variable's id, and names differ.
  static std::shared_ptr<const Layout> Received(uint64_t version,
                                                std::map<VariableId, VariableLayout> variables);

  uint64_t version() const { return version_; }
  // The sum of the hashes of its variables, of everything that two processes must agree on. Equal
  // layouts have equal hashes in every process. A sum, so that a change of one variable costs the
  // hash of that variable.
  uint64_t hash() const { return hash_; }
  // The hash that Divvy gave this layout before protocol 2, checkpoint format 2 and schema 4 of the
  // store. Takes time for each variable.
  uint64_t FormerHash() const;
  const VariableTable& variables() const { return variables_; }
  // The approximate size of the layout in one message: the sum of VariableLayout::message_bytes.
  int64_t message_bytes() const { return message_bytes_; }
  // Null if there is no such variable. Valid while this layout lives.
  const VariableLayout* Find(absl::string_view name) const { return variables_.Find(name); }
  const VariableLayout* Find(VariableId id) const { return variables_.Find(id); }
  // A NotFound error that lists the names nearest to `name`.
  absl::Status UnknownVariable(absl::string_view name) const;

  // The next version, with `variable` added, or replaced if its id exists.
  std::shared_ptr<const Layout> With(VariableLayout variable) const;

 private:
  void Put(VariableLayout variable);
  void Erase(VariableId id);

  uint64_t version_ = 0;
  uint64_t hash_ = 0;
  int64_t message_bytes_ = 0;
  VariableTable variables_;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_LAYOUT_H_
