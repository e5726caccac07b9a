#include "tools/ctl/top/model.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::top {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TaskReading Chief(int64_t steps) {
  TaskReading reading;
  reading.address = "chief:2222";
  reading.task.set_job(v1::CHIEF);
  reading.task.set_job_id(0xbeef);
  reading.task.set_epoch(3);
  reading.task.set_incarnation(1);
  reading.task.set_state("running");
  v1::CoordinatorStatus& job = *reading.task.mutable_coordinator();
  job.set_finished_steps(steps);
  job.set_durable_steps(1000);
  job.set_last_checkpoint("ckpt-3-17");
  job.set_queued(5);
  job.set_in_flight(4);
  job.set_ps_up(1);
  job.set_num_ps(2);
  job.set_workers_up(2);
  job.set_num_workers(2);
  return reading;
}

TaskReading Server(int index, uint64_t commits) {
  TaskReading reading;
  reading.address = absl::StrCat("ps-", index, ":2222");
  reading.task.set_job(v1::PS);
  reading.task.set_index(index);
  reading.task.set_incarnation(10 + index);
  reading.task.set_state("ready");
  reading.task.mutable_ps()->set_applied_seq(commits);
  reading.task.mutable_ps()->set_memory_bytes(3 << 19);
  return reading;
}

TaskReading Worker(int index, int64_t steps) {
  TaskReading reading;
  reading.address = absl::StrCat("worker-", index, ":2222");
  reading.task.set_job(v1::WORKER);
  reading.task.set_index(index);
  reading.task.set_incarnation(20 + index);
  reading.task.set_state("ready");
  reading.task.mutable_worker()->set_reported(steps);
  reading.task.mutable_worker()->set_live_step(7);
  reading.task.mutable_worker()->set_live_function("train");
  return reading;
}

TaskReading Away(std::string name) {
  TaskReading reading;
  reading.address = "away:2222";
  reading.name = std::move(name);
  reading.status = absl::UnavailableError("cannot reach away:2222");
  return reading;
}

Reading At(int seconds, std::vector<TaskReading> tasks) {
  return {absl::Seconds(seconds), std::move(tasks)};
}

std::string Text(const std::vector<Line>& lines) {
  return absl::StrJoin(lines, "\n",
                       [](std::string* out, const Line& line) { out->append(line.text); });
}

View Wide() {
  View view;
  view.width = 120;
  view.height = 0;
  return view;
}

const Reading kBefore = At(10, {Chief(2000), Server(0, 100), Worker(0, 50), Worker(1, 50)});
const Reading kNow = At(12, {Chief(3000), Server(0, 180), Worker(0, 60), Worker(1, 450)});

TEST(TopModelTest, ShowsTheJobAndARowForEachTask) {
  EXPECT_EQ(Text(Draw(kNow, &kBefore, Wide())),
            "job 000000000000beef  epoch 3  3,000 steps (500/s)  5 queued  4 in flight\n"
            "ps 1/2  workers 2/2  ckpt-3-17 holds 1,000 steps, 2,000 are in none\n"
            "#  TASK      STATE    LOAD            MEMORY   WAITS FOR, OR DOES\n"
            "1  chief     running  500 steps/s     -\n"
            "2  ps 0      ready    40.0 commits/s  1.5 MiB\n"
            "3  worker 0  ready    5.0 steps/s     -        runs train\n"
            "4  worker 1  ready    200 steps/s     -        runs train");
}

TEST(TopModelTest, LongWorkIsShownWithHowFarItIs) {
  Reading now = kNow;
  now.tasks[0].task.mutable_coordinator()->mutable_work()->set_text("restore 45 % of 2.6 GiB");
  EXPECT_THAT(Draw(now, &kBefore, Wide())[1].text, EndsWith("in none  restore 45 % of 2.6 GiB"));
}

TEST(TopModelTest, TheFirstReadingHasNoRates) {
  const std::string text = Text(Draw(kNow, nullptr, Wide()));
  EXPECT_THAT(text, AllOf(HasSubstr("3,000 steps  5 queued"), Not(HasSubstr("/s"))));
}

