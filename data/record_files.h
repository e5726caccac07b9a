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
    return absl::OkStatus();
  }
  // Skips the next record, good or bad. False: there is none.
  virtual bool Skip(absl::string_view file, TextPosition& at) = 0;
  // Reads the next record. nullopt: there is none. An error names its place in the file; `at` is
  // then past the bad record.
  virtual Element Read(absl::string_view file, TextPosition& at) = 0;
};

// The records of the files of the pattern `files` (ExpandFiles), numbered in the order of the files
// and of the records in each file. Errors begin with the file's name.
using MakeRecordReader = std::function<std::unique_ptr<RecordReader>()>;
Recipe RecordFilesRecipe(std::string files, MakeRecordReader make_reader);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_RECORD_FILES_H_
