#include "program/program_library.h"

#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/trusted_file.h"
#include "strategy/program.h"

#ifndef DIVVY_STATIC
#include <cxxabi.h>
#include <dlfcn.h>
#endif

namespace divvy {

std::optional<std::string> ProgramFlag(int argc, const char* const* argv) {
  std::optional<std::string> value;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--") break;
    if (!absl::ConsumePrefix(&word, "-")) continue;
    absl::ConsumePrefix(&word, "-");
    if (word == "program") value = i + 1 < argc ? argv[++i] : "";
    if (absl::ConsumePrefix(&word, "program=")) value = std::string(word);
  }
  return value;
}

#ifdef DIVVY_STATIC

// glibc would load it, together with a second libdivvy.so and a second libc.
absl::Status LoadProgramLibrary(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--program=", path,
      ": this binary is static and cannot load a library; "
      "use a binary built without --config=static, or link the program with //program:main"));
}

#else

namespace {

std::string Refused(const std::string& path, absl::string_view why) {
  return absl::StrCat("--program=", path, ": ", why);
}

std::string Demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

// Translates an error of the system's loader for the user who has to fix it. Its form is "<file>:
// <what is wrong>", about the library or about one that it needs.
absl::Status Translated(const std::string& path, absl::string_view said) {
  constexpr absl::string_view kUndefined = "undefined symbol: ";
  constexpr absl::string_view kApi = "divvy_program_api_";
  const size_t at = said.find(kUndefined);
  if (at != absl::string_view::npos) {
    absl::string_view symbol = said.substr(at + kUndefined.size());
    symbol = symbol.substr(0, symbol.find_first_of(" \n"));
    if (absl::ConsumePrefix(&symbol, kApi)) {
      return absl::FailedPreconditionError(Refused(
          path,
          absl::StrCat(
              "was built for version ", symbol,
              " of Divvy's program interface, and this is another; build it again with this SDK")));
    }
    return absl::InvalidArgumentError(
        Refused(path, absl::StrCat("needs ", Demangled(std::string(symbol)),
                                   ", which is nowhere; link it with -Wl,-z,defs and add the "
                                   "library that the linker misses")));
  }
  if (absl::StrContains(said, "ELF") || absl::StrContains(said, "file too short")) {
    return absl::InvalidArgumentError(
        Refused(path, "is not a shared library for this machine; build it with -shared -fPIC"));
  }
  return absl::InvalidArgumentError(Refused(path, absl::StrCat("cannot be loaded: ", said)));
}

// Checks whether the library's code may run in this process.
absl::Status CheckTrusted(const std::string& file) {
  RETURN_IF_ERROR(CheckMayLoadCode());
  return CheckTrustedCode(file, "the program's library");
}

}  // namespace

absl::Status LoadProgramLibrary(const std::string& path) {
  if (path.empty())
    return absl::InvalidArgumentError("--program: the path of the program's library is missing");
  const std::string file = absl::StrContains(path, '/') ? path : absl::StrCat("./", path);
  if (const absl::Status trusted = CheckTrusted(file); !trusted.ok())
    return absl::Status(trusted.code(), Refused(path, trusted.message()));
  if (FindProgram().ok())
    return absl::FailedPreconditionError(Refused(
        path, "this binary has a program of its own; use the stock worker or leave --program out"));
  // The library is never closed, because its flags, steps and vtables stay in use. RTLD_LOCAL keeps
  // symbols of two libraries with the same name apart.
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return Translated(path, dlerror());
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  if (program.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(Refused(path, program.status().message()));
}

#endif  // DIVVY_STATIC

}  // namespace divvy
