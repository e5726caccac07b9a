#include "program/program_library.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/main.h"
#include "strategy/program.h"

namespace divvy {
namespace {

using ::testing::Eq;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

std::optional<std::string> FlagOf(const std::vector<const char*>& words) {
  return ProgramFlag(static_cast<int>(words.size()), words.data());
}

TEST(ProgramFlagTest, IsFoundInEachOfItsForms) {
  EXPECT_THAT(FlagOf({"worker", "--program=a.so"}), Optional(Eq("a.so")));
  EXPECT_THAT(FlagOf({"worker", "-program=a.so", "--seed=1"}), Optional(Eq("a.so")));
  EXPECT_THAT(FlagOf({"worker", "--seed=1", "--program", "a.so"}), Optional(Eq("a.so")));
  EXPECT_THAT(FlagOf({"worker", "-program", "a.so"}), Optional(Eq("a.so")));
}

TEST(ProgramFlagTest, TheLastOneCounts) {
  EXPECT_THAT(FlagOf({"worker", "--program=a.so", "--program=b.so"}), Optional(Eq("b.so")));
}

TEST(ProgramFlagTest, AMissingValueIsTheEmptyOne) {
  EXPECT_THAT(FlagOf({"worker", "--program"}), Optional(Eq("")));
}

TEST(ProgramFlagTest, OtherFlagsAndWhatStandsBehindTwoDashesAreNotIt) {
  EXPECT_EQ(FlagOf({"worker"}), std::nullopt);
  // the binary's name
  EXPECT_EQ(FlagOf({"--program=a.so"}), std::nullopt);
  EXPECT_EQ(
      FlagOf({"worker", "--programs=a.so", "--noprogram", "program=a.so", "--", "--program=a.so"}),
      std::nullopt);
}

// Each library is loaded in a process of its own, because it cannot be unloaded.
class ProgramLibraryTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

std::string Library(const std::string& name) {
  return absl::StrCat("program/testing/lib", name, ".so");
}

std::string Temporary(const std::string& name, const std::string& bytes, mode_t mode) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  EXPECT_TRUE(FileSystem::Real().ReplaceFile(path, bytes).ok());
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

// Loads a library, and prints the result on standard error.
[[noreturn]] void LoadAndSay(const std::string& path) {
  const absl::Status status = LoadProgramLibrary(path);
  std::fputs(absl::StrCat("<", status.ToString(), ">\n").c_str(), stderr);
  _exit(0);
}

#define EXPECT_LOADING_SAYS(path, words) EXPECT_EXIT(LoadAndSay(path), ExitedWithCode(0), words)

// Expects that no code of the library runs, and that the error is one line.
#define EXPECT_REFUSED(path, code, words)                                                     \
  EXPECT_LOADING_SAYS(                                                                        \
      path, AllOf(HasSubstr(absl::StrCat("<", code, ": --program=", path, ": ", words, ">")), \
                  Not(HasSubstr("ran"))))

// Loads the good library, reads `flag` as a flag of its own, and runs its program, which prints the
// value.
[[noreturn]] void LoadAndTrain(std::string flag) {
  if (!LoadProgramLibrary(Library("good")).ok()) _exit(1);
  char name[] = "test";
  char* words[] = {name, flag.data()};
  absl::ParseCommandLine(2, words);
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  const auto coordinator = StartEmbedded();
  if (!program.ok() || !coordinator.ok()) _exit(2);
  std::fputs((*program)->train(**coordinator).ToString().c_str(), stderr);
  _exit(0);
}

TEST_F(ProgramLibraryTest, AGoodOneBringsItsProgramAndItsFlags) {
  EXPECT_EXIT(LoadAndTrain("--library_rows=7"), ExitedWithCode(0),
              HasSubstr("UNIMPLEMENTED: rows 7"));
}

TEST_F(ProgramLibraryTest, WhatIsNotThereIsNotFound) {
  EXPECT_REFUSED("no/such.so", "NOT_FOUND",
                 "there is no such file; give the path of the program's library");
  EXPECT_LOADING_SAYS(
      "", HasSubstr("<INVALID_ARGUMENT: --program: the path of the program's library is missing>"));
}

TEST_F(ProgramLibraryTest, WhatIsNoLibraryIsRefused) {
  EXPECT_REFUSED(std::getenv("TEST_TMPDIR"), "INVALID_ARGUMENT",
                 "is not a file; give the path of the program's library");
  const std::string words = "is not a shared library for this machine; build it with -shared -fPIC";
  EXPECT_REFUSED(Temporary("short.so", "a", 0644), "INVALID_ARGUMENT", words);
  EXPECT_REFUSED(Temporary("text.so", std::string(5000, '#'), 0644), "INVALID_ARGUMENT", words);
}

TEST_F(ProgramLibraryTest, AnotherVersionOfTheInterfaceIsSaidAndNothingOfTheLibraryRuns) {
  EXPECT_REFUSED(Library("other_api"), "FAILED_PRECONDITION",
                 "was built for version 2 of Divvy's program interface, and this is another; build "
                 "it again with this SDK");
}

TEST_F(ProgramLibraryTest, WhatTheLibraryMissesIsNamed) {
  EXPECT_REFUSED(Library("unresolved"), "INVALID_ARGUMENT",
                 "needs mine::DefinedNowhere(int), which is nowhere; link it with -Wl,-z,defs and "
                 "add the library that the linker misses");
}

TEST_F(ProgramLibraryTest, ALibraryHasOneProgramExactly) {
  EXPECT_LOADING_SAYS(
      Library("no_program"),
      HasSubstr(
          "<INVALID_ARGUMENT: --program=program/testing/libno_program.so: there is no program"));
  EXPECT_LOADING_SAYS(
      Library("two_programs"),
      HasSubstr(
          "<INVALID_ARGUMENT: --program=program/testing/libtwo_programs.so: there are 2 programs"));
}

[[noreturn]] void LoadTwo(const std::string& second) {
  if (!LoadProgramLibrary(Library("good")).ok()) _exit(1);
  LoadAndSay(second);
}

TEST_F(ProgramLibraryTest, ASecondLibraryIsRefused) {
  EXPECT_EXIT(LoadTwo(Library("two_programs")), ExitedWithCode(0),
              HasSubstr("this binary has a program of its own"));
}

TEST_F(ProgramLibraryTest, AFileThatOthersMayWriteIsRefused) {
  for (const mode_t mode : {0664, 0646}) {
    const std::string path = Temporary("open.so", "a", mode);
    EXPECT_REFUSED(
        path, "PERMISSION_DENIED",
        absl::StrCat("can be written by others, whose code would run here; chmod go-w ", path));
  }
}

TEST_F(ProgramLibraryTest, AFileInAFolderThatOthersMayWriteIsRefused) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/open"),
                    path = folder + "/own.so";
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(folder).ok());
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(path, "a").ok());
  for (const mode_t mode : {0775, 0757, 01777}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_REFUSED(path, "PERMISSION_DENIED",
                   absl::StrCat("its folder ", folder,
                                " can be written by others; take another, or chmod go-w ", folder,
                                ". Whoever may write there could run code here"));
  }
}

TEST_F(ProgramLibraryTest, AFileOfAnotherUserIsRefused) {
  const std::string path = Temporary("theirs.so", "a", 0644);
  if (chown(path.c_str(), 12345, -1) != 0) GTEST_SKIP() << "only root may give files away";
  EXPECT_REFUSED(path, "PERMISSION_DENIED",
                 absl::StrCat("belongs to user 12345, whose code would run as user ", geteuid(),
                              "; chown it to root or to this user"));
}

}  // namespace
}  // namespace divvy
