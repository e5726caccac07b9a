#include "formats/safetensors.h"

#include <algorithm>
#include <deque>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/path.h"
#include "base/status_macros.h"
#include "formats/damage.h"
#include "formats/little_endian.h"
#include "formats/utf8.h"
#include "nlohmann/json.hpp"

namespace divvy {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr uint64_t kLengthBytes = 8;
// The alignment of the first tensor in the file.
constexpr size_t kAlignment = 8;
constexpr int kIndexDepth = 3;  // the deepest level of an index that is read

struct SafetensorsType {
  absl::string_view name;
  int bits;
  std::optional<DType> dtype;
};
constexpr SafetensorsType kSafetensorsTypes[] = {
    {"BOOL", 8, DType::kBool},        {"U8", 8, DType::kUInt8},
    {"I8", 8, DType::kInt8},          {"I32", 32, DType::kInt32},
    {"I64", 64, DType::kInt64},       {"F16", 16, DType::kFloat16},
    {"BF16", 16, DType::kBFloat16},   {"F32", 32, DType::kFloat32},
    {"F64", 64, DType::kFloat64},     {"C64", 64, DType::kComplex64},
    {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},        {"U64", 64, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},
};

// ---- reading

// A tensor as the JSON has it.
struct Claim {
  std::string name;
  std::optional<std::string> type;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

// Receives the parser's events. Returning false stops the parser. The depth is 0 outside, 1 among
// the names, 2 in a tensor or in the metadata, 3 in a list.
class HeaderBuilder {
 public:
  bool null() { return Refuse("a null"); }
  bool boolean(bool) { return Refuse("true or false"); }
  bool number_integer(int64_t) { return Refuse("a negative number"); }
  bool number_float(double, const std::string&) {
    return Refuse("a number that is not an integer");
  }
  bool binary(Json::binary_t&) { return Refuse("binary data"); }
  bool number_unsigned(uint64_t value) {
    if (depth_ != 3) return Refuse("a number");
    list_->push_back(value);
    return true;
  }
  bool string(std::string& value) {
    if (depth_ != 2) return Refuse("a text");
    if (in_metadata_) {
      metadata_[key_] = std::move(value);
      return true;
    }
    if (key_ != "dtype") return Refuse("a text");
    claims_.back().type = std::move(value);
    return true;
  }
  bool start_object(size_t) {
    if (depth_ > 1) return Refuse("an object");
    ++depth_;
    keys_.clear();
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }
  bool start_array(size_t) {
    if (depth_ != 2 || in_metadata_ || (key_ != "shape" && key_ != "data_offsets"))
      return Refuse("a list");
    auto& list = key_ == "shape" ? claims_.back().shape : claims_.back().offsets;
    list_ = &list.emplace();
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool key(std::string& name) {
    std::set<std::string>& seen = depth_ == 1 ? names_ : keys_;
    if (!seen.insert(name).second)
      return Fail(absl::StrCat("\"", name, "\" occurs twice",
                               depth_ == 1 ? "" : absl::StrCat(" in \"", name_, "\"")));
    if (depth_ == 1) {
      name_ = std::move(name);
      in_metadata_ = name_ == kMetadata;
      if (!in_metadata_) claims_.push_back({name_, {}, {}, {}});
      return true;
    }
    key_ = std::move(name);
    return in_metadata_ || key_ == "dtype" || key_ == "shape" || key_ == "data_offsets" ||
           Fail(absl::StrCat("tensor \"", name_, "\": unknown key \"", key_, "\""));
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Fail(absl::StrCat("not JSON at byte ", position));
  }

  const std::string& error() const { return error_; }
  const std::vector<Claim>& claims() const { return claims_; }
  SafetensorsMetadata& metadata() { return metadata_; }

 private:
  bool Refuse(absl::string_view what) {
    return Fail(absl::StrCat("\"", name_, "\": ", what, " is not allowed here"));
  }
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }

