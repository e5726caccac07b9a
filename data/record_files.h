// Datasets of records in files: a format tells records apart, one iterator finds its way among
// them. Internal to data/.
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

// A format. A reader belongs to one iterator. Of a position the line is what the format counts:
// lines of a text, records of a file.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Whether these are the bytes of a file that is not compressed, though they may begin like one
  // that is.
  virtual bool IsPlain(absl::string_view bytes) const { return false; }
  // Looks at a new file; sets `at` to its first record.
  virtual absl::Status Begin(absl::string_view file, TextPosition& at) {
    at = StartOfText(file);
    return absl::OkStatus();
  }
  // Passes over the next record, good or bad. False: none is left.
  virtual bool Skip(absl::string_view file, TextPosition& at) = 0;
  // Reads the next record. nullopt: none is left. After an error, which says where in the file,
  // `at` is behind the bad record.
  virtual Element Read(absl::string_view file, TextPosition& at) = 0;
};

// The records of the files that `files` stands for (ExpandFiles), each with a number in the order
// of files and records. Errors begin with the file's name.
using MakeRecordReader = std::function<std::unique_ptr<RecordReader>()>;
Recipe RecordFilesRecipe(std::string files, MakeRecordReader make_reader);

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_RECORD_FILES_H_
