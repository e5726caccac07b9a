// Converts exceptions of a program's functions to errors. This is the only place with `try`.
#ifndef DIVVY_BASE_GUARDED_H_
#define DIVVY_BASE_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace divvy::internal {

// Returns fn(). An exception becomes Unknown with what(), and std::bad_alloc becomes
// ResourceExhausted. A program's function may use libraries that throw, and their exceptions must
// not end the process. `Result` is a Status or StatusOr; `what` names the function in the message.
template <typename Result, typename Function>
Result Guarded(absl::string_view what, Function&& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, " ran out of memory"));
  } catch (const std::exception& error) {
    return absl::UnknownError(absl::StrCat(what, " threw: ", error.what()));
  } catch (...) {
    return absl::UnknownError(absl::StrCat(what, " threw something that is not a std::exception"));
  }
}

}  // namespace divvy::internal

#endif  // DIVVY_BASE_GUARDED_H_
