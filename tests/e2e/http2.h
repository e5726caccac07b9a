// Hand-made HTTP/2 (RFC 9113), for tests that send what no gRPC client sends.
#ifndef DIVVY_TESTS_E2E_HTTP2_H_
#define DIVVY_TESTS_E2E_HTTP2_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace divvy::http2 {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9
};
enum Flag : uint8_t { kNone = 0, kEndStream = 1, kEndHeaders = 4 };

inline std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text.push_back(static_cast<char>(value >> shift));
  return text;
}

// A frame whose header announces `length` bytes.
inline std::string Frame(uint32_t length, uint8_t type, uint8_t flags, uint32_t stream,
                         const std::string& payload) {
  return BigEndian(length, 3) + static_cast<char>(type) + static_cast<char>(flags) +
         BigEndian(stream, 4) + payload;
}
inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  return Frame(static_cast<uint32_t>(payload.size()), type, flags, stream, payload);
}

// A setting. Id 4 is the window of a stream, 1 the size of the header table.
inline std::string Setting(uint16_t id, uint32_t value) {
  return Frame(kSettings, kNone, 0, BigEndian(id, 2) + BigEndian(value, 4));
}

// An integer of HPACK (RFC 7541, 5.1), after the high bits of `first`.
inline std::string HpackNumber(uint8_t first, int bits, uint64_t value) {
  const uint64_t most = (uint64_t{1} << bits) - 1;
  if (value < most) return std::string(1, static_cast<char>(first | value));
  std::string bytes(1, static_cast<char>(first | most));
  for (value -= most; value >= 128; value >>= 7)
    bytes.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  return bytes + static_cast<char>(value);
}
inline std::string HpackText(const std::string& text) {
  return HpackNumber(0, 7, text.size()) + text;
}
// Header: a header that the receiver does not store. KeptHeader: one that it stores in its dynamic
// table.
inline std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, 0) + HpackText(name) + HpackText(value);
}
inline std::string KeptHeader(const std::string& name, const std::string& value) {
  return std::string(1, 0x40) + HpackText(name) + HpackText(value);
}

// The headers of a gRPC call.
inline std::string CallHeaders(const std::string& method) {
  return Header(":method", "POST") + Header(":scheme", "https") + Header(":path", method) +
         Header(":authority", "localhost") + Header("te", "trailers") +
         Header("content-type", "application/grpc");
}
// The prefix of a gRPC message that announces `size` bytes.
inline std::string MessageFront(uint32_t size, bool compressed = false) {
  return std::string(1, compressed ? 1 : 0) + BigEndian(size, 4);
}

}  // namespace divvy::http2

#endif  // DIVVY_TESTS_E2E_HTTP2_H_