  int depth_ = 0;
  std::string name_, key_;
  bool in_metadata_ = false;
  std::set<std::string> names_, keys_;
  std::vector<uint64_t>* list_ = nullptr;  // the list that is being read
  std::vector<Claim> claims_;
  SafetensorsMetadata metadata_;
  std::string error_;
};

// The number of bits of all elements. nullopt: it does not fit in 64 bits.
std::optional<uint64_t> BitsOf(absl::Span<const uint64_t> shape, int bits) {
  if (std::count(shape.begin(), shape.end(), 0u) > 0) return 0;
  uint64_t product = static_cast<uint64_t>(bits);
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product;
}

absl::StatusOr<SafetensorsTensor> TensorOf(const Claim& claim, uint64_t data_begin,
                                           uint64_t data_bytes) {
  if (!claim.type || !claim.shape || !claim.offsets || claim.offsets->size() != 2) {
    return DamageOf(claim.name,
                    "it needs \"dtype\", \"shape\" and \"data_offsets\" of two numbers");
  }
  const auto type =
      std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                   [&](const SafetensorsType& row) { return row.name == *claim.type; });
  if (type == std::end(kSafetensorsTypes))
    return DamageOf(claim.name, absl::StrCat("unknown type ", claim.type->substr(0, 20)));
  const uint64_t begin = (*claim.offsets)[0], end = (*claim.offsets)[1];
  if (begin > end || end > data_bytes)
    return DamageOf(claim.name,
                    absl::StrCat("its bytes [", begin, ", ", end, ") are not within the file's ",
                                 data_bytes, " bytes of data"));
  const std::optional<uint64_t> bits = BitsOf(*claim.shape, type->bits);
  if (!bits || *bits % 8 != 0 || *bits / 8 != end - begin)
    return DamageOf(claim.name, absl::StrCat("its shape does not fit its ", end - begin, " bytes"));
  SafetensorsTensor tensor{claim.name, *claim.type,        type->dtype,     {},
                           "",         data_begin + begin, data_begin + end};
  if (!type->dtype) tensor.unreadable = absl::StrCat("Divvy has no tensors of ", *claim.type);
  const bool is_countable = std::all_of(claim.shape->begin(), claim.shape->end(),
                                        [](uint64_t size) { return size <= INT64_MAX; });
  const Shape shape(std::vector<int64_t>(claim.shape->begin(), claim.shape->end()));
  if (is_countable && shape.status().ok()) {
    tensor.shape = shape;
  } else {
    tensor.unreadable =
        absl::StrCat("Divvy's tensors have at most ", Shape::kMaxRank, " axes and 2^63 elements");
  }
  return tensor;
}

// ---- writing

const SafetensorsType* RowOf(DType dtype) {
  const auto row =
      std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                   [dtype](const SafetensorsType& type) { return type.dtype == dtype; });
  return row == std::end(kSafetensorsTypes) ? nullptr : row;
}

int64_t BytesOf(const SafetensorsSpec& tensor) {
  return tensor.shape.num_elements() * DTypeSize(tensor.dtype);
}

std::string Quote(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status CheckSpecs(absl::Span<const SafetensorsSpec> tensors) {
  std::set<std::string> names = {kMetadata};
  for (const SafetensorsSpec& tensor : tensors) {
    // JSON would replace invalid bytes, so a reader would get another string.
    if (!IsUtf8(tensor.name))
      return absl::InvalidArgumentError("the name of a tensor is not UTF-8");
    if (!names.insert(tensor.name).second)
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors are named \"", tensor.name, "\""));
    RETURN_IF_ERROR(tensor.shape.status());
    if (tensor.shape.num_elements() < 0)
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\": shape ",
                                                     tensor.shape.ToString(),
                                                     " has an unknown dimension"));
    if (RowOf(tensor.dtype) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", tensor.name, "\": safetensors has no ", DTypeName(tensor.dtype)));
    }
  }
  return absl::OkStatus();
}

