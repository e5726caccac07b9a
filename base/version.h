// Which Divvy this is.
#ifndef DIVVY_BASE_VERSION_H_
#define DIVVY_BASE_VERSION_H_

namespace divvy {

// Of the binaries: shown by --version, told at registration so that a mixed cluster can be named.
// Not what decides whether two binaries work together: that is the protocol's range
// (protocol/messages.h).
constexpr char kVersion[] = "0.1.0";

}  // namespace divvy

#endif  // DIVVY_BASE_VERSION_H_
