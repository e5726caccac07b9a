#include "coordinator/service/task_poll.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

class TaskPollTest : public testing::Test {
 protected:
  TaskPollTest() {
    const auto dial = [this](const TaskPoll::Task& task) -> TaskPoll::Ask {
      ++dialled_;
      return [this, address = task.address](ResultCallback<v1::TaskStatus> done) {
        asked_[address].push_back(std::move(done));
      };
    };
    poll_ = std::make_shared<TaskPoll>([this] { return tasks_; }, dial, executor_);
  }
  static v1::TaskStatus Ps(const std::string& state) {
    v1::TaskStatus status;
    status.set_state(state);
    status.mutable_ps()->set_memory_bytes(5);
    return status;
  }
  // Answers the last call to the address.
  void Answer(const std::string& address, const absl::StatusOr<v1::TaskStatus>& answer) {
    ASSERT_FALSE(asked_[address].empty());
    asked_[address].back()(answer);
  }

  std::vector<TaskPoll::Task> tasks_ = {{Role::kPs, 0, "a"}, {Role::kWorker, 2, "b"}};
  int dialled_ = 0;
  std::map<std::string, std::vector<ResultCallback<v1::TaskStatus>>> asked_;
  SimExecutor executor_{1};
  std::shared_ptr<TaskPoll> poll_;
};

TEST_F(TaskPollTest, KeepsTheLastStatusOfEachTask) {
  poll_->AskAll();
  Answer("a", Ps("ready"));
  auto last = poll_->Last();
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].state(), "ready");
  EXPECT_EQ(last[0].job(), v1::PS);
  EXPECT_EQ(last[1].state(), "unknown");
  EXPECT_EQ(last[1].index(), 2);
  poll_->AskAll();
  EXPECT_EQ(dialled_, 2) << "each is dialled once";
  Answer("a", Ps("frozen"));
  EXPECT_EQ(poll_->Last()[0].state(), "frozen");
}

TEST_F(TaskPollTest, AsksAgainAsLongAsItExists) {
  poll_->Start();
  executor_.RunFor(absl::Seconds(11));
  EXPECT_EQ(asked_["a"].size(), 3u);
  poll_.reset();
  executor_.RunFor(absl::Seconds(60));
  EXPECT_EQ(asked_["a"].size(), 3u);
  Answer("a", Ps("late"));
}

TEST_F(TaskPollTest, ManyTasksAreAskedLessOften) {
  tasks_.clear();
  for (int i = 0; i < 800; ++i) tasks_.push_back({Role::kWorker, i, absl::StrCat("w", i)});
  poll_->Start();
  executor_.RunFor(absl::Seconds(19));
  EXPECT_EQ(asked_["w7"].size(), 1u);
  executor_.RunFor(absl::Seconds(2));
  EXPECT_EQ(asked_["w7"].size(), 2u);
}

TEST_F(TaskPollTest, ATaskThatDoesNotAnswerSaysWhy) {
  tasks_.push_back({Role::kWorker, 3, ""});
  poll_->AskAll();
  Answer("a", absl::UnavailableError("connection refused"));
  const auto last = poll_->Last();
  EXPECT_EQ(last[0].state(), "no answer");
  EXPECT_EQ(last[0].waits(0).text(), "an answer: connection refused");
  EXPECT_EQ(last[2].state(), "away");
}

// A reply comes from a task that may be broken or hostile.
TEST_F(TaskPollTest, AReplyIsThatOfTheTaskThatWasAskedWhateverItSays) {
  v1::TaskStatus lie = Ps("ready");
  lie.set_job(v1::CHIEF);
  lie.set_index(77);
  lie.add_findings()->set_text("all is lost");
  lie.mutable_ps()->add_tables();
  for (int i = 0; i < 1000; ++i) lie.add_waits();
  poll_->AskAll();
  Answer("a", lie);
  Answer("b", lie);
  const auto last = poll_->Last();
  EXPECT_EQ(last[0].job(), v1::PS);
  EXPECT_EQ(last[0].index(), 0);
  EXPECT_EQ(last[0].findings_size(), 0);
  EXPECT_EQ(last[0].ps().tables_size(), 0);
  EXPECT_LE(last[0].waits_size(), 4);
  EXPECT_EQ(last[1].state(), "no answer") << "a worker that says that it is a ps";
}

TEST_F(TaskPollTest, AnOlderAnswerDoesNotReplaceANewerOne) {
  poll_->AskAll();
  poll_->AskAll();
  ASSERT_EQ(asked_["a"].size(), 2u);
  asked_["a"][1](Ps("newer"));
  asked_["a"][0](Ps("older"));
  EXPECT_EQ(poll_->Last()[0].state(), "newer");
  asked_["a"][0](absl::DeadlineExceededError("late"));
  EXPECT_EQ(poll_->Last()[0].state(), "newer");
}

TEST_F(TaskPollTest, AReplyThatIsTooLargeIsRefused) {
  poll_->AskAll();
  Answer("a", Ps(std::string(60 << 10, 'x')));
  EXPECT_EQ(poll_->Last()[0].state().size(), size_t{60} << 10);
  Answer("a", Ps(std::string(64 << 10, 'x')));
  EXPECT_EQ(poll_->Last()[0].state(), "no answer");
  EXPECT_THAT(poll_->Last()[0].waits(0).text(),
              testing::HasSubstr("an answer of at most 65536 bytes"));
}

TEST_F(TaskPollTest, ATaskIsDialledWithoutTheLock) {
  const auto dial = [this](const TaskPoll::Task&) -> TaskPoll::Ask {
    EXPECT_EQ(poll_->Last().size(), 1u) << "this call would never return";
    return [](ResultCallback<v1::TaskStatus>) {};
  };
  tasks_.pop_back();
  poll_ = std::make_shared<TaskPoll>([this] { return tasks_; }, dial, executor_);
  poll_->AskAll();
  EXPECT_EQ(poll_->Last()[0].state(), "unknown");
}

TEST_F(TaskPollTest, AnAnswerOfAFormerAddressIsDropped) {
  poll_->AskAll();
  tasks_[0].address = "c";
  poll_->AskAll();
  Answer("a", Ps("old"));
  EXPECT_EQ(poll_->Last()[0].state(), "unknown");
  Answer("c", Ps("new"));
  EXPECT_EQ(poll_->Last()[0].state(), "new");
  tasks_.erase(tasks_.begin());
  poll_->AskAll();
  EXPECT_EQ(poll_->Last().size(), 1u);
}

}  // namespace
}  // namespace divvy