TEST(TopModelTest, ATaskThatWasStartedAgainOrLoadedACheckpointHasNoRate) {
  Reading before = kBefore, now = kNow;
  before.tasks[2].task.set_incarnation(99);
  now.tasks[1].task.mutable_ps()->set_applied_seq(3);
  const std::vector<Line> lines = Draw(now, &before, Wide());
  EXPECT_THAT(lines[4].text, StartsWith("2  ps 0      ready    -  "));
  EXPECT_THAT(lines[5].text, StartsWith("3  worker 0  ready    -  "));
}

TEST(TopModelTest, WhatATaskWaitsForComesBeforeWhatItDoes) {
  Reading now = kNow;
  v1::TaskStatus::Wait& wait = *now.tasks[2].task.add_waits();
  wait.set_since_ns(7'500'000'000);
  wait.set_text("ps 1");
  EXPECT_THAT(Draw(now, &kBefore, Wide())[5].text, HasSubstr("  7s: ps 1"));
}

TEST(TopModelTest, ATaskAboutWhichTheCoordinatorHasFoundSomethingIsMarked) {
  Reading now = kNow;
  v1::TaskStatus::Finding& found = *now.tasks[0].task.add_findings();
  found.set_job(v1::PS);
  found.set_index(0);
  found.set_text("hot: 5.1 x the mean of rows");
  now.tasks[2].task.add_findings()->set_text("the coordinator tells it, too");
  std::vector<Line> lines = Draw(now, &kBefore, Wide());
  EXPECT_EQ(lines[4].kind, Line::Kind::kAlarm);
  EXPECT_THAT(lines[4].text, HasSubstr("  ! hot: 5.1 x the mean of rows"));
  for (const size_t other : {3, 5, 6}) {
    EXPECT_EQ(lines[other].kind, Line::Kind::kPlain);
    EXPECT_THAT(lines[other].text, Not(HasSubstr("!")));
  }
  View view = Wide();
  view.selected = "ps-0:2222";
  view.is_detailed = true;
  EXPECT_THAT(Text(Draw(now, &kBefore, view)), HasSubstr("\nfound    hot: 5.1 x the mean of rows"));
  // Without a coordinator.
  found.set_job(v1::PS);
  *now.tasks[1].task.add_findings() = found;
  now.tasks[0] = Away("chief");
  EXPECT_THAT(Text(Draw(now, &kBefore, Wide())), HasSubstr("! hot"));
}

TEST(TopModelTest, ATaskThatDoesNotAnswerIsMarkedWithTheReason) {
  Reading now = kNow;
  now.tasks[1] = Away("ps 0");
  const Line line = Draw(now, &kBefore, Wide())[4];
  EXPECT_EQ(line.kind, Line::Kind::kAlarm);
  EXPECT_THAT(line.text, AllOf(HasSubstr("ps 0      no answer"), HasSubstr("cannot reach away")));
}

TEST(TopModelTest, WithoutACoordinatorTheHeadSaysSo) {
  const std::vector<Line> lines = Draw(At(1, {Away("chief"), Server(0, 1)}), nullptr, Wide());
  EXPECT_EQ(lines[0].text, "no coordinator answers; 1 of 2 tasks do");
  EXPECT_EQ(lines[0].kind, Line::Kind::kAlarm);
  EXPECT_EQ(
      Text(Draw(At(1, {}), nullptr, Wide())),
      "no coordinator answers; 0 of 0 tasks do\n\n#  TASK  STATE  LOAD  MEMORY  WAITS FOR, OR "
      "DOES");
}

TEST(TopModelTest, TheBusiestOfTheWantedRoleComeFirst) {
  Reading before = kBefore, now = kNow;
  before.tasks.push_back(Server(1, 0));
  now.tasks.push_back(Server(1, 900));
  const auto tasks = [&](Order order) {
    View view = Wide();
    view.order = order;
    std::string names;
    const std::vector<Line> lines = Draw(now, &before, view);
    for (size_t i = 3; i < lines.size(); ++i)
      absl::StrAppend(&names, lines[i].text.substr(3, 8), ".");
    return names;
  };
  EXPECT_EQ(tasks(Order::kServersFirst), "ps 1    .ps 0    .chief   .worker 0.worker 1.");
  EXPECT_EQ(tasks(Order::kWorkersFirst), "worker 1.worker 0.chief   .ps 0    .ps 1    .");
}

TEST(TopModelTest, NoLineIsWiderThanTheTerminalAndTheNamesStayLongest) {
  Reading now = kNow;
  now.tasks[2].task.set_state("gr\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbcn");
  for (int width = 1; width <= 120; ++width) {
    View view = Wide();
    view.width = width;
    for (const bool is_detailed : {false, true}) {
      view.is_detailed = is_detailed;
      for (const Line& line : Draw(now, &kBefore, view)) {
        const auto columns = std::count_if(line.text.begin(), line.text.end(),
                                           [](char c) { return (c & 0xc0) != 0x80; });
        EXPECT_LE(columns, width) << line.text;
      }
    }
  }
  View narrow = Wide();
  narrow.width = 34;
  EXPECT_EQ(Draw(now, &kBefore, narrow)[2].text, "#  TASK      STATE    WAITS FOR, O");
}

TEST(TopModelTest, ManyTasksAreScrolledSoThatTheSelectedOneIsShown) {
  Reading now = At(1, {Chief(1)});
  for (int i = 0; i < 50; ++i) now.tasks.push_back(Worker(i, 0));
  View view;
  view.height = 10;
  for (int selected = 0; selected < 51; ++selected) {
    view.selected = now.tasks[selected].address;
    const std::vector<Line> lines = Draw(now, nullptr, view);
    EXPECT_EQ(lines.size(), 10u);
    int marked = 0;
    for (const Line& line : lines) {
      if (line.kind != Line::Kind::kSelected) continue;
      ++marked;
      EXPECT_THAT(line.text, StartsWith(absl::StrCat(selected + 1, " ")));
    }
    EXPECT_EQ(marked, 1);
  }
}

TEST(TopModelTest, ALowTerminalIsNeverExceeded) {
  for (int height = 1; height < 12; ++height) {
    View view;
    view.height = height;
    EXPECT_LE(Draw(kNow, &kBefore, view).size(), static_cast<size_t>(height));
    EXPECT_THAT(Draw(kNow, &kBefore, view).back().text, StartsWith("q quit"));
  }
}

TEST(TopModelTest, OneTaskIsShownWithAllThatItSays) {
  Reading now = kNow;
  v1::TaskStatus& server = now.tasks[1].task;
  server.set_build("0.1.0 abc");
  server.mutable_ps()->set_shards(4);
  v1::PsStatus::TablePart& table = *server.mutable_ps()->add_tables();
  table.set_name("user\n");
  table.mutable_stats()->set_rows(12);
  for (const char* text : {"the disk", "worker 1"}) server.add_waits()->set_text(text);
  View view = Wide();
  view.selected = "ps-0:2222";
  view.is_detailed = true;
  const std::string text = Text(Draw(now, &kBefore, view));
  for (const char* part : {"\nps 0\n", "address  ps-0:2222\n", "load     40.0 commits/s\n",
                           "4 shards", "build    0.1.0 abc", "table user\\x0a: 12 rows",
                           "waits    0: the disk\n", "waits    0: worker 1"})
    EXPECT_THAT(text, HasSubstr(part));
  now.tasks[1] = Away("ps 0");
  view.selected = "away:2222";
  view.width = 20;
  EXPECT_THAT(Text(Draw(now, nullptr, view)), HasSubstr("\ncannot reach away:22\n22"));
}

TEST(TopModelTest, WhatATaskSaysCommandsNoTerminal) {
  Reading now = kNow;
  now.tasks[1].task.set_state("\x1b[2J");
  now.tasks[0].task.mutable_coordinator()->set_last_checkpoint("\x1b]0;x\x07");
  for (const bool is_detailed : {false, true}) {
    View view = Wide();
    view.is_detailed = is_detailed;
    view.selected = "ps-0:2222";
    EXPECT_EQ(Text(Draw(now, nullptr, view)).find_first_of("\x1b\x07"), std::string::npos);
  }
}

TEST(TopKeysTest, LettersDigitsAndArrowsAreKeys) {
  using K = Key::Kind;
  EXPECT_THAT(KeysIn("qpw3"),
              ElementsAre(Key{K::kQuit}, Key{K::kServers}, Key{K::kWorkers}, Key{K::kRow, 3}));
  EXPECT_THAT(KeysIn("\x1b[A\x1bOB\r\x1b"),
              ElementsAre(Key{K::kUp}, Key{K::kDown}, Key{K::kShow}, Key{K::kBack}));
  EXPECT_THAT(KeysIn("xyz\t\x1b[Z"), IsEmpty());
  EXPECT_THAT(KeysIn("\x1b["), ElementsAre(Key{K::kBack})) << "half a sequence";
  EXPECT_THAT(KeysIn("\x1b[15~\x1b[3;2~\x1bOP"), IsEmpty()) << "F5, Shift-Delete, F1";
  EXPECT_THAT(KeysIn("\x1b[1;5Bq"), ElementsAre(Key{K::kDown}, Key{K::kQuit})) << "Ctrl-Down";
}

TEST(TopKeysTest, TheSelectionStaysAmongTheTasks) {
  using K = Key::Kind;
  const std::vector<std::string> rows = {"a", "b", "c"};
  View view = Pressed(View(), {K::kUp}, rows);
  EXPECT_EQ(view.selected, "a");
  for (int i = 0; i < 5; ++i) view = Pressed(view, {K::kDown}, rows);
  EXPECT_EQ(view.selected, "c");
  view = Pressed(view, {K::kRow, 2}, rows);
  EXPECT_EQ(view.selected, "b");
  EXPECT_TRUE(view.is_detailed);
  EXPECT_FALSE(Pressed(view, {K::kBack}, rows).is_detailed);
  EXPECT_EQ(Pressed(view, {K::kRow, 9}, rows).selected, "b") << "there is no ninth task";
  EXPECT_EQ(Pressed(View(), {K::kDown}, {}).selected, "");
  EXPECT_EQ(Pressed(view, {K::kServers}, rows).order, Order::kServersFirst);
  EXPECT_EQ(Pressed(View(), {K::kShow}, rows).selected, "a");
}

TEST(TopKeysTest, TheSelectedTaskStaysSelectedWhereverItsRowGoes) {
  using K = Key::Kind;
  View view = Wide();
  view.height = 24;
  view = Pressed(view, {K::kWorkers}, RowsOf(kNow, &kBefore, view.order));
  EXPECT_THAT(RowsOf(kNow, &kBefore, view.order),
              ElementsAre("worker-1:2222", "worker-0:2222", "chief:2222", "ps-0:2222"));
  view = Pressed(view, {K::kDown}, RowsOf(kNow, &kBefore, view.order));
  const auto selected = [&view](const Reading& now) {
    std::string text;
    for (const Line& line : Draw(now, &kBefore, view)) {
      if (line.kind == Line::Kind::kSelected) text += line.text.substr(0, 11);
    }
    return text;
  };
  EXPECT_EQ(selected(kNow), "2  worker 0");
  Reading later = kNow;
  later.tasks[2].task.mutable_worker()->set_reported(9000);
  EXPECT_EQ(selected(later), "1  worker 0");
  view = Pressed(view, {K::kCluster}, RowsOf(later, &kBefore, view.order));
  EXPECT_EQ(selected(later), "3  worker 0");
}

}  // namespace
}  // namespace divvy::top
