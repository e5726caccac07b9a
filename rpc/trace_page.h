// Where the time of steps went, as a page for people.
#ifndef DIVVY_RPC_TRACE_PAGE_H_
#define DIVVY_RPC_TRACE_PAGE_H_

#include <string>

#include "absl/time/time.h"
#include "proto/divvy.pb.h"

namespace divvy {

// HTML without scripts: the slowest and the last steps, each as a picture (inline SVG) and as a
// table of its times; or, of a ps, its pulls and commits. At most 16 of each; /tracez.json has all.
// All text from outside is escaped. `job`, `index`: the task. Pure.
std::string TracePage(v1::Job job, int index, const v1::GetTracesReply& traces, absl::Time now);

}  // namespace divvy

#endif  // DIVVY_RPC_TRACE_PAGE_H_
