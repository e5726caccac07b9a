// What the programs of bench/results share: where their data is, a count of examples that the
// parameter servers keep, and the line that tools/results reads.
#ifndef DIVVY_BENCH_RESULTS_RESULT_H_
#define DIVVY_BENCH_RESULTS_RESULT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "divvy.h"

ABSL_DECLARE_FLAG(std::string, train);
ABSL_DECLARE_FLAG(std::string, test);
ABSL_DECLARE_FLAG(int, fold);

namespace divvy::results {

// The number of parts of the training set from which --fold selects one.
constexpr int kFolds = 5;

// The part of the data that a program trains on, or measures. Without --fold these are the training
// set and the test set. With it, the program measures a fifth of the training set and trains on the
// other examples: options are chosen in this way, and never by the test set.
Dataset PartOf(const Dataset& training, const Dataset& test, bool to_train);

// Counts steps and examples in a variable of the parameter servers, "examples". The commit that
// applies a step's gradients also adds to the counts. So they are exact if and only if each step
// was applied exactly once. REQUIRES: one replica in each worker, batches of less than 2^20
// examples, and less than 500,000 steps.
struct ExampleCounter : Layer {
  ExampleCounter();
  // Returns `losses`, [batch], unchanged. Their gradient also counts the batch.
  Var operator()(GradientTape& tape, const Var& losses) const;
};

// The steps and examples of a training.
struct Counts {
  int64_t steps = 0, examples = 0;
};
// The counts of `epochs` passes over the data, which this call reads once. `leaf`: a leaf of a
// batch with a row for each example. Errors: the source's.
absl::StatusOr<Counts> CountPasses(const BoundDataSource& source, const char* leaf, int epochs);
// The counts of the variable of ExampleCounter. Errors: those of Variable::Read.
absl::StatusOr<Counts> ReadCounts(Coordinator& coordinator);

// "auc" and "log_loss" of a model whose outputs are "logit" and "label", over all of `test`. If it
// also has "planted", the logits of the model that drew the labels, then "ceiling", the planted
// model's AUC, and "auc_of_ceiling". Errors: those of Predict and of measures.h.
absl::StatusOr<std::map<std::string, double>> MeasureClassifier(Trainer& trainer,
                                                                const BoundDataSource& test);

// All values of a float32 output of Predict. NotFound: there is no such output.
absl::StatusOr<std::vector<float>> ValuesOf(const Outputs& outputs, const std::string& name);

// Prints a line of JSON for tools/results: the figures, and both counts beside those of the job.
// InvalidArgument: a figure is not finite. Other errors: those of ReadCounts.
absl::Status PrintResult(Coordinator& coordinator, absl::string_view name,
                         const std::map<std::string, double>& figures, const Counts& expected);

}  // namespace divvy::results

#endif  // DIVVY_BENCH_RESULTS_RESULT_H_
