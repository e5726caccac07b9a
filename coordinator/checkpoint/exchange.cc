#include "coordinator/checkpoint/exchange.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "formats/tensor_bundle.h"
#include "protocol/error.h"
#include "variables/table_tensors.h"
#include "wire/job_state.h"

namespace divvy {
namespace {

// A source of tensors, independent of where they are stored.
struct Source {
  std::vector<SafetensorsSpec> tensors;
  std::vector<std::string> left_out;
  SafetensorsMetadata metadata;
  // Rows [begin, end) of a tensor.
  std::function<absl::Status(const std::string& name, int64_t begin, int64_t end,
                             absl::Span<char> out)>
      read;
  // The rows at which a tensor can be cut so that no byte is read twice. Rising; the last one is
  // the number of rows.
  std::function<std::vector<int64_t>(const SafetensorsSpec& tensor)> cuts;
};

// Calls `visit(begin, end, bytes)`, which returns a Status, for all rows of a tensor, in order.
template <typename Visit>
absl::Status ForEachPiece(const Source& source, const SafetensorsSpec& tensor, const Visit& visit) {
  const int64_t row_bytes = tensor.shape.row_elements() * DTypeSize(tensor.dtype);
  std::string bytes;
  int64_t begin = 0;
  for (const int64_t end : source.cuts(tensor)) {
    bytes.resize(static_cast<size_t>((end - begin) * row_bytes));
    RETURN_IF_ERROR(source.read(tensor.name, begin, end,
                                absl::MakeSpan(bytes.empty() ? nullptr : &bytes[0], bytes.size())));
    RETURN_IF_ERROR(visit(begin, end, bytes));
    begin = end;
  }
  return absl::OkStatus();
}

// The rows where a slice of a bundle's tensor begins or ends. A slice is verified as a whole, so a
// slice that is cut elsewhere is read twice.
std::vector<int64_t> CutsOf(const BundleTensor& tensor) {
  std::set<int64_t> cuts = {tensor.shape.rows()};
  for (const BundlePart& part : tensor.parts) {
    if (!part.box.empty() && part.box[0].start > 0) cuts.insert(part.box[0].start);
  }
  return std::vector<int64_t>(cuts.begin(), cuts.end());
}

// Cuts the tensor into slices of the size that Divvy's bundles have.
std::vector<int64_t> EvenCutsOf(const SafetensorsSpec& tensor) {
  std::vector<int64_t> cuts;
  const int64_t rows = tensor.shape.rows(), step = MaxRowsOfBundleSlice(tensor.dtype, tensor.shape);
  for (int64_t at = 0; rows - at > step; cuts.push_back(at)) at += step;
  cuts.push_back(rows);
  return cuts;
}

// Whether a tensor of this name is a variable, or has the rows of a dynamic table.
absl::StatusOr<std::function<bool(const std::string&)>> VariablesOf(const BundleReader& reader) {
  if (reader.index().Find(kJobTensor) == nullptr) {
    return [](const std::string& name) {
      return !absl::StrContains(name, ".OPTIMIZER_SLOT") && !absl::StartsWith(name, "optimizer/");
    };
  }
  ASSIGN_OR_RETURN(const Tensor job, reader.ReadTensor(kJobTensor));
  ASSIGN_OR_RETURN(const JobState state,
                   wire::DecodeJobState(
                       std::string(job.data_as<char>(), static_cast<size_t>(job.size_bytes()))));
  std::set<std::string> names;
  for (const auto& [id, variable] : state.layout->variables()) {
    const VariableSpec& spec = variable.spec;
    if (!spec.table) {
      names.insert(spec.name);
      continue;
    }
    const TableTensors tensors(spec.name, spec.shape.dim(1), std::nullopt);
    for (const TableTensor& tensor : {tensors.keys, tensors.counts, tensors.ticks, tensors.values})
      names.insert(tensor.name);
  }
  return [names](const std::string& name) { return names.count(name) > 0; };
}

absl::StatusOr<Source> SourceOfBundle(FileSystem& files, const std::string& path,
                                      bool slots = true) {
  ASSIGN_OR_RETURN(std::unique_ptr<BundleReader> opened, OpenCheckpoint(files, path));
  const std::shared_ptr<const BundleReader> reader = std::move(opened);
  std::function<bool(const std::string&)> wanted = [](const std::string&) { return true; };
  if (!slots) {
    ASSIGN_OR_RETURN(wanted, VariablesOf(*reader));
  }
  Source source;
  ASSIGN_OR_RETURN(const int64_t steps, FinishedStepsOf(*reader));
  if (steps >= 0)
    source.metadata = {{"divvy.checkpoint", BaseNameOf(reader->prefix())},
                       {"divvy.finished_steps", absl::StrCat(steps)}};
  for (const BundleTensor& tensor : reader->index().tensors) {
    if (absl::StartsWith(tensor.name, kBundleOwnNames) || !wanted(tensor.name)) continue;
    if (tensor.unreadable.empty())
      source.tensors.push_back({tensor.name, *tensor.dtype, tensor.shape});
    else
      source.left_out.push_back(absl::StrCat(tensor.name, ": ", tensor.unreadable));
  }
  source.read = [reader](const std::string& name, int64_t begin, int64_t end,
                         absl::Span<char> out) { return reader->ReadRows(name, begin, end, out); };
  source.cuts = [reader](const SafetensorsSpec& tensor) {
    return CutsOf(*reader->index().Find(tensor.name));
  };
  return source;
}

Source SourceOfLive(const LiveVariables& live) {
  Source source;
  source.metadata = {{"divvy.finished_steps", absl::StrCat(live.finished_steps)}};
  std::map<std::string, VariableSpec> specs;
  for (const VariableSpec& variable : live.variables) {
    source.tensors.push_back({variable.name, variable.dtype, variable.shape});
    specs.emplace(variable.name, variable);
  }
  source.read = [read = live.read, specs = std::move(specs)](const std::string& name, int64_t begin,
                                                             int64_t end,
                                                             absl::Span<char> out) -> absl::Status {
    if (begin == end) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Tensor rows, read(specs.at(name), begin, end));
    if (static_cast<size_t>(rows.size_bytes()) != out.size())
      return absl::InternalError(absl::StrCat(name, " was read as ", rows.ToString()));
    std::memcpy(out.data(), rows.data(), out.size());
    return absl::OkStatus();
  };
  source.cuts = EvenCutsOf;
  return source;
}

// The .safetensors file, or the files that an index names.
absl::StatusOr<std::vector<std::string>> FilesOf(FileSystem& files, const std::string& path) {
  if (!absl::EndsWith(path, ".json")) return std::vector<std::string>{path};
  ASSIGN_OR_RETURN(const std::string json, files.ReadFile(path));
  absl::StatusOr<std::vector<std::string>> names = ParseSafetensorsIndex(json);
  if (!names.ok()) return absl::DataLossError(absl::StrCat(path, ": ", names.status().message()));
  for (std::string& name : *names) name = absl::StrCat(DirectoryOf(path), "/", name);
  return names;
}

absl::StatusOr<Source> SourceOfSafetensors(FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, FilesOf(files, path));
  Source source;
  auto reader_of =
      std::make_shared<std::map<std::string, std::shared_ptr<const SafetensorsReader>>>();
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> opened,
                     SafetensorsReader::Open(files, name));
    const std::shared_ptr<const SafetensorsReader> reader = std::move(opened);
    for (const SafetensorsTensor& tensor : reader->header().tensors) {
      if (!reader_of->emplace(tensor.name, reader).second)
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": tensor \"", tensor.name, "\" is in another file, too"));
      if (tensor.unreadable.empty())
        source.tensors.push_back({tensor.name, *tensor.dtype, tensor.shape});
      else
        source.left_out.push_back(absl::StrCat(tensor.name, ": ", tensor.unreadable));
    }
  }
  source.read = [reader_of](const std::string& name, int64_t begin, int64_t end,
                            absl::Span<char> out) {
    return reader_of->at(name)->ReadRows(name, begin, end, out);
  };
  source.cuts = EvenCutsOf;
  return source;
}

