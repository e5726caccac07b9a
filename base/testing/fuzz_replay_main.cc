// Runs a fuzz target without a fuzzer: calls LLVMFuzzerTestOneInput once with no bytes, and once
// with the content of each file on the command line.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "base/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (int i = 1; i < argc; ++i) {
    const absl::StatusOr<std::string> bytes = divvy::FileSystem::Real().ReadFile(argv[i]);
    if (!bytes.ok()) {
      std::fprintf(stderr, "%s\n", bytes.status().ToString().c_str());
      return 1;
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size());
  }
  std::printf("replayed %d files\n", argc - 1);
}
