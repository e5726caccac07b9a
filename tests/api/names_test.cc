// A program that defines the names which Divvy uses internally. divvy.h exports none of them, so
// `using namespace divvy` makes none ambiguous.
#include <gtest/gtest.h>

#include <string>

#include "divvy.h"

// Names of the protocol's messages and of the types inside them.
#define OWN_NAMES(V)                                                                               \
  V(AdminRequest)                                                                                  \
  V(CancelSteps)                                                                                   \
  V(CheckpointId)                                                                                  \
  V(ClusterConfig)                                                                                 \
  V(ClusterView) V(CommitPart) V(CommitPlanner) V(CommitReply) V(CommitRequest) V(CondVar)         \
      V(CreateShardsRequest) V(Dispatch) V(Draining) V(DropResource) V(ElementDigest)              \
          V(EndedInput) V(EntryId) V(EntryKind) V(Epoch) V(ErrorDetail) V(Fence) V(FromWorker)     \
              V(Held) V(Hold) V(Horizon) V(Incarnation) V(InputLease) V(JobId) V(Layout)           \
                  V(LayoutReply) V(LayoutUpdate) V(LoadReply) V(LoadRequest) V(MakeResource)       \
                      V(Message) V(Mutex) V(MutexLock) V(NeedSlots) V(PassProgress) V(Ping)        \
                          V(Pong) V(ProgramDescription) V(ProtocolRange) V(PsAddress) V(PsState)   \
                              V(PullPart) V(PullPlan) V(PullReply) V(PullRequest) V(Reason)        \
                                  V(RegisterReply) V(RegisterRequest) V(Release)                   \
                                      V(RememberedEntry) V(Report) V(ResourceId) V(ResourceReady)  \
                                          V(SavedSlice) V(SerialExecutor) V(SessionId) V(ShardKey) \
                                              V(ShardSpec) V(ShutdownReply) V(ShutdownRequest)     \
                                                  V(SnapshotReply) V(SnapshotRequest)              \
                                                      V(StagedWrite) V(StepOutcome) V(StrongId)    \
                                                          V(SyncReply) V(SyncRequest) V(Task)      \
                                                              V(ThreadPoolExecutor) V(ToWorker)    \
                                                                  V(VariableId) V(VariableLayout)  \
                                                                      V(VariableRead) V(View)

#define DECLARE(name)                      \
  struct name {                            \
    const char* who = "the user's " #name; \
  };
OWN_NAMES(DECLARE)

using namespace divvy;

namespace {

TEST(NamesTest, AProgramMayHaveItsOwnWhereDivvyUsesTheSameInside) {
#define USE(name) EXPECT_EQ(name().who, std::string("the user's " #name));
  OWN_NAMES(USE)
  EXPECT_TRUE(IsEndOfData(EndOfData("what a step returns is there all the same")));
}

}  // namespace
