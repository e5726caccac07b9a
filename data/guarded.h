// Where exceptions of a program's functions become errors: the one place with `try`.
#ifndef DIVVY_DATA_GUARDED_H_
#define DIVVY_DATA_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace divvy::internal {

// fn(), or Unknown with what() if it throws (ResourceExhausted where there was no memory): a
// program's function may use libraries that do, and its error must not end the process. `Result` is
// a Status or StatusOr; `what` names the function in the message.
template <typename Result, typename Function>
Result Guarded(absl::string_view what, Function&& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, " found no memory for what it wanted"));
  } catch (const std::exception& error) {
    return absl::UnknownError(absl::StrCat(what, " threw: ", error.what()));
  } catch (...) {
    return absl::UnknownError(absl::StrCat(what, " threw something that is no std::exception"));
  }
}

}  // namespace divvy::internal

#endif  // DIVVY_DATA_GUARDED_H_
