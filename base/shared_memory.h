// Memory that two processes of one machine share.
#ifndef DIVVY_BASE_SHARED_MEMORY_H_
#define DIVVY_BASE_SHARED_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/descriptor.h"

namespace divvy {

// A mapping of anonymous memory that another process may open by its name. The name works for
// processes of the same user that run on the same machine and see this one's process id (the same
// PID namespace). Its pages exist once they have been written, and go with the last mapping.
// Thread-safe. No method blocks.
//
// What one process writes, another one reads after a message has told it so. Nothing here orders
// them.
class SharedMemory {
 public:
  enum class Access { kRead, kWrite };

  // ResourceExhausted: the kernel gives no descriptor, or no addresses. REQUIRES: bytes > 0.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(size_t bytes);
  // Opens memory of another process. NotFound: no such memory can be reached from here.
  // ResourceExhausted: as Create. Accepts any text: what it names is mapped only if it is memory
  // that its owner made by Create, cannot shrink, and begins with the number that the name has.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(absl::string_view name, Access access);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Printable ASCII without spaces. Works while this object lives. Empty for opened memory.
  const std::string& name() const { return name_; }
  // The first kHeaderBytes belong to this class.
  static constexpr size_t kHeaderBytes = 4096;
  char* data() const { return data_; }
  size_t size() const { return size_; }
  // Gives the pages of a part back to the kernel, for both processes. REQUIRES: this process made
  // the memory; offset and bytes are multiples of 4 KiB.
  void Discard(size_t offset, size_t bytes);

 private:
  SharedMemory(Descriptor descriptor, char* data, size_t size, std::string name);

  const Descriptor descriptor_;  // none for opened memory
  char* const data_;
  const size_t size_;
  const std::string name_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_SHARED_MEMORY_H_
