// How far a pass has got, in the two messages that say it.
#ifndef DIVVY_WIRE_PASS_PROGRESS_H_
#define DIVVY_WIRE_PASS_PROGRESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cluster/horizon.h"
#include "proto/divvy.pb.h"
#include "wire/decode.h"

namespace divvy::wire {

// `Proto` is v1::PassProgress or v1::DataPass. Positions are below 2^53, so what is added to one does not overflow; unread ranges rise and do not overlap.

template <typename Proto>
void SetProgress(const PassProgress& pass, Proto& out) {
  out.set_iterator(pass.iterator.value());
  out.set_in_loop(pass.in_loop);
  out.set_of_program(pass.of_program);
  out.set_is_series(pass.is_series);
  out.set_finished(pass.finished);
  out.set_next(pass.next);
  for (const auto& [first, count] : pass.unread) {
    v1::PositionRange* const range = out.add_unread();
    range->set_first(first);
    range->set_count(count);
  }
  if (pass.end) out.set_end(*pass.end);
  out.set_end_is_exact(pass.end_is_exact);
}

template <typename Proto>
absl::Status ReadProgress(const Proto& pass, PassProgress& out) {
  constexpr int64_t kMaxPosition = int64_t{1} << 53;
  out.iterator = ResourceId(pass.iterator());
  out.in_loop = pass.in_loop();
  out.of_program = pass.of_program();
  out.is_series = pass.is_series();
  RETURN_IF_ERROR(CheckRange("finished", pass.finished(), 0, kMaxPosition));
  out.finished = pass.finished();
  RETURN_IF_ERROR(CheckRange("next", pass.next(), 0, kMaxPosition));
  out.next = pass.next();
  int64_t after = 0;
  for (const v1::PositionRange& range : pass.unread()) {
    RETURN_IF_ERROR(CheckRange("unread.first", range.first(), after, out.next));
    RETURN_IF_ERROR(CheckRange("unread.count", range.count(), 1, out.next - range.first()));
    after = range.first() + range.count();
    out.unread[range.first()] = range.count();
  }
  if (pass.has_end()) {
    RETURN_IF_ERROR(CheckRange("end", pass.end(), 0, kMaxPosition));
    out.end = pass.end();
  }
  out.end_is_exact = pass.end_is_exact();
  return absl::OkStatus();
}

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_PASS_PROGRESS_H_
