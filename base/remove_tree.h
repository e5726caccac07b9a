// Removes directories with all their contents.
#ifndef DIVVY_BASE_REMOVE_TREE_H_
#define DIVVY_BASE_REMOVE_TREE_H_

#include <string>

namespace divvy {

// Removes `name` and, if it is a directory, its contents, as far as permissions allow; errors are
// ignored. A link is removed, but not its target. Works on the machine's real files. Blocks.
void RemoveTree(const std::string& name);

}  // namespace divvy

#endif  // DIVVY_BASE_REMOVE_TREE_H_
