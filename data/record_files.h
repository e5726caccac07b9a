// Datasets of records in files. A RecordReader knows the format; one iterator, for all formats,
// finds records by number. Internal to data/.
#ifndef DIVVY_DATA_RECORD_FILES_H_
#define DIVVY_DATA_RECORD_FILES_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/recipes.h"
#include "formats/text.h"

namespace divvy::data_internal {

// A file format. Each iterator has its own reader. The line number of a TextPosition counts lines
// in text formats, and records in TFRecord files.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Whether these are the bytes of an uncompressed file, although they may begin like a compressed
  // one.
  virtual bool IsPlain(absl::string_view bytes) const { return false; }
  // Begins a new file and sets `at` to its first record.
  virtual absl::Status Begin(absl::string_view file, TextPosition& at) {
    at = StartOfText(file);
    return CheckEncoding(file);
  }
  // Skips the next record, good or bad. False: there is none.
  virtual bool Skip(absl::string_view file, TextPosition& at) = 0;
  // Reads the next record. nullopt: there is none. An error names its place in the file; `at` is
  // then past the bad record.
  virtual Element Read(absl::string_view file, TextPosition& at) = 0;

  // Many records as rows of columns, for readers whose elements are alike:
  //
  //   rows = 0, most = reader.BeginRows(1000, bytes left in the file)
  //   while rows < most and reader.ReadRow(file, at, rows): ++rows
  //   reader.EndRows(rows)

  // Begins new columns for up to `most` rows, and returns how many it takes. 0: none.
  virtual int64_t BeginRows(int64_t most, size_t bytes_left) { return 0; }
  // Reads the next record into row `row` of the columns. False: it is bad, or there is none: Read
  // tells, from the same position on. `at` is then unspecified. REQUIRES: BeginRows returned more.
  virtual bool ReadRow(absl::string_view file, TextPosition& at, int64_t row) { return false; }
  // The first `rows` rows: RowOf(them, i) is what Read returns for record i. REQUIRES: rows >= 1.
  virtual absl::StatusOr<Nest> EndRows(int64_t rows) {
    return absl::InternalError("this reader makes no rows");
  }
};

// The records of the files of the pattern `files` (ExpandFiles), numbered in the order of the files
// and of the records in each file. Errors begin with the file's name.
using MakeRecordReader = std::function<std::unique_ptr<RecordReader>()>;
Recipe RecordFilesRecipe(std::string files, MakeRecordReader make_reader);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_RECORD_FILES_H_
