// The name of a call, for logs and traces of tests.
#ifndef DIVVY_PROTOCOL_TESTING_REQUEST_NAME_H_
#define DIVVY_PROTOCOL_TESTING_REQUEST_NAME_H_

#include "absl/strings/string_view.h"

namespace divvy {

// "CreateShards" for a CreateShardsRequest. The compiler writes the type into the function's name
// (g++ without its namespace), so no list of requests is needed.
template <typename Request>
absl::string_view RequestName() {
  constexpr absl::string_view kBefore = "Request = ";
  absl::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find(kBefore) + kBefore.size());
  name = name.substr(0, name.find("Request"));
  return name.substr(name.rfind(':') + 1);
}

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_TESTING_REQUEST_NAME_H_
