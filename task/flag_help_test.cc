#include "task/flag_help.h"

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, test_rows, 3, "so many");
ABSL_FLAG(bool, test_switch, false,
          "a text that does not fit into one line of a hundred columns, since it goes on and on "
          "until nobody wants to read it any more");

namespace divvy {
namespace {

using testing::ElementsAre;

TEST(FlagHelpTest, EachFlagHasItsDefaultAndItsMeaningInLinesThatFit) {
  EXPECT_EQ(FlagHelp("of the test:", {"test_rows", "test_switch", "not_there"}),
            "of the test:\n"
            "  --test_rows=3\n"
            "      so many\n"
            "  --test_switch=false\n"
            "      a text that does not fit into one line of a hundred columns, since it goes on "
            "and on until\n"
            "      nobody wants to read it any more\n");
  EXPECT_EQ(FlagHelp("of nobody:", {"not_there"}), "");
}

TEST(FlagHelpTest, IsAskedForAheadOfTheProgramsWords) {
  const char* const asked[] = {"divvyctl", "launch", "--ps=2", "--help"};
  const char* const short_asked[] = {"divvyctl", "-h"};
  const char* const of_another[] = {"divvyctl", "launch", "--", "./program", "--help"};
  EXPECT_TRUE(HelpIsAsked(4, asked));
  EXPECT_TRUE(HelpIsAsked(2, short_asked));
  EXPECT_FALSE(HelpIsAsked(5, of_another));
}

TEST(FlagsGivenTest, AreNamedAsTheyAreDefined) {
  const char* const words[] = {
      "divvyctl", "launch", "--test_rows=2", "-test_switch", "--notest_switch", "--unknown",
      "5",        "--",     "--test_rows"};
  EXPECT_THAT(FlagsGiven(9, words),
              ElementsAre("test_rows", "test_switch", "test_switch", "unknown"));
  char program[] = "test";
  char* only_the_program[] = {program};
  // This links the library that defines the flag.
  absl::ParseCommandLine(1, only_the_program);
  EXPECT_TRUE(IsAbseilFlag("flagfile"));
  EXPECT_FALSE(IsAbseilFlag("test_rows"));
}

}  // namespace
}  // namespace divvy
