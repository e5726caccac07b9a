#include "ops/gradients.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/tensors.h"
#include "ops/unique_ids.h"

namespace divvy {
namespace {

const Tensor& Values(const GradientValue& gradient) {
  const auto* slices = std::get_if<IndexedSlices>(&gradient);
  return slices != nullptr ? slices->rows : std::get<Tensor>(gradient);
}

Tensor& Values(GradientValue& gradient) {
  return const_cast<Tensor&>(Values(std::as_const(gradient)));
}

absl::StatusOr<const internal::Backend*> BackendOf(const std::string& name, const Tensor& values) {
  RETURN_IF_ERROR(internal::CheckComputedWith(absl::StrCat("gradient of ", name), values));
  return internal::BackendFor(values.device());
}

// The sum of the squares of the elements of each value. Waits for each device once.
absl::StatusOr<std::map<std::string, double>> SquaresOf(
    const std::map<std::string, GradientValue>& gradients) {
  struct Group {
    std::vector<std::string> names;
    std::vector<Tensor> values;
  };
  std::map<std::string, Group> by_device;
  for (const auto& [name, gradient] : gradients) {
    RETURN_IF_ERROR(BackendOf(name, Values(gradient)).status());
    Group& group = by_device[Values(gradient).device().ToString()];
    group.names.push_back(name);
    group.values.push_back(Values(gradient));
  }
  std::map<std::string, double> squares;
  for (const auto& [device, group] : by_device) {
    ASSIGN_OR_RETURN(const internal::Backend* backend,
                     internal::BackendFor(group.values[0].device()));
    ASSIGN_OR_RETURN(const std::vector<double> sums, backend->SumsOfSquares(group.values));
    for (size_t i = 0; i < sums.size(); ++i) squares[group.names[i]] = sums[i];
  }
  return squares;
}

// Adds in the order of the names, whatever the devices of the values are.
double NormOf(const std::map<std::string, double>& squares) {
  double sum = 0;
  for (const auto& [name, square] : squares) sum += square;
  return std::sqrt(sum);
}

}  // namespace

void Gradients::Set(absl::string_view variable, GradientValue gradient) {
  entries_.insert_or_assign(std::string(variable), std::move(gradient));
}

absl::StatusOr<double> Gradients::GlobalNorm() const {
  ASSIGN_OR_RETURN(const auto squares, SquaresOf(entries_));
  return NormOf(squares);
}

absl::Status Gradients::ClipByGlobalNorm(double norm) {
  if (!(norm > 0))
    return absl::InvalidArgumentError(
        absl::StrCat("ClipByGlobalNorm: the norm to clip to is ", norm, "; it must be above 0"));
  ASSIGN_OR_RETURN(const auto all_squares, SquaresOf(entries_));
  const double global_norm = NormOf(all_squares);
  if (std::isfinite(global_norm))
    return global_norm > norm ? Scale(norm / global_norm) : absl::OkStatus();
  for (const auto& [name, squares] : all_squares) {
    if (std::isfinite(squares)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ClipByGlobalNorm: the gradient of ", name,
                     " has an element that is infinite or NaN; a smaller learning "
                     "rate, or data without such values, helps"));
  }
  return absl::InvalidArgumentError(
      "ClipByGlobalNorm: the squares of the gradients' elements sum to more than a double holds");
}

absl::Status Gradients::Scale(double factor) {
  std::map<std::string, GradientValue> scaled = entries_;  // a copy, so an error changes nothing
  for (auto& [name, gradient] : scaled) {
    Tensor& values = Values(gradient);
    ASSIGN_OR_RETURN(const internal::Backend* backend, BackendOf(name, values));
    ASSIGN_OR_RETURN(Tensor result,
                     Tensor::Uninitialized(values.dtype(), values.shape(), values.device()));
    backend->Broadcast(values, factor, result);
    values = std::move(result);
  }
  entries_ = std::move(scaled);
  return absl::OkStatus();
}

// Sums with ids whose duplicates are already known. So a GPU need not sort the ids, and nobody
// waits for its result.
static absl::StatusOr<IndexedSlices> SumAt(const internal::UniqueIds& known,
                                           const internal::Backend& backend,
                                           const IndexedSlices& slices) {
  const Device device = slices.rows.device();
  ASSIGN_OR_RETURN(const Tensor places, known.PlacesOn(device));
  const Shape shape = slices.rows.shape().WithRows(known.unique().shape().num_elements());
  ASSIGN_OR_RETURN(Tensor sums, Tensor::Uninitialized(slices.rows.dtype(), shape, device));
  backend.ScatterAddRows(places, slices.rows, sums);
  return IndexedSlices{known.unique(), std::move(sums), slices.num_rows};
}

absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices) {
  RETURN_IF_ERROR(internal::CheckComputedWith("SumDuplicates", slices.rows));
  if (slices.rows.shape().rank() == 0 || slices.ids.shape() != Shape{slices.rows.shape().dim(0)}) {
    return absl::InvalidArgumentError(absl::StrCat("SumDuplicates: ids ", slices.ids.ToString(),
                                                   " for rows ", slices.rows.ToString(),
                                                   "; there must be one for each"));
  }
  ASSIGN_OR_RETURN(const Tensor ids, slices.ids.To(Device{}));
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> values, ids.values<int64_t>());
  const IndexedSlices here{ids, slices.rows, slices.num_rows};
  if (std::adjacent_find(values.begin(), values.end(), std::greater_equal<int64_t>()) ==
      values.end())
    return here;
  ASSIGN_OR_RETURN(const internal::Backend* backend, internal::BackendFor(slices.rows.device()));
  const std::shared_ptr<const internal::UniqueIds> known = internal::UniqueIfKnown(ids);
  return known != nullptr && slices.rows.device().kind == Device::Kind::kGpu
             ? SumAt(*known, *backend, here)
             : backend->SumDuplicates(here);
}

Nest NestCodec<Gradients>::Encode(const Gradients& gradients) {
  Nest::Dict dict;
  for (const auto& [name, gradient] : gradients.entries()) {
    dict.emplace(name, std::visit([](const auto& value) { return Nest(value); }, gradient));
  }
  return Nest(std::move(dict));
}

absl::StatusOr<Gradients> NestCodec<Gradients>::Decode(const Nest& nest) {
  RETURN_IF_ERROR(nest.status());
  if (nest.dict() == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("wanted gradients by variable, not ", nest.ToString()));
  Gradients gradients;
  for (const auto& [name, value] : *nest.dict()) {
    if (value.kind() == Nest::Kind::kIndexedSlices) {
      ASSIGN_OR_RETURN(IndexedSlices slices, value.indexed_slices());
      gradients.Set(name, std::move(slices));
    } else {
      ASSIGN_OR_RETURN(Tensor tensor, value.tensor());
      gradients.Set(name, std::move(tensor));
    }
  }
  return gradients;
}

}  // namespace divvy
