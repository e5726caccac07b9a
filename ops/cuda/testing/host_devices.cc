// Exports the function of libdivvy_cuda.so for emulated devices, so that loading, placement and
// whole clusters can be tested without a GPU. Environment variables describe the machine:
//
//   DIVVY_HOST_DEVICES            the number of devices (2)
//   DIVVY_HOST_DEVICE_BYTES       the memory of each
//   DIVVY_HOST_DEVICES_SICK       the number of a device that cannot be used
//   DIVVY_HOST_DEVICES_FAIL_FROM  the kernel from which on all devices are lost
//   DIVVY_HOST_DEVICES_VERSION    the version of the library, in place of the one asked for
//   DIVVY_HOST_DEVICES_MANNER     when operations run: "at_once" (unset), "late" or "any_time"
//                                 (HostQueues::Manner)
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ops/cuda/testing/host_math.h"

namespace divvy::cuda {
namespace {

long long FromEnvironment(const char* name, long long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

HostQueues::Manner MannerFromEnvironment() {
  const char* const given = std::getenv("DIVVY_HOST_DEVICES_MANNER");
  const std::string manner = given == nullptr ? "at_once" : given;
  if (manner == "late") return HostQueues::Manner::kLate;
  if (manner == "any_time") return HostQueues::Manner::kAnyTime;
  if (manner == "at_once") return HostQueues::Manner::kAtOnce;
  std::fprintf(stderr, "DIVVY_HOST_DEVICES_MANNER is \"%s\", wanted at_once, late or any_time\n",
               given);
  std::abort();
}

HostMath* OpenHostMath() {
  const int devices = static_cast<int>(FromEnvironment("DIVVY_HOST_DEVICES", 2));
  if (devices == 0) return nullptr;
  auto* const math = new HostMath(devices, MannerFromEnvironment());
  math->keep_log = false;
  math->sick = static_cast<int>(FromEnvironment("DIVVY_HOST_DEVICES_SICK", -1));
  const long long fails_from = FromEnvironment("DIVVY_HOST_DEVICES_FAIL_FROM", 0);
  if (fails_from > 0) math->FailFrom(fails_from, "an illegal memory access was encountered");
  math->free_bytes = static_cast<size_t>(FromEnvironment("DIVVY_HOST_DEVICE_BYTES", -1));
  return math;
}

}  // namespace
}  // namespace divvy::cuda

extern "C" __attribute__((visibility("default"))) divvy::cuda::DeviceMath* divvy_open_device_math(
    int version, const char** why) {
  *why = "the library is of another version than the program that loads it";
  if (version != divvy::cuda::FromEnvironment("DIVVY_HOST_DEVICES_VERSION", version))
    return nullptr;
  // Lives as long as the process.
  static divvy::cuda::HostMath* const math = divvy::cuda::OpenHostMath();
  *why = "the host emulates no device";
  return math;
}
