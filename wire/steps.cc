#include "wire/steps.h"

#include "wire/fields.h"

namespace divvy::wire {

v1::ToWorkerFrame ToProto(const StreamFrame<ToWorker>& frame) {
  return Encoded<v1::ToWorkerFrame>(frame);
}
absl::StatusOr<StreamFrame<ToWorker>> FromProto(const v1::ToWorkerFrame& frame) {
  return Decoded<StreamFrame<ToWorker>>(frame);
}

v1::FromWorkerFrame ToProto(const StreamFrame<FromWorker>& frame) {
  return Encoded<v1::FromWorkerFrame>(frame);
}
absl::StatusOr<StreamFrame<FromWorker>> FromProto(const v1::FromWorkerFrame& frame) {
  return Decoded<StreamFrame<FromWorker>>(frame);
}

}  // namespace divvy::wire