// Writes all tensors, then the index.
absl::Status FillBundle(FileSystem& files, const std::string& prefix, const Source& source,
                        BundleDataWriter& file) {
  std::vector<BundleSlice> slices;
  for (const SafetensorsSpec& tensor : source.tensors) {
    const int64_t row_bytes = tensor.shape.row_elements() * DTypeSize(tensor.dtype),
                  most = MaxRowsOfBundleSlice(tensor.dtype, tensor.shape);
    RETURN_IF_ERROR(
        ForEachPiece(source, tensor, [&](int64_t begin, int64_t end, absl::string_view bytes) {
          do {
            const int64_t rows = std::min(most, end - begin);
            const absl::string_view piece = bytes.substr(0, static_cast<size_t>(rows * row_bytes));
            ASSIGN_OR_RETURN(
                slices.emplace_back(),
                file.Append(tensor.name, tensor.dtype, tensor.shape, begin, begin + rows, piece));
            bytes.remove_prefix(piece.size());
            begin += rows;
          } while (begin < end);
          return absl::OkStatus();
        }));
  }
  RETURN_IF_ERROR(file.Finish());
  return WriteBundleIndex(files, prefix, 1, slices);
}

// Writes a bundle. Leaves no file behind after an error.
absl::Status WriteBundle(FileSystem& files, const std::string& prefix, const Source& source) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BundleDataWriter> file,
                   BundleDataWriter::Create(files, prefix, 0, 1));
  const absl::Status status = FillBundle(files, prefix, source, *file);
  if (!status.ok() && absl::IsNotFound(files.Stat(BundleIndexFile(prefix)).status()))
    files.Remove(BundleDataFile(prefix, 0, 1)).IgnoreError();
  return status;
}

