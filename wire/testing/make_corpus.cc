// make_corpus DIRECTORY: writes the initial inputs of this folder's fuzz targets, one file for each
// kind of message, to DIRECTORY/{frames, requests, replies, steps, values}. Run it after a change
// of the protocol: bazel run //wire/testing:make_corpus -- $PWD/wire/testing/corpus
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "wire/testing/conversion.h"
#include "wire/testing/frames.h"

namespace divvy::wire::testing {
namespace {

absl::Status Write(const std::string& name, const std::string& bytes) {
  ASSIGN_OR_RETURN(auto file, FileSystem::Real().OpenForWrite(name, WriteMode::kReplace));
  RETURN_IF_ERROR(file->Append(bytes));
  return file->Close();
}

template <typename T>
absl::Status WriteKind(const std::string& directory, char kind, uint64_t files) {
  for (uint64_t seed = 1; seed <= files; ++seed) {
    RETURN_IF_ERROR(Write(absl::StrCat(directory, "/", static_cast<int>(kind), "-", seed),
                          std::string(1, kind) + RandomBytes<T>(seed)));
  }
  return absl::OkStatus();
}

template <typename... Ts>
absl::Status WriteKinds(Kinds<Ts...>, const std::string& directory, uint64_t files) {
  RETURN_IF_ERROR(FileSystem::Real().CreateDirectory(directory));
  absl::Status status;
  char kind = 0;
  (status.Update(WriteKind<Ts>(directory, kind++, files)), ...);
  return status;
}

template <typename Request>
absl::Status WriteFrames(const std::string& directory, char kind) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::string message =
        MessagesOf(ToTransfer(seed, Generator(seed).Make<Request>()), kMessageBytes)[0];
    RETURN_IF_ERROR(Write(absl::StrCat(directory, "/", static_cast<int>(kind), "-", seed),
                          std::string(1, kind) + message));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(const std::string& directory) {
  RETURN_IF_ERROR(FileSystem::Real().CreateDirectory(directory + "/frames"));
  RETURN_IF_ERROR(WriteFrames<PullRequest>(directory + "/frames", 0));
  RETURN_IF_ERROR(WriteFrames<CommitRequest>(directory + "/frames", 1));
  RETURN_IF_ERROR(WriteKinds(RequestKinds(), directory + "/requests", 1));
  RETURN_IF_ERROR(WriteKinds(ReplyKinds(), directory + "/replies", 1));
  // About one for each message that a frame can have.
  RETURN_IF_ERROR(WriteKinds(StepsKinds(), directory + "/steps", 8));
  return WriteKinds(ValueKinds(), directory + "/values", 2);
}

}  // namespace
}  // namespace divvy::wire::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus DIRECTORY\n");
    return 64;
  }
  const absl::Status status = divvy::wire::testing::WriteAll(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
