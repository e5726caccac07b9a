#include "rpc/listening_sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/remove_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using testing::HasSubstr;

class UnixSocketTest : public testing::Test {
 protected:
  UnixSocketTest() { EXPECT_NE(mkdtemp(directory_), nullptr); }
  ~UnixSocketTest() override { RemoveTree(directory_); }

  std::string path() const { return absl::StrCat(directory_, "/ps-0"); }
  absl::StatusOr<ListeningSockets> Open() const { return ListeningSockets::Open("unix:" + path()); }
  std::string Refusal() const { return std::string(Open().status().message()); }
  Descriptor OpenFile(const std::string& name) const {
    return Descriptor(open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  }
  bool IsTaken() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().data(), path().size());
    const Descriptor caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  mode_t KindOf(const std::string& name) const {
    struct stat info;
    return lstat(name.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
  }

 private:
  // TEST_TMPDIR may be too long.
  char directory_[32] = "/tmp/divvy_socket_XXXXXX";
};

TEST_F(UnixSocketTest, OfThoseThatStartAtOnceOneListensAndTheOthersAreRefused) {
  constexpr int kRounds = 300, kAtOnce = 4;
  ThreadPoolExecutor threads(1);
  // Each round begins with the socket that the previous round left behind.
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> ready = 0, done = 0;
    std::vector<absl::StatusOr<ListeningSockets>> opened(kAtOnce);
    for (absl::StatusOr<ListeningSockets>& mine : opened) {
      threads.PostBlocking("starts", [&] {
        for (++ready; ready < kAtOnce;) sched_yield();
        mine = Open();
        ++done;
      });
    }
    while (done < kAtOnce) sched_yield();
    int listening = 0;
    for (const absl::StatusOr<ListeningSockets>& one : opened) {
      if (one.ok())
        ++listening;
      else
        EXPECT_THAT(
            std::string(one.status().message()),
            HasSubstr(absl::StrCat(
                path(), ": another process listens there: stop it, or choose another path")));
    }
    ASSERT_EQ(listening, 1) << "round " << round;
    ASSERT_TRUE(IsTaken()) << "round " << round;
  }
}

