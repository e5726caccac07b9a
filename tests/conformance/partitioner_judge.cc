#include "tests/conformance/partitioner_judge.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partitioners/div.h"
#include "partitioners/partitioner.h"

namespace divvy::conformance {
namespace {

using Counts = std::vector<int64_t>;

// nullopt: Divvy does not have this partitioner.
std::optional<absl::StatusOr<Counts>> Ask(const Json& test_case, const Shape& shape, DType dtype) {
  const std::string kind = test_case.at("partitioner").get<std::string>();
  const Json& args = test_case.at("args");
  const int axis = test_case.at("axis").get<int>();
  if (kind == "FixedShards")
    return FixedShardsPartitioner{args.at("num_shards").get<int64_t>()}(shape, dtype, axis);
  if (kind == "MaxSize") {
    const MaxSizePartitioner defaults{1};
    const MaxSizePartitioner made{args.at("max_shard_bytes").get<int64_t>(),
                                  args.value("max_shards", defaults.max_shards),
                                  args.value("bytes_per_string", defaults.bytes_per_string)};
    return made(shape, dtype, axis);
  }
  if (kind == "MinSize") {
    const MinSizePartitioner defaults;
    const MinSizePartitioner made{args.value("min_shard_bytes", defaults.min_shard_bytes),
                                  args.value("max_shards", defaults.max_shards),
                                  args.value("bytes_per_string", defaults.bytes_per_string)};
    return made(shape, dtype, axis);
  }
  return std::nullopt;
}

std::string ListDifference(absl::string_view what, const Counts& got, const Json& wanted) {
  const Counts list = wanted.get<Counts>();
  if (got == list) return "";
  return absl::StrCat(what, " are [", absl::StrJoin(got, ", "), "], wanted [",
                      absl::StrJoin(list, ", "), "]");
}

std::string ShardsDifference(const DivSplit& split, const Json& wanted) {
  std::vector<std::string> names;
  for (int64_t shard = 0; shard < split.num_shards(); ++shard)
    names.push_back(ShardName("v", shard, split.num_shards()));
  if (names != wanted.at("names").get<std::vector<std::string>>())
    return absl::StrCat("names are ", absl::StrJoin(names, ", "));
  if (std::string difference = ListDifference("sizes", split.sizes(), wanted.at("sizes"));
      !difference.empty())
    return difference;
  Counts first_rows = split.offsets();
  first_rows.pop_back();
  return ListDifference("offsets", first_rows, wanted.at("offsets"));
}

std::string PlacesDifference(const DivSplit& split, const Counts& ids, const Json& wanted) {
  Counts shards, locals;
  for (const int64_t id : ids) {
    const absl::StatusOr<DivSplit::Place> place = split.Find(id);
    if (!place.ok()) return place.status().ToString();
    shards.push_back(place->shard);
    locals.push_back(place->local_row);
  }
  if (std::string difference = ListDifference("shards", shards, wanted.at("shard"));
      !difference.empty())
    return difference;
  return ListDifference("local rows", locals, wanted.at("local"));
}

}  // namespace

Verdict JudgePartitioner(const Json& test_case) {
  const std::optional<DType> dtype = ParseDType(test_case.at("dtype").get<std::string>());
  if (!dtype.has_value()) return NotCovered("no such dtype");
  const Shape shape = ShapeFrom(test_case.at("shape"));
  const std::optional<absl::StatusOr<Counts>> answer = Ask(test_case, shape, *dtype);
  if (!answer.has_value()) return NotCovered("no such partitioner");
  const Json& wanted = Wanted(test_case);
  if (IsFailure(wanted)) return PassedUnless(FailureDifference(answer->status(), wanted));
  if (!shape.status().ok() && answer->status().code() == absl::StatusCode::kInvalidArgument)
    return Deviating("more than 2^63 elements are refused");
  if (!answer->ok()) return Failed(answer->status().ToString());
  return PassedUnless(ListDifference("counts", **answer, wanted.at("shards")));
}

Verdict JudgeDivSplit(const Json& test_case) {
  const absl::StatusOr<DivSplit> split =
      DivSplit::Create(test_case.at("rows").get<int64_t>(), test_case.at("shards").get<int64_t>());
  const Json& wanted = Wanted(test_case);
  if (IsFailure(wanted)) return PassedUnless(FailureDifference(split.status(), wanted));
  if (!split.ok()) return Failed(split.status().ToString());
  if (std::string difference = ShardsDifference(*split, wanted); !difference.empty())
    return Failed(std::move(difference));
  if (!test_case.contains("ids")) return Passed();
  return PassedUnless(PlacesDifference(*split, test_case.at("ids").get<Counts>(), wanted));
}

}  // namespace divvy::conformance
