#include "wire/steps.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/layout.h"
#include "wire/messages.h"
#include "wire/optimizer.h"
#include "wire/status.h"
#include "wire/text.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

constexpr EnumTable<StepOutcome, v1::Report::Outcome, 5> kOutcomes = {{
    {StepOutcome::kOk, v1::Report::OK},
    {StepOutcome::kFailed, v1::Report::FAILED},
    {StepOutcome::kSystem, v1::Report::SYSTEM},
    {StepOutcome::kCancelled, v1::Report::CANCELLED},
    {StepOutcome::kEndOfData, v1::Report::END_OF_DATA_REACHED},
}};

// ---- coordinator to worker: out ---------------------------------------------------------------------------------------------------------------------

void SetDispatch(const Dispatch& dispatch, v1::Dispatch& out) {
  out.set_step(dispatch.step.value());
  out.set_attempt(dispatch.attempt);
  if (dispatch.ordinal) out.set_ordinal(*dispatch.ordinal);
  out.set_function(Escaped(dispatch.function, kMaxNameBytes));
  ToProto(dispatch.args, out.mutable_args());
  for (const InputLease& input : dispatch.inputs) *out.add_inputs() = ToProto(input);
  out.set_learning_rate_scale(dispatch.learning_rate_scale);
}

void SetMakeResource(const MakeResource& make, v1::MakeResource& out) {
  out.set_iterator(make.iterator.value());
  out.set_source(Escaped(make.source, kMaxNameBytes));
  ToProto(make.args, out.mutable_args());
  out.set_seed(make.seed);
  out.set_leased(make.leased);
  out.set_num_workers(make.num_workers);
}

struct SetToWorker {
  v1::ToWorkerFrame& out;
  void operator()(const LayoutUpdate& update) { ToProto(*update.layout, out.mutable_layout()); }
  void operator()(const Dispatch& dispatch) { SetDispatch(dispatch, *out.mutable_dispatch()); }
  void operator()(const CancelSteps& cancel) {
    v1::CancelSteps& to = *out.mutable_cancel();
    for (const EntryId step : cancel.steps) to.add_steps(step.value());
  }
  void operator()(const MakeResource& make) { SetMakeResource(make, *out.mutable_make()); }
  void operator()(const DropResource& drop) { out.mutable_drop()->set_iterator(drop.iterator.value()); }
  void operator()(const Ping&) { out.mutable_ping(); }
  void operator()(const Hold& hold) { out.mutable_hold()->set_number(hold.number); }
  void operator()(const Release& release) { out.mutable_release()->set_number(release.number); }
};

// ---- coordinator to worker: in ----------------------------------------------------------------------------------------------------------------------

absl::StatusOr<Dispatch> DispatchFromProto(const v1::Dispatch& from) {
  Dispatch dispatch;
  dispatch.step = EntryId(from.step());
  if (from.attempt() == 0) return Invalid("attempt", "is 0");
  dispatch.attempt = from.attempt();
  if (from.has_ordinal()) {
    RETURN_IF_ERROR(CheckNotNegative("ordinal", from.ordinal()));
    dispatch.ordinal = from.ordinal();
  }
  RETURN_IF_ERROR(CheckName("function", from.function()));
  dispatch.function = from.function();
  DIVVY_WIRE_READ(dispatch.args, from, args);
  RETURN_IF_ERROR(CheckCount("inputs", from.inputs_size()));
  ASSIGN_OR_RETURN(dispatch.inputs, ReadAll("inputs", from.inputs(), [](const v1::InputLease& lease) { return FromProto(lease); }));
  RETURN_IF_ERROR(CheckFinite("learning_rate_scale", from.learning_rate_scale()));
  dispatch.learning_rate_scale = from.learning_rate_scale();
  return dispatch;
}

absl::StatusOr<MakeResource> MakeFromProto(const v1::MakeResource& from) {
  MakeResource make;
  make.iterator = ResourceId(from.iterator());
  RETURN_IF_ERROR(CheckName("source", from.source()));
  make.source = from.source();
  DIVVY_WIRE_READ(make.args, from, args);
  make.seed = from.seed();
  make.leased = from.leased();
  RETURN_IF_ERROR(CheckRange("num_workers", from.num_workers(), 1, kMaxIndex + 1));
  make.num_workers = from.num_workers();
  return make;
}

// `value` as a message of the stream.
template <typename Message, typename T>
absl::StatusOr<Message> Alternative(absl::string_view field, absl::StatusOr<T> value) {
  if (!value.ok()) return In(field, value.status());
  return Message(*std::move(value));
}

absl::StatusOr<LayoutUpdate> UpdateFromProto(const v1::Layout& from) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Layout> layout, FromProto(from));
  return LayoutUpdate{std::move(layout)};
}

