#include "formats/csv.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

// What follows a field: another field, or the end of the record.
enum class Behind { kField, kNothing };

class RecordReader {
 public:
  RecordReader(absl::string_view text, TextPosition& at, CsvRecord& record, char separator)
      : text_(text), at_(at), record_(record), separator_(separator) {}

  absl::Status Read() {
    record_.line = at_.line;
    Behind behind = Behind::kField;
    size_t count = 0;
    for (; behind == Behind::kField; ++count) {
      if (count == kMaxCsvFields)
        return Error(absl::StrCat("the record has more than ", kMaxCsvFields, " fields"));
      if (record_.fields.size() == count) record_.fields.emplace_back();
      record_.fields[count].clear();
      const bool quoted = at_.offset < text_.size() && text_[at_.offset] == '"';
      RETURN_IF_ERROR(quoted ? ReadQuoted(record_.fields[count])
                             : ReadPlain(record_.fields[count]));
      ASSIGN_OR_RETURN(behind, ReadSeparator());
    }
    record_.fields.resize(count);
    return absl::OkStatus();
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("line ", at_.line, ": ", what));
  }

  bool AtLineEnd() const {
    const absl::string_view rest = text_.substr(at_.offset, 2);
    return rest.empty() || rest[0] == '\n' || rest == "\r\n" || rest == "\r";
  }

  absl::Status ReadPlain(std::string& field) {
    const char ends[] = {separator_, '"', '\n'};
    size_t end = std::min(text_.find_first_of(absl::string_view(ends, sizeof(ends)), at_.offset),
                          text_.size());
    if (text_.substr(end, 1) == "\"")
      return Error(
          "a quote inside a field that does not begin with one: put the field in quotes, and "
          "double "
          "each quote inside it");
    const bool ends_line = end == text_.size() || text_[end] == '\n';
    if (ends_line && end > at_.offset && text_[end - 1] == '\r') --end;
    field.assign(text_.data() + at_.offset, end - at_.offset);
    at_.offset = end;
    return absl::OkStatus();
  }

  absl::Status ReadQuoted(std::string& field) {
    const int64_t first_line = at_.line;
    for (++at_.offset; at_.offset < text_.size(); ++at_.offset) {
      const char c = text_[at_.offset];
      if (c == '"') {
        const bool doubled = text_.substr(at_.offset + 1, 1) == "\"";
        if (!doubled) {
          ++at_.offset;
          return absl::OkStatus();
        }
        ++at_.offset;
      }
      if (c == '\n') ++at_.line;
      field.push_back(c);
    }
    at_.line = first_line;
    return Error("a quoted field is never closed");
  }

  absl::StatusOr<Behind> ReadSeparator() {
    if (AtLineEnd()) {
      absl::string_view rest_of_line;
      TakeLine(text_, at_, &rest_of_line);
      return Behind::kNothing;
    }
    if (text_[at_.offset] != separator_)
      return Error(
          "text after a closing quote, where a separator or the end of the line should be");
    ++at_.offset;
    return Behind::kField;
  }

  absl::string_view text_;
  TextPosition& at_;
  CsvRecord& record_;
  const char separator_;
};

// Skips empty lines. False: the end of the text.
bool SkipEmptyLines(absl::string_view text, TextPosition& at) {
  const bool begins_a_line_end =
      at.offset < text.size() && (text[at.offset] == '\n' || text[at.offset] == '\r');
  if (!begins_a_line_end) return at.offset < text.size();
  TextPosition next = at;
  absl::string_view line;
  while (TakeLine(text, next, &line) && line.empty()) at = next;
  return at.offset < text.size();
}

// Finds the bytes that end a plain field: a separator, a quote or LF.
class FieldEnds {
 public:
  // From `begin` on.
  FieldEnds(const char* begin, const char* end, char separator)
      : block_(begin), end_(end), separator_(separator) {
    Load();
  }

  // The next of these bytes; the end if there is none.
  const char* Next() {
    while (found_ == 0) {
      if (end_ - block_ <= kBlock) return end_;
      block_ += kBlock;
      Load();
    }
    const char* const next = block_ + __builtin_ctz(found_);
    found_ &= found_ - 1;
    return next;
  }

 private:
  static constexpr ptrdiff_t kBlock = 16;

  // Sets a bit of found_ for each of these bytes in the block.
  void Load() {
    found_ = 0;
#ifdef __SSE2__
    if (end_ - block_ >= kBlock) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block_));
      const __m128i is_end =
          _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(separator_)),
                                    _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'))),
                       _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n')));
      found_ = static_cast<uint32_t>(_mm_movemask_epi8(is_end));
      return;
    }
#endif
    const ptrdiff_t count = std::min(end_ - block_, kBlock);
    for (ptrdiff_t i = 0; i < count; ++i) {
      const char c = block_[i];
      if (c == separator_ || c == '"' || c == '\n') found_ |= uint32_t{1} << i;
    }
  }

  const char* block_;
  const char* const end_;
  const char separator_;
  uint32_t found_ = 0;
};

}  // namespace

bool ReadPlainCsvRecord(absl::string_view text, TextPosition& at,
                        absl::Span<absl::string_view> fields, char separator) {
  TextPosition start = at;
  if (!SkipEmptyLines(text, start)) return false;
  const char* begin = text.data() + start.offset;
  const char* const text_end = text.data() + text.size();
  FieldEnds ends(begin, text_end, separator);
  const size_t last = fields.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const char* const end = ends.Next();
    if (end == text_end || *end != separator) return false;
    fields[i] = absl::string_view(begin, static_cast<size_t>(end - begin));
    begin = end + 1;
  }
  const char* const end = ends.Next();
  if (end != text_end && *end != '\n') return false;
  fields[last] = absl::string_view(begin, static_cast<size_t>(end - begin));
  if (!fields[last].empty() && fields[last].back() == '\r') fields[last].remove_suffix(1);
  at.line = start.line + 1;
  at.offset = static_cast<size_t>(end - text.data()) + (end == text_end ? 0 : 1);
  return true;
}

bool SkipCsvRecord(absl::string_view text, TextPosition& at, CsvRecord& record, char separator) {
  if (!SkipEmptyLines(text, at)) return false;
  TextPosition next = at;
  absl::string_view line;
  TakeLine(text, next, &line);
  if (std::memchr(line.data(), '"', line.size()) == nullptr) {
    at = next;
    return true;
  }
  const absl::StatusOr<bool> got = ReadCsvRecord(text, at, record, separator);
  return !got.ok() || *got;
}

absl::StatusOr<bool> ReadCsvRecord(absl::string_view text, TextPosition& at, CsvRecord& record,
                                   char separator) {
  if (!SkipEmptyLines(text, at)) return false;
  const TextPosition start = at;
  const absl::Status status = RecordReader(text, at, record, separator).Read();
  if (status.ok()) return true;
  at = start;
  absl::string_view bad_line;
  TakeLine(text, at, &bad_line);
  return status;
}

}  // namespace divvy
