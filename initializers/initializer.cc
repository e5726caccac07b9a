#include "initializers/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "initializers/key_row.h"
#include "initializers/normal.h"
#include "initializers/orthogonal.h"

namespace divvy {
namespace {

// The standard deviation of a standard normal variable cut at +-2.
constexpr double kTruncatedStddev = 0.87962566103423978;

template <typename Law>
constexpr bool kIsRandom =
    std::is_same_v<Law, RandomUniform> || std::is_same_v<Law, RandomNormal> ||
    std::is_same_v<Law, TruncatedNormal> || std::is_same_v<Law, VarianceScaling> ||
    std::is_same_v<Law, Orthogonal>;

// ---- rows and keys ------------------------------------------------------------------------------

Shape BlockShape(const Shape& shape, int64_t num_rows) {
  return shape.rank() == 0 ? shape : shape.WithRows(num_rows);
}

absl::Status CheckRows(const Shape& shape, int64_t first_row, int64_t num_rows) {
  if (first_row >= 0 && num_rows >= 0 && first_row <= shape.rows() - num_rows)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rows [", first_row, ", ", first_row, " + ",
                                                 num_rows, ") are not in a variable of shape ",
                                                 shape.ToString()));
}

uint64_t KeyOf(const InitializerContext& context, uint64_t seed) {
  return MixSeeds(context.job_seed, seed != 0 ? seed : HashText(context.name));
}

// Rows [first, first + count) of a variable with `width` elements in a row.
struct Block {
  int64_t first = 0;
  int64_t count = 0;
  int64_t width = 1;
};

// ---- initializers evaluated element by element --------------------------------------------------

// out = law(u) with u uniform in (0, 1): u is the middle of one of 2^32 cells, so it is never 0 or
// 1.
template <typename Law>
void FillRandom(uint64_t key, const Block& block, absl::Span<float> out, Law law) {
  float* element = out.data();
  for (int64_t i = 0; i < block.count; ++i) {
    // first + count overflows for the largest key of a table.
    const auto row = static_cast<uint64_t>(block.first) + static_cast<uint64_t>(i);
    for (int64_t column = 0; column < block.width; column += 4) {
      const std::array<uint32_t, 4> words = Philox4x32(key, row, column / 4);
      const int64_t used = std::min<int64_t>(4, block.width - column);
      for (int64_t word = 0; word < used; ++word)
        *element++ = law((words[word] + 0.5) * 0x1.0p-32);
    }
  }
}

void FillUniform(uint64_t key, const Block& block, double low, double high, absl::Span<float> out) {
  const float most = static_cast<float>(high),
              below = std::nextafter(most, static_cast<float>(low));
  FillRandom(key, block, out, [=](double u) {
    const float value = static_cast<float>(low + (high - low) * u);
    return value < most ? value : below;  // rounding to float may reach the open end
  });
}

void FillTruncated(uint64_t key, const Block& block, double mean, double stddev,
                   absl::Span<float> out) {
  const double left = NormalProbability(-2), middle = 1 - 2 * left;
  FillRandom(key, block, out, [=](double u) {
    return static_cast<float>(mean + stddev * NormalQuantile(left + middle * u));
  });
}

double FanOf(VarianceScaling::Fan fan, const Shape& shape) {
  if (shape.rank() == 0) return 1;
  if (shape.rank() == 1) return static_cast<double>(shape.dim(0));
  double field = 1;
  for (int axis = 0; axis < shape.rank() - 2; ++axis) field *= static_cast<double>(shape.dim(axis));
  const double in = field * static_cast<double>(shape.dim(-2)),
               out = field * static_cast<double>(shape.dim(-1));
  switch (fan) {
    case VarianceScaling::Fan::kIn: return in;
    case VarianceScaling::Fan::kOut: return out;
    case VarianceScaling::Fan::kAverage: break;
  }
  return (in + out) / 2;
}

absl::Status Fill(const Constant& law, const InitializerContext&, const Block&,
                  absl::Span<float> out) {
  std::fill(out.begin(), out.end(), law.value);
  return absl::OkStatus();
}

absl::Status Fill(const RandomUniform& law, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  FillUniform(KeyOf(context, law.seed), block, law.low, law.high, out);
  return absl::OkStatus();
}

absl::Status Fill(const RandomNormal& law, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  FillRandom(KeyOf(context, law.seed), block, out, [&law](double u) {
    return static_cast<float>(law.mean + law.stddev * NormalQuantile(u));
  });
  return absl::OkStatus();
}

absl::Status Fill(const TruncatedNormal& law, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  FillTruncated(KeyOf(context, law.seed), block, law.mean, law.stddev, out);
  return absl::OkStatus();
}

absl::Status Fill(const VarianceScaling& law, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  const double variance = law.scale / std::max(1.0, FanOf(law.fan, context.shape));
  const uint64_t key = KeyOf(context, law.seed);
  if (law.distribution == VarianceScaling::Distribution::kUniform) {
    FillUniform(key, block, -std::sqrt(3 * variance), std::sqrt(3 * variance), out);
  } else {
    FillTruncated(key, block, 0, std::sqrt(variance) / kTruncatedStddev, out);
  }
  return absl::OkStatus();
}

absl::Status Fill(const Identity& law, const InitializerContext&, const Block& block,
                  absl::Span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (int64_t i = 0; i < block.count && block.first + i < block.width; ++i)
    out[i * block.width + block.first + i] = law.gain;
  return absl::OkStatus();
}

// ---- values of whole variables and blocks -------------------------------------------------------

absl::Status Fill(const Orthogonal& law, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  const std::vector<double> whole = OrthogonalMatrix(KeyOf(context, law.seed), context.shape.dim(0),
                                                     context.shape.dim(1), law.gain);
  const double* from = whole.data() + block.first * block.width;
  std::transform(from, from + out.size(), out.begin(),
                 [](double value) { return static_cast<float>(value); });
  return absl::OkStatus();
}

absl::StatusOr<Tensor> GivenRows(const FromRows& source, const InitializerContext& context,
                                 DType dtype, const Block& block) {
  ASSIGN_OR_RETURN(Tensor rows, source.rows(block.first, block.count));
  const Shape wanted = BlockShape(context.shape, block.count);
  if (rows.dtype() == dtype && rows.shape() == wanted) return rows;
  return absl::InvalidArgumentError(absl::StrCat(
      "FromRows of ", context.name, " gave ", rows.ToString(), " for rows [", block.first, ", ",
      block.first + block.count, "); it must give ", DTypeName(dtype), " ", wanted.ToString()));
}

absl::StatusOr<Tensor> GivenRows(const Tensor& whole, const InitializerContext& context, DType,
                                 const Block& block) {
  if (context.shape.rank() == 0) return whole;
  return whole.Rows(block.first, block.first + block.count);
}

template <typename Source>
absl::Status FillGiven(const Source& source, const InitializerContext& context, const Block& block,
                       absl::Span<float> out) {
  ASSIGN_OR_RETURN(const Tensor rows, GivenRows(source, context, DType::kFloat32, block));
  ASSIGN_OR_RETURN(const absl::Span<const float> values, rows.values<float>());
  std::copy(values.begin(), values.end(), out.begin());
  return absl::OkStatus();
}

absl::Status Fill(const FromRows& source, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  return FillGiven(source, context, block, out);
}

absl::Status Fill(const Tensor& whole, const InitializerContext& context, const Block& block,
                  absl::Span<float> out) {
  return FillGiven(whole, context, block, out);
}

// ---- validation ---------------------------------------------------------------------------------

absl::Status Refuse(absl::string_view initializer, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(initializer, ": ", problem));
}

