// Reports of ThreadSanitizer to ignore. Linked into every binary of --config=tsan (.bazelrc), so no
// path to a file is needed.
//
// Each line is a report that is false because Debian's libraries are not instrumented: the
// sanitizer sees only a part of what they do. Nothing of Divvy's own code may be listed here.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return
      // Copies of an absl::Status share one counted block, and copies of a payload share one
      // counted Cord. A count grows inline, in our code, but falls in these libraries, so the
      // sanitizer does not see that the last owner frees a block after the others have released it.
      // Its reports name no function of the libraries, so the lines name the libraries, and the
      // header: an inlined function has no namespace in what clang reports.
      "race:libabsl_status\n"
      "race:libabsl_cord\n"
      "race:^absl::*Status::Unref\n"
      "race:absl/status/status.h\n";
}
