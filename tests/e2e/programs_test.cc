// The example programs as a person runs them: what they learn, and what they say to bad input. Each refusal is one clear message and an exit code.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string text;  // standard output and error
};

Outcome RunCommand(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

Outcome Digits(const std::string& flags) { return RunCommand(absl::StrCat("examples/digits --data=examples/data/digits.csv.gz ", flags)); }

// The number behind the last "<name> " in the text.
double Last(const std::string& text, const std::string& name) {
  const size_t at = text.rfind(absl::StrCat(name, " "));
  double value = -1;
  if (at == std::string::npos) return value;
  const size_t begin = at + name.size() + 1;
  EXPECT_TRUE(absl::SimpleAtod(text.substr(begin, text.find_first_of(" \n", begin) - begin), &value)) << text;
  return value;
}

std::string WriteTemporary(const std::string& name, const std::string& contents) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  EXPECT_TRUE(FileSystem::Real().ReplaceFile(path, contents).ok()) << path;
  return path;
}

// A digits file: 20 lines with 64 pixels of `pixel`, then `label`.
std::string DigitsFile(const std::string& name, const std::string& pixel, const std::string& label) {
  std::string line;
  for (int i = 0; i < 64; ++i) absl::StrAppend(&line, pixel, ",");
  absl::StrAppend(&line, label, "\n");
  std::string text;
  for (int i = 0; i < 20; ++i) text += line;
  return WriteTemporary(name, text);
}

TEST(ProgramsTest, DigitsLearnsToItsAccuracyWithTwoWorkers) {
  const Outcome outcome = Digits("--ps=2 --workers=2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_GE(Last(outcome.text, "accuracy"), 0.965) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("1,350 training steps, 53,910 examples seen"));  // 1,437 for training and 360 for validation, 30 times: each once
  EXPECT_THAT(outcome.text, HasSubstr("peak memory"));
}

TEST(ProgramsTest, DigitsRunsOnOtherClustersToo) {
  EXPECT_EQ(Digits("--ps=1 --workers=1 --epochs=1").exit_code, 0);
  EXPECT_EQ(Digits("--ps=3 --workers=4 --replicas_per_worker=2 --epochs=1").exit_code, 0);
}

TEST(ProgramsTest, SparseLogisticRegressionTellsMushroomsApart) {
  const Outcome outcome =
      RunCommand("examples/sparse_logistic_regression --train=examples/data/agaricus.train.libsvm --test=examples/data/agaricus.test.libsvm");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_GE(Last(outcome.text, "accuracy"), 0.999) << outcome.text;
}

TEST(ProgramsTest, MnistLearnsToItsAccuracyWhereItsFilesAre) {
  const char* const data = std::getenv("DIVVY_MNIST_DIR");
  if (data == nullptr) GTEST_SKIP() << "DIVVY_MNIST_DIR does not name a directory with t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz";
  const Outcome perceptron = RunCommand(absl::StrCat("examples/mnist_mlp --ps=2 --workers=2 --data=", data));
  EXPECT_EQ(perceptron.exit_code, 0) << perceptron.text;
  EXPECT_GE(Last(perceptron.text, "accuracy"), 0.95) << perceptron.text;
  const Outcome convolutional = RunCommand(absl::StrCat("examples/mnist_cnn --ps=2 --workers=2 --data=", data));
  EXPECT_EQ(convolutional.exit_code, 0) << convolutional.text;
  EXPECT_GE(Last(convolutional.text, "  accuracy"), 0.97) << convolutional.text;
}

TEST(BadInputTest, AnUnknownFlagIsNamed) {
  const Outcome outcome = Digits("--wrokers=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("wrokers"));
}

TEST(BadInputTest, AClusterWithoutParameterServersIsRefused) {
  const Outcome outcome = Digits("--ps=0");
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.text, HasSubstr("num_ps is 0"));
}

TEST(BadInputTest, ATfConfigWithoutAClusterIsNamedWithTheFix) {
  const Outcome outcome = RunCommand("TF_CONFIG='{}' examples/digits");
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.text, HasSubstr("TF_CONFIG: cluster is missing"));
}

TEST(BadInputTest, AMissingDataFileIsNamed) {
  const Outcome outcome = RunCommand("examples/digits --data=no/such/file.csv");
  EXPECT_EQ(outcome.exit_code, 66) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("no/such/file.csv"));
}

TEST(BadInputTest, ABrokenDataFileIsNamedWithTheLine) {
  const Outcome outcome = RunCommand("examples/digits --data=" + WriteTemporary("short.csv", "1,2,3\n1,2,3\n"));
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("short.csv"));
  EXPECT_THAT(outcome.text, HasSubstr("line 2"));
}

TEST(BadInputTest, ATruncatedGzipFileIsNamed) {
  const std::string whole = *FileSystem::Real().ReadFile("examples/data/digits.csv.gz");
  const Outcome outcome = RunCommand("examples/digits --data=" + WriteTemporary("truncated.csv.gz", whole.substr(0, whole.size() / 2)));
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("truncated.csv.gz"));
}

TEST(BadInputTest, ALabelOutOfRangeIsNamedWithTheNumberOfClasses) {
  const Outcome outcome = RunCommand("examples/digits --data=" + DigitsFile("labels.csv", "3", "11"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("11"));
  EXPECT_THAT(outcome.text, HasSubstr("10"));
}

TEST(BadInputTest, ALossThatIsNotFiniteEndsTheRunWhereNumericsAreChecked) {
  const std::string data = DigitsFile("huge.csv", "nan", "1");
  const Outcome outcome = RunCommand(absl::StrCat("examples/digits --epochs=1 --check_numerics --data=", data));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("element 0 is nan (found by --check_numerics)"));
}

TEST(BadInputTest, AnEmptyDataFileIsNamed) {
  const Outcome outcome = RunCommand("examples/digits --data=" + WriteTemporary("empty.csv", ""));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("digits"));
}

}  // namespace
}  // namespace divvy
