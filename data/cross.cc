#include "data/cross.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "data/recipes.h"
#include "data/stacking.h"

namespace divvy {
namespace {

constexpr int64_t kMostCombinations = int64_t{1} << 26;

// The hash of no values.
uint64_t StartOf(absl::string_view salt) { return salt.empty() ? 0 : HashText(salt); }

// The hash of the values before, and of one more.
uint64_t With(uint64_t hash, int64_t value) { return MixSeeds(hash, static_cast<uint64_t>(value)); }

// A feature as lists of integers.
struct Lists {
  bool is_sparse = false;
  Shape shape;                    // of a tensor
  std::vector<int64_t> values;    // of all rows
  std::vector<int64_t> splits;    // of SparseIds
  std::optional<Tensor> weights;  // of SparseIds

  int64_t num_values() const { return static_cast<int64_t>(values.size()); }
  // Where row `row` of `rows` begins in `values`.
  int64_t Begin(int64_t row, int64_t rows) const {
    return is_sparse ? splits[static_cast<size_t>(row)] : num_values() / rows * row;
  }
  // Whether its values can be divided into so many rows.
  bool HasRows(int64_t rows) const {
    if (is_sparse) return static_cast<int64_t>(splits.size()) == rows + 1;
    return rows == 1 || (shape.rank() > 0 && shape.dim(0) == rows);
  }
};

template <typename T>
std::vector<int64_t> Widened(const Tensor& tensor) {
  const T* const from = tensor.data_as<T>();
  return std::vector<int64_t>(from, from + tensor.shape().num_elements());
}

absl::StatusOr<std::vector<int64_t>> IntegersOf(const Tensor& tensor) {
  if (!IsInteger(tensor.dtype()) || tensor.device() != Device{})
    return absl::InvalidArgumentError(
        absl::StrCat("is ", tensor.ToString(), ": only integers on the CPU can be crossed"));
  return DispatchDType(
      tensor.dtype(),
      [&tensor](auto type) -> absl::StatusOr<std::vector<int64_t>> {
        using T = decltype(type);
        if constexpr (std::is_integral_v<T>) return Widened<T>(tensor);
        return absl::InternalError("an integer of no integer type");
      },
      absl::StatusOr<std::vector<int64_t>>(absl::InternalError("an integer of no type")));
}

absl::StatusOr<Lists> ListsOf(const Nest& feature) {
  RETURN_IF_ERROR(feature.status());
  Lists lists;
  if (IsSparseIds(feature)) {
    ASSIGN_OR_RETURN(SparseIds ids, feature.sparse_ids());
    lists.is_sparse = true;
    lists.values = Widened<int64_t>(ids.ids);
    lists.splits = Widened<int64_t>(ids.row_splits);
    lists.weights = std::move(ids.weights);
    if (lists.weights && lists.weights->device() != Device{})
      return absl::InvalidArgumentError("has weights that are not on the CPU");
    return lists;
  }
  if (feature.kind() != Nest::Kind::kTensor)
    return absl::InvalidArgumentError(absl::StrCat(
        "is ", feature.ToString(),
        ": only integers can be crossed. Make keys of texts before (TextKeys, TextsToKeys)"));
  ASSIGN_OR_RETURN(const Tensor tensor, feature.tensor());
  lists.shape = tensor.shape();
  ASSIGN_OR_RETURN(lists.values, IntegersOf(tensor));
  return lists;
}

// What all crosses of one call of Cross have in common.
class Crossing {
 public:
  Crossing(std::vector<std::string> features, int64_t buckets, CrossOptions options)
      : features_(std::move(features)),
        buckets_(buckets),
        name_(options.name.empty() ? absl::StrJoin(features_, "_X_") : std::move(options.name)),
        start_(StartOf(options.salt)) {}

  absl::StatusOr<Nest> Add(const Nest& element) const {
    absl::StatusOr<Nest> crossed = AddChecked(element);
    if (crossed.ok()) return crossed;
    return data_internal::WithContext(crossed.status(),
                                      absl::StrCat("Cross of ", absl::StrJoin(features_, ", ")));
  }

 private:
  absl::StatusOr<Nest> AddChecked(const Nest& element) const {
    RETURN_IF_ERROR(CheckArguments());
    RETURN_IF_ERROR(element.status());
    if (element.dict() == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("the element is no dict, but ", element.ToString()));
    if (element.dict()->count(name_) > 0)
      return absl::InvalidArgumentError(
          absl::StrCat("the element has a \"", name_, "\" already: give CrossOptions a name"));
    std::vector<Lists> lists;
    for (const std::string& feature : features_) {
      absl::StatusOr<Lists> of_feature = ListsOf(element[feature]);
      if (!of_feature.ok())
        return data_internal::WithContext(of_feature.status(),
                                          absl::StrCat("feature \"", feature, "\""));
      lists.push_back(*std::move(of_feature));
    }
    ASSIGN_OR_RETURN(Nest crossed, Combine(lists));
    Nest::Dict dict = *element.dict();
    dict.emplace(name_, std::move(crossed));
    return Nest(std::move(dict));
  }

  absl::Status CheckArguments() const {
    if (features_.empty()) return absl::InvalidArgumentError("no features: give it at least 1");
    if (buckets_ < 0)
      return absl::InvalidArgumentError(absl::StrCat(
          buckets_, " buckets: give the number of rows of the table, or 0 for any int64"));
    if (std::set<std::string>(features_.begin(), features_.end()).size() < features_.size())
      return absl::InvalidArgumentError("a feature is named twice");
    return absl::OkStatus();
  }

