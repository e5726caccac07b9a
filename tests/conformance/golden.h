// Reads TensorFlow's answers (tests/golden), and compares Divvy's answers with them.
#ifndef DIVVY_TESTS_CONFORMANCE_GOLDEN_H_
#define DIVVY_TESTS_CONFORMANCE_GOLDEN_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tensor/tensor.h"

namespace divvy::conformance {

using Json = nlohmann::json;

// ---- verdicts -----------------------------------------------------------------------------------

enum class Outcome {
  kPassed,
  kFailed,
  // Divvy differs on purpose, and does what a row of docs/reference/deviations.md says.
  kDeviating,
  // Divvy does not have the subject of the case.
  kNotCovered
};
struct Verdict {
  Outcome outcome = Outcome::kPassed;
  // The difference, or why the case is not judged; empty if passed.
  std::string message;
};
inline Verdict Passed() { return {}; }
inline Verdict Failed(std::string message) { return {Outcome::kFailed, std::move(message)}; }
inline Verdict Deviating(std::string why) { return {Outcome::kDeviating, std::move(why)}; }
inline Verdict NotCovered(std::string why) { return {Outcome::kNotCovered, std::move(why)}; }
// Passed for an empty text, which the comparisons below return if there is no difference.
inline Verdict PassedUnless(std::string difference) {
  return difference.empty() ? Passed() : Failed(std::move(difference));
}

// Judges one case of a file: runs Divvy on the case's inputs and compares. Pure. A judge depends
// only on the schema in the file's head. It may use Json's throwing accessors: a case without a
// promised field counts as failed.
using Judge = std::function<Verdict(const Json& test_case)>;
Verdict RunJudge(const Judge& judge, const Json& test_case);

// One golden file. If it has no judge, its cases are not covered.
struct Family {
  std::string file;  // "partitioners.json", relative to the directory
  Judge judge;
};
// All files, in the order of the report. tests/conformance/families.cc has the list.
const std::vector<Family>& Families();

// ---- files and values ---------------------------------------------------------------------------

// The directory of the golden files: the value of the environment variable DIVVY_GOLDEN_DIR, or
// tests/golden in the runfiles (the working directory of `bazel test` and `bazel run`).
std::string GoldenDirectory();

// The cases of a file in that directory. Errors name the path: NotFound if there is no such file,
// InvalidArgument if it is not JSON or has no list "cases".
absl::StatusOr<std::vector<Json>> ReadCases(absl::string_view file);

// The answer that Divvy should give: `divvy` if the case has it, otherwise `expect`.
const Json& Wanted(const Json& test_case);

// A number, or one of the strings "NaN", "Infinity", "-Infinity".
double NumberFrom(const Json& value);

// Read {dtype, shape, values}, and {ids, rows} as IndexedSlices with `num_rows`. InvalidArgument if
// the dtype or shape is not one of a tensor, or the number of values does not match the shape.
absl::StatusOr<Tensor> TensorFrom(const Json& tensor);
absl::StatusOr<IndexedSlices> SlicesFrom(const Json& slices, int64_t num_rows);
Shape ShapeFrom(const Json& dims);

// got - wanted| <= absolute + relative * |wanted|. Two NaNs are equal, and so is the same infinity.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};
bool Near(double got, double wanted, Tolerance tolerance);

// The difference in one sentence that begins with `what`: the dtype, the shape, or the worst
// element. Empty if there is none.
std::string Difference(absl::string_view what, const Tensor& got, const Json& wanted,
                       Tolerance tolerance = {});
std::string Difference(absl::string_view what, const absl::StatusOr<Tensor>& got,
                       const Json& wanted, Tolerance tolerance = {});

// IsFailure: whether `wanted` is a failure ({..., status}). FailureDifference: the difference
// between `got` and that failure. If the status is null (the Python class has no canonical code),
// any error matches.
bool IsFailure(const Json& wanted);
std::string FailureDifference(const absl::Status& got, const Json& wanted);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_GOLDEN_H_
