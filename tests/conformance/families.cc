#include "tests/conformance/bundle_judge.h"
#include "tests/conformance/cluster_judge.h"
#include "tests/conformance/distribution_judge.h"
#include "tests/conformance/file_judge.h"
#include "tests/conformance/golden.h"
#include "tests/conformance/initializer_judge.h"
#include "tests/conformance/input_judge.h"
#include "tests/conformance/operation_judge.h"
#include "tests/conformance/optimizer_judge.h"
#include "tests/conformance/partitioner_judge.h"

namespace divvy::conformance {

const std::vector<Family>& Families() {
  static const auto& families = *new std::vector<Family>{
      {"partitioners.json", JudgePartitioner},
      {"div_split.json", JudgeDivSplit},
      {"initializers.json", JudgeInitializer},
      {"schedules.json", JudgeSchedule},
      {"optimizers.json", JudgeOptimizer},
      {"losses_grads.json", JudgeOperation},
      {"embedding.json", JudgeLookup},
      {"reduce_gather.json", JudgeReduceGather},
      {"rebatch.json", JudgeRebatch},
      {"scatter.json", JudgeScatter},
      {"sharded_index.json", JudgeShardedIndex},
      {"tf_config.json", JudgeTfConfig},
      {"tfrecord/content.json", JudgeTfRecord},
      {"events/content.json", JudgeEvent},
      {"bundle/content.json", JudgeBundle},
  };
  return families;
}

}  // namespace divvy::conformance
