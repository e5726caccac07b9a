// The answer of a parameter server to Admin.GetTableRows.
#ifndef DIVVY_PS_SERVER_SERVICE_TABLE_ROWS_H_
#define DIVVY_PS_SERVER_SERVICE_TABLE_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "ps_server/core/parameter_server_core.h"

namespace divvy {

// The most rows and keys of one request, and the most bytes of the rows of one reply, which is less
// than a client of gRPC receives.
inline constexpr int64_t kMostTableRows = 10'000, kMostTableRowBytes = 24 << 20;

// Finds the rows. Takes seconds for the largest rows of a large table, so do not call it on a
// thread that others wait for; steps go on meanwhile. NotFound: the server has no part of such a
// table. INVALID: more keys or rows than the limits allow, a negative number, or an order that this
// version does not know. Rows of keys come in the order of the keys within each part.
absl::StatusOr<v1::GetTableRowsReply> FindTableRows(const ParameterServerCore& core,
                                                    const v1::GetTableRowsRequest& request);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_TABLE_ROWS_H_