std::string HeaderOf(absl::Span<const SafetensorsSpec> tensors,
                     const SafetensorsMetadata& metadata) {
  std::string json = "{";
  for (const auto& [key, value] : metadata)
    absl::StrAppend(&json, json.size() == 1 ? "\"__metadata__\":{" : ",", Quote(key), ":",
                    Quote(value));
  if (!metadata.empty()) json += "}";
  int64_t offset = 0;
  for (const SafetensorsSpec& tensor : tensors) {
    absl::StrAppend(&json, json.size() == 1 ? "" : ",", Quote(tensor.name), ":{\"dtype\":\"",
                    RowOf(tensor.dtype)->name, "\",\"shape\":[");
    for (int axis = 0; axis < tensor.shape.rank(); ++axis)
      absl::StrAppend(&json, axis == 0 ? "" : ",", tensor.shape.dim(axis));
    absl::StrAppend(&json, "],\"data_offsets\":[", offset, ",", offset + BytesOf(tensor), "]}");
    offset += BytesOf(tensor);
  }
  json += "}";
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return json;
}

absl::Status WriteTensor(WritableFile& file, const SafetensorsSpec& tensor,
                         const SafetensorsSource& source) {
  int64_t left = BytesOf(tensor);
  const auto append = [&](absl::string_view bytes) {
    left -= static_cast<int64_t>(bytes.size());
    return left < 0 ? absl::OkStatus() : file.Append(bytes);
  };
  RETURN_IF_ERROR(source(tensor, append));
  if (left == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\": the source passed ",
                                                 BytesOf(tensor) - left, " bytes; the tensor has ",
                                                 BytesOf(tensor)));
}

absl::Status CheckNew(FileSystem& files, const std::string& name, Existing existing) {
  if (existing == Existing::kReplaced) return absl::OkStatus();
  const absl::Status there = files.Stat(name).status();
  if (there.ok())
    return absl::AlreadyExistsError(
        absl::StrCat(name, " exists: remove it first, or write elsewhere"));
  return absl::IsNotFound(there) ? absl::OkStatus() : there;
}

// Removes the file if it exists, and makes that durable before anything else is done.
absl::Status RemoveIfThere(FileSystem& files, const std::string& name) {
  const absl::Status removed = files.Remove(name);
  if (absl::IsNotFound(removed)) return absl::OkStatus();
  RETURN_IF_ERROR(removed);
  return files.SyncDirectory(DirectoryOf(name));
}

absl::Status WriteWhole(FileSystem& files, const std::string& name, absl::string_view head,
                        const std::vector<SafetensorsSpec>& tensors,
                        const SafetensorsSource& source) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                   files.OpenForWrite(name, WriteMode::kReplace));
  RETURN_IF_ERROR(file->Append(head));
  for (const SafetensorsSpec& tensor : tensors) RETURN_IF_ERROR(WriteTensor(*file, tensor, source));
  RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

// Files that are written completely under other names before the first of them is renamed.
class UnfinishedFiles {
 public:
  explicit UnfinishedFiles(FileSystem& files) : files_(files) {}
  ~UnfinishedFiles() {  // they may occupy the last free space of the disk
    for (const std::string& name : names_) files_.Remove(UnfinishedName(name)).IgnoreError();
  }
  absl::Status Write(const std::string& name, absl::string_view head,
                     const std::vector<SafetensorsSpec>& tensors, const SafetensorsSource& source) {
    names_.push_back(name);
    return WriteWhole(files_, UnfinishedName(name), head, tensors, source);
  }
  // Renames the files durably, in the order in which they were written.
  absl::Status Finish() {
    for (; !names_.empty(); names_.pop_front()) {
      RETURN_IF_ERROR(files_.Rename(UnfinishedName(names_.front()), names_.front()));
      RETURN_IF_ERROR(files_.SyncDirectory(DirectoryOf(names_.front())));
    }
    return absl::OkStatus();
  }

 private:
  static std::string UnfinishedName(const std::string& name) { return name + ".tmp"; }

  FileSystem& files_;
  std::deque<std::string> names_;
};

