// A program as a shared library. The macros make variants that are refused.
#include <cstdio>

#include "absl/flags/flag.h"
#include "divvy.h"

ABSL_FLAG(int, library_rows, 3, "of the program in the library");

namespace {

// Runs when the library is loaded. A library that is refused for its symbols must not get that far.
const int kLoaded = std::fputs("code of the library ran\n", stderr);

}  // namespace

#ifdef UNRESOLVED
namespace mine {
int DefinedNowhere(int rows);
}
int CallsIt() { return mine::DefinedNowhere(kLoaded); }
#endif

#ifndef NO_PROGRAM
absl::Status Train(divvy::Coordinator&) {
  return absl::UnimplementedError(absl::StrCat("rows ", absl::GetFlag(FLAGS_library_rows)));
}
// The headers of that version define DIVVY_PROGRAM in this way.
#ifdef OTHER_API
extern "C" const char divvy_program_api_2;
static const divvy::Program program(Train, divvy::runner::ParameterServerStrategy(),
                                    divvy_program_api_2);
#else
DIVVY_PROGRAM(Train);
#endif
#endif

#ifdef TWO_PROGRAMS
static const divvy::Program second(Train);
#endif
