#include "formats/csv.h"

#include <algorithm>

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
  TextPosition next = at;
  absl::string_view line;
  while (TakeLine(text, next, &line) && line.empty()) at = next;
  return at.offset < text.size();
}

}  // namespace

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
