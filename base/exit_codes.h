// What a process of Divvy exits with.
#ifndef DIVVY_BASE_EXIT_CODES_H_
#define DIVVY_BASE_EXIT_CODES_H_

namespace divvy::exit_codes {

// Below 128: final, the same start ends the same way. From 128 on: worth another start (sysexits.h;
// Kubeflow's ExitCode policy). docs/operating/operations.md has the table for people.
// The program's own error, or any that has no code of its own.
constexpr int kPermanent = 1;
// EX_USAGE: the command line
constexpr int kUsage = 64;
// EX_DATAERR: bytes of the data, of a checkpoint or of the state directory are damaged
constexpr int kCorruptData = 65;
// EX_NOINPUT: a file is not there
constexpr int kNoInput = 66;
// EX_SOFTWARE: a mistake in Divvy; or servers were lost again and again
constexpr int kInternal = 70;
// EX_IOERR: a disk, or a limit of memory
constexpr int kResources = 74;
// EX_NOPERM: the certificate may not, or a file's permissions
constexpr int kNotAuthorized = 77;
// EX_CONFIG: TF_CONFIG, flags, certificates, versions that do not fit each other
constexpr int kConfiguration = 78;
// And its number.
constexpr int kOfSignal = 128;
// The least of our own that ask to be started again: peers are gone.
constexpr int kTryAgain = 138;
// SIGTERM, obeyed
constexpr int kDrained = kOfSignal + 15;

}  // namespace divvy::exit_codes

#endif  // DIVVY_BASE_EXIT_CODES_H_
