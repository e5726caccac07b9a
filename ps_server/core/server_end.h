// The states at the end of a parameter server.
#ifndef DIVVY_PS_SERVER_CORE_SERVER_END_H_
#define DIVVY_PS_SERVER_CORE_SERVER_END_H_

#include <optional>
#include <string>

namespace divvy {

//   kServing  --StartDrain-->  kDraining  --CompleteDrain-->  kEnding  --TakeExit, once-->  kEnding
//   kServing, kDraining  --Begin-->  kEnding
//
// A draining server still serves, and waits until the coordinator has been told. An ending server
// accepts no new requests. Not thread-safe: the core's lock guards it.
class ServerEnd {
 public:
  struct Exit {
    int code = 0;
    std::string why;
  };

  // The server ends with this exit code. Further calls have no effect.
  void Begin(int code, std::string why);

  // The process was asked to end. Returns false, and does nothing, if the server is draining or
  // ending already.
  bool StartDrain();
  // Called when the coordinator knows of the drain, or has been waited for long enough. The server
  // ends with exit_codes::kDrained. No effect if it is ending already. REQUIRES: StartDrain has
  // returned true.
  void CompleteDrain();

  bool is_draining() const { return draining_ && !exit_; }
  bool is_ending() const { return exit_.has_value(); }

  // The exit code and the reason with which the process should end. Returned once, when the server
  // is ending; nullopt before and afterwards.
  std::optional<Exit> TakeExit();

 private:
  std::optional<Exit> exit_;
  bool draining_ = false, taken_ = false;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SERVER_END_H_
