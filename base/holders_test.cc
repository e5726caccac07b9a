// Tests of the classes that hold a value for others: Completion, OnceSet, NamedRegistry.
#include <memory>
#include <string>
#include <vector>

#include "base/completion.h"
#include "base/executor.h"
#include "base/named_registry.h"
#include "base/once_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CompletionTest, TheFirstValueCountsAndStaysUntilItIsTaken) {
  Completion<std::string> completion;
  EXPECT_EQ(completion.Peek(), std::nullopt);
  EXPECT_EQ(completion.Wait(absl::Milliseconds(1)), std::nullopt);
  completion.Set("first");
  completion.Set("second");
  EXPECT_EQ(completion.Wait(), "first");
  EXPECT_EQ(completion.Wait(absl::ZeroDuration()), "first");
  EXPECT_EQ(completion.Take(), "first");
}

TEST(CompletionTest, AWaitEndsWhenAnotherThreadSetsTheValue) {
  for (int i = 0; i < 100; ++i) {
    const auto completion = std::make_shared<Completion<int>>();
    ThreadPoolExecutor threads(1);
    threads.Post([completion, i] { completion->Set(i); });
    EXPECT_EQ(completion->Take(), i);
    threads.Stop();
  }
}

// Reads its holder when it is destroyed, as a core may while its server still answers.
struct LooksBack {
  ~LooksBack() { *saw_nothing = holder->Get() == nullptr; }
  OnceSet<LooksBack>* holder;
  bool* saw_nothing;
};

TEST(OnceSetTest, IsEmptyBeforeItIsSetAndAfterItIsReset) {
  OnceSet<LooksBack> holder;
  EXPECT_EQ(holder.Get(), nullptr);
  bool saw_nothing = false;
  holder.Set(std::shared_ptr<LooksBack>(new LooksBack{&holder, &saw_nothing}));
  EXPECT_NE(holder.Get(), nullptr);
  holder.Reset();
  EXPECT_TRUE(saw_nothing) << "the destructor may call Get";
  EXPECT_EQ(holder.Get(), nullptr);
}

TEST(NamedRegistryTest, FindsTheFirstOfANameForEver) {
  internal::NamedRegistry<int> registry("number");
  registry.Add("one", 1);
  const int* const one = registry.Find("one");
  for (int i = 0; i < 1000; ++i) registry.Add("n" + std::to_string(i), i);
  registry.Add("one", 11);
  EXPECT_EQ(registry.Find("one"), one);
  EXPECT_EQ(*one, 1);
  EXPECT_EQ(**registry.Get("n999"), 999);
  EXPECT_EQ(registry.names().size(), 1001u);
}

TEST(NamedRegistryTest, SaysWhatThereIsAndWhatIsWrongWithNames) {
  internal::NamedRegistry<int> registry("number");
  EXPECT_THAT(std::string(registry.Get("two").status().message()),
              HasSubstr("this program has no number \"two\"; it has no number at all; "));
  registry.Add("one", 1);
  registry.Add("three", 3);
  EXPECT_THAT(std::string(registry.Get("two").status().message()),
              AllOf(HasSubstr("it has \"one\", \"three\"; "), HasSubstr("static library")));
  EXPECT_THAT(registry.problems(), IsEmpty());
  registry.Add("", 0);
  registry.Add("one", 11);
  EXPECT_THAT(registry.problems(),
              ElementsAre("a number has an empty name: give it one",
                          "this program has 2 numbers named \"one\": give each a name of its own"));
}

}  // namespace
}  // namespace divvy
