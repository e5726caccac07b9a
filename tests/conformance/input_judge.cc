#include "tests/conformance/input_judge.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "data/dataset.h"
#include "data/rebatch.h"

namespace divvy::conformance {
namespace {

// ---- rebatch ------------------------------------------------------------------------------------

using Examples = std::vector<int64_t>;  // numbers of examples
using Batches = std::vector<Examples>;

Tensor Numbers(int64_t first, int64_t count) {
  Examples numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return Tensor::Vector<int64_t>(numbers);
}

// The examples 0, 1, ... in batches of these sizes. The dataset's recipe does not show the sizes.
Dataset OfUnknownSize(const Examples& sizes) {
  const auto batch = [sizes](int64_t index) -> absl::StatusOr<std::optional<Nest>> {
    return Nest(Numbers(std::accumulate(sizes.begin(), sizes.begin() + index, int64_t{0}),
                        sizes[static_cast<size_t>(index)]));
  };
  return Dataset::Generator(batch, static_cast<int64_t>(sizes.size()));
}

// The same number of examples in batches of `size`, made by Batch.
Dataset InBatchesOf(int64_t size, const Examples& sizes) {
  return Dataset::FromTensorSlices(
             Nest(Numbers(0, std::accumulate(sizes.begin(), sizes.end(), int64_t{0}))))
      .Batch(size);
}

// The elements of OfUnknownSize, made by Batch; nullopt if Batch cannot make them.
std::optional<Dataset> OfKnownSize(const Examples& sizes) {
  if (sizes.empty() || sizes[0] < 1) return std::nullopt;
  const auto is_first = [&sizes](int64_t size) { return size == sizes[0]; };
  if (!std::all_of(sizes.begin(), sizes.end() - 1, is_first) || sizes.back() > sizes[0] ||
      sizes.back() < 1)
    return std::nullopt;
  return InBatchesOf(sizes[0], sizes);
}

absl::StatusOr<Batches> AllBatches(const Dataset& dataset) {
  Batches batches;
  const auto iterator = dataset.Iterate();
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Nest> element, iterator->Next());
    if (!element) return batches;
    ASSIGN_OR_RETURN(const Tensor tensor, element->tensor());
    ASSIGN_OR_RETURN(const absl::Span<const int64_t> values, tensor.values<int64_t>());
    batches.emplace_back(values.begin(), values.end());
  }
}

std::string Shown(const Batches& batches) {
  return absl::StrJoin(batches, " ", [](std::string* out, const Examples& examples) {
    absl::StrAppend(out, "[", absl::StrJoin(examples, ","), "]");
  });
}

std::string BatchesDifference(const absl::StatusOr<Batches>& got, const Batches& wanted) {
  if (!got.ok()) return got.status().ToString();
  return *got == wanted ? ""
                        : absl::StrCat("batches are ", Shown(*got), ", wanted ", Shown(wanted));
}

Verdict JudgeSizes(const Json& test_case, const Json& wanted) {
  const int64_t workers = test_case.at("workers").get<int64_t>();
  Batches sizes;
  for (int64_t worker = 0; worker < workers; ++worker) {
    const auto of_worker = BatchSizesForWorker(test_case.at("global_batch").get<int64_t>(), workers,
                                               test_case.at("replicas").get<int64_t>(), worker);
    if (!of_worker.ok())
      return IsFailure(wanted) ? PassedUnless(FailureDifference(of_worker.status(), wanted))
                               : Failed(of_worker.status().ToString());
    sizes.push_back(*of_worker);
  }
  return PassedUnless(BatchesDifference(sizes, wanted.at("sizes_of_worker").get<Batches>()));
}

Verdict JudgeStream(const Json& test_case, const Json& wanted) {
  const Examples input = test_case.at("input_batches").get<Examples>();
  const auto recut = [&](const Dataset& batches) {
    return AllBatches(Rebatch(batches, test_case.at("sizes").get<Examples>(),
                              test_case.at("drop_remainder").get<bool>()));
  };
  const absl::StatusOr<Batches> got = recut(OfUnknownSize(input));
  if (IsFailure(wanted)) return PassedUnless(FailureDifference(got.status(), wanted));
  const Batches batches = wanted.at("batches").get<Batches>();
  if (std::string difference = BatchesDifference(got, batches); !difference.empty())
    return Failed(std::move(difference));
  const std::optional<Dataset> known = OfKnownSize(input);
  return known ? PassedUnless(BatchesDifference(recut(*known), batches)) : Passed();
}

