#include "base/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

// At the beginning of the memory. A name has the same number, so that a process id or a descriptor
// that means something else here is noticed.
struct Header {
  std::array<uint64_t, 2> number;
};

// A number that the kernel draws when the machine starts.
const std::string& BootId() {
  static const std::string& id = *new std::string([] {
    std::string text;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
    return text;
  }());
  return id;
}

std::string NameOf(int descriptor, const Header& header) {
  return absl::StrCat(BootId(), "/", ProcessId(), "/", descriptor, "/", absl::Hex(header.number[0]),
                      "/", absl::Hex(header.number[1]));
}

struct Named {
  int process = 0, descriptor = 0;
  Header header = {};
};
absl::StatusOr<Named> Parse(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  Named named;
  if (parts.size() != 5 || parts[0] != BootId() || parts[0].empty() ||
      !absl::SimpleAtoi(parts[1], &named.process) || named.process <= 0 ||
      !absl::SimpleAtoi(parts[2], &named.descriptor) || named.descriptor < 0 ||
      !absl::SimpleHexAtoi(parts[3], &named.header.number[0]) ||
      !absl::SimpleHexAtoi(parts[4], &named.header.number[1])) {
    return absl::NotFoundError("it is memory of another machine");
  }
  return named;
}

absl::StatusOr<char*> MapShared(const Descriptor& descriptor, size_t bytes, int protection) {
  void* const mapped =
      mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, descriptor.get(), 0);
  if (mapped == MAP_FAILED)
    return absl::ResourceExhaustedError("the kernel maps no more shared memory");
  // A core dump would write every page of it, with holes.
  madvise(mapped, bytes, MADV_DONTDUMP);
  return static_cast<char*>(mapped);
}

// The size of the memory behind a descriptor of unknown origin.
absl::StatusOr<size_t> SizeOf(const Descriptor& descriptor) {
  struct stat about = {};
  // Only memory made by memfd_create has seals. One that may shrink could take pages away while
  // they are read, which would end the reader. So would huge pages when there are no more of them.
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  struct statfs where = {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(descriptor.get(), &about) != 0 ||
      fstatfs(descriptor.get(), &where) != 0 || where.f_type != TMPFS_MAGIC ||
      about.st_uid != geteuid() || about.st_size < static_cast<off_t>(SharedMemory::kHeaderBytes)) {
    return absl::NotFoundError("it is no shared memory of this user");
  }
  return static_cast<size_t>(about.st_size);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(size_t bytes) {
  const size_t size = kHeaderBytes + bytes;
  Descriptor descriptor(memfd_create("divvy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (size > static_cast<size_t>(std::numeric_limits<off_t>::max()) || !descriptor ||
      ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ResourceExhaustedError("the kernel gives no descriptor for shared memory");
  }
  ASSIGN_OR_RETURN(char* const data, MapShared(descriptor, size, PROT_READ | PROT_WRITE));
  const Header header = {{EntropySeed(), EntropySeed()}};
  std::memcpy(data, &header, sizeof header);
  std::string name = NameOf(descriptor.get(), header);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(descriptor), data, size, std::move(name)));
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Open(absl::string_view name,
                                                                 Access access) {
  ASSIGN_OR_RETURN(const Named named, Parse(name));
  const std::string path = absl::StrCat("/proc/", named.process, "/fd/", named.descriptor);
  const bool writes = access == Access::kWrite;
  // Whatever the path names, opening it does not wait.
  Descriptor descriptor(
      open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!descriptor) return absl::NotFoundError("its process cannot be seen from here");
  ASSIGN_OR_RETURN(const size_t size, SizeOf(descriptor));
  ASSIGN_OR_RETURN(char* const data,
                   MapShared(descriptor, size, writes ? PROT_READ | PROT_WRITE : PROT_READ));
  // The mapping needs no descriptor.
  std::shared_ptr<SharedMemory> memory(new SharedMemory(Descriptor(), data, size, ""));
  if (std::memcmp(data, &named.header, sizeof named.header) != 0)
    return absl::NotFoundError("its number is another one");
  return memory;
}

SharedMemory::SharedMemory(Descriptor descriptor, char* data, size_t size, std::string name)
    : descriptor_(std::move(descriptor)), data_(data), size_(size), name_(std::move(name)) {}

SharedMemory::~SharedMemory() { munmap(data_, size_); }

void SharedMemory::Discard(size_t offset, size_t bytes) {
  // A kernel that refuses keeps the pages, which costs memory alone.
  fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

}  // namespace divvy
