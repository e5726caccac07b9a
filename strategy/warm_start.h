// Initial values from a checkpoint of another job or of TensorFlow.
#ifndef DIVVY_STRATEGY_WARM_START_H_
#define DIVVY_STRATEGY_WARM_START_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "variables/variable_spec.h"

namespace divvy {

class BundleReader;
struct BundleTensor;
class FileSystem;

// Maps variables to the tensors of a checkpoint that are their initial values: TensorFlow's
// init_from_checkpoint. It sets initial values and nothing else: slots, steps and the position in
// the data begin anew. A variable that Coordinator::RestoreLatest restores keeps the restored
// value. (To resume a job, with any number of parameter servers, use RestoreLatest instead.)
//
//   ASSIGN_OR_RETURN(const WarmStart bert,
//                    WarmStart::Open("/models/bert", {{"encoder/", "bert/encoder/"}}));
//   // "encoder/0/kernel" begins with "bert/encoder/0/kernel"
//   ASSIGN_OR_RETURN(const VariableSpec kernel, bert.Apply(kKernel));
//   RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kernel).status());
//   // or all variables of a model
//   trainer.StartFrom(bert);
//
// A dynamic table takes the keys that the checkpoint has, each with its values and its count, from
// tensors NAME-keys, NAME-values and NAME-freqs, as Divvy and DeepRec write them. Every such key
// has a row from the start, whatever the table's admission says, unless max_rows or memory has no
// room. Without NAME-freqs a row counts one step. Rows are dated anew, and all other keys begin
// with the spec's initializer.
//
// Use it on the coordinator. Only the coordinator reads the files, at each start of the program, so
// keep the files in place. It sends the values to the parameter servers 16 MiB at a time. A handle:
// copies refer to the same checkpoint. Thread-safe.
class WarmStart {
 public:
  // Opens a checkpoint. `path` is a checkpoint's prefix ("/ckpt/ckpt-3-17"), or a directory. In a
  // directory it opens the newest checkpoint, which the directory's file "checkpoint" names.
  //
  // `names` maps a prefix of variable names to the prefix of tensor names that replaces it. The
  // longest matching prefix counts. A variable that matches no prefix keeps its spec's initializer.
  // A tensor's name may end in "/.ATTRIBUTES/VARIABLE_VALUE", as in TensorFlow 2's object graph.
  //
  // Blocks. NotFound: no such checkpoint. DataLoss: its index is damaged. Otherwise the file
  // system's errors.
  static absl::StatusOr<WarmStart> Open(const std::string& path,
                                        std::map<std::string, std::string> names = {{"", ""}});
  // The same, in another file system. REQUIRES: `files` outlives the WarmStart and the specs that
  // it makes.
  static absl::StatusOr<WarmStart> Open(const std::string& path,
                                        std::map<std::string, std::string> names,
                                        FileSystem& files);

  // Returns `spec` with the checkpoint's value as its initializer, or unchanged if none of the
  // names matches. Reads all bytes of the tensor to verify them; blocks. NotFound: the checkpoint
  // has no such tensor; the message has the most similar name. InvalidArgument: the tensor has
  // another dtype or shape (a table: another width), or a dtype that Divvy lacks. DataLoss: it is
  // damaged; or a table's tensors differ in their numbers of rows, or have a key twice.
  absl::StatusOr<VariableSpec> Apply(VariableSpec spec) const;

  // The checkpoint's prefix. The names of its files begin with it.
  const std::string& prefix() const;

 private:
  WarmStart(std::shared_ptr<const BundleReader> reader, std::map<std::string, std::string> names);
  const std::pair<const std::string, std::string>* Rule(absl::string_view variable) const;
  absl::StatusOr<const BundleTensor*> FindTensor(const std::string& variable,
                                                 const std::string& name) const;
  absl::StatusOr<VariableSpec> ApplyToTable(VariableSpec spec, const std::string& name) const;
  absl::Status Refused(const VariableSpec& spec, const BundleTensor& tensor,
                       absl::string_view declared) const;
  absl::Status CheckKeysAreUnique(const BundleTensor& keys) const;

  std::shared_ptr<const BundleReader> reader_;
  std::map<std::string, std::string> names_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_WARM_START_H_