absl::StatusOr<Exchanged> ToBundle(FileSystem& files, const Source& source,
                                   const std::string& prefix) {
  if (files.Stat(BundleIndexFile(prefix)).ok())
    return absl::AlreadyExistsError(
        absl::StrCat(BundleIndexFile(prefix), " exists: choose another name"));
  RETURN_IF_ERROR(files.CreateDurableDirectory(DirectoryOf(prefix)));
  RETURN_IF_ERROR(WriteBundle(files, prefix, source));
  return Exchanged{{BundleDataFile(prefix, 0, 1), BundleIndexFile(prefix)},
                   source.left_out,
                   source.tensors.size()};
}

// Safetensors has neither complex128 nor names that are not UTF-8. Such tensors are left out.
absl::StatusOr<Exchanged> ToSafetensors(FileSystem& files, Source source,
                                        const ExchangeOptions& options) {
  const auto kept = std::stable_partition(
      source.tensors.begin(), source.tensors.end(),
      [](const SafetensorsSpec& tensor) { return tensor.dtype != DType::kComplex128; });
  for (auto tensor = kept; tensor != source.tensors.end(); ++tensor)
    source.left_out.push_back(absl::StrCat(tensor->name, ": safetensors has no complex128"));
  source.tensors.erase(kept, source.tensors.end());
  const std::string file = absl::EndsWith(options.to, kSafetensorsEnd)
                               ? options.to
                               : absl::StrCat(options.to, "/model", kSafetensorsEnd);
  const std::string directory = DirectoryOf(file);
  RETURN_IF_ERROR(files.CreateDurableDirectory(directory));
  const SafetensorsSource bytes_of =
      [&](const SafetensorsSpec& tensor,
          const std::function<absl::Status(absl::string_view)>& append) {
        return ForEachPiece(source, tensor, [&](int64_t, int64_t, absl::string_view bytes) {
          return append(bytes);
        });
      };
  Exchanged exchanged{{}, source.left_out, source.tensors.size()};
  ASSIGN_OR_RETURN(exchanged.written,
                   WriteShardedSafetensors(files, file, source.tensors, source.metadata,
                                           options.max_shard_bytes, bytes_of, options.existing));
  for (std::string& name : exchanged.written) name = absl::StrCat(directory, "/", name);
  return exchanged;
}

