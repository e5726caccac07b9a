#include "coordinator/store/store_rows.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "wire/job_state.h"
#include "wire/layout.h"

namespace divvy {
namespace {

struct Column {
  const char* name;
  const char* type;
};

// STRICT: a column holds only values of its type, even if another program writes it. WITHOUT ROWID:
// a row is stored once, and not both in a table and in an index.
StoreTable MakeTable(std::string name, int num_keys, std::vector<Column> columns) {
  StoreTable table{std::move(name), {}, num_keys, ""};
  const auto define = [](std::string* out, const Column& column) {
    absl::StrAppend(out, column.name, " ", column.type, " NOT NULL");
  };
  for (const Column& column : columns) table.columns.push_back(column.name);
  const std::string keys = absl::StrJoin(absl::MakeConstSpan(table.columns).first(num_keys), ", ");
  columns.push_back({"crc", "INTEGER"});
  table.create =
      absl::StrCat("CREATE TABLE ", table.name, " (", absl::StrJoin(columns, ", ", define),
                   ", PRIMARY KEY (", keys, ")) STRICT, WITHOUT ROWID");
  return table;
}

// Eight bytes, the least significant first.
void AppendNumber(uint64_t value, std::string& out) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A value with its type and length, so that no two rows have the same bytes.
struct AppendValue {
  std::string& out;
  void operator()(std::monostate) const { out.push_back('n'); }
  void operator()(int64_t value) const {
    out.push_back('i');
    AppendNumber(static_cast<uint64_t>(value), out);
  }
  void operator()(const std::string& text) const { AppendBytes('t', text); }
  void operator()(const Blob& blob) const { AppendBytes('b', blob.bytes); }
  void AppendBytes(char type, const std::string& bytes) const {
    out.push_back(type);
    AppendNumber(bytes.size(), out);
    out.append(bytes);
  }
};

// SQLite's integers are signed. Unsigned values keep their bits.
// The state of every variable. The first versions had two more, 0 and 2, for changes under way.
constexpr int64_t kLive = 1;

int64_t Signed(uint64_t value) { return static_cast<int64_t>(value); }

// Takes the columns of a row one after another.
class Columns {
 public:
  Columns(const StoreTable& table, absl::Span<const SqlValue> row) : table_(table), row_(row) {}

  template <typename T>
  absl::StatusOr<T> Next() {
    if (at_ >= row_.size()) return absl::InvalidArgumentError("a column is missing");
    const T* value = std::get_if<T>(&row_[at_++]);
    if (value == nullptr) return Refused("is of another type");
    return *value;
  }
  absl::StatusOr<uint64_t> Number() {
    ASSIGN_OR_RETURN(const int64_t value, Next<int64_t>());
    return static_cast<uint64_t>(value);
  }
  template <typename Enum>
  absl::StatusOr<Enum> State(Enum last) {
    ASSIGN_OR_RETURN(const uint64_t value, Number());
    if (value > static_cast<uint64_t>(last)) return Refused(absl::StrCat("has no value ", value));
    return static_cast<Enum>(value);
  }
  // A column that has one value only.
  absl::Status Only(int64_t value) {
    ASSIGN_OR_RETURN(const int64_t found, Next<int64_t>());
    return found == value ? absl::OkStatus() : Refused(absl::StrCat("has no value ", found));
  }
  // The value that is stored as a message of type `Wire`.
  template <typename Wire>
  auto Message() -> decltype(wire::FromProto(Wire())) {
    ASSIGN_OR_RETURN(const Blob blob, Next<Blob>());
    Wire message;
    if (!message.ParseFromString(blob.bytes)) return Refused("is not a message of its type");
    auto value = wire::FromProto(message);
    if (!value.ok()) return Refused(std::string(value.status().message()));
    return value;
  }

 private:
  absl::Status Refused(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat("column ", table_.columns[at_ - 1], " ", why));
  }

  const StoreTable& table_;
  const absl::Span<const SqlValue> row_;
  size_t at_ = 0;
};

}  // namespace

uint32_t StoreTable::Crc(const SqlRow& row) const {
  std::string bytes = name;
  for (const SqlValue& value : row) std::visit(AppendValue{bytes}, value);
  return Crc32c(bytes);
}

const StoreTable& JobTable() {
  static const StoreTable& table = *new StoreTable(MakeTable("job", 1,
                                                             {{"id", "INTEGER"},
                                                              {"job_id", "INTEGER"},
                                                              {"state", "INTEGER"},
                                                              {"epoch", "INTEGER"},
                                                              {"lineage", "INTEGER"},
                                                              {"id_block_end", "INTEGER"},
                                                              {"next_variable_id", "INTEGER"},
                                                              {"next_serial", "INTEGER"},
                                                              {"exit_code", "INTEGER"}}));
  return table;
}

const StoreTable& VariableTable() {
  static const StoreTable& table = *new StoreTable(MakeTable("variables", 1,
                                                             {{"id", "INTEGER"},
                                                              {"name", "TEXT"},
                                                              {"state", "INTEGER"},
                                                              {"layout", "BLOB"},
                                                              {"initializer", "BLOB"}}));
  return table;
}

