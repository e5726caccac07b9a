// Fuzzes an event, and the rest of an event file after a valid head, with any bytes. What is
// accepted must be the same after it is written and read again.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/event_file.h"
#include "formats/tfrecord.h"

namespace divvy {
namespace {

void Try(absl::string_view bytes) {
  (void)ReadEventFile(bytes);
  const auto event = ReadEvent(bytes);
  if (event.ok()) {
    const auto again = ReadEvent(WriteEvent(*event));
    fuzz::Require(
        again.ok() && again->step == event->step && again->values.size() == event->values.size(),
        "an event changes");
    for (size_t i = 0; i < event->values.size(); ++i)
      fuzz::Require(again->values[i].tag == event->values[i].tag, "a tag changes");
  }
  std::string file = EventFileHead(1);
  AppendTfRecord(bytes, file);
  const auto whole = ReadEventFile(absl::StrCat(file, bytes));
  fuzz::Require(whole.ok() && whole->events.size() >= (event.ok() ? 2 : 1),
                "a file that begins as it should is refused");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
