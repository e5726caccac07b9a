// What holds for every conversion of this folder, as one check for any kind of message. For tests
// and fuzzers.
#ifndef DIVVY_WIRE_TESTING_CONVERSION_H_
#define DIVVY_WIRE_TESTING_CONVERSION_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/random.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "wire/layout.h"
#include "wire/messages.h"
#include "wire/optimizer.h"
#include "wire/status.h"
#include "wire/steps.h"
#include "wire/testing/generator.h"
#include "wire/testing/same.h"
#include "wire/values.h"

namespace divvy::wire::testing {

// The encoding of the value T: the message Kind<T>::Wire.
template <typename T>
struct Kind {
  using Wire = decltype(ToProto(std::declval<const T&>()));
  static Wire Encode(const T& value) { return ToProto(value); }
  static absl::StatusOr<T> Decode(const Wire& message) { return FromProto(message); }
};
template <>
struct Kind<Nest> {
  using Wire = v1::Value;
  static Wire Encode(const Nest& value) {
    Wire out;
    ToProto(value, &out);
    return out;
  }
  static absl::StatusOr<Nest> Decode(const Wire& message) { return FromProto(message); }
};
// A status as a value, since any v1::Status decodes to one.
struct AnyStatus {
  absl::Status status;
};
template <>
struct Kind<AnyStatus> {
  using Wire = v1::Status;
  static Wire Encode(const AnyStatus& value) { return ToProto(value.status); }
  static absl::StatusOr<AnyStatus> Decode(const Wire& message) {
    return AnyStatus{FromProto(message)};
  }
};

// Serializes deterministically: without that the bytes of a map differ from run to run.
template <typename Wire>
std::string Bytes(const Wire& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

// The bytes of a random T.
template <typename T>
std::string RandomBytes(uint64_t seed) {
  Generator generator(seed);
  if constexpr (std::is_same_v<T, AnyStatus>) {
    return Bytes(ToProto(generator.Make<absl::Status>()));
  } else {
    return Bytes(Kind<T>::Encode(generator.Make<T>()));
  }
}

// Decodes `bytes` as a T and returns what is wrong; empty: nothing. Correct is a refusal with
// InvalidArgument and Reason::kInvalid, or a value that stays the same when it is encoded and
// decoded again.
template <typename T>
std::string Fault(absl::string_view bytes) {
  typename Kind<T>::Wire message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return "";
  const absl::StatusOr<T> value = Kind<T>::Decode(message);
  if (!value.ok())
    return ReasonOf(value.status()) == Reason::kInvalid
               ? ""
               : "refused with " + value.status().ToString();
  typename Kind<T>::Wire again;
  if (!again.ParseFromString(Bytes(Kind<T>::Encode(*value))))
    return "accepted, but not to be parsed when it travels on";
  const absl::StatusOr<T> second = Kind<T>::Decode(again);
  if (!second.ok())
    return "accepted, but refused when it travels on: " + second.status().ToString();
  return Same::Of(*value, *second) ? "" : "changes when it travels on";
}

// `bytes` with a few of them changed, removed, doubled or cut off.
inline std::string Mutated(std::string bytes, Random& random) {
  for (uint64_t i = 1 + random.Below(3); i > 0 && !bytes.empty(); --i) {
    const size_t at = random.Below(bytes.size());
    switch (random.Below(5)) {
      case 0: bytes[at] = static_cast<char>(random.Next()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8))); break;
      case 2: bytes.erase(at, 1 + random.Below(4)); break;
      case 3: bytes.insert(at, bytes.substr(at, 1 + random.Below(8))); break;
      default: bytes.resize(at); break;
    }
  }
  return bytes;
}

template <typename... Ts>
struct Kinds {};
#define DIVVY_WIRE_AND(Type) Type,
using RequestKinds =
    Kinds<DIVVY_WIRE_REQUESTS(DIVVY_WIRE_AND) Fence, ProtocolRange, ShardSpec, Horizon>;
using ReplyKinds = Kinds<DIVVY_WIRE_REPLIES(DIVVY_WIRE_AND) ErrorDetail, AnyStatus>;
#undef DIVVY_WIRE_AND
using StepsKinds = Kinds<StreamFrame<ToWorker>, StreamFrame<FromWorker>>;
using ValueKinds = Kinds<Nest, Tensor, LearningRate, Optimizer, OptimizerStep, Initializer,
                         VariableLayout, std::shared_ptr<const Layout>>;

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_CONVERSION_H_
