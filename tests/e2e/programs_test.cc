// The example programs as a user runs them: what they learn, and how they refuse bad input. Each
// refusal is one clear message and an exit code.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/sanitizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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

Outcome Digits(const std::string& flags) {
  return RunCommand(absl::StrCat("examples/digits --data=examples/data/digits.csv.gz ", flags));
}

// The number after the last "<name> " in the text.
double Last(const std::string& text, const std::string& name) {
  const size_t at = text.rfind(absl::StrCat(name, " "));
  double value = -1;
  if (at == std::string::npos) return value;
  const size_t begin = at + name.size() + 1;
  EXPECT_TRUE(
      absl::SimpleAtod(text.substr(begin, text.find_first_of(" \n", begin) - begin), &value))
      << text;
  return value;
}

std::string WriteTemporary(const std::string& name, const std::string& contents) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  EXPECT_TRUE(FileSystem::Real().ReplaceFile(path, contents).ok()) << path;
  return path;
}

// A digits file of 20 lines, each with 64 times `pixel`, then `label`.
std::string DigitsFile(const std::string& name, const std::string& pixel,
                       const std::string& label) {
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
  // 1,437 training examples, each seen once in each of 30 epochs; none is a validation example.
  EXPECT_THAT(outcome.text, HasSubstr("1,350 training steps, 43,110 examples seen"));
  EXPECT_THAT(outcome.text, HasSubstr("epoch 30/30  step 1,350"));
  EXPECT_THAT(outcome.text, HasSubstr("peak memory"));
}

// Files of the libsvm collection use -1 and +1 as labels.
TEST(ProgramsTest, LogisticRegressionTakesLabelsOfBothSigns) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    absl::StrAppend(&text, i % 3 == 0 ? "+1 " : "-1 ", i % 3 == 0 ? 7 : 9, ":1 ", 20 + i % 50,
                    ":1\n");
  const std::string file = WriteTemporary("signs.libsvm", text);
  const std::string command =
      absl::StrCat("examples/sparse_logistic_regression --train=", file, " --test=", file);
  const Outcome outcome = RunCommand(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_GE(Last(outcome.text, "auc"), 0.99) << outcome.text;
  EXPECT_GT(Last(outcome.text, "loss"), 0) << outcome.text;
  WriteTemporary("signs.libsvm", absl::StrCat(text, "-1 200:1\n"));
  const Outcome refused = RunCommand(command);
  EXPECT_THAT(refused.text, HasSubstr("signs.libsvm: line 401: the id 200 is not in [0, 127)"));
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_THAT(refused.text, Not(HasSubstr("0 training steps")))
      << "a figure of an empty run is printed before the error";
}

// Runs `command`, sends `signal` once its output contains `words`, and returns the whole output.
Outcome RunAndSignal(const std::string& command, const std::string& words, int signal) {
  int out[2];
  EXPECT_EQ(pipe(out), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    close(out[0]);
    execl("/bin/sh", "sh", "-c", absl::StrCat("exec ", command).c_str(), nullptr);
    _exit(127);
  }
  close(out[1]);
  Outcome outcome;
  bool sent = false;
  char buffer[4096];
  for (ssize_t n; (n = read(out[0], buffer, sizeof(buffer))) > 0;) {
    outcome.text.append(buffer, static_cast<size_t>(n));
    if (sent || !absl::StrContains(outcome.text, words)) continue;
    sent = true;
    kill(child, signal);
  }
  close(out[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return outcome;
}

TEST(ProgramsTest, ASignalDrainsAnEmbeddedProgramWhichThenGoesOnWhereItWas) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string flags =
        absl::StrCat("examples/digits --data=examples/data/digits.csv.gz --checkpoint_dir=",
                     std::getenv("TEST_TMPDIR"), "/drain", signal);
    const Outcome stopped =
        RunAndSignal(absl::StrCat(flags, " --epochs=1000000"), "epoch 2/", signal);
    EXPECT_EQ(stopped.exit_code, 128 + signal) << stopped.text;
    EXPECT_THAT(stopped.text, HasSubstr("asked to end"));
    // The checkpoint has all epochs of --epochs=1.
    const Outcome resumed = RunCommand(absl::StrCat(flags, " --epochs=1"));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.text;
    EXPECT_THAT(resumed.text, Not(HasSubstr("train: "))) << "the epoch was trained again";
    EXPECT_GE(Last(resumed.text, "accuracy"), 0.5) << resumed.text;
  }
}