absl::Status WriteFile(UnfinishedFiles& out, const std::string& name,
                       std::vector<SafetensorsSpec> tensors, const SafetensorsMetadata& metadata,
                       const SafetensorsSource& source) {
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsSpec& a, const SafetensorsSpec& b) {
    return std::make_pair(-DTypeSize(a.dtype), absl::string_view(a.name)) <
           std::make_pair(-DTypeSize(b.dtype), absl::string_view(b.name));
  });
  const std::string json = HeaderOf(tensors, metadata);
  if (json.size() > kMaxSafetensorsHeaderBytes)
    return absl::InvalidArgumentError(absl::StrCat(name, ": the header would have ", json.size(),
                                                   " bytes; readers take at most ",
                                                   kMaxSafetensorsHeaderBytes));
  std::string head;
  AppendLittleEndian<uint64_t>(json.size(), head);
  return out.Write(name, head + json, tensors, source);
}

// Distributes the tensors over files in the order of their names, and fills each file as far as the
// limit allows.
std::vector<std::vector<SafetensorsSpec>> ShardsOf(std::vector<SafetensorsSpec> tensors,
                                                   int64_t max_shard_bytes) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsSpec& a, const SafetensorsSpec& b) { return a.name < b.name; });
  std::vector<std::vector<SafetensorsSpec>> shards(1);
  int64_t bytes = 0;
  for (SafetensorsSpec& tensor : tensors) {
    const int64_t more = BytesOf(tensor);
    if (!shards.back().empty() && more > max_shard_bytes - std::min(bytes, max_shard_bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string IndexOf(const std::vector<std::vector<SafetensorsSpec>>& shards,
                    const std::vector<std::string>& names) {
  std::map<std::string, std::string> file_of;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SafetensorsSpec& tensor : shards[i]) {
      file_of[tensor.name] = names[i];
      total += BytesOf(tensor);
    }
  }
  std::string json = absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ", total,
                                  "\n  },\n  \"weight_map\": {");
  const char* separator = "\n    ";
  for (const auto& [tensor, file] : file_of)
    absl::StrAppend(&json, std::exchange(separator, ",\n    "), Quote(tensor), ": ", Quote(file));
  return json + "\n  }\n}\n";
}

// The place of a model's files: "DIRECTORY/MODEL".
struct ModelFiles {
  std::string directory, model;
  std::string Whole() const { return absl::StrCat(model, kSafetensorsEnd); }
  std::string Index() const { return absl::StrCat(Whole(), ".index.json"); }
  std::string PathOf(absl::string_view file) const { return absl::StrCat(directory, "/", file); }
  std::vector<std::string> Shards(size_t count) const {
    if (count == 1) return {Whole()};
    std::vector<std::string> names;
    while (names.size() < count)
      names.push_back(
          absl::StrFormat("%s-%05d-of-%05d%s", model, names.size() + 1, count, kSafetensorsEnd));
    return names;
  }
  // An index may name any file of the directory. Only files that are named like its own shards
  // count.
  bool MayOwn(absl::string_view file) const {
    return absl::StartsWith(file, model + "-") && absl::EndsWith(file, kSafetensorsEnd);
  }
};

// The files of an existing sharded model, as its index names them. None if the index cannot be
// read.
absl::StatusOr<std::vector<std::string>> FormerShards(FileSystem& files, const ModelFiles& model) {
  const absl::StatusOr<std::string> json = files.ReadFile(model.PathOf(model.Index()));
  if (absl::IsNotFound(json.status())) return std::vector<std::string>();
  RETURN_IF_ERROR(json);
  std::vector<std::string> names =
      ParseSafetensorsIndex(*json).value_or(std::vector<std::string>());
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&](const std::string& name) { return !model.MayOwn(name); }),
              names.end());
  return names;
}

