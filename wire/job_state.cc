#include "wire/job_state.h"

#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/layout.h"
#include "wire/messages.h"
#include "wire/pass_progress.h"
#include "wire/text.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

v1::DataPass WritePass(const DataPass& pass) {
  v1::DataPass out;
  out.set_source(Escaped(pass.source, kMaxNameBytes));
  ToProto(pass.args, out.mutable_args());
  out.set_seed(pass.seed);
  SetProgress(pass, out);
  return out;
}

absl::StatusOr<DataPass> ReadPass(const v1::DataPass& pass) {
  DataPass out;
  RETURN_IF_ERROR(CheckName("source", pass.source()));
  out.source = pass.source();
  DIVVY_WIRE_READ(out.args, pass, args);
  out.seed = pass.seed();
  RETURN_IF_ERROR(ReadProgress(pass, out));
  return out;
}

}  // namespace

v1::JobState ToProto(const JobState& state) {
  v1::JobState out;
  out.set_job_id(state.job.value());
  *out.mutable_checkpoint() = ToProto(state.checkpoint);
  out.set_lineage(state.lineage.value());
  ToProto(*state.layout, out.mutable_layout());
  *out.mutable_cut() = ToProto(state.cut);
  out.set_finished_steps(state.finished_steps);
  out.set_finished_reads(state.finished_reads);
  out.set_next_ordinal(state.next_ordinal);
  out.set_epochs(state.epochs);
  for (const auto& [source, begun] : state.passes) (*out.mutable_passes())[Escaped(source, kMaxNameBytes)] = begun;
  for (const DataPass& pass : state.data) *out.add_data() = WritePass(pass);
  out.set_program_state(state.program_state);
  for (const Incarnation server : state.servers) out.add_servers(server.value());
  return out;
}

absl::StatusOr<JobState> FromProto(const v1::JobState& state) {
  JobState out;
  if (state.job_id() == 0) return Invalid("job_id", "is 0");
  out.job = JobId(state.job_id());
  DIVVY_WIRE_READ(out.checkpoint, state, checkpoint);
  out.lineage = Epoch(state.lineage());
  DIVVY_WIRE_READ(out.layout, state, layout);
  DIVVY_WIRE_READ(out.cut, state, cut);
  const std::pair<const char*, int64_t> counts[] = {{"finished_steps", state.finished_steps()},
                                                    {"finished_reads", state.finished_reads()},
                                                    {"next_ordinal", state.next_ordinal()},
                                                    {"epochs", state.epochs()}};
  for (const auto& [name, count] : counts) RETURN_IF_ERROR(CheckNotNegative(name, count));
  out.finished_steps = state.finished_steps();
  out.finished_reads = state.finished_reads();
  out.next_ordinal = state.next_ordinal();
  out.epochs = state.epochs();
  for (const auto& [source, begun] : state.passes()) {
    RETURN_IF_ERROR(CheckNotNegative("passes", begun));
    out.passes[source] = begun;
  }
  ASSIGN_OR_RETURN(out.data, ReadAll("data", state.data(), [](const v1::DataPass& pass) { return ReadPass(pass); }));
  out.program_state = state.program_state();
  for (const uint64_t server : state.servers()) out.servers.push_back(Incarnation(server));
  return out;
}

std::string EncodeJobState(const JobState& state) { return ToProto(state).SerializeAsString(); }

absl::StatusOr<JobState> DecodeJobState(const std::string& bytes) {
  v1::JobState state;
  if (!state.ParseFromString(bytes)) return Invalid("", "is no JobState");
  return FromProto(state);
}

}  // namespace divvy::wire
