#include "data/texts.h"

#include <string>

#include "base/status_macros.h"

namespace divvy::data_internal {

absl::Status ForEachText(const Nest& texts,
                         absl::FunctionRef<absl::Status(absl::string_view text)> visit) {
  RETURN_IF_ERROR(texts.status());
  if (texts.list() == nullptr) {
    ASSIGN_OR_RETURN(const std::string text, texts.text());
    return visit(text);
  }
  for (const Nest& child : *texts.list()) {
    ASSIGN_OR_RETURN(const std::string text, child.text());
    RETURN_IF_ERROR(visit(text));
  }
  return absl::OkStatus();
}

void ForEachToken(const std::optional<Tokenizer>& tokens, absl::string_view text,
                  absl::FunctionRef<void(absl::string_view token)> visit) {
  if (tokens)
    tokens->ForEach(text, visit);
  else
    visit(text);
}

}  // namespace divvy::data_internal