#ifndef DIVVY_SANITIZER  // sanitizers report crashes by themselves
TEST(ProgramsTest, ACrashIsReportedWithItsStack) {
  const Outcome outcome = RunAndSignal(
      "examples/digits --data=examples/data/digits.csv.gz --epochs=1000000", "epoch 2/", SIGSEGV);
  EXPECT_EQ(outcome.exit_code, -SIGSEGV);
  EXPECT_THAT(outcome.text, ContainsRegex("\\*\\*\\* SIGSEGV in .*:\n    @ 0x"));
}
#endif

TEST(ProgramsTest, ALaunchedEvaluatorScoresTheFinalCheckpoint) {
  const Outcome outcome = RunCommand(
      "tools/divvyctl launch --ps=1 --workers=1 --evaluator -- examples/digits "
      "--data=examples/data/digits.csv.gz --epochs=3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("step 135: evaluator: loss "));
  EXPECT_THAT(outcome.text, Not(HasSubstr("evaluator was killed")));
}

TEST(ProgramsTest, DigitsRunsOnOtherClustersToo) {
  EXPECT_EQ(Digits("--ps=1 --workers=1 --epochs=1").exit_code, 0);
  EXPECT_EQ(Digits("--ps=3 --workers=4 --replicas_per_worker=2 --epochs=1").exit_code, 0);
}

// Runs the digits example on devices that the host emulates in place of GPUs.
Outcome DigitsOnDevices(const std::string& devices, const std::string& flags) {
  return RunCommand(absl::StrCat(
      "DIVVY_CUDA_LIBRARY=ops/cuda/testing/libdivvy_host_devices.so DIVVY_HOST_DEVICES=", devices,
      " examples/digits --data=examples/data/digits.csv.gz --epochs=3 ", flags));
}

TEST(GpusTest, DigitsLearnsOnThem) {
  const Outcome outcome = DigitsOnDevices("4", "");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(
      outcome.text,
      HasSubstr("computing on 4 GPUs: host device 0, host device 1, host device 2, host device 3"));
  EXPECT_GE(Last(outcome.text, "accuracy"), 0.8) << outcome.text;
}

TEST(GpusTest, AClusterOfProcessesLearnsOnThem) {
  const Outcome outcome = RunCommand(
      "DIVVY_CUDA_LIBRARY=ops/cuda/testing/libdivvy_host_devices.so tools/divvyctl launch --ps=1 "
      "--workers=2 -- examples/digits "
      "--data=examples/data/digits.csv.gz --epochs=3 --gpus=1,0 --gpu_memory_bytes=100000000");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("computing on 2 GPUs: host device 1, host device 0"));
  EXPECT_GE(Last(outcome.text, "accuracy"), 0.8) << outcome.text;
}

TEST(GpusTest, WhereThereIsNoneItIsSaidOnceAndTheCpuComputes) {
  const Outcome outcome = DigitsOnDevices("0", "");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(
      outcome.text,
      HasSubstr("no CUDA device, computing on the CPU "
                "(ops/cuda/testing/libdivvy_host_devices.so: the host emulates no device)"));
  EXPECT_THAT(Digits("--epochs=1").text, Not(HasSubstr("CUDA")));
}

