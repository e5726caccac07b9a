// A TCP port of the loopback interface that is ours.
#ifndef DIVVY_BASE_TESTING_LOOPBACK_PORT_H_
#define DIVVY_BASE_TESTING_LOOPBACK_PORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace divvy {

// Keeps a free port for a process that will listen there, and through its restarts: as long as this
// lives, the operating system gives the number to nobody who asks for any port, neither for
// listening nor for connecting. A server that sets SO_REUSEADDR (gRPC does) can listen there
// meanwhile. Move-only.
class LoopbackPort {
 public:
  // Errors are those of the operating system.
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
