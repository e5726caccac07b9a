#include "tests/conformance/initializer_judge.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "initializers/initializer.h"
#include "partitioners/div.h"

namespace divvy::conformance {
namespace {

std::optional<Initializer> MakeInitializer(const std::string& name, const Json& args) {
  const auto number = [&args](const char* key, float otherwise) {
    return args.value(key, otherwise);
  };
  if (name == "Zeros") return Zeros();
  if (name == "Ones") return Ones();
  if (name == "Constant") return Constant{number("value", 0)};
  if (name == "RandomUniform")
    return RandomUniform{number("minval", -0.05f), number("maxval", 0.05f)};
  if (name == "RandomNormal") return RandomNormal{number("mean", 0), number("stddev", 0.05f)};
  if (name == "TruncatedNormal") return TruncatedNormal{number("mean", 0), number("stddev", 0.05f)};
  if (name == "GlorotUniform") return GlorotUniform();
  if (name == "GlorotNormal") return GlorotNormal();
  if (name == "HeUniform") return HeUniform();
  if (name == "HeNormal") return HeNormal();
  if (name == "LecunUniform") return LecunUniform();
  if (name == "LecunNormal") return LecunNormal();
  if (name == "Identity") return Identity{number("gain", 1)};
  if (name == "Orthogonal") return Orthogonal{number("gain", 1)};
  return std::nullopt;
}

absl::StatusOr<std::vector<float>> ValuesInShards(const Initializer& initializer,
                                                  const InitializerContext& context,
                                                  int64_t shards) {
  ASSIGN_OR_RETURN(const DivSplit split, DivSplit::Create(context.shape.rows(), shards));
  const int64_t width = context.shape.row_elements();
  std::vector<float> values(context.shape.num_elements());
  for (int64_t shard = 0; shard < split.num_shards(); ++shard) {
    const absl::Span<float> rows =
        absl::MakeSpan(values).subspan(split.offset(shard) * width, split.size(shard) * width);
    RETURN_IF_ERROR(FillRows(initializer, context, split.offset(shard), split.size(shard), rows));
  }
  return values;
}

std::string MomentsDifference(const std::vector<float>& values, const Json& law) {
  const double n = static_cast<double>(std::max<size_t>(values.size(), 1));
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / n, stddev = law.at("std").get<double>(),
               wanted_mean = law.at("mean").get<double>();
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double got = std::sqrt(squares / n);
  if (std::fabs(mean - wanted_mean) > 5 * stddev / std::sqrt(n))
    return absl::StrCat("the mean is ", mean, ", wanted ", wanted_mean);
  // The standard error of the standard deviation of a normal sample; that of a uniform sample is
  // smaller.
  if (std::fabs(got - stddev) > 5 * stddev / std::sqrt(2 * n))
    return absl::StrCat("the standard deviation is ", got, ", wanted ", stddev);
  return "";
}

std::string SupportDifference(const std::vector<float>& values, const Json& law) {
  const double limit = law.contains("limit") ? law.at("limit").get<double>() : INFINITY;
  const double low = law.contains("min") ? law.at("min").get<double>() : -limit,
               high = law.contains("max") ? law.at("max").get<double>() : limit;
  const double slack = 1e-6 * std::max(std::fabs(low), std::fabs(high));
  for (const float value : values) {
    if (!(value >= low - slack && value <= high + slack))
      return absl::StrCat("a value is ", value, ", outside [", low, ", ", high, "]");
  }
  return "";
}

// The rows (or the columns, if there are fewer) must have norm `gain` and be orthogonal to each
// other.
std::string OrthogonalDifference(const std::vector<float>& q, const Shape& shape, double gain) {
  const int64_t rows = shape.dim(0), columns = shape.dim(1);
  const int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  const int64_t between = rows < columns ? columns : 1, along = rows < columns ? 1 : columns;
  for (int64_t a = 0; a < count; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (int64_t i = 0; i < length; ++i)
        dot += static_cast<double>(q[a * between + i * along]) * q[b * between + i * along];
      if (!Near(dot, a == b ? gain * gain : 0, {1e-5, 1e-5 * gain * gain}))
        return absl::StrCat("the product of vectors ", a, " and ", b, " is ", dot);
    }
  }
  return "";
}

std::string LawDifference(const std::vector<float>& values, const Shape& shape, const Json& law) {
  if (law.contains("value"))
    return Difference("value", Tensor::Copy<float>(shape, values), law.at("value"));
  if (law.contains("property"))
    return OrthogonalDifference(values, shape, law.at("gain").get<double>());
  if (std::string difference = MomentsDifference(values, law); !difference.empty())
    return difference;
  return SupportDifference(values, law);
}

}  // namespace

Verdict JudgeInitializer(const Json& test_case) {
  const std::optional<Initializer> initializer =
      MakeInitializer(test_case.at("initializer").get<std::string>(), test_case.at("args"));
  if (!initializer.has_value()) return NotCovered("no such initializer");
  const InitializerContext context{/*job_seed=*/20240611, "golden",
                                   ShapeFrom(test_case.at("shape"))};
  const absl::StatusOr<std::vector<float>> values = ValuesInShards(*initializer, context, 1);
  const Json& wanted = Wanted(test_case);
  if (IsFailure(wanted)) return PassedUnless(FailureDifference(values.status(), wanted));
  if (!values.ok()) return Failed(values.status().ToString());
  for (const int64_t shards : {2, 3}) {
    if (ValuesInShards(*initializer, context, shards).value() != *values)
      return Failed(absl::StrCat("the values differ in ", shards, " shards"));
  }
  return PassedUnless(LawDifference(*values, context.shape, wanted));
}

}  // namespace divvy::conformance
