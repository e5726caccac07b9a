// The memory that a file of a dataset may take, on a machine with 8 MiB.
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/testing/in_memory_file_system.h"
#include "data/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// The linker replaces divvy::MostMemoryBytes() with this function.
extern "C" int64_t __wrap__ZN5divvy15MostMemoryBytesEv() { return 8 << 20; }

namespace divvy {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kMegabyte = 1 << 20;

// A gzip file that is 1,000 times as large when it is decompressed. It has several members.
std::string GzipBomb(size_t megabytes) {
  const std::string zeros(kMegabyte, '0');
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string member(deflateBound(&stream, zeros.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(zeros.data()));
  stream.avail_in = static_cast<uInt>(zeros.size());
  stream.next_out = reinterpret_cast<Bytef*>(member.data());
  stream.avail_out = static_cast<uInt>(member.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  member.resize(stream.total_out);
  deflateEnd(&stream);
  std::string bomb;
  for (size_t i = 0; i < megabytes; ++i) bomb += member;
  return bomb;
}

class FileLimitsTest : public testing::Test {
 protected:
  // The error of each kind of dataset for the file.
  std::vector<absl::Status> Errors(const std::string& name) {
    const auto parse = [](absl::string_view) -> absl::StatusOr<Nest> {
      return absl::InternalError("parsed");
    };
    std::vector<absl::Status> errors;
    for (const Dataset& dataset :
         {Dataset::Csv(name, {{"x"}}), Dataset::Libsvm(name), Dataset::CriteoTsv(name),
          Dataset::TfRecord(name, parse), Dataset::Idx(name, name)}) {
      errors.push_back(dataset.Iterate(environment_)->Next().status());
    }
    return errors;
  }

  InMemoryFileSystem files_;
  const DataEnvironment environment_{&files_, nullptr};
};

TEST_F(FileLimitsTest, AGzipBombIsRefusedByEachDatasetBeforeItTakesMuchMemory) {
  ASSERT_TRUE(files_.ReplaceFile("bomb.gz", GzipBomb(256)).ok());
  const int64_t before = PeakMemoryBytes();
  for (const absl::Status& error : Errors("bomb.gz")) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << error;
    EXPECT_THAT(
        std::string(error.message()),
        HasSubstr("bomb.gz: decompressed, the data have more than the allowed 4194304 bytes"));
  }
  // Half of the memory that one dataset would need to decompress the whole file. The limit is not
  // lower, because AddressSanitizer keeps some of the memory that the five datasets have freed.
  EXPECT_LT(PeakMemoryBytes() - before, int64_t{128} * static_cast<int64_t>(kMegabyte));
}

TEST_F(FileLimitsTest, AFileOfMoreThanHalfOfTheMemoryIsRefusedByEachDataset) {
  ASSERT_TRUE(files_.ReplaceFile("large", std::string(4 * kMegabyte + 1, '0')).ok());
  for (const absl::Status& error : Errors("large")) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << error;
    EXPECT_THAT(
        std::string(error.message()),
        StartsWith("large: a file of a dataset is read whole, and may have at most 4 MiB on "
                   "this machine: split it into several files"));
  }
}

}  // namespace
}  // namespace divvy
