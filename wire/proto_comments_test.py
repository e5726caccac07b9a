#!/usr/bin/env python3
"""proto_comments_test.py FILE...: every service, call, message, field, oneof, enum and value of the protocol's specification has a comment right above it."""
import re
import sys

_DECLARATION = re.compile(r"^\s*(service|rpc|message|enum|oneof)\s+\w+|^\s*(optional\s+|repeated\s+)?[\w.]+(<[^>]*>)?\s+\w+\s*=\s*\d+\s*;|^\s*\w+\s*=\s*\d+\s*;")


def uncommented(path):
    """(line, text) of each declaration without a comment."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines):
        above = lines[number - 1].strip() if number else ""
        if _DECLARATION.match(line) and not (above.startswith("//") and len(above.strip("/- ")) > 2):
            yield number + 1, line.strip()


def main(paths):
    # The test tests: a field without a comment is seen.
    assert _DECLARATION.match("  repeated int64 shape = 2;") and _DECLARATION.match("  map<string, bytes> flags = 6;") and _DECLARATION.match("  PS = 2;")
    found, declarations = [], 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            declarations += sum(1 for line in file if _DECLARATION.match(line))
        found += ["%s:%d: has no comment: %s" % (path, number, text) for number, text in uncommented(path)]
    print("\n".join(found) or "%d declarations, each with its comment" % declarations)
    return 1 if found or declarations < 100 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
