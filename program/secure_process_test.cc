// A process with more rights than the user who started it loads no code, because that user chose
// its flags, its environment and its directory.
#include <sys/auxv.h>

#include "base/trusted_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpus.h"
#include "program/program_library.h"

namespace {
bool is_secure = false;
}

// The kernel's information about this process. The linker replaces the first function by the
// second.
extern "C" unsigned long __real_getauxval(unsigned long type);
extern "C" unsigned long __wrap_getauxval(unsigned long type) {
  return type == AT_SECURE && is_secure ? 1 : __real_getauxval(type);
}

namespace divvy {
namespace {

using testing::HasSubstr;

constexpr char kSaid[] =
    "this program has more rights than the user who started it, so it loads no library: take the "
    "set-user-ID and set-group-ID bits";

class SecureProcessTest : public testing::Test {
 protected:
  SecureProcessTest() { is_secure = true; }
  ~SecureProcessTest() override { is_secure = false; }
};

TEST_F(SecureProcessTest, IsToldApartFromOneOfItsUsersOwn) {
  EXPECT_EQ(CheckMayLoadCode().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(CheckMayLoadCode().message()), HasSubstr(kSaid));
  is_secure = false;
  EXPECT_TRUE(CheckMayLoadCode().ok());
}

TEST_F(SecureProcessTest, LoadsNoProgram) {
  const absl::Status refused = LoadProgramLibrary("no/such.so");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(kSaid));
  is_secure = false;
  EXPECT_EQ(LoadProgramLibrary("no/such.so").code(), absl::StatusCode::kNotFound);
}

// No library is beside this program, so a search would ask the system's loader.
TEST_F(SecureProcessTest, AsksTheSystemsLoaderForNoLibraryOfGpus) {
  const auto opened = OpenGpus({{GpuChoice::Kind::kAll, {}}, 0, {}});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(kSaid));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("give --gpus=none"));
  EXPECT_THAT(OpenGpus({{GpuChoice::Kind::kAuto, {}}, 0, {}})->why_none, HasSubstr(kSaid))
      << "the CPU computes, and the log says why";
}

}  // namespace
}  // namespace divvy
