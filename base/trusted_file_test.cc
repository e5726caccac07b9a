#include "base/trusted_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/remove_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using testing::HasSubstr;

constexpr uid_t kSomebody = 12345;

class TrustedFileTest : public testing::Test {
 protected:
  TrustedFileTest() {
    EXPECT_EQ(mkdir(folder_.c_str(), 0700), 0);
    EXPECT_TRUE(FileSystem::Real().ReplaceFile(file_, "code").ok());
    SetModes(0755, 0755);
  }
  ~TrustedFileTest() override { RemoveTree(folder_); }

  void SetModes(mode_t folder, mode_t file) {
    EXPECT_EQ(chmod(folder_.c_str(), folder), 0);
    EXPECT_EQ(chmod(file_.c_str(), file), 0);
  }
  absl::Status File(const std::string& path) const { return CheckTrustedFile(path, "the library"); }

  const std::string folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/trusted"),
                    file_ = folder_ + "/code.so";
};

TEST_F(TrustedFileTest, WhatOnlyThisUserMayWriteIsTrusted) {
  EXPECT_TRUE(File(file_).ok());
  EXPECT_TRUE(CheckTrustedFolder(file_).ok());
  EXPECT_TRUE(CheckOwnFolder(folder_).ok());
  EXPECT_TRUE(CheckTrustedFolder(folder_ + "/not there").ok());
}

TEST_F(TrustedFileTest, AFileThatOthersMayWriteIsNot) {
  for (const mode_t mode : {0775, 0757}) {
    SetModes(0755, mode);
    EXPECT_EQ(File(file_),
              absl::PermissionDeniedError(absl::StrCat(
                  "can be written by others, whose code would run here; chmod go-w ", file_)));
  }
}

TEST_F(TrustedFileTest, CodeIsTrustedWhereItsFileAndItsFolderAre) {
  EXPECT_TRUE(CheckTrustedCode(file_, "the library").ok());
  SetModes(0755, 0775);
  EXPECT_EQ(CheckTrustedCode(file_, "the library"), File(file_));
  SetModes(0777, 0755);
  EXPECT_EQ(CheckTrustedCode(file_, "the library"), CheckTrustedFolder(file_));
}

TEST_F(TrustedFileTest, AFolderThatOthersMayWriteIsNotEvenWithTheStickyBit) {
  for (const mode_t mode : {0775, 0757, 01777}) {
    SetModes(mode, 0755);
    EXPECT_EQ(CheckOwnFolder(folder_),
              absl::PermissionDeniedError(absl::StrCat(
                  folder_, " can be written by others; take another, or chmod go-w ", folder_)));
    EXPECT_THAT(std::string(CheckTrustedFolder(file_).message()),
                HasSubstr("Whoever may write there could run code here"));
  }
}

TEST_F(TrustedFileTest, ALinkIsWorthNoMoreThanWhereItLeads) {
  const std::string link = absl::StrCat(std::getenv("TEST_TMPDIR"), "/link.so");
  ASSERT_EQ(symlink(file_.c_str(), link.c_str()), 0);
  EXPECT_TRUE(File(link).ok());
  EXPECT_TRUE(CheckTrustedFolder(link).ok());
  SetModes(01777, 0777);
  EXPECT_EQ(File(link).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckTrustedFolder(link).code(), absl::StatusCode::kPermissionDenied);
  unlink(link.c_str());
}

TEST_F(TrustedFileTest, WhatIsSomebodyElsesIsNot) {
  if (chown(file_.c_str(), kSomebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP()
        << "only root can give a file to another user, and only if that user id exists here";
  EXPECT_THAT(std::string(File(file_).message()),
              HasSubstr("belongs to user 12345, whose code would run as user"));
  ASSERT_EQ(chown(folder_.c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(CheckOwnFolder(folder_),
            absl::PermissionDeniedError(absl::StrCat(
                folder_, " belongs to user 12345; use a folder that belongs to this user")));
}

TEST_F(TrustedFileTest, WhatIsNoFileIsNamed) {
  EXPECT_EQ(File(folder_ + "/not there"),
            absl::NotFoundError("there is no such file; give the path of the library"));
  EXPECT_EQ(File(file_ + "/below"),
            absl::NotFoundError("there is no such file; give the path of the library"));
  EXPECT_EQ(File(folder_),
            absl::InvalidArgumentError("is not a file; give the path of the library"));
  EXPECT_THAT(std::string(CheckOwnFolder(folder_ + "/not there").message()),
              HasSubstr("cannot be accessed"));
}

}  // namespace
}  // namespace divvy
