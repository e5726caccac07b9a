#!/bin/bash
# Checks the report of a test by library where a GPU is required: there is none, there is an
# emulated one, or there is one that cannot run its kernels. Some cases of that test fail here on
# purpose, so its own report (XML_OUTPUT_FILE) is kept apart from the report of this test.
set -u
test=ops/cuda/transfers_test_by_library
cases='GpuTest.*'
host=$PWD/ops/cuda/testing/libdivvy_host_devices.so
failed=0

# NAME, WANTED EXIT CODE, WANTED TEXT, ENVIRONMENT...
try() {
  local name=$1 code=$2 text=$3 said got
  shift 3
  said=$(env -u DIVVY_REQUIRE_GPU -u XML_OUTPUT_FILE "$@" "$test" "--gtest_filter=$cases" 2>&1)
  got=$?
  [[ $got -eq $code && $said == *"$text"* ]] || { echo "$name: exit code $got, wanted $code and \"$text\" in: $said"; failed=1; }
}

try "no GPU" 0 "1 test, listed below" DIVVY_CUDA_LIBRARY="$host" DIVVY_HOST_DEVICES=0
try "no GPU where one is required" 1 "DIVVY_REQUIRE_GPU=1, and there is none: " DIVVY_CUDA_LIBRARY="$host" DIVVY_HOST_DEVICES=0 DIVVY_REQUIRE_GPU=1
try "the host's where a GPU is required" 1 'computes on "host device 0"' DIVVY_CUDA_LIBRARY="$host" DIVVY_REQUIRE_GPU=1
try "the host's in a rehearsal" 0 "1 test from 1 test suite ran" DIVVY_CUDA_LIBRARY="$host" DIVVY_REQUIRE_GPU=host
test=ops/cuda/library_test
cases='*'
try "a library whose kernels run" 0 "3 tests from 1 test suite ran" DIVVY_CUDA_LIBRARY="$host" DIVVY_REQUIRE_GPU=host
try "a library whose first kernel fails" 1 "an illegal memory access" DIVVY_CUDA_LIBRARY="$host" DIVVY_REQUIRE_GPU=host DIVVY_HOST_DEVICES_FAIL_FROM=1
exit "$failed"
