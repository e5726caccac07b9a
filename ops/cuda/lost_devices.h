// The CUDA errors from which a device does not recover within a process. Needs no headers of CUDA,
// so it can be tested without a toolkit.
#ifndef DIVVY_OPS_CUDA_LOST_DEVICES_H_
#define DIVVY_OPS_CUDA_LOST_DEVICES_H_

namespace divvy::cuda {

// Whether this error alone shows that the context is corrupt or that the device is gone. `error` is
// a cudaError_t as a number (driver_types.h of CUDA 13.0; the numbers do not change between
// versions). After any other error only the next call can tell, since it also fails if the context
// is corrupt.
inline bool LosesDevice(int error) {
  switch (error) {
    case 46:   // cudaErrorDevicesUnavailable
    case 100:  // cudaErrorNoDevice
    case 214:  // cudaErrorECCUncorrectable
    case 220:  // cudaErrorNvlinkUncorrectable
    case 999:  // cudaErrorUnknown
      return true;
    // cudaErrorLaunchOutOfResources: that launch was refused, and nothing else
    case 701:
    case 704:  // cudaErrorPeerAccessAlreadyEnabled
    case 705:  // cudaErrorPeerAccessNotEnabled
    case 708:  // cudaErrorSetOnActiveProcess
    case 711:  // cudaErrorTooManyPeers
    case 712:  // cudaErrorHostMemoryAlreadyRegistered
    case 713:  // cudaErrorHostMemoryNotRegistered
      return false;
    // illegal addresses and instructions, asserts, timeouts, failed launches
    default: return error >= 700 && error <= 719;
  }
}

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_LOST_DEVICES_H_
