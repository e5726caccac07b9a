#include "program/one_checkpoint.h"

#include <utility>

#include "base/status_macros.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "ps_server/checkpoint/bundle_files.h"

namespace divvy {
namespace {

absl::Status NoneIsMade() {
  return absl::FailedPreconditionError(
      "an evaluator makes no checkpoints: its variables are those of the job");
}

class Files : public CheckpointFiles {
 public:
  explicit Files(std::unique_ptr<CheckpointFiles> files) : files_(std::move(files)) {}
  absl::StatusOr<std::unique_ptr<CheckpointPart>> Create(CheckpointId, int, int) override {
    return NoneIsMade();
  }
  absl::StatusOr<std::unique_ptr<CheckpointValues>> Open(CheckpointId checkpoint) override {
    return files_->Open(checkpoint);
  }

 private:
  const std::unique_ptr<CheckpointFiles> files_;
};

// Slots are two thirds of a checkpoint with Adam, and scoring does not read them.
std::shared_ptr<const Layout> WithoutSlots(const Layout& layout) {
  std::map<VariableId, VariableLayout> variables;
  for (const auto& [id, whole] : layout.variables()) {
    VariableLayout variable = whole;
    variable.slots.clear();
    variable.slot_optimizers.clear();
    // A table's slots lie in its rows.
    if (!variable.spec.table) variable.spec.optimizer.reset();
    variables.emplace(id, std::move(variable));
  }
  return Layout::Received(layout.version(), std::move(variables));
}

class Catalog : public CheckpointCatalog {
 public:
  Catalog(FileSystem& files, std::string directory, CheckpointId checkpoint)
      : files_(files), directory_(std::move(directory)), checkpoint_(checkpoint) {}
  absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId> below) override {
    if (below && !(checkpoint_ < *below)) return std::optional<JobState>();
    ASSIGN_OR_RETURN(JobState state, ReadJobState(files_, directory_, checkpoint_));
    state.layout = WithoutSlots(*state.layout);
    // Scoring reads all of the data, and trains nothing.
    state.data.clear();
    state.epochs = 0;
    return std::optional<JobState>(std::move(state));
  }
  absl::Status Commit(const JobState&, const std::vector<std::vector<SavedSlice>>&) override {
    return NoneIsMade();
  }
  absl::Status Collect(int, CheckpointId, CheckpointId, std::vector<CheckpointId>&) override {
    return absl::OkStatus();
  }
  absl::Status Export(CheckpointId, const std::string&, const ExportOptions&) override {
    return NoneIsMade();
  }

 private:
  FileSystem& files_;
  const std::string directory_;
  const CheckpointId checkpoint_;
};

}  // namespace

std::unique_ptr<CheckpointFiles> FilesOfOneCheckpoint(FileSystem& files,
                                                      const std::string& directory) {
  return std::make_unique<Files>(MakeBundleFiles(files, directory));
}

std::unique_ptr<CheckpointCatalog> CatalogOfOneCheckpoint(FileSystem& files,
                                                          const std::string& directory,
                                                          CheckpointId checkpoint) {
  return std::make_unique<Catalog>(files, directory, checkpoint);
}

}  // namespace divvy
