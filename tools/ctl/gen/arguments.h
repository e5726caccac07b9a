// The arguments of a program, and which task of its job reads which of them.
#ifndef DIVVY_TOOLS_CTL_GEN_ARGUMENTS_H_
#define DIVVY_TOOLS_CTL_GEN_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/role.h"
#include "task/own_flags.h"

namespace divvy::gen {

// The arguments of a command line. Everything is pure.
class Arguments {
 public:
  // `words`: the arguments behind the program.
  explicit Arguments(const std::vector<std::string>& words);

  // The words for a task. The program's own flags are for the chief, which sends them to the
  // workers, and for the evaluator, to which no task sends them.
  std::vector<std::string> WordsFor(Role role) const;
  // The value of Divvy's flag `name`, the last one if it is given several times. nullopt: it is not
  // given.
  std::optional<std::string> ValueOf(absl::string_view name) const;
  // Divvy's flags among the arguments, each once.
  std::vector<absl::string_view> OwnNames() const;
  // Whether an argument is the flag `name`, whoever defines it.
  bool HasFlag(absl::string_view name) const;

 private:
  struct Argument {
    std::vector<std::string> words;
    const OwnFlag* own = nullptr;  // null: a flag or word of the program
    std::string value;             // for a flag with a value
  };
  std::vector<Argument> arguments_;
};

// More memory than any machine has. Sums over all tasks of a job do not overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 50;
// "8Gi", "512Mi", "64Ki", "1Ti", or a number of bytes, at most kMaxBytes. InvalidArgument names
// `flag` and what to write. Pure.
absl::StatusOr<int64_t> ParseSize(absl::string_view flag, absl::string_view text);
// The shortest text that ParseSize gives back: "8Gi".
std::string SizeText(int64_t bytes);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_ARGUMENTS_H_