// Removes the files of the former model that the new model does not use. `names` are the files of
// the new model.
absl::Status RemoveFormer(FileSystem& files, const ModelFiles& model,
                          const std::vector<std::string>& former,
                          const std::vector<std::string>& names) {
  RETURN_IF_ERROR(
      RemoveIfThere(files, model.PathOf(names.size() > 1 ? model.Whole() : model.Index())));
  for (const std::string& name : former) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      RETURN_IF_ERROR(RemoveIfThere(files, model.PathOf(name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t file_bytes) {
  const uint64_t data_begin = kLengthBytes + json.size();
  if (file_bytes < data_begin) return Damage("the file ends within the header");
  if (json.empty() || json[0] != '{')
    return Damage("not a safetensors file: its header does not begin with {");
  HeaderBuilder builder;
  if (!Json::sax_parse(json.begin(), json.end(), &builder)) return Damage(builder.error());
  SafetensorsHeader header;
  header.metadata = std::move(builder.metadata());
  for (const Claim& claim : builder.claims()) {
    ASSIGN_OR_RETURN(header.tensors.emplace_back(),
                     TensorOf(claim, data_begin, file_bytes - data_begin));
  }
  const auto before = [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
  };
  std::stable_sort(header.tensors.begin(), header.tensors.end(), before);
  uint64_t at = data_begin;
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.begin != at)
      return DamageOf(tensor.name,
                      absl::StrCat("it begins at byte ", tensor.begin - data_begin,
                                   ", but the tensor before it ends at ", at - data_begin));
    at = tensor.end;
  }
  if (at != file_bytes)
    return Damage(absl::StrCat("the tensors end at byte ", at, ", the file at ", file_bytes));
  return header;
}

// ---- SafetensorsReader

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    FileSystem& files, const std::string& name) {
  const auto damage = [&](absl::string_view what) {
    return Damage(absl::StrCat(name, ": ", what));
  };
  ASSIGN_OR_RETURN(const FileInfo info, files.Stat(name));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files.OpenRandomAccess(name));
  std::string length(kLengthBytes, '\0');
  ASSIGN_OR_RETURN(const size_t got, file->ReadAt(0, absl::MakeSpan(&length[0], length.size())));
  if (got < kLengthBytes)
    return damage(absl::StrCat("not a safetensors file: it has ", got, " bytes"));
  const uint64_t header_bytes = LoadLittleEndian<uint64_t>(length);
  if (header_bytes > kMaxSafetensorsHeaderBytes)
    return damage(absl::StrCat("its header claims ", header_bytes, " bytes; at most ",
                               kMaxSafetensorsHeaderBytes, " are allowed"));
  if (header_bytes > info.size_bytes - std::min(info.size_bytes, kLengthBytes))
    return damage("the file ends within the header");
  std::string json(header_bytes, '\0');
  ASSIGN_OR_RETURN(
      const size_t read,
      file->ReadAt(kLengthBytes, absl::MakeSpan(json.empty() ? nullptr : &json[0], json.size())));
  if (read < json.size()) return damage("the file ends within the header");
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json, info.size_bytes);
  if (!header.ok()) return damage(header.status().message());
  return std::unique_ptr<SafetensorsReader>(
      new SafetensorsReader(name, *std::move(header), std::move(file)));
}

absl::StatusOr<const SafetensorsTensor*> SafetensorsReader::Find(absl::string_view tensor) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const SafetensorsTensor& t) { return t.name == tensor; });
  if (found == header_.tensors.end())
    return absl::NotFoundError(absl::StrCat(name_, " has no tensor \"", tensor, "\""));
  if (!found->unreadable.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": tensor \"", tensor, "\": ", found->unreadable));
  return &*found;
}

absl::Status SafetensorsReader::ReadRows(absl::string_view name, int64_t begin, int64_t end,
                                         absl::Span<char> out) const {
  ASSIGN_OR_RETURN(const SafetensorsTensor* const tensor, Find(name));
  const Shape& shape = tensor->shape;
  const int64_t row = shape.row_elements() * DTypeSize(*tensor->dtype);
  if (begin < 0 || end < begin || end > shape.rows() ||
      (end - begin) * row != static_cast<int64_t>(out.size())) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": tensor \"", name, "\": rows [", begin,
                                                   ", ", end, ") of ", shape.ToString(), " into ",
                                                   out.size(), " bytes"));
  }
  ASSIGN_OR_RETURN(const size_t got,
                   file_->ReadAt(tensor->begin + static_cast<uint64_t>(begin * row), out));
  if (got < out.size())
    return Damage(absl::StrCat(name_, ": the file ends within tensor \"", name, "\""));
  return absl::OkStatus();
}