absl::Status Finite(absl::string_view initializer, absl::string_view field, float value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return Refuse(initializer, absl::StrCat(field, " is ", value, "; give a finite number"));
}

absl::Status CheckSpread(absl::string_view initializer, float mean, float stddev) {
  RETURN_IF_ERROR(Finite(initializer, "mean", mean));
  RETURN_IF_ERROR(Finite(initializer, "stddev", stddev));
  if (stddev < 0)
    return Refuse(initializer, absl::StrCat("stddev is ", stddev, "; give 0 or more"));
  return absl::OkStatus();
}

absl::Status CheckMatrix(absl::string_view initializer, const Shape& shape) {
  if (shape.rank() == 2) return absl::OkStatus();
  return Refuse(initializer,
                absl::StrCat("needs a variable of rank 2, not of shape ", shape.ToString()));
}

// Floating types round. Other types hold only the values that they represent exactly.
template <typename T>
bool Holds(float value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value == 0 || value == 1;
  } else if constexpr (std::is_integral_v<T>) {
    // Both limits are exact in double: the value after the largest one is a power of two.
    const double low = std::numeric_limits<T>::lowest(),
                 past = std::ldexp(1.0, std::numeric_limits<T>::digits);
    return std::trunc(value) == value && value >= low && value < past;
  } else {
    return true;
  }
}

