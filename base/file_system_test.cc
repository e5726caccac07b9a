#include "base/file_system.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "base/remove_tree.h"
#include "base/testing/in_memory_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- Tests of every file system, run with the real one and with the one in memory

class Subject {
 public:
  virtual ~Subject() = default;
  virtual FileSystem& files() = 0;
  virtual std::string root() = 0;  // the path of an empty directory
};

class RealSubject : public Subject {
 public:
  RealSubject() {
    const char* const temporary = getenv("TEST_TMPDIR");
    root_ = absl::StrCat(temporary == nullptr ? "/tmp" : temporary, "/file_system_XXXXXX");
    if (mkdtemp(&root_[0]) == nullptr) abort();
  }
  ~RealSubject() override { RemoveAll(root_); }
  FileSystem& files() override { return FileSystem::Real(); }
  std::string root() override { return root_; }

 private:
  void RemoveAll(const std::string& name) {
    const auto children = files().ListDirectory(name);
    if (children.ok()) {
      for (const std::string& child : *children) RemoveAll(absl::StrCat(name, "/", child));
    }
    files().Remove(name).IgnoreError();
  }
  std::string root_;
};

class MemorySubject : public Subject {
 public:
  MemorySubject() { EXPECT_TRUE(files_.CreateDirectory(root()).ok()); }
  FileSystem& files() override { return files_; }
  std::string root() override { return "/test"; }

 private:
  InMemoryFileSystem files_;
};

struct Maker {
  const char* name;
  std::function<std::unique_ptr<Subject>()> make;
};

absl::Status Write(FileSystem& files, const std::string& name, absl::string_view bytes,
                   WriteMode mode = WriteMode::kReplace) {
  auto file = files.OpenForWrite(name, mode);
  if (!file.ok()) return file.status();
  const absl::Status appended = (*file)->Append(bytes);
  return appended.ok() ? (*file)->Close() : appended;
}

class FileSystemTest : public ::testing::TestWithParam<Maker> {
 protected:
  FileSystemTest() : subject_(GetParam().make()), files_(subject_->files()) {}
  std::string Name(absl::string_view last) { return absl::StrCat(subject_->root(), "/", last); }
  absl::Status Write(absl::string_view last, absl::string_view bytes,
                     WriteMode mode = WriteMode::kReplace) {
    return divvy::Write(files_, Name(last), bytes, mode);
  }
  std::string Read(absl::string_view last) {
    const auto bytes = files_.ReadFile(Name(last));
    return bytes.ok() ? *bytes : std::string(bytes.status().message());
  }

  const std::unique_ptr<Subject> subject_;
  FileSystem& files_;
};

INSTANTIATE_TEST_SUITE_P(
    All, FileSystemTest,
    ::testing::Values(Maker{"Real", [] { return std::make_unique<RealSubject>(); }},
                      Maker{"InMemory", [] { return std::make_unique<MemorySubject>(); }}),
    [](const auto& test) { return test.param.name; });

TEST_P(FileSystemTest, WhatWasWrittenIsRead) {
  ASSERT_TRUE(Write("a", absl::string_view("one\0two\xff", 8)).ok());
  EXPECT_EQ(Read("a"), std::string("one\0two\xff", 8));
  EXPECT_EQ(files_.Stat(Name("a"))->size_bytes, 8u);
}

TEST_P(FileSystemTest, AnEmptyFileIsAFile) {
  ASSERT_TRUE(Write("a", "").ok());
  EXPECT_EQ(Read("a"), "");
  EXPECT_FALSE(files_.Stat(Name("a"))->is_directory);
}

TEST_P(FileSystemTest, FilesLargerThanOneReadComeWhole) {
  std::string bytes;
  for (int i = 0; i < 100000; ++i) absl::StrAppend(&bytes, i, ",");
  ASSERT_TRUE(Write("a", bytes).ok());
  EXPECT_TRUE(Read("a") == bytes);
}

