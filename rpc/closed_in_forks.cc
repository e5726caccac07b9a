#include "rpc/closed_in_forks.h"

#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <utility>

namespace divvy {
namespace {

constexpr int kMost = 1 << 16;

// The inode of the descriptor with this number; 0: none. The number of a descriptor is reused soon,
// that of an inode is not. No lock, because the child could not take one that another thread held.
std::atomic<ino_t> inodes[kMost];
std::atomic<int> end = 0;  // above all numbers that have been given

ino_t InodeNumber(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// On the only thread of the child.
void CloseAll() {
  for (int fd = 0; fd < end; ++fd) {
    const ino_t inode = inodes[fd].exchange(0);
    if (inode != 0 && InodeNumber(fd) == inode) close(fd);
  }
}

}  // namespace

Descriptor ClosedInForks(Descriptor fd) {
  static const int registered = pthread_atfork(nullptr, nullptr, &CloseAll);
  if (registered != 0 || !fd || fd.get() >= kMost) return fd;
  inodes[fd.get()] = InodeNumber(fd.get());
  int before = end;
  while (before <= fd.get() && !end.compare_exchange_weak(before, fd.get() + 1)) {
  }
  return fd;
}

}  // namespace divvy
