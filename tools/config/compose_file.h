// What `divvyctl gen compose` prints.
#ifndef DIVVY_TOOLS_CONFIG_COMPOSE_FILE_H_
#define DIVVY_TOOLS_CONFIG_COMPOSE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace divvy {

struct ComposeOptions {
  int num_ps = 0, num_workers = 0;
  // Of the host, dealt out in order: worker 0 is handed the first. Workers then end where one is
  // missing (--gpus=all).
  int gpus_per_worker = 0;
  // May hold Compose's variables ("digits:${TAG}"); it has the program, /divvyctl, and a /state
  // that uid 65532 may write to.
  std::string image;
  // A service more, which scores the checkpoints.
  bool evaluator = false;
  // The volume, or with a slash the directory of the host, that the chief and every ps share.
  std::string checkpoints = "checkpoints";
  // A directory of the host, which chief, workers and evaluator see as /data; "": none.
  std::string data;
  std::string tls_dir =
      "./certs";  // on the host, made by `divvyctl certs`: ca.pem, and TASK.pem and TASK.key for
                  // each TASK of chief-0, ps-0, ..., worker-0, ...
  std::vector<std::string>
      command;  // the program's path in the image, then its arguments: the coordinator gets them,
                // and hands the program's flags to the workers
};

// A file for docker-compose from 1.27 (with GPUs: 1.28) and Compose v2: a service for each task,
// named as its host, with TF_CONFIG, its own certificate, a health check, restarts, and no rights
// that it does not need. The coordinator starts when all others are healthy; its store is the
// volume `state`. InvalidArgument: every problem of the options at once, each naming its flag.
// Pure.
absl::StatusOr<std::string> ComposeFile(const ComposeOptions& options);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CONFIG_COMPOSE_FILE_H_
