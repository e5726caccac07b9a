#include "tests/conformance/file_judge.h"

#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "formats/event_file.h"
#include "formats/tfrecord.h"

namespace divvy::conformance {
namespace {

// ---- events

// The event with a given tag and step, and its record.
struct Found {
  std::string record;
  Event event;
  EventData data;
};

absl::Status FindIn(const std::string& file, const std::string& tag, int64_t step,
                    std::optional<Found>& found) {
  ASSIGN_OR_RETURN(const std::string bytes, FileSystem::Real().ReadFile(file));
  ASSIGN_OR_RETURN(const EventFile events, ReadEventFile(bytes));
  RETURN_IF_ERROR(events.end);
  size_t offset = 0;
  for (const Event& event : events.events) {
    ASSIGN_OR_RETURN(const auto record, ReadTfRecord(bytes, offset));
    for (const EventValue& value : event.values) {
      if (value.tag == tag && event.step == step)
        found = Found{std::string(*record), event, value.data};
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Found> Find(const std::string& tag, int64_t step) {
  const std::string folder = absl::StrCat(GoldenDirectory(), "/events");
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FileSystem::Real().ListDirectory(folder));
  std::optional<Found> found;
  for (const std::string& file : files) {
    if (IsEventFileName(file))
      RETURN_IF_ERROR(FindIn(absl::StrCat(folder, "/", file), tag, step, found));
  }
  if (!found) return absl::NotFoundError(absl::StrCat("there is no \"", tag, "\" of step ", step));
  return *std::move(found);
}

std::string BucketsDifference(const std::vector<HistogramBucket>& buckets, const Json& wanted) {
  std::vector<double> numbers;
  for (const HistogramBucket& bucket : buckets)
    numbers.insert(numbers.end(), {bucket.left, bucket.right, bucket.count});
  const auto tensor = Tensor::Copy<double>({static_cast<int64_t>(buckets.size()), 3}, numbers);
  return Difference("left, right, count", tensor, wanted);
}

// The difference between a point and `wanted`. The field in `wanted` tells the plugin.
struct DataDifference {
  const Json& wanted;

  std::string operator()(std::monostate) const { return "the point is of a kind that is not read"; }
  std::string operator()(float scalar) const {
    const double number = NumberFrom(wanted.at("scalar"));
    return Near(scalar, number, {}) ? ""
                                    : absl::StrCat("the scalar is ", scalar, ", wanted ", number);
  }
  std::string operator()(const std::string& text) const {
    return text == wanted.at("text").get<std::string>()
               ? ""
               : absl::StrCat("the text is \"", text, "\", wanted ", wanted.at("text").dump());
  }
  std::string operator()(const std::vector<HistogramBucket>& buckets) const {
    return BucketsDifference(buckets, wanted.at("left_right_count"));
  }
  std::string operator()(const EventImages&) const { return (*this)(std::monostate()); }
  std::string operator()(const EventHParams&) const { return (*this)(std::monostate()); }
};

}  // namespace

Verdict JudgeEvent(const Json& test_case) {
  const auto found =
      Find(test_case.at("tag").get<std::string>(), test_case.at("step").get<int64_t>());
  if (!found.ok()) return Failed(found.status().ToString());
  if (std::string difference = std::visit(DataDifference{Wanted(test_case)}, found->data);
      !difference.empty())
    return Failed(std::move(difference));
  return WriteEvent(found->event) == found->record
             ? Passed()
             : Failed("written again, the record has other bytes");
}

}  // namespace divvy::conformance
