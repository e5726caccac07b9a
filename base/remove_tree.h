// Removes directories with all that is in them.
#ifndef DIVVY_BASE_REMOVE_TREE_H_
#define DIVVY_BASE_REMOVE_TREE_H_

#include <string>

namespace divvy {

// Removes `name` of the machine's files and, if it is a directory, what is in it, as far as that
// can be. A link goes; what it leads to stays. Blocks.
void RemoveTree(const std::string& name);

}  // namespace divvy

#endif  // DIVVY_BASE_REMOVE_TREE_H_
