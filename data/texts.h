// Values that are texts.
#ifndef DIVVY_DATA_TEXTS_H_
#define DIVVY_DATA_TEXTS_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer.h"
#include "tensor/nest.h"

namespace divvy::data_internal {

// Calls `visit` for a text, or for each of a list of texts. Returns the first error: of a value
// that is no text, or of `visit`.
absl::Status ForEachText(const Nest& texts,
                         absl::FunctionRef<absl::Status(absl::string_view text)> visit);

// Calls `visit` for each token of a text. Without a tokenizer the whole text is one.
void ForEachToken(const std::optional<Tokenizer>& tokens, absl::string_view text,
                  absl::FunctionRef<void(absl::string_view token)> visit);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_TEXTS_H_
