// Makes the file that `divvyctl gen compose` prints.
#ifndef DIVVY_TOOLS_CONFIG_COMPOSE_FILE_H_
#define DIVVY_TOOLS_CONFIG_COMPOSE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace divvy {

struct ComposeOptions {
  int num_ps = 0, num_workers = 0;
  // GPUs of the host for each worker, in order: worker 0 gets the first ones. A worker exits if one
  // of them is missing (--gpus=all).
  int gpus_per_worker = 0;
  // The image. May contain Compose's variables ("digits:${TAG}"). Must contain the program,
  // /divvyctl, and a directory /state that uid 65532 may write to.
  std::string image;
  // Adds a service that scores the checkpoints.
  bool evaluator = false;
  // The storage that the chief and every ps share: the name of a volume or, with a slash, a
  // directory of the host.
  std::string checkpoints = "checkpoints";
  // A directory of the host that chief, workers and evaluator see as /data; empty: none.
  std::string data;
  // A directory of the host with the files of `divvyctl certs`: ca.pem, and TASK.pem and TASK.key
  // for each TASK of chief-0, ps-0, ..., worker-0, ...
  std::string tls_dir = "./certs";
  // The program's path in the image, then its arguments. The coordinator gets all of them, and
  // sends the program's own flags to the workers.
  std::vector<std::string> command;
};

// A file for docker-compose from 1.27 (with GPUs: 1.28) and for Compose v2. It has a service for
// each task, named like its host, with TF_CONFIG, its own certificate, a health check, restarts,
// and no unnecessary rights. The coordinator starts when all others are healthy, and keeps its
// store in the volume `state`. InvalidArgument reports every problem of the options at once, each
// with its flag. Pure.
absl::StatusOr<std::string> ComposeFile(const ComposeOptions& options);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CONFIG_COMPOSE_FILE_H_