absl::StatusOr<ToWorker> MessageOf(const v1::ToWorkerFrame& frame) {
  switch (frame.message_case()) {
    case v1::ToWorkerFrame::kLayout: return Alternative<ToWorker>("layout", UpdateFromProto(frame.layout()));
    case v1::ToWorkerFrame::kDispatch: return Alternative<ToWorker>("dispatch", DispatchFromProto(frame.dispatch()));
    case v1::ToWorkerFrame::kCancel: return ToWorker(CancelSteps{IdsOf<EntryId>(frame.cancel().steps())});
    case v1::ToWorkerFrame::kMake: return Alternative<ToWorker>("make", MakeFromProto(frame.make()));
    case v1::ToWorkerFrame::kDrop: return ToWorker(DropResource{ResourceId(frame.drop().iterator())});
    case v1::ToWorkerFrame::kPing: return ToWorker(Ping());
    case v1::ToWorkerFrame::kHold: return ToWorker(Hold{frame.hold().number()});
    case v1::ToWorkerFrame::kRelease: return ToWorker(Release{frame.release().number()});
    case v1::ToWorkerFrame::MESSAGE_NOT_SET: break;
  }
  return Invalid("message", "is not set, or of a newer protocol");
}

// ---- worker to coordinator: out ---------------------------------------------------------------------------------------------------------------------

void SetReport(const Report& report, v1::Report& out) {
  out.set_step(report.step.value());
  out.set_attempt(report.attempt);
  out.set_outcome(kOutcomes.ToWire(report.outcome));
  if (report.outcome == StepOutcome::kOk) ToProto(report.value, out.mutable_value());
  if (!report.error.ok()) *out.mutable_error() = ToProto(report.error);
  out.mutable_participants()->Assign(report.participants.begin(), report.participants.end());
  out.set_staleness(report.staleness);
  for (const EndedInput& end : report.ended) {
    v1::Report::EndedInput& ended = *out.add_ended();
    ended.set_iterator(end.iterator.value());
    if (end.position) ended.set_position(*end.position);
  }
}

struct SetFromWorker {
  v1::FromWorkerFrame& out;
  void operator()(const Report& report) { SetReport(report, *out.mutable_report()); }
  void operator()(const ResourceReady& ready) {
    v1::ResourceReady& to = *out.mutable_resource_ready();
    to.set_iterator(ready.iterator.value());
    if (!ready.error.ok()) *to.mutable_error() = ToProto(ready.error);
    if (ready.elements) to.set_elements(*ready.elements);
    if (!ready.first) return;
    to.mutable_first()->set_exact(ready.first->exact);
    to.mutable_first()->set_projection(ready.first->projection);
    to.mutable_first()->set_magnitude(ready.first->magnitude);
  }
  void operator()(const NeedSlots& need) {
    v1::NeedSlots& to = *out.mutable_need_slots();
    to.set_step(need.step.value());
    for (const auto& [variable, optimizer] : need.slots) {
      v1::NeedSlots::Slots& slots = *to.add_slots();
      slots.set_variable(variable);
      *slots.mutable_optimizer() = ToProto(optimizer);
    }
  }
  void operator()(const Pong& pong) {
    v1::Pong& to = *out.mutable_pong();
    to.set_running(pong.running);
    to.set_committing(pong.committing);
    if (pong.blocked_on_ps) to.set_blocked_on_ps(*pong.blocked_on_ps);
    to.set_blocked_for_ns(absl::ToInt64Nanoseconds(pong.blocked_for));
  }
  void operator()(const Draining&) { out.mutable_draining(); }
  void operator()(const Held& held) { out.mutable_held()->set_number(held.number); }
};

// ---- worker to coordinator: in ----------------------------------------------------------------------------------------------------------------------

absl::StatusOr<int> PsIndex(int32_t index) {
  RETURN_IF_ERROR(CheckIndex("", index));
  return index;
}

bool NeedsError(StepOutcome outcome) { return outcome == StepOutcome::kFailed || outcome == StepOutcome::kSystem; }

absl::StatusOr<EndedInput> EndedFromProto(const v1::Report::EndedInput& from) {
  EndedInput ended{ResourceId(from.iterator()), std::nullopt};
  if (from.has_position()) {
    RETURN_IF_ERROR(CheckNotNegative("position", from.position()));
    ended.position = from.position();
  }
  return ended;
}

absl::StatusOr<Report> ReportFromProto(const v1::Report& from) {
  Report report;
  report.step = EntryId(from.step());
  report.attempt = from.attempt();
  ASSIGN_OR_RETURN(report.outcome, In("outcome", kOutcomes.ToDomain(from.outcome())));
  if (report.outcome == StepOutcome::kOk) {
    DIVVY_WIRE_READ(report.value, from, value);
  }
  report.error = FromProto(from.error());
  if (NeedsError(report.outcome) && report.error.ok()) return Invalid("error", "is missing");
  RETURN_IF_ERROR(CheckCount("participants", from.participants_size()));
  ASSIGN_OR_RETURN(report.participants, ReadAll("participants", from.participants(), PsIndex));
  report.staleness = from.staleness();
  RETURN_IF_ERROR(CheckCount("ended", from.ended_size()));
  ASSIGN_OR_RETURN(report.ended, ReadAll("ended", from.ended(), EndedFromProto));
  return report;
}

