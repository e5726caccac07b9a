#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace divvy {
namespace {

struct Search {
  uintptr_t address = 0;
  std::string id;
};

bool Holds(const dl_phdr_info& file, uintptr_t address) {
  for (int i = 0; i < file.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = file.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && address - (file.dlpi_addr + segment.p_vaddr) < segment.p_memsz)
      return true;
  }
  return false;
}

size_t Padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

// Finds the build id among the notes of one segment. A note is a header, a name and a description;
// the last two are padded to four bytes each.
std::string IdAmong(absl::string_view notes) {
  constexpr absl::string_view kGnu("GNU", 4);  // with its NUL
  ElfW(Nhdr) head;
  while (notes.size() >= sizeof(head)) {
    std::memcpy(&head, notes.data(), sizeof(head));
    notes.remove_prefix(sizeof(head));
    const size_t name = Padded(head.n_namesz), all = name + Padded(head.n_descsz);
    if (all > notes.size()) return "";
    if (head.n_type == NT_GNU_BUILD_ID && notes.substr(0, head.n_namesz) == kGnu)
      return absl::BytesToHexString(notes.substr(name, head.n_descsz));
    notes.remove_prefix(all);
  }
  return "";
}

int Look(dl_phdr_info* file, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (!Holds(*file, search.address)) return 0;
  for (int i = 0; i < file->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr)& segment = file->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE)
      search.id = IdAmong(
          {reinterpret_cast<const char*>(file->dlpi_addr + segment.p_vaddr), segment.p_memsz});
  }
  return 1;
}

}  // namespace

std::string BuildIdAt(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address), ""};
  dl_iterate_phdr(Look, &search);
  return search.id;
}

}  // namespace divvy
