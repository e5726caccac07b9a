// Reserves a TCP port of the loopback interface.
#ifndef DIVVY_BASE_TESTING_LOOPBACK_PORT_H_
#define DIVVY_BASE_TESTING_LOOPBACK_PORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace divvy {

// Reserves a free port for a process that will listen there, also across restarts of that process.
// While it lives, the operating system does not assign the port to anyone who asks for any free
// port, neither for listening nor for connecting. A server that sets SO_REUSEADDR (gRPC does) can
// listen there meanwhile. Move-only.
class LoopbackPort {
 public:
  // Returns the operating system's error if there is no free port.
  static absl::StatusOr<LoopbackPort> Reserve();

  int number() const { return number_; }
  std::string address() const;  // "127.0.0.1:<number>"

 private:
  LoopbackPort(Descriptor holder, int number) : holder_(std::move(holder)), number_(number) {}

  Descriptor holder_;  // bound, never listening
  int number_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_LOOPBACK_PORT_H_