TEST(GpusTest, WhatCannotBeHadIsRefusedWith78AndTheFix) {
  const std::pair<Outcome, const char*> refused[] = {
      {Digits("--gpus=all"),
       "there is no libdivvy_cuda.so beside this program: build it with --config=cuda"},
      {DigitsOnDevices("0", "--gpus=all"), "the host emulates no device"},
      {DigitsOnDevices("2", "--gpus=0,7"),
       "--gpus=0,7: this machine has no GPU 7, only 0 (host device 0), 1 (host device 1)"},
      {DigitsOnDevices("3", "--gpus=all"),
       "--gpus=all: 3 GPUs cannot be divided evenly among 2 workers, which share none"},
      {DigitsOnDevices("2", "--replicas_per_worker=3"),
       "replicas_per_worker is 3, but a worker has a replica on each of its GPUs, and --gpus=auto "
       "gives it 1"},
  };
  for (const auto& [outcome, message] : refused) {
    EXPECT_EQ(outcome.exit_code, 78) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(message));
  }
  EXPECT_THAT(Digits("--gpus=some").text, HasSubstr("wanted auto, all, none, or numbers of GPUs"));
}

TEST(ProgramsTest, SparseLogisticRegressionTellsMushroomsApart) {
  const Outcome outcome = RunCommand(
      "examples/sparse_logistic_regression --train=examples/data/agaricus.train.libsvm "
      "--test=examples/data/agaricus.test.libsvm");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_GE(Last(outcome.text, "accuracy"), 0.999) << outcome.text;
}

TEST(ProgramsTest, MnistLearnsToItsAccuracyWhereItsFilesAre) {
  const char* const data = std::getenv("DIVVY_MNIST_DIR");
  if (data == nullptr)
    GTEST_SKIP() << "DIVVY_MNIST_DIR does not name a directory with t10k-images-idx3-ubyte.gz and "
                    "t10k-labels-idx1-ubyte.gz";
  const Outcome perceptron =
      RunCommand(absl::StrCat("examples/mnist_mlp --ps=2 --workers=2 --data=", data));
  EXPECT_EQ(perceptron.exit_code, 0) << perceptron.text;
  EXPECT_GE(Last(perceptron.text, "accuracy"), 0.95) << perceptron.text;
  const Outcome convolutional =
      RunCommand(absl::StrCat("examples/mnist_cnn --ps=2 --workers=2 --data=", data));
  EXPECT_EQ(convolutional.exit_code, 0) << convolutional.text;
  EXPECT_GE(Last(convolutional.text, "  accuracy"), 0.97) << convolutional.text;
}

// Small, short runs. With the default sizes the results come nearer to the planted model
// (README.md).

TEST(ProgramsTest, MatrixFactorizationComesNearItsNoiseFloor) {
  const Outcome outcome =
      RunCommand("examples/matrix_factorization --ps=2 --workers=2 --ratings=100000 --epochs=8");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_NEAR(Last(outcome.text, "noise floor"), 0.5, 0.01) << outcome.text;
  EXPECT_LE(Last(outcome.text, "ratio"), 1.4) << outcome.text;  // biases alone reach 1.6
  EXPECT_GE(Last(outcome.text, "ratio"), 1) << outcome.text;
}