Verdict JudgeUnknownSize(const Json& test_case, const Json& wanted) {
  const auto got =
      AllBatches(RecutForReplicas(OfUnknownSize(test_case.at("input_batches").get<Examples>()),
                                  test_case.at("replicas").get<int>()));
  if (!got.ok()) return Failed(got.status().ToString());
  Examples sizes;
  for (const Examples& batch : *got) sizes.push_back(static_cast<int64_t>(batch.size()));
  return PassedUnless(BatchesDifference(Batches{sizes}, {wanted.at("batches").get<Examples>()}));
}

// A step takes a batch for each replica. If too few are left, the other replicas get no examples.
Verdict JudgeSteps(const Json& test_case, const Json& wanted) {
  const Examples input = test_case.at("input_batches").get<Examples>();
  const int replicas = test_case.at("replicas").get<int>();
  const bool is_known = test_case.at("batch_size_known").get<bool>();
  const Dataset global_batches = is_known ? InBatchesOf(input.at(0), input) : OfUnknownSize(input);
  absl::StatusOr<Batches> got = AllBatches(RecutForReplicas(global_batches, replicas));
  if (got.ok())
    got->resize((got->size() + static_cast<size_t>(replicas) - 1) / static_cast<size_t>(replicas) *
                static_cast<size_t>(replicas));
  Batches batches;
  for (const Json& step : wanted.at("steps")) {
    for (const Json& of_replica : step) batches.push_back(of_replica.get<Examples>());
  }
  return PassedUnless(BatchesDifference(got, batches));
}

// ---- tfrecord -----------------------------------------------------------------------------------

// The types are as the file's head says.
DType TypeOf(absl::string_view feature) {
  if (feature == "label" || feature == "ids") return DType::kInt64;
  return feature == "dense" ? DType::kFloat32 : DType::kString;
}

std::string ListDifference(const std::string& feature, const Nest& got, const Json& wanted) {
  if (TypeOf(feature) == DType::kString) {
    const auto texts = NestCodec<std::vector<std::string>>::Decode(got);
    if (!texts.ok()) return texts.status().ToString();
    return *texts == wanted.get<std::vector<std::string>>()
               ? ""
               : absl::StrCat(feature, " is ", absl::StrJoin(*texts, ","), ", wanted ",
                              wanted.dump());
  }
  return Difference(
      feature, got.tensor(),
      Json{{"dtype", DTypeName(TypeOf(feature))}, {"shape", {wanted.size()}}, {"values", wanted}});
}

std::string RecordDifference(const std::string& file, int64_t number, const Json& wanted) {
  std::vector<ExampleFeature> features;
  for (const auto& [feature, values] : wanted.items())
    features.push_back({feature, TypeOf(feature), {-1}});
  const Dataset records = Dataset::TfRecord(
      file, [features](absl::string_view record) { return ParseExample(record, features); });
  const auto record = records.Skip(number).Iterate()->Next();
  if (!record.ok()) return record.status().ToString();
  if (!record->has_value()) return absl::StrCat(file, " has no record ", number);
  for (const auto& [feature, values] : wanted.items()) {
    if (std::string difference = ListDifference(feature, (**record)[feature], values);
        !difference.empty())
      return absl::StrCat(file, ": ", difference);
  }
  return "";
}

}  // namespace

Verdict JudgeRebatch(const Json& test_case) {
  const std::string rule = test_case.at("rule").get<std::string>();
  const Json& wanted = Wanted(test_case);
  if (rule == "sizes") return JudgeSizes(test_case, wanted);
  if (rule == "stream") return JudgeStream(test_case, wanted);
  if (rule == "unknown batch size") return JudgeUnknownSize(test_case, wanted);
  if (rule == "distribute_dataset") return JudgeSteps(test_case, wanted);
  return NotCovered("no such rule");
}

Verdict JudgeTfRecord(const Json& test_case) {
  const std::string folder = absl::StrCat(GoldenDirectory(), "/tfrecord");
  const auto files = FileSystem::Real().ListDirectory(folder);
  if (!files.ok()) return Failed(files.status().ToString());
  for (const std::string& file : *files) {
    if (file == "content.json") continue;
    const std::string difference = RecordDifference(
        absl::StrCat(folder, "/", file), test_case.at("record").get<int64_t>(), Wanted(test_case));
    if (!difference.empty()) return Failed(difference);
  }
  return Passed();
}

}  // namespace divvy::conformance
