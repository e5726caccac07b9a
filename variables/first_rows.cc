#include "variables/first_rows.h"

#include <utility>
#include <variant>

#include "absl/status/status.h"

namespace divvy {
namespace {

// Keeps the rows in FromRows' function, which a variable that is no table would call.
struct OfATable {
  FirstRows rows;
  absl::StatusOr<Tensor> operator()(int64_t, int64_t) const {
    return absl::InvalidArgumentError(
        "the rows of a dynamic table are no initial values of a variable: give it another "
        "initializer");
  }
};

}  // namespace

Initializer AsInitializer(FirstRows rows) { return FromRows{OfATable{std::move(rows)}}; }

const FirstRows* FirstRowsOf(const Initializer& initializer) {
  const auto* const from = std::get_if<FromRows>(&initializer);
  const auto* const table = from != nullptr ? from->rows.target<OfATable>() : nullptr;
  return table != nullptr ? &table->rows : nullptr;
}

}  // namespace divvy
