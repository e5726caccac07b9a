#include "wire/testing/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  divvy::wire::testing::FuzzOneOf(divvy::wire::testing::ReplyKinds(), data, size);
  return 0;
}
