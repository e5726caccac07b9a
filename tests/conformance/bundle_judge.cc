#include "tests/conformance/bundle_judge.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "formats/bundle_index.h"
#include "formats/tensor_bundle.h"

namespace divvy::conformance {
namespace {

// The rows that a slice_spec names. "14 8 3,4:0,8" means rows 3 to 6, because all slices of these
// files are whole rows. "" means the whole tensor.
absl::StatusOr<BundleExtent> RowsOf(const std::string& spec, const Shape& shape) {
  if (spec.empty()) return BundleExtent{0, shape.rows()};
  const std::vector<std::string> words = absl::StrSplit(spec, ' ');
  const std::vector<std::string> axes = absl::StrSplit(words.back(), ':');
  const std::vector<std::string> numbers = absl::StrSplit(axes[0], ',');
  BundleExtent rows;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &rows.start) ||
      !absl::SimpleAtoi(numbers[1], &rows.length)) {
    return absl::InvalidArgumentError(absl::StrCat("no slice_spec: ", spec));
  }
  return rows;
}

std::string StringsDifference(const BundleReader& reader, const std::string& name,
                              const Json& wanted) {
  const auto strings = reader.ReadStrings(name);
  if (!strings.ok()) return strings.status().ToString();
  return *strings == wanted.at("values").get<std::vector<std::string>>()
             ? ""
             : absl::StrCat(name, ": other strings");
}

std::string ComplexDifference(absl::string_view name, const std::vector<float>& got,
                              const Json& wanted) {
  for (size_t i = 0; i < wanted.at("real").size(); ++i) {
    const float real = wanted["real"][i].get<float>(),
                imaginary = wanted.at("imag")[i].get<float>();
    if (got[2 * i] != real || got[2 * i + 1] != imaginary)
      return absl::StrCat(name, "[", i, "] is ", got[2 * i], " + ", got[2 * i + 1], "i");
  }
  return "";
}

// Compares all dtypes of Divvy's tensors, and complex64 as pairs of numbers.
std::string NumbersDifference(const BundleReader& reader, const std::string& name,
                              BundleExtent rows, const Json& wanted) {
  const BundleTensor& tensor = *reader.index().Find(name);
  const bool is_complex = tensor.dtype == DType::kComplex64;
  Shape shape = ShapeFrom(wanted.at("shape"));
  if (is_complex) shape = Shape({shape.num_elements() * 2});
  auto value = Tensor::Uninitialized(is_complex ? DType::kFloat32 : *tensor.dtype, shape);
  if (!value.ok()) return value.status().ToString();
  const auto out =
      absl::MakeSpan(value->fresh_data<char>(), static_cast<size_t>(value->size_bytes()));
  if (const absl::Status read = reader.ReadRows(name, rows.start, rows.start + rows.length, out);
      !read.ok())
    return read.ToString();
  if (!is_complex) return Difference(name, *value, wanted);
  return ComplexDifference(
      name,
      std::vector<float>(value->data_as<float>(), value->data_as<float>() + shape.num_elements()),
      wanted);
}

std::string SliceDifference(const BundleReader& reader, const Json& wanted) {
  const std::string name = wanted.at("name").get<std::string>(),
                    type = wanted.at("tensor").at("dtype").get<std::string>();
  const BundleTensor* const tensor = reader.index().Find(name);
  if (tensor == nullptr) return absl::StrCat("there is no ", name);
  if (tensor->type != type || tensor->shape != ShapeFrom(wanted.at("full_shape")))
    return absl::StrCat(name, " is ", tensor->type, tensor->shape.ToString());
  if (const absl::Status verified = reader.Verify(name); !verified.ok()) return verified.ToString();
  if (type == "string") return StringsDifference(reader, name, wanted.at("tensor"));
  const auto rows = RowsOf(wanted.at("slice_spec").get<std::string>(), tensor->shape);
  if (!rows.ok()) return rows.status().ToString();
  for (const BundlePart& part : tensor->parts) {
    const bool is_the_one = tensor->is_sliced && part.box[0].start == rows->start;
    if (is_the_one && wanted.contains("data_shard") && part.file != wanted["data_shard"].get<int>())
      return absl::StrCat(name, ": in data file ", part.file);
  }
  return NumbersDifference(reader, name, *rows, wanted.at("tensor"));
}

}  // namespace

Verdict JudgeBundle(const Json& test_case) {
  const std::string prefix =
      absl::StrCat(GoldenDirectory(), "/bundle/", test_case.at("prefix").get<std::string>());
  const auto reader = BundleReader::Open(FileSystem::Real(), prefix);
  if (!reader.ok()) return Failed(reader.status().ToString());
  std::set<std::string> names;
  for (const Json& slice : Wanted(test_case)) {
    names.insert(slice.at("name").get<std::string>());
    if (std::string difference = SliceDifference(**reader, slice); !difference.empty())
      return Failed(std::move(difference));
  }
  const BundleIndex& index = (*reader)->index();
  if (index.tensors.size() != names.size())
    return Failed(absl::StrCat(index.tensors.size(), " tensors, wanted ", names.size()));
  const auto bytes = FileSystem::Real().ReadFile(BundleIndexFile(prefix));
  return bytes.ok() && EncodeBundleIndex(index) == *bytes
             ? Passed()
             : Failed("written again, the index has other bytes");
}

}  // namespace divvy::conformance
