#include "base/log.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/recent_log.h"
#include "nlohmann/json.hpp"
#include "spdlog/formatter.h"
#include "spdlog/logger.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace divvy {
namespace {

const char* BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path.data() : path.data() + slash + 1;
}

const char* SeverityName(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::err: return "ERROR";
    case spdlog::level::warn: return "WARNING";
    default: return "INFO";
  }
}

spdlog::level::level_enum LevelOf(Severity severity) {
  switch (severity) {
    case Severity::kError: return spdlog::level::err;
    case Severity::kWarning: return spdlog::level::warn;
    case Severity::kInfo: return spdlog::level::info;
  }
  return spdlog::level::err;
}

class JsonFormatter : public spdlog::formatter {
 public:
  explicit JsonFormatter(std::map<std::string, std::string> context)
      : context_(std::move(context)),
        time_("%Y-%m-%dT%H:%M:%S.%fZ", spdlog::pattern_time_type::utc, "") {}

  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& out) override {
    spdlog::memory_buf_t time;
    time_.format(msg, time);
    nlohmann::ordered_json line = {{"ts", std::string(time.data(), time.size())},
                                   {"sev", SeverityName(msg.level)}};
    for (const auto& [name, value] : context_) line[name] = value;
    line["thread"] = msg.thread_id;
    line["file"] = msg.source.filename;
    line["line"] = msg.source.line;
    line["msg"] = std::string(msg.payload.data(), msg.payload.size());
    // The text may quote bytes from outside. Bytes that are not UTF-8 are replaced, because logging
    // must not throw.
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>(context_);
  }

 private:
  const std::map<std::string, std::string> context_;
  spdlog::pattern_formatter time_;
};

std::shared_ptr<spdlog::logger> MakeLogger(const LogOptions& options) {
  auto logger =
      std::make_shared<spdlog::logger>("divvy", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(LevelOf(options.least));
  logger->flush_on(spdlog::level::trace);
  if (options.format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>(options.context));
  } else {
    logger->set_pattern("%L%m%d %H:%M:%S.%f %t %s:%#] %v");
  }
  return logger;
}

// The longest text that is kept of an entry.
constexpr size_t kMostKeptText = 2000;
constexpr size_t kMostWarnings = 50;

struct Kept {
  Mutex mu;
  std::deque<LoggedEntry> warnings DIVVY_GUARDED_BY(mu);
  std::deque<LoggedEntry> entries DIVVY_GUARDED_BY(mu);
  // Of the texts in `entries`.
  size_t bytes DIVVY_GUARDED_BY(mu) = 0;
  int64_t written DIVVY_GUARDED_BY(mu) = 0;
};

Kept& GetKept() {
  static Kept* const kept = new Kept;
  return *kept;
}

// At most kMostKeptText bytes. A text that was cut says so at its end.
std::string Shortened(const std::string& text) {
  if (text.size() <= kMostKeptText) return text;
  constexpr size_t kMark = 40;
  constexpr size_t kKept = kMostKeptText - kMark;
  return text.substr(0, kKept) + "... [" + std::to_string(text.size() - kKept) + " more bytes]";
}

void Keep(const LogEntry& entry) {
  LoggedEntry logged{Clock::Real().WallTime(), entry.severity, Shortened(entry.text),
                     BaseName(entry.file), entry.line};
  Kept& kept = GetKept();
  MutexLock lock(kept.mu);
  if (entry.severity != Severity::kInfo) {
    kept.warnings.push_back(logged);
    if (kept.warnings.size() > kMostWarnings) kept.warnings.pop_front();
  }
  ++kept.written;
  kept.bytes += logged.text.size();
  kept.entries.push_back(std::move(logged));
  while (kept.entries.size() > RecentLog::kMostEntries || kept.bytes > RecentLog::kMostBytes) {
    kept.bytes -= kept.entries.front().text.size();
    kept.entries.pop_front();
  }
}

// The destination of entries. It is swapped as a whole, so writing an entry holds no lock of
// Divvy's.
struct Destination {
  Mutex mu;
  std::shared_ptr<spdlog::logger> logger DIVVY_GUARDED_BY(mu) = MakeLogger({});
  std::shared_ptr<const LogSink> sink DIVVY_GUARDED_BY(mu);
};

Destination& GetDestination() {
  static Destination* const destination = new Destination;
  return *destination;
}

}  // namespace

void SetLogOptions(LogOptions options) {
  std::shared_ptr<spdlog::logger> logger = MakeLogger(options);
  Destination& destination = GetDestination();
  MutexLock lock(destination.mu);
  destination.logger.swap(logger);
}

LogSink SetLogSink(LogSink sink) {
  auto next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  Destination& destination = GetDestination();
  {
    MutexLock lock(destination.mu);
    destination.sink.swap(next);
  }
  return next ? *next : nullptr;
}

std::vector<LoggedEntry> RecentWarnings() {
  Kept& kept = GetKept();
  MutexLock lock(kept.mu);
  return {kept.warnings.begin(), kept.warnings.end()};
}

RecentLog LastEntries(size_t most) {
  Kept& kept = GetKept();
  MutexLock lock(kept.mu);
  const size_t count = std::min(most, kept.entries.size());
  return {{kept.entries.end() - static_cast<std::ptrdiff_t>(count), kept.entries.end()},
          kept.written};
}

void Log(const LogEntry& entry) {
  Keep(entry);
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<const LogSink> sink;
  {
    Destination& destination = GetDestination();
    MutexLock lock(destination.mu);
    logger = destination.logger;
    sink = destination.sink;
  }
  if (sink) return (*sink)(entry);
  logger->log(spdlog::source_loc(BaseName(entry.file), entry.line, ""), LevelOf(entry.severity),
              spdlog::string_view_t(entry.text));
}

namespace internal {

LogMessage::~LogMessage() {
  entry_.text = stream_.str();
  Log(entry_);
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace internal
}  // namespace divvy