TEST(ProgramsTest, DlrmComesNearThePlantedModel) {
  const Outcome outcome =
      RunCommand("examples/dlrm --ps=2 --workers=2 --impressions=60000 --epochs=2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_GE(Last(outcome.text, "ratio"), 0.8) << outcome.text;  // guessing reaches 0.6
  EXPECT_LE(Last(outcome.text, "ratio"), 1) << outcome.text;
}

TEST(ProgramsTest, DlrmWithDynamicTablesComesAsNear) {
  // With other seeds the ratio of either is 0.83 to 0.87.
  const std::string flags = " --seed=7 --impressions=60000 --epochs=2";
  const Outcome fixed = RunCommand(absl::StrCat("examples/dlrm --ps=2 --workers=2", flags));
  for (const std::string launch : {"examples/dlrm --ps=2 --workers=2",
                                   "tools/divvyctl launch --ps=2 --workers=2 -- examples/dlrm"}) {
    const Outcome outcome = RunCommand(absl::StrCat(launch, " --dynamic", flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_NEAR(Last(outcome.text, "ratio"), Last(fixed.text, "ratio"), 0.03) << outcome.text;
    EXPECT_NEAR(Last(outcome.text, "loss"), Last(fixed.text, "loss"), 0.02) << outcome.text;
  }
}

// Two topics whose words stand together, and never beside words of the other one.
std::string TwoTopics(int lines) {
  const std::vector<std::string> topics[] = {
      {"sun", "rain", "wind", "cloud", "storm", "snow", "fog", "hail"},
      {"bread", "cheese", "apple", "soup", "rice", "pear", "salt", "milk"}};
  Random random(11);
  std::string text;
  for (int line = 0; line < lines; ++line) {
    for (int i = 0; i < 6; ++i)
      absl::StrAppend(&text, i > 0 ? ", " : "", topics[line % 2][random.Below(8)]);
    text += ".\n";
  }
  return text;
}

TEST(ProgramsTest, Word2vecFindsTheWordsOfATopicWithAGrowingAndAFixedVocabulary) {
  const std::string data = WriteTemporary("topics.txt", TwoTopics(2000));
  std::map<std::string, double> losses;
  for (const std::string launch :
       {"examples/word2vec --ps=2 --workers=2",
        "tools/divvyctl launch --ps=2 --workers=2 -- examples/word2vec"}) {
    for (const std::string vocabulary : {"growing", "fixed"}) {
      const Outcome outcome = RunCommand(absl::StrCat(launch, " --data=", data,
                                                      " --neighbours_of=rain,soup --batch_size=128",
                                                      " --epochs=4 --vocabulary=", vocabulary));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
      for (const std::string nearest : {"rain:( (sun|wind|cloud|storm|snow|fog|hail)){5} ",
                                        "soup:( (bread|cheese|apple|rice|pear|salt|milk)){5} "})
        EXPECT_THAT(outcome.text, ContainsRegex(absl::StrCat("nearest to ", nearest)));
      losses[vocabulary] = Last(outcome.text, "last pass: loss");
      EXPECT_LT(losses[vocabulary], 3.2) << "guessing gives 6 log 2 = 4.16\n" << outcome.text;
    }
    EXPECT_NEAR(losses["growing"], losses["fixed"], 0.1);
  }
}

TEST(ProgramsTest, Word2vecWithoutATextTrainsOnPlantedTopics) {
  const Outcome outcome = RunCommand("examples/word2vec --epochs=1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, ContainsRegex("(7[6-9]|80) of 80 neighbours have the topic of"));
}

TEST(BadInputTest, Word2vecNamesAVocabularyThatIsNeitherAndATextThatIsNotThere) {
  const Outcome vocabulary = RunCommand("examples/word2vec --vocabulary=big");
  EXPECT_NE(vocabulary.exit_code, 0);
  EXPECT_THAT(vocabulary.text, HasSubstr("--vocabulary=big: wanted growing or fixed"));
  const Outcome data = RunCommand("examples/word2vec --data=no/such/text");
  EXPECT_EQ(data.exit_code, 66) << data.text;
  EXPECT_THAT(data.text, HasSubstr("no/such/text"));
}

TEST(ProgramsTest, TwoTowerComesNearThePlantedPointsOnAClusterOfProcessesToo) {
  for (const std::string launch :
       {"examples/two_tower --ps=2 --workers=2",
        "tools/divvyctl launch --ps=2 --workers=2 -- examples/two_tower"}) {
    const Outcome outcome = RunCommand(absl::StrCat(launch, " --visits=50000 --epochs=3"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_GE(Last(outcome.text, "ratio"), 0.55) << outcome.text;  // guessing reaches 0.09
    EXPECT_LE(Last(outcome.text, "ratio"), 1) << outcome.text;
  }
}

std::string Repeated(int times, const std::string& text) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(ProgramsTest, TheRecommendersReadFilesToo) {
  const std::string line_end(25, '\t');
  const std::map<std::string, std::string> data = {
      {"matrix_factorization", Repeated(100, "1\t2\t5\t881250949\n943\t1682\t3\t0\n")},
      {"dlrm", Repeated(100, absl::StrCat("1\t", std::string(12, '\t'), "7\tab", line_end, "\n0\t",
                                          std::string(12, '\t'), "\tcd", line_end, "\n"))},
      {"two_tower", absl::StrCat("user,item,tag\n", Repeated(100, "1,2,jazz\n3,4,rock\n"))},
  };
  for (const auto& [program, text] : data) {
    const Outcome outcome = RunCommand(
        absl::StrCat("examples/", program, " --epochs=1 --data=", WriteTemporary(program, text)));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("held out: "));
    EXPECT_EQ(Last(outcome.text, "ratio"), -1) << "files have no planted model";
  }
}

TEST(BadInputTest, ABadLineOfTheRecommendersIsNamedWithTheFix) {
  const std::map<std::string, std::pair<std::string, std::string>> data = {
      {"matrix_factorization",
       {"1\t2\t5\t0\n1\t2000\t5\t0\n",
        "line 2: column \"item\": 2000 is not in [0, 1683): correct the line"}},
      {"dlrm",
       {"0\t1\n0\t1\n",
        "line 2: has 2 fields separated by tabs, wanted a label, 13 counts and 26 categories"}},
      {"two_tower", {"user,item,tag\n1,2,jazz\n1,2\n", "line 3: has 2 fields, wanted 3"}},
  };
  for (const auto& [program, bad] : data) {
    const Outcome outcome = RunCommand(
        absl::StrCat("examples/", program, " --data=", WriteTemporary(program, bad.first)));
    EXPECT_EQ(outcome.exit_code, 65) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(absl::StrCat("/", program, ": ", bad.second)));
  }
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
  const Outcome outcome =
      RunCommand("examples/digits --data=" + WriteTemporary("short.csv", "1,2,3\n1,2,3\n"));
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("short.csv"));
  EXPECT_THAT(outcome.text, HasSubstr("line 2"));
}

TEST(BadInputTest, ATruncatedGzipFileIsNamed) {
  const std::string whole = *FileSystem::Real().ReadFile("examples/data/digits.csv.gz");
  const Outcome outcome =
      RunCommand("examples/digits --data=" +
                 WriteTemporary("truncated.csv.gz", whole.substr(0, whole.size() / 2)));
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("truncated.csv.gz"));
}

TEST(BadInputTest, ALabelOutOfRangeIsNamedWithTheNumberOfClasses) {
  const Outcome outcome =
      RunCommand("examples/digits --data=" + DigitsFile("labels.csv", "3", "11"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("11"));
  EXPECT_THAT(outcome.text, HasSubstr("10"));
}

TEST(BadInputTest, ALossThatIsNotFiniteEndsTheRunWhereNumericsAreChecked) {
  std::string text;
  // The derivative, twice the error, overflows to infinity.
  for (int i = 1; i < 400; ++i) absl::StrAppend(&text, i, "\t", i, "\t3e38\t0\n");
  const Outcome outcome =
      RunCommand("examples/matrix_factorization --check_numerics --batch_size=1 --data=" +
                 WriteTemporary("huge.data", text));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("(found by --check_numerics)"));
}

TEST(BadInputTest, WhatIsNotANumberInAFileIsNamedWithTheLine) {
  const Outcome outcome = RunCommand("examples/digits --data=" + DigitsFile("nan.csv", "nan", "1"));
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("nan.csv: line "));
}

TEST(BadInputTest, AnEmptyDataFileIsNamed) {
  const Outcome outcome = RunCommand("examples/digits --data=" + WriteTemporary("empty.csv", ""));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("digits"));
}

}  // namespace
}  // namespace divvy
