// Initial values out of a checkpoint: another job's, or any that TensorFlow made.
#ifndef DIVVY_STRATEGY_WARM_START_H_
#define DIVVY_STRATEGY_WARM_START_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/variable_spec.h"

namespace divvy {

class BundleReader;
struct BundleTensor;
class FileSystem;

// Which variables begin with which tensors: TensorFlow's init_from_checkpoint. It gives a variable
// its initial value and nothing else: slots, steps and the position in the data begin anew, and a
// variable that Coordinator::RestoreLatest restores is as it was restored. (To go on with a job,
// whatever its number of parameter servers, is RestoreLatest's business, not this one's.)
//
//   ASSIGN_OR_RETURN(const WarmStart bert, WarmStart::Open("/models/bert", {{"encoder/",
//   "bert/encoder/"}}));
//   // "encoder/0/kernel" begins with "bert/encoder/0/kernel"
//   ASSIGN_OR_RETURN(const VariableSpec kernel, bert.Apply(kKernel));
//   RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kernel).status());
//   // or all variables of a model
//   trainer.StartFrom(bert);
//
// On the coordinator, which alone reads the files: at each start of the program, so they must stay
// there. The servers are sent the values, 16 MiB at a time. A handle: copies are the same
// checkpoint. Thread-safe.
class WarmStart {
 public:
  // `path`: a checkpoint by its prefix ("/ckpt/ckpt-3-17"), or a directory, whose newest is meant
  // (as its file "checkpoint" says). `names`: what a variable's name begins with -> what the
  // tensor's begins with instead; the longest that fits counts, and a variable that none fits
  // begins as its spec says. A tensor may have the ending of TensorFlow 2's object graph,
  // "/.ATTRIBUTES/VARIABLE_VALUE". Blocks.
  // NotFound: no such checkpoint. DataLoss: its index is damaged. Else the file system's.
  static absl::StatusOr<WarmStart> Open(const std::string& path,
                                        std::map<std::string, std::string> names = {{"", ""}});
  // The same in another file system than the machine's. REQUIRES: `files` outlives it and the specs
  // that it makes.
  static absl::StatusOr<WarmStart> Open(const std::string& path,
                                        std::map<std::string, std::string> names,
                                        FileSystem& files);

  // `spec`, with its value there as initializer if one of the names fits. Reads all bytes of the
  // tensor, to see that they are whole; blocks. NotFound: it has no such tensor; the message has
  // the nearest. InvalidArgument: it is of another dtype or shape, or none that Divvy has.
  // DataLoss: damaged.
  absl::StatusOr<VariableSpec> Apply(VariableSpec spec) const;

  const std::string& prefix() const;  // of the checkpoint

 private:
  WarmStart(std::shared_ptr<const BundleReader> reader, std::map<std::string, std::string> names);
  const std::pair<const std::string, std::string>* Rule(absl::string_view variable) const;
  absl::StatusOr<const BundleTensor*> FindTensor(const std::string& variable,
                                                 const std::string& name) const;

  std::shared_ptr<const BundleReader> reader_;
  std::map<std::string, std::string> names_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_WARM_START_H_
