// Variables whose rows are named by any number.
#ifndef DIVVY_VARIABLES_DYNAMIC_TABLE_H_
#define DIVVY_VARIABLES_DYNAMIC_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "variables/table_keys.h"
#include "variables/variable_spec.h"

namespace divvy {

// The rows of a table, and which keys have one.
struct DynamicTableOptions {
  // Elements of a row; at least 1.
  int64_t width = 1;
  // Applies the gradients. Its slots lie in the rows. Without one the table takes no gradients.
  std::optional<Optimizer> optimizer = {};
  // Constant, RandomUniform, RandomNormal or TruncatedNormal. The first value of a row depends on
  // the job's seed, the table's name and the key alone.
  Initializer initializer = RandomUniform{};
  // Which keys get a row, and which lose it (table_options.h).
  Admission admission = {};
  Eviction eviction = {};
  // What a key without a row reads.
  TableOptions::Absent absent = TableOptions::Absent::kInitialValue;
  // The most rows; 0: no limit.
  int64_t max_rows = 0;
  // What follows when a key gets no row for want of room.
  TableOptions::Full full = TableOptions::Full::kRefuse;
  // How the values are stored: float32, or float16 or bfloat16, which take half of the memory and
  // of a checkpoint. The optimizer's slots stay float32. Programs read and write float32. What a
  // step computes is rounded up or down at random, so that it is right on average; every attempt
  // and replay of the step, and any number of parameter servers, gives the same bits. Initial and
  // assigned values are rounded to nearest. float16 holds at most 65504, and infinity beyond it.
  DType dtype = DType::kFloat32;
};

// A variable whose rows are named by keys, which may be any int64, also negative ones. A
// row is made when a finished step writes to its key, and only then: a read makes none. Every rule
// for variables holds: a step counts once, and what a lost parameter server held comes back.
//
// Variable::Find tells which keys have a row, and Variable::Stats how many there are. Where the
// program is started again, its options take effect: another rule, limit or policy is logged, and
// another width or optimizer is refused.
//
// It is created and looked up as a variable is. It has no shape that a program sees, so it is not
// read or assigned as a whole. Text makes a key by HashText; two of 10^8 words get the same key
// with a probability of 3e-4.
//
//   const DynamicTable kUsers("user", {.width = 16, .optimizer = RowwiseAdagrad{0.05},
//                                      .admission = AdmitAfter{5},
//                                      .eviction = EvictUnusedFor{absl::Hours(24 * 30)}});
//   CreateVariable(kUsers);                             // once, on the coordinator
//   Var rows = tape.Lookup(kUsers, batch["user_id"]);   // in a step: [..., 16]
struct DynamicTable : VariableSpec {
  DynamicTable(std::string name, DynamicTableOptions options) {
    this->name = std::move(name);
    shape = {kTableBuckets, options.width};
    initializer = std::move(options.initializer);
    optimizer = std::move(options.optimizer);
    dtype = options.dtype;
    table = TableOptions{options.admission, options.eviction, options.absent, options.max_rows,
                         options.full};
  }
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_DYNAMIC_TABLE_H_
