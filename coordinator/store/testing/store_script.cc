#include "coordinator/store/testing/store_script.h"

#include "absl/strings/str_cat.h"
#include "coordinator/store/store_rows.h"

namespace divvy {

absl::Status PutInline(Store& store, StoreChange change) {
  absl::Status result = absl::InternalError("the change is not answered");
  store.Put(std::move(change), [&result](absl::Status status) { result = std::move(status); });
  return result;
}

bool operator==(const StoreContent& a, const StoreContent& b) {
  return a.job == b.job && a.variables == b.variables && a.checkpoints == b.checkpoints &&
         a.state == b.state;
}

StoreContent ContentOf(const StoredJob& stored) {
  StoreContent content{Encode(stored.job), {}, {}, stored.state ? Encode(*stored.state) : SqlRow()};
  for (const VariableRow& row : stored.variables) content.variables.push_back(Encode(row));
  for (const CheckpointRow& row : stored.checkpoints) content.checkpoints.push_back(Encode(row));
  return content;
}

JobRow JobOfEpoch(uint64_t epoch) {
  JobRow row;
  row.job = JobId(77);
  row.state = JobRow::State::kRunning;
  row.epoch = Epoch(epoch);
  return row;
}

VariableRow VariableOf(uint32_t id, int shards) {
  VariableRow row;
  row.layout.id = VariableId(id);
  row.layout.spec.name = absl::StrCat("variable", id);
  row.layout.spec.shape = Shape{shards, 4};
  row.layout.ps.assign(shards, 0);
  for (int i = 0; i <= shards; ++i) row.layout.offsets.push_back(i);
  return row;
}

StateRow StateRowOf(StateRow::Held held, int64_t finished_steps, std::string program_state) {
  StateRow row;
  row.held = held;
  row.state.job = JobId(77);
  row.state.lineage = Epoch(2);
  row.state.layout = Layout::Received(7, {});
  row.state.finished_steps = row.state.next_ordinal = finished_steps;
  row.state.program_state = std::move(program_state);
  return row;
}

CheckpointRow CheckpointOf(uint64_t serial, CheckpointRow::State state) {
  return {{Epoch(2), serial}, state, 100, 1 << 20};
}

std::vector<StoreChange> StoreScript() {
  constexpr auto kWriting = CheckpointRow::State::kWriting;
  constexpr auto kCommitted = CheckpointRow::State::kCommitted;
  std::vector<StoreChange> script(10);
  script[0].job = JobOfEpoch(1);
  script[1] = {JobOfEpoch(2), {VariableOf(1), VariableOf(2, 2999)}};
  script[2].put_variables = {VariableOf(1, 2), VariableOf(2, 3000)};
  script[3] = {JobOfEpoch(3), {}, {}, {CheckpointOf(1, kWriting)}};
  script[4] = {{}, {VariableOf(3, 2000)}, {VariableId(2)}, {CheckpointOf(1, kCommitted)}};
  script[5] = {{}, {VariableOf(1, 3)}, {}, {CheckpointOf(2, kCommitted)}, {{Epoch(2), 1}}};
  script[6].deleted_variables = {VariableId(1), VariableId(3)};
  script[7] = {JobOfEpoch(4), {VariableOf(4)}};
  script[7].state = StateRowOf(StateRow::Held::kAll, 0, "");
  // This row does not fit into a page.
  script[8].state = StateRowOf(StateRow::Held::kLeasedData, 100, std::string(9000, 's'));
  script[9].state = StateRowOf(StateRow::Held::kAll, 200, "round 2");
  return script;
}

std::vector<StoreContent> StatesOf(const std::vector<StoreChange>& script) {
  StoredJob job;
  std::vector<StoreContent> states = {ContentOf(job)};
  for (const StoreChange& change : script) {
    Apply(change, job);
    states.push_back(ContentOf(job));
  }
  return states;
}

}  // namespace divvy
