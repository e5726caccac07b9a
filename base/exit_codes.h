// The exit codes of Divvy's processes.
#ifndef DIVVY_BASE_EXIT_CODES_H_
#define DIVVY_BASE_EXIT_CODES_H_

namespace divvy::exit_codes {

// Codes below 128 are final: another start ends in the same way. For codes from 128 on another
// start may help (sysexits.h; Kubeflow's ExitCode policy). docs/operating/operations.md has the
// table for operators.
//
// The program's own error, or an error without a code of its own.
constexpr int kPermanent = 1;
// EX_USAGE: the command line is wrong.
constexpr int kUsage = 64;
// EX_DATAERR: the data, a checkpoint or the state directory is damaged.
constexpr int kCorruptData = 65;
// EX_NOINPUT: a file does not exist.
constexpr int kNoInput = 66;
// EX_SOFTWARE: a bug in Divvy, or servers that were lost again and again.
constexpr int kInternal = 70;
// EX_IOERR: a disk failed, or a limit of memory was reached.
constexpr int kResources = 74;
// EX_NOPERM: the certificate or a file's permissions do not allow it.
constexpr int kNotAuthorized = 77;
// EX_CONFIG: TF_CONFIG, flags, certificates or versions do not fit each other.
constexpr int kConfiguration = 78;
// Add the signal's number.
constexpr int kOfSignal = 128;
// The first of Divvy's own codes for which another start may help: other tasks or the GPU are gone.
constexpr int kTryAgain = 138;
// A drain after SIGTERM.
constexpr int kDrained = kOfSignal + 15;

}  // namespace divvy::exit_codes

#endif  // DIVVY_BASE_EXIT_CODES_H_
