#include "tools/ctl/checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/path.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "formats/tensor_bundle.h"
#include "wire/text.h"

namespace divvy {
namespace {

// Rows of words as columns: the first `texts` and the last to the left, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { Add(std::move(head)); }
  // Escapes every word, because a name in a file of another program may contain control codes for
  // the terminal.
  void Add(std::vector<std::string> row) {
    for (std::string& word : row) word = wire::Escaped(word);
    rows_.push_back(std::move(row));
  }
  std::string Text(const std::vector<size_t>& numbers) const {
    std::string text;
    for (const std::vector<std::string>& row : rows_) {
      std::string line;
      for (size_t column = 0; column < row.size(); ++column) {
        const std::string padding(WidthOf(column) - row[column].size(), ' ');
        const bool is_number = std::count(numbers.begin(), numbers.end(), column) > 0;
        absl::StrAppend(&line, column == 0 ? "" : "  ", is_number ? padding : "", row[column],
                        is_number ? "" : padding);
      }
      absl::StrAppend(
          &text,
          absl::StripSuffix(line, std::string(line.size() - (line.find_last_not_of(' ') + 1), ' ')),
          "\n");
    }
    return text;
  }

 private:
  size_t WidthOf(size_t column) const {
    size_t width = 0;
    for (const std::vector<std::string>& row : rows_) width = std::max(width, row[column].size());
    return width;
  }
  std::vector<std::vector<std::string>> rows_;
};

uint64_t BytesOf(const BundleTensor& tensor) {
  uint64_t bytes = 0;
  for (const BundlePart& part : tensor.parts) bytes += part.size_bytes;
  return bytes;
}

uint64_t BytesOf(const BundleIndex& index) {
  uint64_t bytes = 0;
  for (const BundleTensor& tensor : index.tensors) bytes += BytesOf(tensor);
  return bytes;
}

std::string StepsText(const absl::StatusOr<int64_t>& steps) {
  return steps.ok() && *steps >= 0 ? absl::StrCat(*steps) : "-";
}

// One line for each damage; "" if there is none.
absl::StatusOr<std::string> FaultsOf(const BundleReader& reader, int& unchecked) {
  std::string faults;
  for (const BundleTensor& tensor : reader.index().tensors) {
    const absl::Status status = reader.Verify(tensor.name);
    if (absl::IsDataLoss(status))
      absl::StrAppend(&faults, "damaged: ", wire::Escaped(status.message()), "\n");
    else if (absl::IsInvalidArgument(status))
      ++unchecked;
    else
      RETURN_IF_ERROR(status);
  }
  return faults;
}

absl::Status VerifyOne(FileSystem& files, const std::string& prefix, std::string& report) {
  const auto reader = BundleReader::Open(files, prefix);
  if (absl::IsDataLoss(reader.status()))
    absl::StrAppend(&report, "damaged: ", wire::Escaped(reader.status().message()), "\n");
  RETURN_IF_ERROR(reader);
  const BundleIndex& index = (*reader)->index();
  int unchecked = 0;
  ASSIGN_OR_RETURN(const std::string faults, FaultsOf(**reader, unchecked));
  if (!faults.empty()) {
    report += faults;
    return absl::DataLossError(absl::StrCat(prefix, " is damaged"));
  }
  const std::string but =
      unchecked == 0
          ? ""
          : absl::StrCat(
                "; ", unchecked,
                " tensors were not checked, because only TensorFlow can compute their checksums");
  absl::StrAppend(&report, "whole: ", prefix, ": ", index.tensors.size(), " tensors, ",
                  BytesOf(index), " bytes", but, "\n");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> DescribeCheckpoints(FileSystem& files, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, CheckpointPrefixes(files, directory));
  Table table({"checkpoint", "steps", "tensors", "bytes", "state"});
  for (const std::string& prefix : prefixes) {
    const auto reader = BundleReader::Open(files, prefix);
    if (!reader.ok()) {
      table.Add({BaseNameOf(prefix), "-", "-", "-", std::string(reader.status().message())});
      continue;
    }
    const BundleIndex& index = (*reader)->index();
    const absl::StatusOr<int64_t> steps = FinishedStepsOf(**reader);
    const std::string state = steps.ok() ? "whole" : std::string(steps.status().message());
    table.Add({BaseNameOf(prefix), StepsText(steps), absl::StrCat(index.tensors.size()),
               absl::StrCat(BytesOf(index)), state});
  }
  return table.Text({1, 2, 3});
}

absl::StatusOr<std::string> DescribeCheckpoint(FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(const auto reader, OpenCheckpoint(files, path));
  const BundleIndex& index = reader->index();
  ASSIGN_OR_RETURN(const int64_t steps, FinishedStepsOf(*reader));
  Table table({"tensor", "type", "shape", "slices", "bytes"});
  for (const BundleTensor& tensor : index.tensors) {
    const std::string shape =
        tensor.unreadable.empty() || tensor.shape.rank() > 0 ? tensor.shape.ToString() : "-";
    table.Add({tensor.name, tensor.type, shape, absl::StrCat(tensor.parts.size()),
               absl::StrCat(BytesOf(tensor))});
  }
  const std::string finished = steps < 0 ? "" : absl::StrCat(", ", steps, " finished steps");
  return absl::StrCat(reader->prefix(), ": ", index.tensors.size(), " tensors, ", BytesOf(index),
                      " bytes in ", index.num_files, " files", finished, "\n", table.Text({3, 4}));
}

absl::Status VerifyCheckpoints(FileSystem& files, const std::string& path, std::string& report) {
  ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, CheckpointsAt(files, path));
  absl::Status damage;
  for (const std::string& prefix : prefixes) {
    const absl::Status status = VerifyOne(files, prefix, report);
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    damage.Update(status);
  }
  return damage;
}

}  // namespace divvy