absl::StatusOr<Tensor> SafetensorsReader::ReadTensor(absl::string_view name) const {
  ASSIGN_OR_RETURN(const SafetensorsTensor* const tensor, Find(name));
  ASSIGN_OR_RETURN(Tensor value, Tensor::Uninitialized(*tensor->dtype, tensor->shape));
  const auto out =
      absl::MakeSpan(value.fresh_data<char>(), static_cast<size_t>(value.size_bytes()));
  RETURN_IF_ERROR(ReadRows(name, 0, tensor->shape.rows(), out));
  return value;
}

// ---- writing

absl::Status WriteSafetensors(FileSystem& files, const std::string& name,
                              std::vector<SafetensorsSpec> tensors,
                              const SafetensorsMetadata& metadata, const SafetensorsSource& source,
                              Existing existing) {
  RETURN_IF_ERROR(CheckSpecs(tensors));
  RETURN_IF_ERROR(CheckNew(files, name, existing));
  UnfinishedFiles unfinished(files);
  RETURN_IF_ERROR(WriteFile(unfinished, name, std::move(tensors), metadata, source));
  return unfinished.Finish();
}

absl::StatusOr<std::vector<std::string>> WriteShardedSafetensors(
    FileSystem& files, const std::string& name, std::vector<SafetensorsSpec> tensors,
    const SafetensorsMetadata& metadata, int64_t max_shard_bytes, const SafetensorsSource& source,
    Existing existing) {
  const ModelFiles model{DirectoryOf(name),
                         std::string(absl::StripSuffix(BaseNameOf(name), kSafetensorsEnd))};
  if (model.model == BaseNameOf(name))
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" does not end in ", kSafetensorsEnd));
  if (max_shard_bytes < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("max_shard_bytes is ", max_shard_bytes, "; it must be at least 1"));
  RETURN_IF_ERROR(CheckSpecs(tensors));
  const std::vector<std::vector<SafetensorsSpec>> shards =
      ShardsOf(std::move(tensors), max_shard_bytes);
  std::vector<std::string> names = model.Shards(shards.size());
  RETURN_IF_ERROR(CheckNew(files, model.PathOf(model.Index()), existing));
  for (const std::string& file : names)
    RETURN_IF_ERROR(CheckNew(files, model.PathOf(file), existing));
  ASSIGN_OR_RETURN(const std::vector<std::string> former, FormerShards(files, model));
  // Everything that needs disk space is written before an existing file is touched.
  UnfinishedFiles unfinished(files);
  for (size_t i = 0; i < shards.size(); ++i)
    RETURN_IF_ERROR(WriteFile(unfinished, model.PathOf(names[i]), shards[i], metadata, source));
  if (shards.size() > 1) {
    RETURN_IF_ERROR(
        unfinished.Write(model.PathOf(model.Index()), IndexOf(shards, names), {}, source));
    RETURN_IF_ERROR(RemoveIfThere(files, model.PathOf(model.Index())));
  }
  RETURN_IF_ERROR(unfinished.Finish());
  if (existing == Existing::kReplaced) RETURN_IF_ERROR(RemoveFormer(files, model, former, names));
  if (shards.size() > 1) names.push_back(model.Index());
  return names;
}

absl::StatusOr<std::vector<std::string>> ParseSafetensorsIndex(absl::string_view text) {
  const auto no_deeper = [](int depth, Json::parse_event_t, Json&) { return depth <= kIndexDepth; };
  const Json json = Json::parse(text.begin(), text.end(), no_deeper, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return Damage("not an index of safetensors files: it has no \"weight_map\"");
  std::set<std::string> names;
  for (const Json& file : json["weight_map"]) {
    if (!file.is_string())
      return Damage("the \"weight_map\" has a value that is not the name of a file");
    const std::string name = file.get<std::string>();
    if (name.empty() || BaseNameOf(name) != name || name == "..")
      return Damage(absl::StrCat("it names a file in another directory: \"", name, "\""));
    names.insert(name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace divvy
