#include "data/parse_example.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/stacking.h"
#include "formats/example.h"

namespace divvy {
namespace {

template <typename... What>
absl::Status Refused(const ExampleFeature& feature, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("feature \"", feature.name, "\" ", what...));
}

absl::string_view KindOf(const ExampleValues& values) {
  switch (values.index()) {
    case 1: return "bytes";
    case 2: return "floats";
    case 3: return "int64s";
    default: return "values of no type";
  }
}

// The shape of the tensor that `count` values of `feature` form.
absl::StatusOr<Shape> ShapeFor(const ExampleFeature& feature, int64_t count) {
  RETURN_IF_ERROR(feature.shape.status());
  Shape shape = feature.shape;
  if (shape.rank() > 0 && shape.dim(0) == -1) {
    const int64_t in_row = shape.WithRows(1).num_elements();
    shape = shape.WithRows(in_row > 0 ? count / in_row : 0);
  }
  if (shape.num_elements() < 0)
    return Refused(feature, "wanted as ", shape.ToString(), ": only the first dimension may vary");
  if (shape.num_elements() == count) return shape;
  return Refused(feature, "has ", count, " values, wanted ", feature.shape.ToString());
}

// The feature's list, if it has the type T or is empty.
template <typename T>
absl::StatusOr<std::vector<T>> ListOf(const ExampleFeature& feature, const ExampleValues& values) {
  if (std::holds_alternative<std::monostate>(values)) return std::vector<T>();
  if (const auto* list = std::get_if<std::vector<T>>(&values)) return *list;
  return Refused(feature, "holds ", KindOf(values), ", wanted ", DTypeName(feature.dtype));
}

template <typename T>
absl::StatusOr<Nest> ToTensor(const ExampleFeature& feature, const ExampleValues& values) {
  ASSIGN_OR_RETURN(const std::vector<T> list, ListOf<T>(feature, values));
  ASSIGN_OR_RETURN(const Shape shape, ShapeFor(feature, static_cast<int64_t>(list.size())));
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Copy<T>(shape, list));
  return Nest(std::move(tensor));
}

// The key of each of these texts of `feature`.
absl::StatusOr<Nest> ToKeys(const ExampleFeature& feature, const ExampleValues& values) {
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> texts,
                   ListOf<absl::string_view>(feature, values));
  const int64_t count = static_cast<int64_t>(texts.size());
  ASSIGN_OR_RETURN(const Shape shape, ShapeFor(feature, count));
  std::vector<int64_t> keys(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const absl::StatusOr<int64_t> key = feature.keys->Key(texts[i]);
    if (!key.ok()) return Refused(feature, "has a bad value: ", key.status().message());
    keys[i] = *key;
  }
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Copy<int64_t>(shape, keys));
  if (feature.shape.rank() != 1 || feature.shape.dim(0) != -1) return Nest(std::move(tensor));
  return Nest(OneRow(std::move(tensor)));
}

absl::StatusOr<Nest> ToTexts(const ExampleFeature& feature, const ExampleValues& values) {
  if (feature.shape.rank() > 1)
    return Refused(feature, "wanted as texts of shape ", feature.shape.ToString(),
                   ": texts have at most one dimension");
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> list,
                   ListOf<absl::string_view>(feature, values));
  RETURN_IF_ERROR(ShapeFor(feature, static_cast<int64_t>(list.size())).status());
  if (feature.shape.rank() == 0) return Nest(std::string(list[0]));
  Nest::List texts;
  for (absl::string_view text : list) texts.emplace_back(std::string(text));
  return Nest(std::move(texts));
}

absl::StatusOr<Nest> Take(const ExampleFeature& feature, const ExampleValues& values) {
  if (feature.keys && feature.dtype != DType::kString)
    return Refused(feature, "wanted as ", DTypeName(feature.dtype),
                   " with keys: only texts (string) become keys");
  if (feature.keys) return ToKeys(feature, values);
  switch (feature.dtype) {
    case DType::kInt64: return ToTensor<int64_t>(feature, values);
    case DType::kFloat32: return ToTensor<float>(feature, values);
    case DType::kString: return ToTexts(feature, values);
    default:
      return Refused(feature, "wanted as ", DTypeName(feature.dtype),
                     ": an Example holds int64, float32 and string; Map it to another");
  }
}

}  // namespace

absl::StatusOr<Nest> ParseExample(absl::string_view record,
                                  absl::Span<const ExampleFeature> features) {
  ASSIGN_OR_RETURN(const auto values, ReadExample(record));
  Nest::Dict example;
  for (const ExampleFeature& feature : features) {
    const auto found = values.find(feature.name);
    if (found == values.end()) return Refused(feature, "is missing");
    ASSIGN_OR_RETURN(Nest value, Take(feature, found->second));
    example[feature.name] = std::move(value);
  }
  return Nest(std::move(example));
}

}  // namespace divvy