absl::StatusOr<ResourceReady> ReadyFromProto(const v1::ResourceReady& from) {
  ResourceReady ready;
  ready.iterator = ResourceId(from.iterator());
  ready.error = FromProto(from.error());
  if (from.has_elements()) {
    RETURN_IF_ERROR(CheckNotNegative("elements", from.elements()));
    ready.elements = from.elements();
  }
  if (from.has_first()) {
    const auto& first = from.first();
    if (!std::isfinite(first.projection()) || !std::isfinite(first.magnitude())) return Invalid("first", "is not finite");
    ready.first = {first.exact(), first.projection(), first.magnitude()};
  }
  return ready;
}

absl::StatusOr<std::pair<std::string, Optimizer>> SlotsFromProto(const v1::NeedSlots::Slots& from) {
  RETURN_IF_ERROR(CheckName("variable", from.variable()));
  DIVVY_WIRE_READ(Optimizer optimizer, from, optimizer);
  return std::pair<std::string, Optimizer>(from.variable(), std::move(optimizer));
}

absl::StatusOr<NeedSlots> NeedFromProto(const v1::NeedSlots& from) {
  NeedSlots need;
  need.step = EntryId(from.step());
  RETURN_IF_ERROR(CheckCount("slots", from.slots_size()));
  ASSIGN_OR_RETURN(need.slots, ReadAll("slots", from.slots(), SlotsFromProto));
  return need;
}

absl::StatusOr<Pong> PongFromProto(const v1::Pong& from) {
  Pong pong;
  RETURN_IF_ERROR(CheckNotNegative("running", from.running()));
  RETURN_IF_ERROR(CheckNotNegative("committing", from.committing()));
  RETURN_IF_ERROR(CheckNotNegative("blocked_for_ns", from.blocked_for_ns()));
  pong.running = from.running();
  pong.committing = from.committing();
  if (from.has_blocked_on_ps()) {
    RETURN_IF_ERROR(CheckIndex("blocked_on_ps", from.blocked_on_ps()));
    pong.blocked_on_ps = from.blocked_on_ps();
  }
  pong.blocked_for = absl::Nanoseconds(from.blocked_for_ns());
  return pong;
}

absl::StatusOr<FromWorker> MessageOf(const v1::FromWorkerFrame& frame) {
  switch (frame.message_case()) {
    case v1::FromWorkerFrame::kReport: return Alternative<FromWorker>("report", ReportFromProto(frame.report()));
    case v1::FromWorkerFrame::kResourceReady: return Alternative<FromWorker>("resource_ready", ReadyFromProto(frame.resource_ready()));
    case v1::FromWorkerFrame::kNeedSlots: return Alternative<FromWorker>("need_slots", NeedFromProto(frame.need_slots()));
    case v1::FromWorkerFrame::kPong: return Alternative<FromWorker>("pong", PongFromProto(frame.pong()));
    case v1::FromWorkerFrame::kDraining: return FromWorker(Draining());
    case v1::FromWorkerFrame::kHeld: return FromWorker(Held{frame.held().number()});
    case v1::FromWorkerFrame::MESSAGE_NOT_SET: break;
  }
  return Invalid("message", "is not set, or of a newer protocol");
}

// ---- both ways --------------------------------------------------------------------------------------------------------------------------------------

template <typename Wire, typename Message, typename SetMessage>
void SetFrame(const StreamFrame<Message>& frame, SetMessage set, Wire& out) {
  out.set_session(frame.session.value());
  out.set_resume(frame.resume);
  out.set_acknowledged(frame.acknowledged);
  out.set_number(frame.number);
  if (frame.message) std::visit(set, *frame.message);
}

template <typename Message, typename Wire>
absl::StatusOr<StreamFrame<Message>> FrameOf(const Wire& frame) {
  StreamFrame<Message> out;
  out.session = SessionId(frame.session());
  out.resume = frame.resume();
  out.acknowledged = frame.acknowledged();
  out.number = frame.number();
  const bool has_message = frame.message_case() != Wire::MESSAGE_NOT_SET;
  if (out.resume && (has_message || out.number != 0)) return Invalid("resume", "comes with a message");
  if (!has_message && out.number == 0) return out;
  if (out.number == 0) return Invalid("number", "is 0, and there is a message");
  ASSIGN_OR_RETURN(out.message, MessageOf(frame));
  return out;
}

}  // namespace

v1::ToWorkerFrame ToProto(const StreamFrame<ToWorker>& frame) {
  v1::ToWorkerFrame out;
  SetFrame(frame, SetToWorker{out}, out);
  return out;
}

absl::StatusOr<StreamFrame<ToWorker>> FromProto(const v1::ToWorkerFrame& frame) { return FrameOf<ToWorker>(frame); }

v1::FromWorkerFrame ToProto(const StreamFrame<FromWorker>& frame) {
  v1::FromWorkerFrame out;
  SetFrame(frame, SetFromWorker{out}, out);
  return out;
}

absl::StatusOr<StreamFrame<FromWorker>> FromProto(const v1::FromWorkerFrame& frame) { return FrameOf<FromWorker>(frame); }

}  // namespace divvy::wire