TEST_P(FileSystemTest, ReplaceBeginsAnewAndAppendGoesOn) {
  ASSERT_TRUE(Write("a", "first").ok());
  ASSERT_TRUE(Write("a", "2nd").ok());
  EXPECT_EQ(Read("a"), "2nd");
  ASSERT_TRUE(Write("a", "+3rd", WriteMode::kAppend).ok());
  EXPECT_EQ(Read("a"), "2nd+3rd");
  ASSERT_TRUE(Write("b", "new", WriteMode::kAppend).ok());
  EXPECT_EQ(Read("b"), "new");
}

TEST_P(FileSystemTest, CreateNewRefusesWhatExistsAndLeavesIt) {
  ASSERT_TRUE(Write("a", "first", WriteMode::kCreateNew).ok());
  EXPECT_EQ(Write("a", "second", WriteMode::kCreateNew).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("a"), "first");
}

TEST_P(FileSystemTest, AppendsAreSeenBeforeTheFileIsClosed) {
  auto file = files_.OpenForWrite(Name("a"), WriteMode::kReplace);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("one").ok());
  EXPECT_EQ(Read("a"), "one");
  ASSERT_TRUE((*file)->Append("two").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(Read("a"), "onetwo");
}

TEST_P(FileSystemTest, AClosedFileTakesNothingMore) {
  auto file = files_.OpenForWrite(Name("a"), WriteMode::kReplace);
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(FileSystemTest, ReadAtGivesWhatIsThereAndNothingBehindTheEnd) {
  ASSERT_TRUE(Write("a", "0123456789").ok());
  const auto file = files_.OpenRandomAccess(Name("a"));
  ASSERT_TRUE(file.ok());
  char out[4] = {};
  EXPECT_EQ(*(*file)->ReadAt(3, absl::MakeSpan(out)), 4u);
  EXPECT_EQ(std::string(out, 4), "3456");
  EXPECT_EQ(*(*file)->ReadAt(8, absl::MakeSpan(out)), 2u);
  EXPECT_EQ(std::string(out, 2), "89");
  EXPECT_EQ(*(*file)->ReadAt(10, absl::MakeSpan(out)), 0u);
  EXPECT_EQ(*(*file)->ReadAt(1000, absl::MakeSpan(out)), 0u);
}

TEST_P(FileSystemTest, SequentialReadsGoOnWhereTheLastOneEnded) {
  ASSERT_TRUE(Write("a", "0123456").ok());
  const auto file = files_.OpenSequential(Name("a"));
  ASSERT_TRUE(file.ok());
  char out[4] = {};
  EXPECT_EQ(*(*file)->Read(absl::MakeSpan(out)), 4u);
  EXPECT_EQ(*(*file)->Read(absl::MakeSpan(out)), 3u);
  EXPECT_EQ(std::string(out, 3), "456");
  EXPECT_EQ(*(*file)->Read(absl::MakeSpan(out)), 0u);
}

TEST_P(FileSystemTest, AHandleOutlivesTheNameOfItsFile) {
  ASSERT_TRUE(Write("a", "old").ok());
  const auto file = files_.OpenSequential(Name("a"));
  ASSERT_TRUE(files_.Remove(Name("a")).ok());
  ASSERT_TRUE(Write("a", "new").ok());
  char out[8] = {};
  EXPECT_EQ(*(*file)->Read(absl::MakeSpan(out)), 3u);
  EXPECT_EQ(std::string(out, 3), "old");
}

TEST_P(FileSystemTest, WhatIsMissingIsNotFoundAndNamed) {
  const absl::Status missing = files_.ReadFile(Name("none")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(Name("none")));
  EXPECT_EQ(files_.OpenRandomAccess(Name("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.Stat(Name("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.ListDirectory(Name("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.Remove(Name("none")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.Rename(Name("none"), Name("a")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.SyncDirectory(Name("none")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Write("none/a", "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.ReadFile("").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.CreateDirectory("").code(), absl::StatusCode::kNotFound);
}

TEST_P(FileSystemTest, FilesAndDirectoriesAreNotTakenForEachOther) {
  ASSERT_TRUE(Write("file", "x").ok());
  ASSERT_TRUE(files_.CreateDirectory(Name("folder")).ok());
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(files_.ReadFile(Name("folder")).status().code(), kRefused);
  EXPECT_EQ(Write("folder", "x").code(), kRefused);
  EXPECT_EQ(files_.ListDirectory(Name("file")).status().code(), kRefused);
  EXPECT_EQ(files_.SyncDirectory(Name("file")).code(), kRefused);
  EXPECT_EQ(files_.ReadFile(Name("file/x")).status().code(), kRefused);
  EXPECT_EQ(Write("file/x", "x").code(), kRefused);
  EXPECT_EQ(files_.CreateDirectory(Name("file")).code(), kRefused);
  EXPECT_EQ(files_.CreateDirectory(Name("file/x")).code(), kRefused);
  EXPECT_EQ(files_.Rename(Name("file"), Name("folder")).code(), kRefused);
  EXPECT_EQ(files_.Rename(Name("folder"), Name("file")).code(), kRefused);
}

TEST_P(FileSystemTest, DirectoriesAreMadeWithThoseAboveThemOnceOrTwice) {
  ASSERT_TRUE(files_.CreateDirectory(Name("a/b//c/")).ok());
  ASSERT_TRUE(files_.CreateDirectory(Name("a/b/c")).ok());
  EXPECT_TRUE(files_.Stat(Name("a/b/c"))->is_directory);
  ASSERT_TRUE(Write("a/b/./c/file", "x").ok());
  EXPECT_EQ(Read("a//b/c/file"), "x");
  EXPECT_TRUE(files_.CreateDirectory("/").ok());
  EXPECT_TRUE(files_.CreateDirectory(".").ok());
}

TEST_P(FileSystemTest, AListingHasTheNamesOfOneDirectorySorted) {
  ASSERT_TRUE(files_.CreateDirectory(Name("b/inner")).ok());
  ASSERT_TRUE(Write("c", "").ok());
  ASSERT_TRUE(Write("a", "").ok());
  ASSERT_TRUE(Write(".hidden", "").ok());
  EXPECT_THAT(*files_.ListDirectory(subject_->root()), ElementsAre(".hidden", "a", "b", "c"));
  EXPECT_THAT(*files_.ListDirectory(Name("b/")), ElementsAre("inner"));
  EXPECT_THAT(*files_.ListDirectory(Name("b/inner")), IsEmpty());
}

TEST_P(FileSystemTest, RenameMovesAFileOverAnother) {
  ASSERT_TRUE(Write("a", "new").ok());
  ASSERT_TRUE(Write("b", "old").ok());
  ASSERT_TRUE(files_.Rename(Name("a"), Name("b")).ok());
  EXPECT_EQ(Read("b"), "new");
  EXPECT_EQ(files_.Stat(Name("a")).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(files_.Rename(Name("b"), Name("b")).ok());
  EXPECT_EQ(Read("b"), "new");
}

TEST_P(FileSystemTest, RenameMovesADirectoryWithAllInIt) {
  ASSERT_TRUE(files_.CreateDirectory(Name("a/deep")).ok());
  ASSERT_TRUE(Write("a/deep/file", "x").ok());
  ASSERT_TRUE(files_.Rename(Name("a"), Name("b")).ok());
  EXPECT_EQ(Read("b/deep/file"), "x");
  EXPECT_THAT(*files_.ListDirectory(subject_->root()), ElementsAre("b"));
  EXPECT_EQ(files_.Rename(Name("b"), Name("b/deep/b")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read("b/deep/file"), "x");
}

TEST_P(FileSystemTest, OnlyAnEmptyDirectoryIsRemovedOrReplaced) {
  ASSERT_TRUE(files_.CreateDirectory(Name("full")).ok());
  ASSERT_TRUE(files_.CreateDirectory(Name("empty")).ok());
  ASSERT_TRUE(Write("full/file", "x").ok());
  EXPECT_EQ(files_.Remove(Name("full")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(files_.Rename(Name("empty"), Name("full")).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(files_.Rename(Name("full"), Name("empty")).ok());
  ASSERT_TRUE(files_.Remove(Name("empty/file")).ok());
  EXPECT_TRUE(files_.Remove(Name("empty")).ok());
  EXPECT_THAT(*files_.ListDirectory(subject_->root()), IsEmpty());
}

TEST_P(FileSystemTest, ReplaceFileLeavesTheNewContentAndNothingBeside) {
  ASSERT_TRUE(files_.ReplaceFile(Name("a"), "one").ok());
  ASSERT_TRUE(files_.ReplaceFile(Name("a"), "two").ok());
  EXPECT_EQ(Read("a"), "two");
  EXPECT_THAT(*files_.ListDirectory(subject_->root()), ElementsAre("a"));
}

// ---- The real file system alone

TEST(RealFileSystemTest, AFullDeviceIsResourceExhausted) {
  const absl::Status status = Write(FileSystem::Real(), "/dev/full", "x", WriteMode::kAppend);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write /dev/full"));
}

TEST(RealFileSystemTest, AFileAsLargeAsItMayBeIsResourceExhausted) {
  const std::string name = absl::StrCat(getenv("TEST_TMPDIR"), "/limited");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit narrow = {3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &narrow), 0);
  const absl::Status status = Write(FileSystem::Real(), name, "1234", WriteMode::kAppend);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -f"));
}

// ---- Unexpected files, by accident or malice

class OddFilesTest : public ::testing::Test {
 protected:
  std::string Name(absl::string_view last) { return absl::StrCat(subject_.root(), "/", last); }
  FileSystem& files_ = FileSystem::Real();
  RealSubject subject_;
};

TEST_F(OddFilesTest, APipeOrADeviceIsNotReadAndNobodyWaitsForIt) {
  ASSERT_EQ(mkfifo(Name("pipe").c_str(), 0600), 0);
  ASSERT_EQ(symlink("/dev/zero", Name("zero").c_str()), 0);
  for (const char* odd : {"pipe", "zero"}) {
    EXPECT_EQ(files_.ReadFile(Name(odd)).status().code(), absl::StatusCode::kFailedPrecondition)
        << odd;
    const absl::Status opened = files_.OpenRandomAccess(Name(odd)).status();
    EXPECT_EQ(opened.code(), absl::StatusCode::kFailedPrecondition) << opened;
    EXPECT_THAT(std::string(opened.message()),
                HasSubstr("it is a pipe, a device or a socket, and must be a file"));
  }
  EXPECT_FALSE(Write(files_, Name("pipe"), "x").ok());
}

TEST_F(OddFilesTest, AFileThatCannotBeHeldInMemoryIsRefused) {
  ASSERT_TRUE(Write(files_, Name("holes"), "x").ok());
  ASSERT_EQ(truncate(Name("holes").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(files_.ReadFile(Name("holes")).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(OddFilesTest, NothingIsWrittenThroughALink) {
  ASSERT_TRUE(Write(files_, Name("victim"), "theirs").ok());
  ASSERT_EQ(symlink(Name("victim").c_str(), Name("log").c_str()), 0);
  for (const WriteMode mode : {WriteMode::kReplace, WriteMode::kAppend}) {
    const absl::Status refused = Write(files_, Name("log"), "ours", mode);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("it is a link; remove it"));
  }
  EXPECT_EQ(*files_.ReadFile(Name("victim")), "theirs");
}

TEST_F(OddFilesTest, ReplaceFileTakesNoFileThatSomebodyHasPutThere) {
  ASSERT_TRUE(Write(files_, Name("victim"), "theirs").ok());
  ASSERT_EQ(symlink(Name("victim").c_str(), Name("key.tmp").c_str()), 0);
  EXPECT_TRUE(files_.ReplaceFile(Name("key"), "secret").ok());
  EXPECT_EQ(*files_.ReadFile(Name("victim")), "theirs");
  ASSERT_TRUE(Write(files_, Name("key.tmp"), "").ok());
  ASSERT_EQ(chmod(Name("key.tmp").c_str(), 0666), 0);
  const mode_t before = umask(077);
  EXPECT_TRUE(files_.ReplaceFile(Name("key"), "secret").ok());
  umask(before);
  struct stat info;
  ASSERT_EQ(stat(Name("key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "the mode of the file that was there before";
}

TEST_F(OddFilesTest, ATreeIsRemovedWithItsLinksAndNothingThatTheyLeadTo) {
  ASSERT_TRUE(files_.CreateDirectory(Name("data")).ok());
  ASSERT_TRUE(Write(files_, Name("data/set"), "mine").ok());
  ASSERT_TRUE(files_.CreateDirectory(Name("tree/below")).ok());
  ASSERT_EQ(symlink(Name("data").c_str(), Name("tree/below/data").c_str()), 0);
  RemoveTree(Name("tree"));
  EXPECT_TRUE(absl::IsNotFound(files_.Stat(Name("tree")).status()));
  EXPECT_EQ(*files_.ReadFile(Name("data/set")), "mine");
}

TEST(RealFileSystemTest, AfterAnErrorEveryCallGivesThatError) {
  auto file = FileSystem::Real().OpenForWrite("/dev/full", WriteMode::kAppend);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*file)->Append("").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*file)->Close().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RealFileSystemTest, FilesThatDoNotKnowTheirSizeAreReadWhole) {
  const auto bytes = FileSystem::Real().ReadFile("/proc/self/status");
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(*bytes, HasSubstr("VmPeak"));
}

// ---- The file system in memory alone: faults and crashes

class InMemoryFileSystemTest : public ::testing::Test {
 protected:
  std::string Read(const std::string& name) {
    const auto bytes = files_.ReadFile(name);
    return bytes.ok() ? *bytes : absl::StrCat(absl::StatusCodeToString(bytes.status().code()));
  }
  InMemoryFileSystem files_;
};

TEST_F(InMemoryFileSystemTest, ADurableDirectorySurvivesACrashWithThoseAboveIt) {
  ASSERT_TRUE(files_.CreateDirectory("/made/below").ok());
  files_.Crash();
  EXPECT_TRUE(absl::IsNotFound(files_.Stat("/made").status()));
  ASSERT_TRUE(files_.CreateDurableDirectory("/durable/below/that").ok());
  ASSERT_TRUE(files_.CreateDurableDirectory("/durable/below/that").ok()) << "there already";
  files_.Crash();
  EXPECT_TRUE(files_.Stat("/durable/below/that").ok());
}

TEST_F(InMemoryFileSystemTest, RelativeNamesStandInTheWorkingDirectory) {
  ASSERT_TRUE(Write(files_, "a", "relative").ok());
  ASSERT_TRUE(Write(files_, "/a", "absolute").ok());
  EXPECT_EQ(Read("./a"), "relative");
  EXPECT_EQ(Read("/a"), "absolute");
  EXPECT_THAT(*files_.ListDirectory("."), ElementsAre("a"));
}

TEST_F(InMemoryFileSystemTest, AFaultHitsItsOperationOnItsNamesAsOftenAsAsked) {
  files_.FailNext(FileOperation::kOpenForWrite, "table", absl::PermissionDeniedError("read-only"),
                  2);
  EXPECT_TRUE(Write(files_, "/other", "x").ok());
  EXPECT_EQ(Write(files_, "/table-1", "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(files_.Stat("/table-1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Write(files_, "/table-2", "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Write(files_, "/table-3", "x").ok());
}

TEST_F(InMemoryFileSystemTest, EveryOperationCanFailAndThenDoesNothing) {
  const absl::Status error = absl::DataLossError("the disk died");
  ASSERT_TRUE(Write(files_, "/a", "x").ok());
  for (const FileOperation operation :
       {FileOperation::kOpenForRead, FileOperation::kRead, FileOperation::kRename,
        FileOperation::kRemove, FileOperation::kList, FileOperation::kStat,
        FileOperation::kCreateDirectory, FileOperation::kSyncDirectory}) {
    files_.FailNext(operation, "/", error);
  }
  EXPECT_EQ(files_.OpenSequential("/a").status(), error);
  char out[1];
  EXPECT_EQ((*files_.OpenRandomAccess("/a"))->ReadAt(0, absl::MakeSpan(out)).status(), error);
  EXPECT_EQ(files_.Rename("/a", "/b"), error);
  EXPECT_EQ(files_.Remove("/a"), error);
  EXPECT_EQ(files_.ListDirectory("/").status(), error);
  EXPECT_EQ(files_.Stat("/a").status(), error);
  EXPECT_EQ(files_.CreateDirectory("/c"), error);
  EXPECT_EQ(files_.SyncDirectory("/"), error);
  EXPECT_THAT(*files_.ListDirectory("/"), ElementsAre("a"));
  EXPECT_EQ(Read("/a"), "x");
}

TEST_F(InMemoryFileSystemTest, AFailedSyncIsNotForgottenByTheNext) {
  auto file = files_.OpenForWrite("/a", WriteMode::kReplace);
  ASSERT_TRUE((*file)->Append("x").ok());
  files_.FailNext(FileOperation::kSync, "/a", absl::DataLossError("EIO"));
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*file)->Append("y").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*file)->Close().code(), absl::StatusCode::kDataLoss);
}

TEST_F(InMemoryFileSystemTest, AFullDiskKeepsWhatFits) {
  files_.SetFreeBytes(5);
  EXPECT_TRUE(Write(files_, "/a", "abc").ok());
  EXPECT_EQ(Write(files_, "/b", "def").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Read("/b"), "de");
}

TEST_F(InMemoryFileSystemTest, AFlippedBitIsFlipped) {
  ASSERT_TRUE(Write(files_, "/a", "abc").ok());
  ASSERT_TRUE(files_.FlipBit("/a", 1, 0).ok());
  EXPECT_EQ(Read("/a"), "acc");
  EXPECT_EQ(files_.FlipBit("/a", 3, 0).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(files_.FlipBit("/b", 0, 0).code(), absl::StatusCode::kNotFound);
}

TEST_F(InMemoryFileSystemTest, ACrashLosesBytesThatWereNotSynced) {
  auto file = files_.OpenForWrite("/a", WriteMode::kReplace);
  ASSERT_TRUE((*file)->Append("kept").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE(files_.SyncDirectory("/").ok());
  ASSERT_TRUE((*file)->Append(", lost").ok());
  files_.Crash();
  EXPECT_EQ(Read("/a"), "kept");
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kDataLoss);
}

TEST_F(InMemoryFileSystemTest, ACrashLosesNamesThatWereNotSynced) {
  ASSERT_TRUE(files_.ReplaceFile("/kept", "x").ok());
  auto file = files_.OpenForWrite("/lost", WriteMode::kReplace);
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE(files_.CreateDirectory("/folder").ok());
  ASSERT_TRUE(files_.ReplaceFile("/folder/below", "its folder is not synced").ok());
  ASSERT_TRUE(files_.Remove("/kept").ok());
  files_.Crash();
  EXPECT_THAT(*files_.ListDirectory("/"), ElementsAre("kept"));
}

TEST_F(InMemoryFileSystemTest, ACrashBetweenRenameAndSyncLeavesOneOfTheTwoFilesWhole) {
  ASSERT_TRUE(files_.ReplaceFile("/a", "old").ok());
  files_.FailNext(FileOperation::kSyncDirectory, "/", absl::DataLossError("EIO"));
  EXPECT_EQ(files_.ReplaceFile("/a", "new").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Read("/a"), "new");
  files_.Crash();
  EXPECT_EQ(Read("/a"), "old");
}

TEST_F(InMemoryFileSystemTest, ADirectoryThatWasRenamedAndSyncedKeepsItsFiles) {
  ASSERT_TRUE(files_.CreateDirectory("/a").ok());
  ASSERT_TRUE(files_.ReplaceFile("/a/file", "x").ok());
  ASSERT_TRUE(files_.Rename("/a", "/b").ok());
  ASSERT_TRUE(files_.SyncDirectory("/").ok());
  files_.Crash();
  EXPECT_EQ(Read("/b/file"), "x");
}

// Wherever ReplaceFile fails, the file is the old one or the new one, and after a crash the old
// one.
TEST_F(InMemoryFileSystemTest, ReplaceFileIsAllOrNothingWhateverFails) {
  for (const FileOperation operation :
       {FileOperation::kOpenForWrite, FileOperation::kAppend, FileOperation::kSync,
        FileOperation::kRename, FileOperation::kSyncDirectory}) {
    InMemoryFileSystem files;
    ASSERT_TRUE(files.ReplaceFile("/a", "old").ok());
    files.FailNext(operation, "", absl::DataLossError("EIO"));
    EXPECT_EQ(files.ReplaceFile("/a", "newer").code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(*files.ReadFile("/a"), ::testing::AnyOf("old", "newer"));
    files.Crash();
    EXPECT_EQ(*files.ReadFile("/a"), "old");
  }
}

}  // namespace
}  // namespace divvy
