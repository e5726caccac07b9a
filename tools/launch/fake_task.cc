// A task of a fake program for tests of the launcher. It does what its arguments say, in order. An
// argument that begins with "<type><index>:" (chief0:, ps1:) is for that task of TF_CONFIG only.
// SIGTERM and SIGINT stay blocked until `await` or `finish`.
//
//   show         prints TF_CONFIG
//   pid          prints the process id
//   env=NAME     prints the value of that environment variable
//   unset=NAME   prints a line if that variable is not set
//   print=TEXT   prints a line to standard output
//   draw=TEXT    prints TEXT to standard error without a line end; "~" stands for '\r'
//   tty          prints whether standard error is a terminal
//   once=FILE    skips the next argument if FILE exists; otherwise makes FILE
//   orphan       starts a child that waits for ever, and prints its process id
//   await        waits for a signal, and exits with 128 + its number
//   finish       waits for a signal, and exits with 0
//   hang         waits for ever
//   raise=N      ends by that signal
//   exit=N       exits with that code
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

int WaitForSignal() {
  const sigset_t set = EndingSignals();
  int signal = 0;
  sigwait(&set, &signal);
  return signal;
}

// The text after `key` in TF_CONFIG, up to the next quote or brace.
std::string FieldOf(const std::string& config, const std::string& key) {
  const size_t at = config.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return config.substr(begin, config.find_first_of("\"}", begin) - begin);
}

[[noreturn]] void Hang() {
  for (;;) pause();
}

void StartOrphan() {
  const pid_t pid = fork();
  if (pid == 0) Hang();
  std::printf("orphan %d\n", pid);
}

void Draw(std::string text) {
  std::replace(text.begin(), text.end(), '~', '\r');
  std::fputs(text.c_str(), stderr);
}

// Whether no call for `file` came before.
bool Once(const std::string& file) {
  return open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666) >= 0;
}

// Returns whether to do the next argument too.
bool Do(const std::string& verb, const std::string& value) {
  if (verb == "show") std::puts(std::getenv("TF_CONFIG"));
  if (verb == "pid") std::printf("pid %d\n", getpid());
  if (verb == "env") std::printf("%s=%s\n", value.c_str(), std::getenv(value.c_str()));
  if (verb == "unset" && std::getenv(value.c_str()) == nullptr)
    std::printf("%s is not set\n", value.c_str());
  if (verb == "print") std::puts(value.c_str());
  if (verb == "draw") Draw(value);
  if (verb == "tty") std::puts(isatty(STDERR_FILENO) ? "a terminal" : "no terminal");
  if (verb == "orphan") StartOrphan();
  if (verb == "await") std::exit(128 + WaitForSignal());
  if (verb == "finish") std::exit((WaitForSignal(), 0));
  if (verb == "hang") Hang();
  if (verb == "raise") raise(std::atoi(value.c_str()));
  if (verb == "exit") std::exit(std::atoi(value.c_str()));
  return verb != "once" || Once(value);
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t set = EndingSignals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const char* const config = std::getenv("TF_CONFIG");
  const std::string self =
      config == nullptr ? "" : FieldOf(config, "\"type\":\"") + FieldOf(config, "\"index\":") + ":";
  bool counts = true;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    const size_t colon = argument.find(':'), equals = argument.find('=');
    if (colon < equals) {  // for one task only
      if (argument.compare(0, colon + 1, self) != 0) continue;
      argument.erase(0, colon + 1);
    }
    const size_t end = std::min(argument.find('='), argument.size());
    counts = !counts ||
             Do(argument.substr(0, end), end < argument.size() ? argument.substr(end + 1) : "");
  }
}
