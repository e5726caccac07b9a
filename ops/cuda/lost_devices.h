// Which of CUDA's errors a device does not recover from within a process. Without CUDA's headers,
// so that it is tested where there is no toolkit.
#ifndef DIVVY_OPS_CUDA_LOST_DEVICES_H_
#define DIVVY_OPS_CUDA_LOST_DEVICES_H_

namespace divvy::cuda {

// `error` is a cudaError_t as a number (driver_types.h of CUDA 13.0, whose numbers do not change
// between versions). These mean by themselves that the context is corrupt or that the device is
// gone. Of any other error only the next call can tell: it fails, too, where the context is
// corrupt.
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
