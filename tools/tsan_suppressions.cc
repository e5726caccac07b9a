// What ThreadSanitizer must not believe: linked into every binary of --config=tsan (.bazelrc), so that it needs no path to a file.
//
// Each line is a report that is false because Debian's libraries are not instrumented: the sanitizer sees a part of what they do and misses the rest. Nothing
// of our own is ever entered here.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return
      // Copies of an absl::Status share one counted block. Its count goes up inline, in our code, but down in libabsl_status.so (UnrefNonInlined): the
      // sanitizer cannot see that the last owner frees the block after the others let go of it.
      "race:^absl::*Status::Unref\n";
}
