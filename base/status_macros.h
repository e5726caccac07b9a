// Early return on errors, for absl::Status and absl::StatusOr.
//
//   RETURN_IF_ERROR(file.Close());
//   ASSIGN_OR_RETURN(Tensor rows, variable.Read());
//   // Several may share a line, as in a macro of your own.
//   ASSIGN_OR_RETURN(const int a, First()); ASSIGN_OR_RETURN(const int b, Second());
//   // An expression with a comma outside parentheses needs parentheses around it.
//   ASSIGN_OR_RETURN(auto decoded, (NestCodec<std::tuple<int, bool>>::Decode(nest)));
//   // ASSIGN_OR_RETURN expands to several statements, so a branch needs braces.
//   if (wanted) {
//     ASSIGN_OR_RETURN(rows, variable.Read());
//   }
//
// For functions that return a Status or a StatusOr of any type. The expression is evaluated once.
// The status is returned unchanged, with its payloads.
//
// The short names are defined only where no other header has defined them. The names with DIVVY_
// are always defined.
#ifndef DIVVY_BASE_STATUS_MACROS_H_
#define DIVVY_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace divvy::internal {
inline absl::Status ToStatus(absl::Status status) { return status; }
template <typename T>
absl::Status ToStatus(const absl::StatusOr<T>& value) {
  return value.status();
}
}  // namespace divvy::internal

// Returns the status of `expression` (a Status or a StatusOr) from the calling function if it is
// not OK.
#define DIVVY_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                   \
    if (auto divvy_status = ::divvy::internal::ToStatus(expression); !divvy_status.ok()) \
      return divvy_status;                                                               \
  } while (false)

#define DIVVY_STATUS_CONCAT_INNER(a, b) a##b
#define DIVVY_STATUS_CONCAT(a, b) DIVVY_STATUS_CONCAT_INNER(a, b)
#define DIVVY_ASSIGN_OR_RETURN_INNER(result, lhs, rexpr) \
  auto result = (rexpr);                                 \
  if (!result.ok()) return std::move(result).status();   \
  lhs = *std::move(result)

// Assigns the value of the StatusOr `rexpr` to `lhs`, which may be a declaration, or returns its
// status.
#define DIVVY_ASSIGN_OR_RETURN(lhs, rexpr) \
  DIVVY_ASSIGN_OR_RETURN_INNER(DIVVY_STATUS_CONCAT(divvy_result_, __COUNTER__), lhs, rexpr)

#ifndef RETURN_IF_ERROR
// DIVVY_RETURN_IF_ERROR by its short name.
#define RETURN_IF_ERROR(expression) DIVVY_RETURN_IF_ERROR(expression)
#endif
#ifndef ASSIGN_OR_RETURN
// DIVVY_ASSIGN_OR_RETURN by its short name.
#define ASSIGN_OR_RETURN(...) DIVVY_ASSIGN_OR_RETURN(__VA_ARGS__)
#endif

#endif  // DIVVY_BASE_STATUS_MACROS_H_
