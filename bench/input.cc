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

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/random.h"
#include "bench/rounds.h"
#include "data/dataset.h"
#include "formats/example.h"
#include "formats/tfrecord.h"

ABSL_FLAG(std::string, format, "table", "table or json");

namespace divvy::bench {
namespace {

constexpr int64_t kRecords = 20'000;
constexpr int kRounds = 5;

void ReadAll(const Dataset& dataset) {
  const auto iterator = dataset.Iterate();
  int64_t records = 0;
  while (true) {
    const auto element = iterator->Next();
    DIVVY_CHECK(element.ok());
    if (!element->has_value()) break;
    ++records;
  }
  DIVVY_CHECK(records == kRecords);
}

// Compares reading the records of `dataset` with reading the bytes of `files`, its files.
void Measure(const std::string& name, const std::vector<std::string>& files,
             const Dataset& dataset) {
  uint64_t bytes = 0;
  for (const std::string& file : files) bytes += FileSystem::Real().Stat(file).value().size_bytes;
  const auto read_bytes = [&files] {
    for (const std::string& file : files) DIVVY_CHECK(FileSystem::Real().ReadFile(file).ok());
  };
  const Contender ceiling{absl::StrCat("reading its ", bytes >> 20, " MiB"), read_bytes};
  const Comparison comparison =
      Compare({name, [&] { ReadAll(dataset); }}, ceiling, kRecords, kRounds);
  const Unit unit{"k records/s", 1e3};
  absl::GetFlag(FLAGS_format) == "json" ? PrintJson("input", comparison, unit)
                                        : Print(comparison, unit);
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
            const Read& read) {
  Random random(1);
  std::string bytes;
  for (int64_t i = 0; i < kRecords; ++i) bytes += make_record(random);
  const std::string file = WriteFile(directory, name, bytes);
  Measure(name, {file}, read(file));
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
  Reader("csv", directory, csv, [](const std::string& file) {
    return Dataset::Csv(file, {{"x", DType::kFloat32, 0, /*width=*/40}});
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
  Reader("tfrecord, its bytes", directory, example, [](const std::string& file) {
    return Dataset::TfRecord(file,
                             [](absl::string_view record) { return Nest(std::string(record)); });
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
  divvy::bench::Records(directory);
  if (absl::GetFlag(FLAGS_format) != "json") divvy::bench::PrintPeakMemory();
}
