#include "tools/ctl/top/top.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/exit_codes.h"
#include "base/mutex.h"
#include "proto/divvy.grpc.pb.h"
#include "tools/ctl/pause.h"
#include "tools/ctl/survey.h"
#include "tools/ctl/top/model.h"
#include "tools/ctl/top/screen.h"

namespace divvy {
namespace {

using top::Reading;

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr int kWidthOfLines = 200;  // where nobody says how wide the output is

// Asks all tasks. For one thread at a time. Blocks at most for the timeout of the options.
class Reader {
 public:
  explicit Reader(const StatusOptions& options)
      : names_(options.names), survey_(options.addresses, options.credentials, options.timeout) {}

  Reading Read() {
    Reading reading;
    for (const auto& answer :
         survey_.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus)) {
      const auto name = names_.find(answer->address);
      reading.tasks.push_back({answer->address, name == names_.end() ? "?" : name->second,
                               answer->status, answer->reply});
    }
    reading.at = Clock::Real().Elapsed();
    return reading;
  }

 private:
  const std::map<std::string, std::string> names_;
  Survey<v1::GetStatusRequest, v1::TaskStatus> survey_;
};

// Reads on a thread of its own, so that keys are never late. For one thread.
class BackgroundReader {
 public:
  // `on_read` is called on another thread when Take has something new.
  BackgroundReader(const StatusOptions& options, std::function<void()> on_read)
      : reader_(options), on_read_(std::move(on_read)) {}

  // REQUIRES: what the last call began has been taken.
  void Begin() {
    executor_.PostBlocking("divvyctl top", [this] {
      Reading reading = reader_.Read();
      {
        MutexLock lock(mu_);
        reading_ = std::move(reading);
      }
      on_read_();
    });
  }
  std::optional<Reading> Take() {
    MutexLock lock(mu_);
    return std::exchange(reading_, std::nullopt);
  }

 private:
  Reader reader_;
  const std::function<void()> on_read_;
  Mutex mu_;
  std::optional<Reading> reading_ DIVVY_GUARDED_BY(mu_);
  // The last field: its end waits for the task that uses the others.
  ThreadPoolExecutor executor_{1};
};

// The last two readings.
class Readings {
 public:
  void Add(Reading reading) { before_ = std::exchange(now_, std::move(reading)); }
  bool is_empty() const { return !now_; }
  // The addresses of the rows that Draw shows.
  std::vector<std::string> Rows(top::Order order) const {
    if (!now_) return {};
    return top::RowsOf(*now_, before_ ? &*before_ : nullptr, order);
  }
  bool all_answer() const {
    return std::all_of(now_->tasks.begin(), now_->tasks.end(),
                       [](const top::TaskReading& task) { return task.status.ok(); });
  }
  // REQUIRES: !is_empty().
  std::vector<top::Line> Draw(const top::View& view) const {
    return top::Draw(*now_, before_ ? &*before_ : nullptr, view);
  }

 private:
  std::optional<Reading> now_, before_;
};

int ShowOnScreen(StatusOptions options, top::Screen& screen) {
  // The end waits for a reading.
  options.timeout = std::min(options.timeout, kPeriod);
  BackgroundReader reader(options, [&screen] { screen.Wake(); });
  Readings readings;
  top::View view;
  bool is_reading = false;
  absl::Duration next = Clock::Real().Elapsed();
  while (true) {
    const absl::Duration now = Clock::Real().Elapsed();
    if (!is_reading && now >= next) {
      reader.Begin();
      is_reading = true;
      next = now + kPeriod;
    }
    const top::Screen::Event event = screen.Wait(is_reading ? kPeriod : next - now);
    if (event.signal != 0) return exit_codes::kOfSignal + event.signal;
    if (event.is_closed) return EXIT_SUCCESS;
    for (const top::Key& key : top::KeysIn(event.bytes)) {
      if (key.kind == top::Key::Kind::kQuit) return EXIT_SUCCESS;
      view = top::Pressed(view, key, readings.Rows(view.order));
    }
    if (std::optional<Reading> reading = reader.Take()) {
      readings.Add(*std::move(reading));
      is_reading = false;
    }
    view.width = screen.size().width;
    view.height = screen.size().height;
    if (!readings.is_empty()) screen.Show(readings.Draw(view));
  }
}

// False: nobody reads standard output any more.
bool Print(const Readings& readings) {
  top::View view;
  view.width = kWidthOfLines;
  view.height = 0;
  std::string text;
  for (const top::Line& line : readings.Draw(view)) absl::StrAppend(&text, line.text, "\n");
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

int ShowAsLines(const StatusOptions& options, TopMode mode) {
  Reader reader(options);
  Readings readings;
  readings.Add(reader.Read());
  while (true) {
    Pause(kPeriod);
    readings.Add(reader.Read());
    if (!Print(readings)) return EXIT_SUCCESS;
    if (mode == TopMode::kOnce) return readings.all_answer() ? EXIT_SUCCESS : EXIT_FAILURE;
    std::fputs("\n", stdout);
  }
}

}  // namespace

int ShowTop(const StatusOptions& options, TopMode mode) {
  if (mode == TopMode::kAuto) {
    if (const auto screen = top::Screen::Open(); screen.ok())
      return ShowOnScreen(options, **screen);
  }
  return ShowAsLines(options, mode);
}

}  // namespace divvy