  absl::StatusOr<Nest> Combine(const std::vector<Lists>& lists) const {
    const auto sparse = std::find_if(lists.begin(), lists.end(),
                                     [](const Lists& feature) { return feature.is_sparse; });
    if (sparse == lists.end()) return ValueByValue(lists);
    const int64_t rows = static_cast<int64_t>(sparse->splits.size()) - 1;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (!lists[i].HasRows(rows))
        return absl::InvalidArgumentError(
            absl::StrCat("feature \"", features_[static_cast<size_t>(sparse - lists.begin())],
                         "\" has ", rows, " rows, and \"", features_[i], "\" has ",
                         lists[i].is_sparse ? absl::StrCat(lists[i].splits.size() - 1)
                                            : absl::StrCat("the shape ", lists[i].shape.ToString()),
                         ": they must have as many"));
    }
    return RowByRow(lists, rows);
  }

  absl::StatusOr<Nest> ValueByValue(const std::vector<Lists>& lists) const {
    for (size_t i = 1; i < lists.size(); ++i) {
      if (!(lists[i].shape == lists[0].shape))
        return absl::InvalidArgumentError(absl::StrCat(
            "feature \"", features_[0], "\" has the shape ", lists[0].shape.ToString(), ", and \"",
            features_[i], "\" ", lists[i].shape.ToString(), ": they must be the same"));
    }
    std::vector<int64_t> keys(lists[0].values.size());
    for (size_t at = 0; at < keys.size(); ++at) {
      uint64_t hash = start_;
      for (const Lists& feature : lists) hash = With(hash, feature.values[at]);
      keys[at] = KeyOf(hash);
    }
    ASSIGN_OR_RETURN(Tensor tensor, Tensor::Copy<int64_t>(lists[0].shape, keys));
    return Nest(std::move(tensor));
  }

  absl::StatusOr<Nest> RowByRow(const std::vector<Lists>& lists, int64_t rows) const {
    std::vector<int64_t> splits = {0};
    for (int64_t row = 0; row < rows; ++row) {
      splits.push_back(splits.back() + CountOf(lists, row, rows));
      if (splits.back() > kMostCombinations) return TooMany();
    }
    std::vector<int64_t> keys;
    keys.reserve(static_cast<size_t>(splits.back()));
    const bool has_weights = std::any_of(lists.begin(), lists.end(),
                                         [](const Lists& feature) { return feature.weights; });
    std::vector<float> weights;
    for (int64_t row = 0; row < rows; ++row) {
      // Without this, a row with one empty list would take the time of all its others.
      if (splits[static_cast<size_t>(row) + 1] == splits[static_cast<size_t>(row)]) continue;
      AddRow(lists, 0, row, rows, start_, 1, keys, has_weights ? &weights : nullptr);
    }
    const int64_t count = splits.back();
    SparseIds crossed;
    ASSIGN_OR_RETURN(crossed.ids, Tensor::Copy<int64_t>({count}, keys));
    ASSIGN_OR_RETURN(crossed.row_splits, Tensor::Copy<int64_t>({rows + 1}, splits));
    if (has_weights) {
      ASSIGN_OR_RETURN(crossed.weights, Tensor::Copy<float>({count}, weights));
    }
    return Nest(std::move(crossed));
  }

  // The number of combinations in a row, or a number above kMostCombinations.
  static int64_t CountOf(const std::vector<Lists>& lists, int64_t row, int64_t rows) {
    int64_t combinations = 1;
    for (const Lists& feature : lists) {
      const int64_t values = feature.Begin(row + 1, rows) - feature.Begin(row, rows);
      if (values == 0) return 0;
      // One more than allowed is enough to know.
      combinations =
          values > kMostCombinations / combinations ? kMostCombinations + 1 : combinations * values;
    }
    return combinations;
  }

  // Adds the combinations of the values of features `from`, from + 1, ... in this row, whose values
  // of the features before have this hash and weight. As deep as there are features.
  void AddRow(const std::vector<Lists>& lists, size_t from, int64_t row, int64_t rows,
              uint64_t hash, float weight, std::vector<int64_t>& keys,
              std::vector<float>* weights) const {
    if (from == lists.size()) {
      keys.push_back(KeyOf(hash));
      if (weights != nullptr) weights->push_back(weight);
      return;
    }
    const Lists& feature = lists[from];
    const int64_t end = feature.Begin(row + 1, rows);
    for (int64_t at = feature.Begin(row, rows); at < end; ++at) {
      const float own = feature.weights ? feature.weights->data_as<float>()[at] : 1;
      AddRow(lists, from + 1, row, rows, With(hash, feature.values[static_cast<size_t>(at)]),
             weight * own, keys, weights);
    }
  }

  static absl::Status TooMany() {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMostCombinations,
                     " combinations in one element or batch: cross fewer features, shorten their "
                     "lists, or make batches smaller"));
  }

  int64_t KeyOf(uint64_t hash) const {
    return static_cast<int64_t>(buckets_ > 0 ? hash % static_cast<uint64_t>(buckets_) : hash);
  }

  const std::vector<std::string> features_;
  const int64_t buckets_;  // 0: any int64
  const std::string name_;
  const uint64_t start_;  // of each hash
};

}  // namespace

int64_t CrossKey(absl::Span<const int64_t> values, absl::string_view salt) {
  uint64_t hash = StartOf(salt);
  for (const int64_t value : values) hash = With(hash, value);
  return static_cast<int64_t>(hash);
}

std::function<absl::StatusOr<Nest>(const Nest&)> Cross(std::vector<std::string> features,
                                                       int64_t buckets, CrossOptions options) {
  const auto crossing =
      std::make_shared<const Crossing>(std::move(features), buckets, std::move(options));
  return [crossing](const Nest& element) { return crossing->Add(element); };
}

}  // namespace divvy
