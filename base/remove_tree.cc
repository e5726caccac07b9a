#include "base/remove_tree.h"

#include <filesystem>
#include <system_error>

namespace divvy {

void RemoveTree(const std::string& name) {
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
}

}  // namespace divvy
