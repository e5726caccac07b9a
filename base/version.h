// The version of Divvy.
#ifndef DIVVY_BASE_VERSION_H_
#define DIVVY_BASE_VERSION_H_

namespace divvy {

// The version of the binaries. --version prints it, and a task sends it when it registers, so that
// messages can name the versions of a mixed cluster. It does not decide whether two binaries work
// together; the protocol's range does (protocol/messages.h).
constexpr char kVersion[] = "0.1.0";

}  // namespace divvy

#endif  // DIVVY_BASE_VERSION_H_
