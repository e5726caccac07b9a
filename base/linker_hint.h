// What to say of something that registers itself before main (Step, DataSource, Model) and is not
// there.
#ifndef DIVVY_BASE_LINKER_HINT_H_
#define DIVVY_BASE_LINKER_HINT_H_

namespace divvy {

// A linker takes of a static library the objects that somebody names, and nobody names one that
// only registers itself.
constexpr char kLinkerHint[] =
    "if it is defined in a static library, the linker has left it out: give the library alwayslink "
    "= True (Bazel), or link it between -Wl,--whole-archive and -Wl,--no-whole-archive";

}  // namespace divvy

#endif  // DIVVY_BASE_LINKER_HINT_H_
