#!/bin/sh
echo "bazel coverage is not supported with this stand-in" >&2
exit 1
