// How a parameter server comes to its end.
#ifndef DIVVY_PS_SERVER_CORE_SERVER_END_H_
#define DIVVY_PS_SERVER_CORE_SERVER_END_H_

#include <optional>
#include <string>

namespace divvy {

//   kServing  --StartDrain-->  kDraining  --CompleteDrain-->  kEnding  --TakeExit, once-->  kEnding
//   kServing, kDraining  --Begin-->  kEnding
//
// A draining server still serves: it waits until the coordinator has been told. An ending one takes
// nothing new. Not thread-safe: the core's lock guards it.
class ServerEnd {
 public:
  struct Exit {
    int code = 0;
    std::string why;
  };

  // The server ends with this code. Once it is ending, a second call changes nothing.
  void Begin(int code, std::string why);

  // The process was asked to end. False, and nothing is done: it is draining or ending already.
  bool StartDrain();
  // The coordinator knows of the drain, or was waited for long enough: the server ends with
  // exit_codes::kDrained. Once it is ending, this changes nothing. REQUIRES: StartDrain has
  // returned true.
  void CompleteDrain();

  bool is_draining() const { return draining_ && !exit_; }
  bool is_ending() const { return exit_.has_value(); }

  // What to end the process with: given once, when it is ending; nullopt before and afterwards.
  std::optional<Exit> TakeExit();

 private:
  std::optional<Exit> exit_;
  bool draining_ = false, taken_ = false;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SERVER_END_H_
