// bazel run //bench:input [-- --format=json] [DIRECTORY]
//
// Records per second of each reader, compared with reading the bytes of its file. Writes a file for
// each format into DIRECTORY (default: the working directory), and removes it again.
#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/random.h"
#include "bench/rounds.h"
#include "data/dataset.h"
#include "formats/example.h"
#include "formats/tfrecord.h"

namespace divvy::bench {
namespace {

constexpr int64_t kRecords = 20'000;

// Reads one pass of elements or batches.
void ReadAll(const Dataset& dataset) {
  const auto iterator = dataset.Iterate();
  while (true) {
    const auto element = iterator->Next();
    DIVVY_CHECK(element.ok());
    if (!element->has_value()) break;
  }
}

// The records of `dataset`, beside reading the bytes of `files` if it reads any: one by one, in
// batches, and in batches of shuffled records, if they can be batched.
enum class Batching { kPossible, kImpossible };
void Measure(const std::string& name, const std::vector<std::string>& files, const Dataset& dataset,
             Batching batching = Batching::kPossible) {
  uint64_t bytes = 0;
  for (const std::string& file : files) bytes += FileSystem::Real().Stat(file).value().size_bytes;
  const auto read_bytes = [&files] {
    for (const std::string& file : files) DIVVY_CHECK(FileSystem::Real().ReadFile(file).ok());
  };
  const Contender ceiling{absl::StrCat("reading its ", bytes >> 20, " MiB"), read_bytes};
  constexpr int64_t kBatch = 512, kWindow = 10'000;
  const Dataset batches = dataset.Batch(kBatch);
  const Dataset shuffled = dataset.Shuffle(kWindow, /*seed=*/1).Batch(kBatch);
  std::vector<Contender> figures = {{name, [&] { ReadAll(dataset); }}};
  if (batching == Batching::kPossible) {
    figures.push_back({absl::StrCat(name, ", batched"), [&] { ReadAll(batches); }});
    figures.push_back({absl::StrCat(name, ", shuffled and batched"), [&] { ReadAll(shuffled); }});
  }
  std::vector<Comparison> comparisons;
  if (files.empty()) {
    for (const Contender& figure : figures) comparisons.push_back(MeasureAlone(figure, kRecords));
  } else {
    comparisons = CompareAll(figures, ceiling, kRecords);
  }
  for (const Comparison& comparison : comparisons) Show("input", comparison, {"k records/s", 1e3});
  for (const std::string& file : files) DIVVY_CHECK(FileSystem::Real().Remove(file).ok());
}

std::string WriteFile(const std::string& directory, const std::string& name,
                      const std::string& bytes) {
  const std::string file = absl::StrCat(directory, "/bench_input.", name);
  DIVVY_CHECK(FileSystem::Real().ReplaceFile(file, bytes).ok());
  return file;
}

// Writes kRecords results of `make_record(random)` to a file, and measures the dataset
// `read(file)`.
template <typename MakeRecord, typename Read>
void Reader(const std::string& name, const std::string& directory, const MakeRecord& make_record,
            const Read& read, Batching batching = Batching::kPossible) {
  Random random(1);
  std::string bytes;
  for (int64_t i = 0; i < kRecords; ++i) bytes += make_record(random);
  const std::string file =
      WriteFile(directory, absl::StrReplaceAll(name, {{" ", "_"}, {",", ""}}), bytes);
  Measure(name, {file}, read(file), batching);
}

template <typename Make>
std::string Joined(int count, absl::string_view separator, const Make& make) {
  std::vector<std::string> parts;
  for (int i = 0; i < count; ++i) parts.push_back(make(i));
  return absl::StrJoin(parts, separator);
}

void Texts(const std::string& directory) {
  const auto csv = [](Random& random) {
    return Joined(40, ",", [&](int) { return absl::StrCat(random.Below(1000)); }) + "\n";
  };
  Reader("csv, 40 numbers", directory, csv, [](const std::string& file) {
    return Dataset::Csv(file, {{"x", DType::kFloat32, 0, /*width=*/40}});
  });
  const auto ratings = [](Random& random) {
    return absl::StrCat(1 + random.Below(943), "\t", 1 + random.Below(1682), "\t",
                        1 + random.Below(5), "\t", 880'000'000 + random.Below(10'000'000), "\n");
  };
  Reader("csv, ratings", directory, ratings, [](const std::string& file) {
    CsvColumn user{"user", DType::kInt64}, item{"item", DType::kInt64};
    user.below = 944;
    item.below = 1683;
    return Dataset::Csv(file, {user, item, {"rating"}, {"time", DType::kInt64}}, '\t');
  });
  const auto libsvm = [](Random& random) {
    return absl::StrCat(
        "1 ",
        Joined(20, " ", [&](int i) { return absl::StrCat(i * 100 + random.Below(100), ":0.5"); }),
        "\n");
  };
  Reader("libsvm", directory, libsvm,
         [](const std::string& file) { return Dataset::Libsvm(file); });
  const auto criteo = [](Random& random) {
    return absl::StrCat("1\t",
                        Joined(39, "\t",
                               [&](int i) {
                                 return i < 13 ? absl::StrCat(random.Below(1000))
                                               : absl::StrCat(absl::Hex(random.Below(1 << 30)));
                               }),
                        "\n");
  };
  Reader("criteo", directory, criteo,
         [](const std::string& file) { return Dataset::CriteoTsv(file); });
}

// An IDX file of uint8: 0, 0, the type, the number of dimensions, then each dimension in four
// bytes, most significant byte first.
std::string IdxBytes(std::initializer_list<int64_t> dims) {
  std::string bytes{0, 0, 8, static_cast<char>(dims.size())};
  int64_t size = 1;
  for (const int64_t dim : dims) {
    size *= dim;
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dim >> shift));
  }
  return bytes + std::string(static_cast<size_t>(size), 1);
}

