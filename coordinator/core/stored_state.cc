#include "coordinator/core/stored_state.h"

namespace divvy {

StoredState::StoredState(const StoredJob& stored, JobRow row, const StepQueue& steps,
                         const Passes& passes, const ServerSet& servers)
    : steps_(steps), passes_(passes), servers_(servers), row_(row) {
  for (const VariableRow& variable : stored.variables) rows_.insert(variable.layout.id);
}

void StoredState::SetProgramState(std::string bytes) {
  program_state_ = std::move(bytes);
  ++program_states_;
}

StoredMark StoredState::MarkNow() const {
  StoredMark mark;
  if (awaits_values()) mark.held = StateRow::Held::kFirstValues;
  mark.epochs = steps_.totals().epochs;
  mark.program_states = program_states_;
  mark.lost_ordinals = steps_.lost_ordinals();
  for (const auto& [source, begun] : passes_.begun()) mark.passes += begun;
  mark.pass_changes = passes_.changes();
  mark.tick = steps_.tick();
  return mark;
}

StateRow StoredState::RowNow(const Layout& layout) const {
  StateRow row;
  row.held = MarkNow().held;
  row.state.job = row_.job;
  row.state.lineage = row_.lineage;
  row.state.layout = Layout::Received(layout.version(), {});
  row.state.finished_steps = steps_.totals().finished_steps;
  row.state.finished_reads = steps_.totals().finished_reads;
  row.state.next_ordinal = steps_.NumClosedOrdinals();
  row.state.epochs = steps_.totals().epochs;
  row.state.tick = steps_.tick();
  row.state.passes = passes_.begun();
  row.state.data = passes_.PassesNow(steps_.OpenLeases());
  row.state.program_state = program_state_;
  for (const auto& ps : servers_) row.state.servers.push_back(ps.incarnation);
  return row;
}

StoreChange StoredState::Whole(const Layout& layout) {
  StoreChange change;
  change.job = row_;
  change.state = RowNow(layout);
  std::set<VariableId> gone = std::exchange(rows_, {});
  for (const auto& [id, variable] : layout.variables()) {
    change.put_variables.push_back({variable, Zeros()});
    rows_.insert(id);
    gone.erase(id);
  }
  change.deleted_variables = {gone.begin(), gone.end()};
  told_ = MarkNow();
  is_told_ = true;
  return change;
}

StoreChange StoredState::With(const VariableLayout& variable, const Layout& layout) {
  StoreChange change;
  change.state = RowNow(layout);
  change.put_variables = {{variable, Zeros()}};
  rows_.insert(variable.id);
  return change;
}

std::optional<StoreChange> StoredState::TakeChange(const Layout& layout) {
  if (!is_told_ || IsStored() || is_putting_) return std::nullopt;
  told_ = MarkNow();
  is_putting_ = true;
  StoreChange change;
  change.state = RowNow(layout);
  return change;
}

}  // namespace divvy