absl::Status CheckHeld(absl::string_view initializer, float value, DType dtype) {
  if (DispatchDType(
          dtype, [value](auto zero) { return Holds<decltype(zero)>(value); }, false))
    return absl::OkStatus();
  return Refuse(initializer, absl::StrCat("a ", DTypeName(dtype), " variable cannot hold ", value));
}

absl::Status Check(const Constant& law, const Shape&, DType dtype) {
  RETURN_IF_ERROR(CheckHeld("Constant", law.value, dtype));
  return Finite("Constant", "value", law.value);
}

absl::Status Check(const RandomUniform& law, const Shape&, DType) {
  RETURN_IF_ERROR(Finite("RandomUniform", "low", law.low));
  RETURN_IF_ERROR(Finite("RandomUniform", "high", law.high));
  if (law.low > law.high)
    return Refuse("RandomUniform",
                  absl::StrCat("low ", law.low, " is above high ", law.high, "; swap them"));
  return absl::OkStatus();
}

absl::Status Check(const RandomNormal& law, const Shape&, DType) {
  return CheckSpread("RandomNormal", law.mean, law.stddev);
}

absl::Status Check(const TruncatedNormal& law, const Shape&, DType) {
  return CheckSpread("TruncatedNormal", law.mean, law.stddev);
}

absl::Status Check(const VarianceScaling& law, const Shape&, DType) {
  RETURN_IF_ERROR(Finite("VarianceScaling", "scale", law.scale));
  if (law.scale <= 0)
    return Refuse("VarianceScaling",
                  absl::StrCat("scale is ", law.scale, "; give a number above 0"));
  return absl::OkStatus();
}

absl::Status Check(const Identity& law, const Shape& shape, DType dtype) {
  RETURN_IF_ERROR(CheckMatrix("Identity", shape));
  RETURN_IF_ERROR(Finite("Identity", "gain", law.gain));
  return CheckHeld("Identity", law.gain, dtype);
}

absl::Status Check(const Orthogonal& law, const Shape& shape, DType) {
  RETURN_IF_ERROR(CheckMatrix("Orthogonal", shape));
  return Finite("Orthogonal", "gain", law.gain);
}

absl::Status Check(const FromRows& source, const Shape&, DType) {
  if (source.rows == nullptr)
    return Refuse("FromRows", "has no function; give one that makes rows");
  return absl::OkStatus();
}

absl::Status Check(const Tensor& whole, const Shape& shape, DType dtype) {
  if (whole.dtype() == dtype && whole.shape() == shape) return absl::OkStatus();
  return Refuse("initial value", absl::StrCat("is ", whole.ToString(), "; the variable is ",
                                              DTypeName(dtype), " ", shape.ToString()));
}

// ---- other dtypes -------------------------------------------------------------------------------

template <typename T>
T ConvertTo(float value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T::FromFloat(value);
  } else {
    return static_cast<T>(value);
  }
}

absl::StatusOr<Tensor> Converted(const std::vector<float>& values, const Shape& shape,
                                 DType dtype) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Uninitialized(dtype, shape));
  return DispatchDType(
      dtype,
      [&](auto zero) -> absl::StatusOr<Tensor> {
        using T = decltype(zero);
        std::transform(values.begin(), values.end(), tensor.fresh_data<T>(), ConvertTo<T>);
        return tensor;
      },
      absl::StatusOr<Tensor>(
          absl::InternalError(absl::StrCat("no initial values for dtype ", DTypeName(dtype),
                                           ", which Validate should have refused"))));
}

}  // namespace

Constant Zeros() { return {0}; }
Constant Ones() { return {1}; }

