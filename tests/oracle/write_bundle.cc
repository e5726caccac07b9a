// write_bundle DIRECTORY: writes a checkpoint as a coordinator and two parameter servers do, for
// tensorflow_test.py. Element i of each tensor is i % 100 + 1.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "formats/tensor_bundle.h"

namespace divvy {
namespace {

constexpr int kNumFiles = 3;

struct Item {
  std::string name;
  DType dtype;
  Shape shape;
  // The rows at which slices end. The slices belong to the first and the second parameter server in
  // turn.
  std::vector<int64_t> cuts;
};

const std::vector<Item>& Items() {
  static const auto& items = *new std::vector<Item>{
      {"emb/table", DType::kFloat32, {14, 8}, {4, 8, 14}},
      {"emb/table/adam/m", DType::kFloat32, {14, 8}, {4, 8, 14}},
      {"emb/table/adam/t", DType::kInt32, {14}, {4, 8, 14}},
      {"many/rows", DType::kInt64, {100'000, 1}, {63, 64, 127, 8191, 8192, 70'000, 100'000}},
      {"many/parts", DType::kUInt8, {5000, 2}, {}},  // each row is a slice
      {"cube", DType::kFloat64, {3, 2, 2}, {1, 3}},
      {"half", DType::kFloat16, {5}, {5}},
      {"brain", DType::kBFloat16, {5}, {2, 5}},
      {"flag", DType::kBool, {2}, {2}},
      {"byte", DType::kInt8, {3}, {3}},
      {"scalar", DType::kFloat32, {}, {1}},
      {"empty", DType::kFloat32, {0, 16}, {0}},
      {"weird \xc3\xa9 name", DType::kInt32, {2, 1}, {1, 2}},
  };
  return items;
}

template <typename T>
T Number(int64_t i) {
  const float value = static_cast<float>(i % 100 + 1);
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T::FromFloat(value);
  } else {
    return static_cast<T>(value);
  }
}

std::string Bytes(const Item& item, int64_t begin, int64_t end) {
  return DispatchDType(
      item.dtype,
      [&](auto zero) {
        using T = decltype(zero);
        std::string bytes;
        for (int64_t i = begin * item.shape.row_elements(); i < end * item.shape.row_elements();
             ++i) {
          const T value = Number<T>(i);
          bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
        return bytes;
      },
      std::string());
}

absl::Status WriteAll(const std::string& directory) {
  FileSystem& files = FileSystem::Real();
  const std::string prefix = absl::StrCat(directory, "/ckpt-1-1");
  std::vector<std::unique_ptr<BundleDataWriter>> out;
  for (int i = 0; i < kNumFiles; ++i) {
    ASSIGN_OR_RETURN(out.emplace_back(), BundleDataWriter::Create(files, prefix, i, kNumFiles));
  }
  std::vector<BundleSlice> slices;
  for (Item item : Items()) {
    for (int64_t row = 1; item.name == "many/parts" && row <= item.shape.rows(); ++row)
      item.cuts.push_back(row);
    int64_t begin = 0;
    for (size_t i = 0; i < item.cuts.size(); begin = item.cuts[i++]) {
      const std::string bytes = Bytes(item, begin, item.cuts[i]);
      ASSIGN_OR_RETURN(slices.emplace_back(), out[i % 2]->Append(item.name, item.dtype, item.shape,
                                                                 begin, item.cuts[i], bytes));
    }
  }
  ASSIGN_OR_RETURN(slices.emplace_back(),
                   out[2]->Append("_divvy/job", DType::kUInt8, {5}, 0, 5, "\1\2\3\4\5"));
  ASSIGN_OR_RETURN(slices.emplace_back(),
                   out[2]->Append("_divvy/finished_steps", DType::kInt64, {}, 0, 1,
                                  absl::string_view("\x39\x30\0\0\0\0\0\0", 8)));
  for (const auto& file : out) RETURN_IF_ERROR(file->Finish());
  RETURN_IF_ERROR(WriteBundleIndex(files, prefix, kNumFiles, slices));
  return files.ReplaceFile(
      absl::StrCat(directory, "/checkpoint"),
      "model_checkpoint_path: \"ckpt-1-1\"\nall_model_checkpoint_paths: \"ckpt-1-1\"\n");
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  const absl::Status status =
      argc == 2 ? divvy::WriteAll(argv[1]) : absl::InvalidArgumentError("write_bundle DIRECTORY");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
