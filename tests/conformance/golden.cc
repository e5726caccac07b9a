#include "tests/conformance/golden.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace divvy::conformance {
namespace {

template <typename T>
T ElementFrom(const Json& value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T::FromFloat(static_cast<float>(NumberFrom(value)));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(NumberFrom(value));
  } else {
    return value.get<T>();
  }
}

template <typename T>
double ElementAsDouble(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return value.ToFloat();
  } else {
    return static_cast<double>(value);
  }
}

// How far `got` is outside the tolerance; 0 or less: inside.
double Excess(double got, double wanted, Tolerance tolerance) {
  if (std::isnan(got) || std::isnan(wanted))
    return std::isnan(got) && std::isnan(wanted) ? 0 : std::numeric_limits<double>::infinity();
  if (got == wanted) return 0;
  if (std::isinf(got) || std::isinf(wanted)) return std::numeric_limits<double>::infinity();
  return std::fabs(got - wanted) - tolerance.absolute - tolerance.relative * std::fabs(wanted);
}

template <typename T>
std::string WorstElement(absl::string_view what, const Tensor& got, const Tensor& wanted,
                         Tolerance tolerance) {
  const T* a = got.data_as<T>();
  const T* b = wanted.data_as<T>();
  int64_t worst = -1;
  double worst_excess = 0;
  for (int64_t i = 0; i < got.shape().num_elements(); ++i) {
    const double excess = Excess(ElementAsDouble(a[i]), ElementAsDouble(b[i]), tolerance);
    if (excess > worst_excess) worst = i, worst_excess = excess;
  }
  if (worst < 0) return "";
  return absl::StrCat(what, "[", worst, "] is ", ElementAsDouble(a[worst]), ", wanted ",
                      ElementAsDouble(b[worst]), " (relative tolerance ", tolerance.relative,
                      ", absolute ", tolerance.absolute, ")");
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("no golden file ", path,
                     "; run the test by bazel, or set DIVVY_GOLDEN_DIR to its directory"));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Verdict RunJudge(const Judge& judge, const Json& test_case) {
  if (judge == nullptr) return NotCovered("no judge yet");
  try {
    return judge(test_case);
  } catch (const Json::exception&
               error) {  // the JSON library throws if a field is missing or has another type
    return Failed(absl::StrCat("not of the schema: ", error.what()));
  }
}

std::string GoldenDirectory() {
  const char* elsewhere = std::getenv("DIVVY_GOLDEN_DIR");
  if (elsewhere == nullptr || *elsewhere == 0) return "tests/golden";
  // `bazel run` starts programs in the runfiles. A relative directory is relative to where the user
  // is.
  const char* user_directory = std::getenv("BUILD_WORKING_DIRECTORY");
  return *elsewhere == '/' || user_directory == nullptr
             ? elsewhere
             : absl::StrCat(user_directory, "/", elsewhere);
}

absl::StatusOr<std::vector<Json>> ReadCases(absl::string_view file) {
  const std::string path = absl::StrCat(GoldenDirectory(), "/", file);
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  const Json content = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("cases") || !content["cases"].is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a JSON object with a list \"cases\""));
  }
  return std::vector<Json>(content["cases"].begin(), content["cases"].end());
}

const Json& Wanted(const Json& test_case) {
  return test_case.contains("divvy") ? test_case.at("divvy") : test_case.at("expect");
}

double NumberFrom(const Json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

Shape ShapeFrom(const Json& dims) { return Shape(dims.get<std::vector<int64_t>>()); }

absl::StatusOr<Tensor> TensorFrom(const Json& tensor) {
  const std::string name = tensor.at("dtype").get<std::string>();
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype.has_value()) return absl::InvalidArgumentError(absl::StrCat("no dtype ", name));
  const Shape shape = ShapeFrom(tensor.at("shape"));
  const Json& values = tensor.at("values");
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(*dtype, shape));
  if (static_cast<int64_t>(values.size()) != shape.num_elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.size(), " values for shape ", shape.ToString()));
  }
  return DispatchDType(
      *dtype,
      [&](auto zero) -> absl::StatusOr<Tensor> {
        using T = decltype(zero);
        T* element = result.fresh_data<T>();
        for (const Json& value : values) *element++ = ElementFrom<T>(value);
        return result;
      },
      absl::StatusOr<Tensor>(
          absl::InvalidArgumentError(absl::StrCat("tensors do not hold ", name))));
}

absl::StatusOr<IndexedSlices> SlicesFrom(const Json& slices, int64_t num_rows) {
  IndexedSlices result;
  ASSIGN_OR_RETURN(result.ids, TensorFrom(slices.at("ids")));
  ASSIGN_OR_RETURN(result.rows, TensorFrom(slices.at("rows")));
  result.num_rows = num_rows;
  RETURN_IF_ERROR(Validate(result));
  return result;
}

bool Near(double got, double wanted, Tolerance tolerance) {
  return Excess(got, wanted, tolerance) <= 0;
}

std::string Difference(absl::string_view what, const Tensor& got, const Json& wanted,
                       Tolerance tolerance) {
  const absl::StatusOr<Tensor> tensor = TensorFrom(wanted);
  if (!tensor.ok())
    return absl::StrCat("the case's ", what, " is no tensor: ", tensor.status().message());
  if (got.dtype() != tensor->dtype() || got.shape() != tensor->shape()) {
    return absl::StrCat(what, " is ", got.ToString(), ", wanted ", tensor->ToString());
  }
  return DispatchDType(
      got.dtype(),
      [&](auto zero) { return WorstElement<decltype(zero)>(what, got, *tensor, tolerance); },
      std::string("a dtype that tensors do not hold"));
}

std::string Difference(absl::string_view what, const absl::StatusOr<Tensor>& got,
                       const Json& wanted, Tolerance tolerance) {
  if (!got.ok()) return absl::StrCat(what, " is an error: ", got.status().ToString());
  return Difference(what, *got, wanted, tolerance);
}

bool IsFailure(const Json& wanted) { return wanted.is_object() && wanted.contains("status"); }

std::string FailureDifference(const absl::Status& got, const Json& wanted) {
  const Json& code = wanted.at("status");
  if (got.ok()) return absl::StrCat("succeeded, wanted the error ", code.dump());
  if (code.is_null()) return "";
  // The files have InvalidArgument, Abseil has INVALID_ARGUMENT.
  std::string name;
  for (const char c : code.get<std::string>()) {
    if (std::isupper(static_cast<unsigned char>(c)) && !name.empty()) name += '_';
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  if (absl::StatusCodeToString(got.code()) == name) return "";
  return absl::StrCat("the error is ", got.ToString(), ", wanted ", name);
}

}  // namespace divvy::conformance
