#include "variables/variable_spec.h"

#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "initializers/key_row.h"
#include "variables/table_keys.h"
#include "variables/transfer_dtype.h"

namespace divvy {
namespace {

// Names become parts of file names and of slots' names, so few characters are allowed.
bool IsNamePart(absl::string_view part) {
  if (part.empty() || part == "." || part == "..") return false;
  for (char c : part) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '-')
      return false;
  }
  return true;
}

// Messages hold names of at most 1,024 bytes, and a slot's name is longer than its variable's:
// "<variable>/<optimizer>/<slot>".
constexpr size_t kMaxNameBytes = 960;

absl::Status CheckName(absl::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the name of a variable has ", name.size(),
                                                   " bytes, more than ", kMaxNameBytes, ": \"",
                                                   name.substr(0, 60), "...\""));
  }
  for (absl::string_view part : absl::StrSplit(name, '/')) {
    if (!IsNamePart(part)) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad name of a variable: \"", name,
                       "\". A name is parts of letters, digits, '_', '.' and '-', joined by '/'"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const VariableSpec& spec) {
  if (spec.dtype != DType::kFloat32 && spec.dtype != DType::kFloat16 &&
      spec.dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dynamic table has rows of float32, float16 or bfloat16, and the dtype is ",
                     DTypeName(spec.dtype)));
  }
  if (spec.shape.rank() != 2 || spec.shape.dim(0) != kTableBuckets || spec.shape.dim(1) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a dynamic table has the shape [", kTableBuckets,
                                                   ", width] with a width of at least 1, and not ",
                                                   spec.shape.ToString()));
  }
  if (spec.wire != WireFormat::kExact)
    return absl::InvalidArgumentError(
        "the rows of a dynamic table travel exactly: leave `wire` out");
  // The coordinator checks FromRows, which may be the rows of a checkpoint (first_rows.h).
  if (!EvaluatedPerKey(spec.initializer) && !std::holds_alternative<FromRows>(spec.initializer)) {
    return absl::InvalidArgumentError(
        "the initializer of a dynamic table gives a row to any key: use Constant, RandomUniform, "
        "RandomNormal or TruncatedNormal");
  }
  return Validate(*spec.table);
}

absl::Status CheckTypes(const VariableSpec& spec) {
  RETURN_IF_ERROR(spec.shape.status());
  if (spec.shape.num_elements() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", spec.shape.ToString(), " is not fully known: give every dimension"));
  }
  if (DispatchDType(
          spec.dtype, [](auto) { return false; }, true)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype ", DTypeName(spec.dtype), " cannot be trained on parameter servers; use float32"));
  }
  if (spec.wire != WireFormat::kExact && spec.dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("only float32 travels as bfloat16, and the dtype is ", DTypeName(spec.dtype),
                     ": leave `wire` out"));
  }
  RETURN_IF_ERROR(Validate(spec.initializer, spec.shape, spec.dtype));
  if (spec.table) RETURN_IF_ERROR(CheckTable(spec));
  if (!spec.optimizer) return absl::OkStatus();
  if (TransferDType(spec) != DType::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat(OptimizerName(*spec.optimizer),
                                                   " needs float32, and the dtype is ",
                                                   DTypeName(spec.dtype)));
  }
  return Validate(*spec.optimizer);
}

}  // namespace

absl::Status Validate(const VariableSpec& spec) {
  RETURN_IF_ERROR(CheckName(spec.name));
  const absl::Status status = CheckTypes(spec);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("variable \"", spec.name, "\": ", status.message()));
}

}  // namespace divvy
