// An owned file descriptor of the operating system.
#ifndef DIVVY_BASE_DESCRIPTOR_H_
#define DIVVY_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace divvy {

// Owns a file descriptor and closes it on destruction. Move-only; not thread-safe.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this == &other) return *this;
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { Close(); }

  // -1 if there is none; poll() ignores it.
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives up ownership: the caller must close the descriptor.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace divvy

#endif  // DIVVY_BASE_DESCRIPTOR_H_
