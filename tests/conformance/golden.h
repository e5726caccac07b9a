// TensorFlow's answers (tests/golden), and what it takes to judge by them.
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
  // Divvy differs from this case on purpose, and does what it says there: a row of
  // docs/reference/deviations.md
  kDeviating,
  // about something that Divvy has not got
  kNotCovered
};
struct Verdict {
  Outcome outcome = Outcome::kPassed;
  // What differs, or why it is not judged; empty if passed.
  std::string message;
};
inline Verdict Passed() { return {}; }
inline Verdict Failed(std::string message) { return {Outcome::kFailed, std::move(message)}; }
inline Verdict Deviating(std::string why) { return {Outcome::kDeviating, std::move(why)}; }
inline Verdict NotCovered(std::string why) { return {Outcome::kNotCovered, std::move(why)}; }
// Passed for an empty text, which is what the comparisons below give when nothing differs.
inline Verdict PassedUnless(std::string difference) {
  return difference.empty() ? Passed() : Failed(std::move(difference));
}

// Judges one case of a file: runs Divvy on the case's inputs and compares. Pure; keyed to nothing
// but the schema that the file's head tells. It may use Json's throwing accessors: a case without a
// field that the schema promises comes out as failed.
using Judge = std::function<Verdict(const Json& test_case)>;
Verdict RunJudge(const Judge& judge, const Json& test_case);

// One golden file. Without a judge all its cases are not covered.
struct Family {
  std::string file;  // "partitioners.json", relative to the directory
  Judge judge;
};
// All of them, in the order of the report. The one place that names the judges:
// tests/conformance/families.cc.
const std::vector<Family>& Families();

// ---- files and values ---------------------------------------------------------------------------

// The directory that the environment variable DIVVY_GOLDEN_DIR names, else the project's own
// tests/golden (of the runfiles: the working directory of `bazel test` and `bazel run`).
std::string GoldenDirectory();

// The cases of a file there. NotFound, InvalidArgument: no such file, not JSON or without a list
// "cases"; names the path.
absl::StatusOr<std::vector<Json>> ReadCases(absl::string_view file);

// What Divvy is to answer: `divvy` where the case has it, else `expect`.
const Json& Wanted(const Json& test_case);

// A number, or one of the strings "NaN", "Infinity", "-Infinity".
double NumberFrom(const Json& value);

// {dtype, shape, values}, also {ids, rows} as IndexedSlices with `num_rows`. InvalidArgument: a
// dtype or shape that tensors do not have, or as many values as do not fit it.
absl::StatusOr<Tensor> TensorFrom(const Json& tensor);
absl::StatusOr<IndexedSlices> SlicesFrom(const Json& slices, int64_t num_rows);
Shape ShapeFrom(const Json& dims);

// |got - wanted| <= absolute + relative * |wanted|; both NaN, or the same infinity, are equal.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};
bool Near(double got, double wanted, Tolerance tolerance);

// What differs, in one sentence that begins with `what`: dtype, shape, or the worst element; empty
// if nothing does.
std::string Difference(absl::string_view what, const Tensor& got, const Json& wanted,
                       Tolerance tolerance = {});
std::string Difference(absl::string_view what, const absl::StatusOr<Tensor>& got,
                       const Json& wanted, Tolerance tolerance = {});

// For a `wanted` that is a failure ({..., status}): whether `got` is an error of that code. A
// status of null (the class has no canonical one) takes any error.
bool IsFailure(const Json& wanted);
std::string FailureDifference(const absl::Status& got, const Json& wanted);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_GOLDEN_H_
