// A hint for the error that something which registers itself before main (a Step, DataSource or
// Model) is missing.
#ifndef DIVVY_BASE_LINKER_HINT_H_
#define DIVVY_BASE_LINKER_HINT_H_

namespace divvy {

// A linker takes only those objects from a static library that something refers to. Nothing refers
// to an object that only registers itself.
constexpr char kLinkerHint[] =
    "if it is defined in a static library, the linker has left it out: give the library alwayslink "
    "= True (Bazel), or link it between -Wl,--whole-archive and -Wl,--no-whole-archive";

}  // namespace divvy

#endif  // DIVVY_BASE_LINKER_HINT_H_