TEST_F(UnixSocketTest, ASocketThatAKilledProcessLeftIsTakenOverAtOnce) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const Descriptor from(ready[0]);
  Descriptor to(ready[1]);
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<ListeningSockets> listening = Open();
    if (listening.ok() && write(to.get(), "x", 1) == 1) pause();
    _exit(1);
  }
  to.Close();
  char byte;
  ASSERT_EQ(read(from.get(), &byte, 1), 1) << "the child cannot listen";
  EXPECT_THAT(Refusal(), HasSubstr("another process listens there"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_EQ(KindOf(path()), S_IFSOCK);
  const absl::StatusOr<ListeningSockets> successor = Open();
  ASSERT_TRUE(successor.ok()) << successor.status();
  EXPECT_TRUE(IsTaken());
}

// A process that a program forks in a step, and that outlives it.
class Forked {
 public:
  Forked() : child_(fork()) {
    if (child_ != 0) return;
    while (true) pause();
  }
  ~Forked() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

 private:
  const pid_t child_;
};

TEST_F(UnixSocketTest, AForkedProcessKeepsNeitherTheSocketNorItsLock) {
  absl::StatusOr<ListeningSockets> first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  const Forked forked;
  EXPECT_TRUE(IsTaken()) << "the child has closed it for its parent, too";
  first->Close();
  // The child runs its handlers at its own time.
  while (!Open().ok()) sched_yield();
}

TEST(TcpSocketTest, AForkedProcessKeepsNeitherThePortNorAConnection) {
  absl::StatusOr<ListeningSockets> first = ListeningSockets::Open("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(first->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Descriptor caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(caller.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  Descriptor accepted;
  while (!accepted) accepted = AcceptConnection(first->sockets()[0]);
  const Forked forked;
  accepted.Close();
  char byte;
  EXPECT_EQ(read(caller.get(), &byte, 1), 0) << "the end arrives as soon as the child has begun";
  first->Close();
  while (!ListeningSockets::Open(address).ok()) sched_yield();
}

TEST_F(UnixSocketTest, ADescriptorWithTheSameNumberStaysOpenInAForkedProcess) {
  absl::StatusOr<ListeningSockets> first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  const int number = first->sockets()[0].get();
  first->Close();
  ASSERT_EQ(dup2(STDERR_FILENO, number), number);
  const pid_t child = fork();
  if (child == 0) _exit(fcntl(number, F_GETFD) < 0 ? 1 : 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  close(number);
}

TEST_F(UnixSocketTest, ClosedItCanBeTakenAgainAtOnce) {
  absl::StatusOr<ListeningSockets> first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  first->Close();
  EXPECT_FALSE(IsTaken());
  EXPECT_TRUE(Open().ok());
}

TEST_F(UnixSocketTest, WhoHoldsTheLockListensEvenBeforeItsSocketIsThere) {
  const Descriptor lock = OpenFile(path() + ".lock");
  ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(Refusal(), HasSubstr(absl::StrCat(
                             "cannot listen on the Unix socket ", path(),
                             ": another process listens there: stop it, or choose another path")));
  EXPECT_EQ(KindOf(path()), 0u);
}

TEST_F(UnixSocketTest, AProcessWithoutALockThatListensIsLeftAlone) {
  absl::StatusOr<ListeningSockets> other = Open();
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(unlink((path() + ".lock").c_str()), 0);
  EXPECT_THAT(Refusal(), HasSubstr("another process listens there"));
  EXPECT_TRUE(IsTaken());
}

TEST_F(UnixSocketTest, WhatIsNoSocketIsNamedAndLeftAlone) {
  const std::string target = path() + "-target";
  OpenFile(path());
  EXPECT_THAT(Refusal(),
              HasSubstr(path() + ": a file stands there: remove it, or choose another path"));
  EXPECT_EQ(KindOf(path()), S_IFREG);
  unlink(path().c_str());
  ASSERT_EQ(mkdir(path().c_str(), 0700), 0);
  EXPECT_THAT(Refusal(),
              HasSubstr(path() + ": a directory stands there: remove it, or choose another path"));
  rmdir(path().c_str());
  for (const bool dangling : {true, false}) {
    if (!dangling) OpenFile(target);
    ASSERT_EQ(symlink(target.c_str(), path().c_str()), 0);
    EXPECT_THAT(
        Refusal(),
        HasSubstr(path() + ": a symbolic link stands there: remove it, or choose another path"));
    EXPECT_EQ(KindOf(path()), S_IFLNK);
    unlink(path().c_str());
  }
}

TEST_F(UnixSocketTest, ALockThatIsNoPlainFileIsNamed) {
  const std::string lock = path() + ".lock", target = path() + "-target";
  ASSERT_EQ(symlink(target.c_str(), lock.c_str()), 0);
  EXPECT_THAT(Refusal(),
              HasSubstr(absl::StrCat("its lock ", lock, " is no plain file: remove it")));
  // No file is created at the end of the link.
  EXPECT_EQ(KindOf(target), 0u);
  unlink(lock.c_str());
  ASSERT_EQ(mkdir(lock.c_str(), 0700), 0);
  EXPECT_THAT(Refusal(),
              HasSubstr(absl::StrCat("its lock ", lock, " is no plain file: remove it")));
  rmdir(lock.c_str());
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(),
              HasSubstr(absl::StrCat("its lock ", lock, " is no plain file: remove it")));
}

TEST_F(UnixSocketTest, ItIsForItsUserAloneWhateverTheUmask) {
  const mode_t before = umask(0);
  const absl::StatusOr<ListeningSockets> listening = Open();
  umask(before);
  ASSERT_TRUE(listening.ok()) << listening.status();
  for (const std::string& name : {path(), path() + ".lock"}) {
    struct stat info;
    ASSERT_EQ(stat(name.c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(UnixSocketTest, APathThatIsTooLongOrNowhereIsNamed) {
  const std::string longer = absl::StrCat("/", std::string(120, 'x'));
  EXPECT_THAT(std::string(ListeningSockets::Open("unix:" + longer).status().message()),
              HasSubstr(absl::StrCat("cannot listen on the Unix socket ", longer,
                                     ": its path has more than 107 bytes: choose a shorter one")));
  EXPECT_THAT(
      std::string(ListeningSockets::Open("unix:/no/such/directory/ps-0").status().message()),
      HasSubstr(
          "cannot listen on the Unix socket /no/such/directory/ps-0: No such file or directory"));
}

}  // namespace
}  // namespace divvy