using Fan = VarianceScaling::Fan;
using Distribution = VarianceScaling::Distribution;
VarianceScaling GlorotUniform(uint64_t seed) {
  return {Fan::kAverage, Distribution::kUniform, 1, seed};
}
VarianceScaling GlorotNormal(uint64_t seed) {
  return {Fan::kAverage, Distribution::kTruncatedNormal, 1, seed};
}
VarianceScaling HeUniform(uint64_t seed) { return {Fan::kIn, Distribution::kUniform, 2, seed}; }
VarianceScaling HeNormal(uint64_t seed) {
  return {Fan::kIn, Distribution::kTruncatedNormal, 2, seed};
}
VarianceScaling LecunUniform(uint64_t seed) { return {Fan::kIn, Distribution::kUniform, 1, seed}; }
VarianceScaling LecunNormal(uint64_t seed) {
  return {Fan::kIn, Distribution::kTruncatedNormal, 1, seed};
}

bool EvaluatedPerRow(const Initializer& initializer) {
  return !std::holds_alternative<Orthogonal>(initializer) &&
         !std::holds_alternative<FromRows>(initializer) &&
         !std::holds_alternative<Tensor>(initializer);
}

absl::Status Validate(const Initializer& initializer, const Shape& shape, DType dtype) {
  RETURN_IF_ERROR(shape.status());
  if (shape.num_elements() < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("a variable needs a fully known shape, not ", shape.ToString()));
  if (dtype >= DType::kComplex64)
    return absl::InvalidArgumentError(absl::StrCat("a variable cannot be ", DTypeName(dtype)));
  return std::visit(
      [&](const auto& law) -> absl::Status {
        if (kIsRandom<std::decay_t<decltype(law)>> && !IsFloating(dtype)) {
          return absl::InvalidArgumentError(
              absl::StrCat("a random initializer needs a floating dtype, not ", DTypeName(dtype),
                           "; use Constant or a Tensor"));
        }
        return Check(law, shape, dtype);
      },
      initializer);
}

absl::Status FillRows(const Initializer& initializer, const InitializerContext& context,
                      int64_t first_row, int64_t num_rows, absl::Span<float> out) {
  RETURN_IF_ERROR(Validate(initializer, context.shape, DType::kFloat32));
  RETURN_IF_ERROR(CheckRows(context.shape, first_row, num_rows));
  const Block block{first_row, num_rows, context.shape.row_elements()};
  if (static_cast<int64_t>(out.size()) != block.count * block.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", out.size(), " elements, ", block.count * block.width, " wanted"));
  }
  return std::visit([&](const auto& law) { return Fill(law, context, block, out); }, initializer);
}

bool EvaluatedPerKey(const Initializer& initializer) {
  return std::holds_alternative<Constant>(initializer) ||
         std::holds_alternative<RandomUniform>(initializer) ||
         std::holds_alternative<RandomNormal>(initializer) ||
         std::holds_alternative<TruncatedNormal>(initializer);
}

void FillKeyRow(const Initializer& initializer, const InitializerContext& context, int64_t key,
                absl::Span<float> out) {
  const Block block{key, 1, static_cast<int64_t>(out.size())};
  // None of these initializers fails.
  std::visit([&](const auto& law) { Fill(law, context, block, out).IgnoreError(); }, initializer);
}

absl::StatusOr<Tensor> InitialRows(const Initializer& initializer,
                                   const InitializerContext& context, DType dtype,
                                   int64_t first_row, int64_t num_rows) {
  RETURN_IF_ERROR(Validate(initializer, context.shape, dtype));
  RETURN_IF_ERROR(CheckRows(context.shape, first_row, num_rows));
  const Block block{first_row, num_rows, context.shape.row_elements()};
  if (const auto* source = std::get_if<FromRows>(&initializer))
    return GivenRows(*source, context, dtype, block);
  if (const auto* whole = std::get_if<Tensor>(&initializer))
    return GivenRows(*whole, context, dtype, block);
  std::vector<float> values(block.count * block.width);
  RETURN_IF_ERROR(FillRows(initializer, context, first_row, num_rows, absl::MakeSpan(values)));
  return Converted(values, BlockShape(context.shape, num_rows), dtype);
}

}  // namespace divvy
