#include "coordinator/checkpoint/testing/some_checkpoint.h"

#include <vector>

#include "formats/tensor_bundle.h"
#include "gtest/gtest.h"

namespace divvy {

void WriteSomeCheckpoint(FileSystem& files, const std::string& prefix, char steps) {
  auto first = *BundleDataWriter::Create(files, prefix, 0, 2),
       second = *BundleDataWriter::Create(files, prefix, 1, 2);
  const std::string number = std::string(1, steps) + std::string(7, '\0');
  const std::vector<BundleSlice> slices = {
      *first->Append("table", DType::kInt8, {4, 2}, 0, 3, "abcdef"),
      *second->Append("table", DType::kInt8, {4, 2}, 3, 4, "gh"),
      *second->Append("z", DType::kComplex128, {}, 0, 1, std::string(16, 'z')),
      *second->Append("_divvy/job", DType::kUInt8, {1}, 0, 1, "j"),
      *second->Append("_divvy/finished_steps", DType::kInt64, {}, 0, 1, number)};
  ASSERT_TRUE(first->Finish().ok() && second->Finish().ok());
  ASSERT_EQ(WriteBundleIndex(files, prefix, 2, slices), absl::OkStatus());
}

}  // namespace divvy