// Returns the result of `write` for the source. If no read has failed, a DataLoss comes from the
// device to which `write` writes.
template <typename Write>
absl::StatusOr<Exchanged> Written(Source source, const Write& write) {
  absl::Status read;
  source.read = [&read, original = source.read](const std::string& name, int64_t begin, int64_t end,
                                                absl::Span<char> out) {
    const absl::Status status = original(name, begin, end, out);
    read.Update(status);
    return status;
  };
  absl::StatusOr<Exchanged> exchanged = write(source);
  if (read.ok() && !exchanged.ok()) return OfDisk(exchanged.status());
  return exchanged;
}

}  // namespace

absl::Status OfDisk(const absl::Status& written) {
  return absl::IsDataLoss(written) ? MakeError(Reason::kDisk, written.message()) : written;
}

absl::StatusOr<Exchanged> ExportCheckpoint(FileSystem& files, const ExchangeOptions& options) {
  const absl::Duration end = Clock::Real().Elapsed() + options.timeout;
  ASSIGN_OR_RETURN(Source source, SourceOfBundle(files, options.from, options.slots));
  source.read = [end, read = std::move(source.read)](const std::string& name, int64_t begin,
                                                     int64_t to, absl::Span<char> out) {
    if (Clock::Real().Elapsed() < end) return read(name, begin, to, out);
    return absl::DeadlineExceededError("the export is not complete in time");
  };
  return Written(std::move(source), [&](const Source& from) {
    return options.format == ExchangeFormat::kBundle ? ToBundle(files, from, options.to)
                                                     : ToSafetensors(files, from, options);
  });
}

absl::Status ExportVariables(FileSystem& files, const LiveVariables& variables,
                             const std::string& path) {
  ExchangeOptions options;
  options.existing = Existing::kReplaced;
  options.to = path;
  const bool is_bundle = !absl::EndsWith(path, kSafetensorsEnd);
  std::string name;
  for (int serial = 1; is_bundle && (serial == 1 || files.Stat(BundleIndexFile(options.to)).ok());
       ++serial) {
    name = absl::StrCat("variables-", variables.finished_steps, "-", serial, "-",
                        absl::Hex(variables.job.value(), absl::kZeroPad16));
    options.to = absl::StrCat(path, "/", name);
  }
  const auto exported = Written(SourceOfLive(variables), [&](const Source& from) {
    return is_bundle ? ToBundle(files, from, options.to) : ToSafetensors(files, from, options);
  });
  RETURN_IF_ERROR(exported.status());
  for (const std::string& what : exported->left_out)
    DIVVY_LOG(WARNING) << path << " does not contain " << what;
  return is_bundle ? OfDisk(NameNewest(files, path, name)) : absl::OkStatus();
}

absl::StatusOr<Exchanged> ImportCheckpoint(FileSystem& files, const std::string& from,
                                           const std::string& to) {
  const bool is_safetensors =
      absl::EndsWith(from, kSafetensorsEnd) || absl::EndsWith(from, ".json");
  ASSIGN_OR_RETURN(Source source,
                   is_safetensors ? SourceOfSafetensors(files, from) : SourceOfBundle(files, from));
  return Written(std::move(source),
                 [&](const Source& opened) { return ToBundle(files, opened, to); });
}

}  // namespace divvy