void Images(const std::string& directory) {
  const std::vector<std::string> files = {
      WriteFile(directory, "images", IdxBytes({kRecords, 28, 28})),
      WriteFile(directory, "labels", IdxBytes({kRecords}))};
  Measure("idx, 28 x 28", files, Dataset::Idx(files[0], files[1]));
}

void Tensors() {
  Random random(1);
  std::vector<int64_t> users, items;
  std::vector<float> ratings;
  for (int64_t i = 0; i < kRecords; ++i) {
    users.push_back(static_cast<int64_t>(random.Below(944)));
    items.push_back(static_cast<int64_t>(random.Below(1683)));
    ratings.push_back(static_cast<float>(random.Below(5)));
  }
  Measure("tensors", {},
          Dataset::FromTensorSlices({{"user", Nest(Tensor::Vector<int64_t>(users))},
                                     {"item", Nest(Tensor::Vector<int64_t>(items))},
                                     {"rating", Nest(Tensor::Vector<float>(ratings))}}));
}

void Records(const std::string& directory) {
  const auto example = [](Random& random) {
    std::vector<float> dense(13);
    std::vector<int64_t> ids(26);
    for (float& value : dense) value = static_cast<float>(random.Uniform());
    for (int64_t& id : ids) id = static_cast<int64_t>(random.Below(1 << 30));
    std::string file;
    AppendTfRecord(WriteExample({{"dense", dense}, {"ids", ids}}), file);
    return file;
  };
  const auto bytes = [](const std::string& file) {
    return Dataset::TfRecord(file,
                             [](absl::string_view record) { return Nest(std::string(record)); });
  };
  Reader("tfrecord, its bytes", directory, example, bytes, Batching::kImpossible);
  Reader("tfrecord, features", directory, example, [](const std::string& file) {
    return Dataset::TfRecord(file,
                             {{"dense", DType::kFloat32, {13}}, {"ids", DType::kInt64, {26}}});
  });
  Reader("tfrecord, ParseExample", directory, example, [](const std::string& file) {
    return Dataset::TfRecord(file, [](absl::string_view record) {
      return ParseExample(record, {{"dense", DType::kFloat32, {13}}, {"ids", DType::kInt64, {26}}});
    });
  });
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const std::string directory = arguments.size() > 1 ? arguments[1] : ".";
  divvy::bench::Texts(directory);
  divvy::bench::Images(directory);
  divvy::bench::Tensors();
  divvy::bench::Records(directory);
  divvy::bench::ShowPeakMemory();
}
