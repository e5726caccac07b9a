// DeviceCeilings in a build without CUDA.
#include "bench/gpu/device_ceilings.h"

namespace divvy::bench {

std::unique_ptr<DeviceCeilings> DeviceCeilings::Open(std::string& why) {
  why = "this is a build without CUDA (--config=cuda)";
  return nullptr;
}

}  // namespace divvy::bench
