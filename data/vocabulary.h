// Vocabularies: known tokens, each with an id.
#ifndef DIVVY_DATA_VOCABULARY_H_
#define DIVVY_DATA_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/data_environment.h"
#include "data/tokenizer.h"

namespace divvy {

class Dataset;

// The ids that stand for no token, as in tf.keras.layers.StringLookup.
struct VocabularyOptions {
  // The number of ids for unknown tokens. With several, a hash of the token (HashText) selects one.
  // With 0, an unknown token is an error.
  int64_t num_oov_indices = 1;
  // If set, this text has id 0: padding, which a model masks. Often "".
  std::optional<std::string> mask_token = {};
  // What Vocabulary::Token returns for an id of unknown tokens. No token of the vocabulary.
  std::string oov_token = "[UNK]";
};

// How Vocabulary::MostFrequent counts, and what it keeps.
struct MostFrequentOptions {
  // The limit on Vocabulary::size(), so the mask and the unknown tokens count, as in StringLookup.
  // 0: no limit.
  int64_t max_tokens = 0;
  // Tokens that occur less often are left out.
  int64_t min_count = 1;
  // The key of the texts in elements that are dicts. Empty: the element itself.
  std::string feature = {};
  // How texts are cut. nullopt: each text is one token.
  std::optional<Tokenizer> tokens = {};
  VocabularyOptions ids = {};
};

// Known tokens and their ids, which are the row numbers of an embedding table of size() rows. The
// job of tf.keras.layers.StringLookup, with its numbering. An immutable value, cheap to copy;
// thread-safe.
//
//   id                                     stands for
//   0, if there is a mask token            the mask token
//   the next num_oov_indices               unknown tokens
//   num_special() + i                      token i: the file's line i, counted from 0
//
// So with the default options id 0 is every unknown token, and id 1 the first token.
//
//   ASSIGN_OR_RETURN(const Vocabulary jobs, Vocabulary::Load("jobs.txt"));
//   return Dataset::Csv("ads-*", {{"label"}, CsvColumn::Text("job", jobs)}).Batch(256);
//
// All processes of a job must have the same vocabulary. So make it once, save it beside the data,
// and load the file in the dataset function.
//
// If the tokens begin with the mask token and all unknown tokens, as those of StringLookup's
// get_vocabulary, then these are no tokens of their own.
class Vocabulary {
 public:
  // InvalidArgument: a token that occurs twice, a token that is the mask or the oov token, no
  // tokens, or bad options; the message names the places, counted from 0.
  static absl::StatusOr<Vocabulary> FromTokens(std::vector<std::string> tokens,
                                               const VocabularyOptions& options = {});
  // Reads a file of one token a line, plain, gzip or zlib. A token is any bytes without a line end;
  // an empty line is the empty token. Blocks. NotFound: no such file. DataLoss, with file and line:
  // a token that occurs twice (the message has both lines) or is the mask or oov token, a file
  // without tokens, or UTF-16 or UTF-32. InvalidArgument: bad options. Others: the file system's.
  static absl::StatusOr<Vocabulary> Load(const std::string& file,
                                         const VocabularyOptions& options = {},
                                         const DataEnvironment& environment = {});
  // The most frequent tokens of one pass, the most frequent first. Of two tokens that are equally
  // frequent the one with the greater bytes is first, as with StringLookup.adapt. So the result
  // depends on the texts only, not on their order or on the machine. Reads the whole dataset and
  // holds each distinct token in memory; blocks.
  //
  // Each element, or its value under `feature`, is a text or a list of texts. InvalidArgument: it
  // is something else (the message has the element's number), bad options, or no token that occurs
  // min_count times. Others: those of the dataset.
  //
  //   Dataset::Csv("ads-*", {{"job", DType::kString}})  // with feature = "job"
  static absl::StatusOr<Vocabulary> MostFrequent(const Dataset& texts,
                                                 const MostFrequentOptions& options = {},
                                                 const DataEnvironment& environment = {});
  // The same of the lines of files; each name may be a pattern, as for Dataset::TextLines. By
  // default, tokens are separated by white space.
  static absl::StatusOr<Vocabulary> MostFrequent(const std::vector<std::string>& files,
                                                 const MostFrequentOptions& options = {},
                                                 const DataEnvironment& environment = {});

  // Writes the tokens, one a line, without the mask and the unknown tokens. After a crash the file
  // is whole or as before. Blocks. InvalidArgument, with the token: Load would not return it, since
  // it has a line end. Others: the file system's.
  absl::Status Save(const std::string& file, const DataEnvironment& environment = {}) const;

  // The number of ids: the rows of an embedding table.
  int64_t size() const;
  // The number of ids before the first token.
  int64_t num_special() const;
  // The id of a token; for an unknown one, an id of unknown tokens. InvalidArgument: the token is
  // unknown, and num_oov_indices is 0.
  absl::StatusOr<int64_t> Id(absl::string_view token) const;
  // As Id. False: an error.
  bool TryId(absl::string_view token, int64_t* id) const;
  // The inverse of Id: the token, the mask token or the oov token. InvalidArgument: the id is not
  // in [0, size()).
  absl::StatusOr<std::string> Token(int64_t id) const;

 private:
  struct State;
  explicit Vocabulary(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  // `file`: where the tokens are from, for errors; empty: a list.
  static absl::StatusOr<Vocabulary> Make(std::vector<std::string> tokens,
                                         const VocabularyOptions& options, absl::string_view file);

  std::shared_ptr<const State> state_;
};

}  // namespace divvy

#endif  // DIVVY_DATA_VOCABULARY_H_
