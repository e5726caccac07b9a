// What ThreadSanitizer must not believe: linked into every binary of --config=tsan (.bazelrc), so
// that it needs no path to a file.
//
// Each line is a report that is false because Debian's libraries are not instrumented: the
// sanitizer sees a part of what they do and misses the rest. Nothing of our own is ever entered
// here.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return
      // Copies of an absl::Status share one counted block, and copies of a payload one counted
      // Cord. A count goes up inline, in our code, but down in these libraries: the sanitizer
      // cannot see that the last owner frees a block after the others let go of it. It names no
      // function of theirs, so the library is named.
      "race:libabsl_status\n"
      "race:libabsl_cord\n"
      "race:^absl::*Status::Unref\n";
}
