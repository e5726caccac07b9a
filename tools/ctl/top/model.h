// What `divvyctl top` shows: a pure function of what the tasks said twice.
#ifndef DIVVY_TOOLS_CTL_TOP_MODEL_H_
#define DIVVY_TOOLS_CTL_TOP_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/divvy.pb.h"

namespace divvy::top {

// What one task said.
struct TaskReading {
  std::string address;
  // "ps 0", as TF_CONFIG has it; "?": not known. Its answer says it, too.
  std::string name;
  // Not OK: why it did not answer.
  absl::Status status;
  v1::TaskStatus task;
};

// What all tasks said at one time, in the order of the cluster.
struct Reading {
  // By one clock for all readings.
  absl::Duration at;
  std::vector<TaskReading> tasks;
};

enum class Order : uint8_t {
  kCluster,
  // Parameter servers, or workers, come first, the busiest of them at the top.
  kServersFirst,
  kWorkersFirst,
};

struct View {
  Order order = Order::kCluster;
  // The address of the selected task, which stays selected wherever its row goes. Empty, or of no
  // task: the first row is selected.
  std::string selected;
  // Whether the screen shows that task alone.
  bool is_detailed = false;
  // In columns and lines, at least 1. A height of 0: as many lines as there are, without the line
  // of keys and without a selected row.
  int width = 80, height = 24;
};

struct Line {
  enum class Kind : uint8_t { kPlain, kHeading, kSelected, kAlarm };
  std::string text;
  Kind kind = Kind::kPlain;

  friend bool operator==(const Line& a, const Line& b) {
    return a.text == b.text && a.kind == b.kind;
  }
};

// The screen: at most view.height lines of at most view.width columns, without control codes. Rates
// are the differences to the reading `before`, which may be null, over the time between. A task
// that was restarted in between has no rate. A row about which the coordinator has found something
// (without a coordinator: the task itself) is an alarm, and tells it after a "!". In a narrow
// terminal, columns are left out and texts are cut. If there are more rows than lines, those around
// the selected one are shown. Pure.
std::vector<Line> Draw(const Reading& now, const Reading* before, const View& view);

// What a user has pressed.
struct Key {
  enum class Kind : uint8_t { kQuit, kServers, kWorkers, kCluster, kUp, kDown, kShow, kBack, kRow };
  Kind kind = Kind::kQuit;
  // kRow: the number on the key, from 1.
  int row = 0;

  friend bool operator==(const Key& a, const Key& b) { return a.kind == b.kind && a.row == b.row; }
};

// The keys in the bytes of a terminal. Others are ignored. Pure.
std::vector<Key> KeysIn(absl::string_view bytes);

// The addresses of the tasks in the order of the rows that Draw shows. Pure.
std::vector<std::string> RowsOf(const Reading& now, const Reading* before, Order order);

// The view after a key other than kQuit. `rows`: RowsOf what the screen shows. Pure.
View Pressed(View view, const Key& key, const std::vector<std::string>& rows);

}  // namespace divvy::top

#endif  // DIVVY_TOOLS_CTL_TOP_MODEL_H_