const StoreTable& CheckpointTable() {
  static const StoreTable& table = *new StoreTable(MakeTable("checkpoints", 2,
                                                             {{"epoch", "INTEGER"},
                                                              {"serial", "INTEGER"},
                                                              {"state", "INTEGER"},
                                                              {"finished_steps", "INTEGER"},
                                                              {"bytes", "INTEGER"}}));
  return table;
}

const StoreTable& StateTable() {
  static const StoreTable& table = *new StoreTable(
      MakeTable("state", 1, {{"id", "INTEGER"}, {"held", "INTEGER"}, {"job_state", "BLOB"}}));
  return table;
}

SqlRow Encode(const JobRow& row) {
  return {int64_t{1},
          Signed(row.job.value()),
          static_cast<int64_t>(row.state),
          Signed(row.epoch.value()),
          Signed(row.lineage.value()),
          Signed(row.id_block_end),
          int64_t{row.next_variable_id},
          Signed(row.next_serial),
          int64_t{row.exit_code}};
}

absl::StatusOr<JobRow> DecodeJob(absl::Span<const SqlValue> values) {
  Columns columns(JobTable(), values);
  JobRow row;
  RETURN_IF_ERROR(columns.Number());  // the id is always 1
  ASSIGN_OR_RETURN(const uint64_t job, columns.Number());
  ASSIGN_OR_RETURN(row.state, columns.State(JobRow::State::kFailed));
  ASSIGN_OR_RETURN(const uint64_t epoch, columns.Number());
  ASSIGN_OR_RETURN(const uint64_t lineage, columns.Number());
  ASSIGN_OR_RETURN(row.id_block_end, columns.Number());
  ASSIGN_OR_RETURN(const uint64_t next_variable_id, columns.Number());
  ASSIGN_OR_RETURN(row.next_serial, columns.Number());
  ASSIGN_OR_RETURN(const uint64_t exit_code, columns.Number());
  row.job = JobId(job);
  row.epoch = Epoch(epoch);
  row.lineage = Epoch(lineage);
  row.next_variable_id = static_cast<uint32_t>(next_variable_id);
  row.exit_code = static_cast<int32_t>(exit_code);
  return row;
}

SqlRow Encode(const VariableRow& row) {
  const Initializer& initializer = EvaluatedPerRow(row.initializer) ? row.initializer : Zeros();
  return {Signed(row.layout.id.value()), row.layout.spec.name, kLive,
          Blob{wire::ToProto(row.layout).SerializeAsString()},
          Blob{wire::ToProto(initializer).SerializeAsString()}};
}

absl::StatusOr<VariableRow> DecodeVariable(absl::Span<const SqlValue> values) {
  Columns columns(VariableTable(), values);
  VariableRow row;
  ASSIGN_OR_RETURN(const uint64_t id, columns.Number());
  ASSIGN_OR_RETURN(const std::string name, columns.Next<std::string>());
  RETURN_IF_ERROR(columns.Only(kLive));
  ASSIGN_OR_RETURN(row.layout, columns.Message<v1::VariableLayout>());
  ASSIGN_OR_RETURN(row.initializer, columns.Message<v1::Initializer>());
  if (row.layout.id.value() != id || row.layout.spec.name != name)
    return absl::InvalidArgumentError("column layout is of another variable");
  return row;
}

SqlRow Encode(const CheckpointRow& row) {
  return {Signed(row.id.epoch.value()), Signed(row.id.serial), static_cast<int64_t>(row.state),
          row.finished_steps, Signed(row.bytes)};
}

absl::StatusOr<CheckpointRow> DecodeCheckpoint(absl::Span<const SqlValue> values) {
  Columns columns(CheckpointTable(), values);
  CheckpointRow row;
  ASSIGN_OR_RETURN(const uint64_t epoch, columns.Number());
  ASSIGN_OR_RETURN(row.id.serial, columns.Number());
  ASSIGN_OR_RETURN(row.state, columns.State(CheckpointRow::State::kCommitted));
  ASSIGN_OR_RETURN(row.finished_steps, columns.Next<int64_t>());
  ASSIGN_OR_RETURN(row.bytes, columns.Number());
  row.id.epoch = Epoch(epoch);
  return row;
}

SqlRow Encode(const StateRow& row) {
  JobState state = row.state;
  // The encoding of a JobState needs a checkpoint. No checkpoint has the serial 0.
  state.checkpoint = {state.lineage, 0};
  return {int64_t{1}, static_cast<int64_t>(row.held), Blob{wire::EncodeJobState(state)}};
}

absl::StatusOr<StateRow> DecodeState(absl::Span<const SqlValue> values) {
  Columns columns(StateTable(), values);
  StateRow row;
  RETURN_IF_ERROR(columns.Number());  // the id is always 1
  ASSIGN_OR_RETURN(row.held, columns.State(StateRow::Held::kFirstValues));
  ASSIGN_OR_RETURN(row.state, columns.Message<v1::JobState>());
  return row;
}

SqlRow KeyOf(VariableId id) { return {Signed(id.value())}; }
SqlRow KeyOf(CheckpointId id) { return {Signed(id.epoch.value()), Signed(id.serial)}; }

}  // namespace divvy
