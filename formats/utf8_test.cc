#include "formats/utf8.h"

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(Utf8Test, TextOfEveryLengthOfCharactersIsUtf8) {
  for (const absl::string_view text :
       {"", "plain", "\x7f", "\xc2\x80", "caf\xc3\xa9", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
        "\xf0\x9f\x98\x80!"})
    EXPECT_TRUE(IsUtf8(text)) << text;
  EXPECT_TRUE(IsUtf8(absl::string_view("a\0b", 3)));
}

TEST(Utf8Test, OtherBytesAreNot) {
  for (const absl::string_view text : {
           "\x80", "\xff", "caf\xe9", "\xc3",  // a byte alone, Latin-1, cut off
           "\xc3(", "\xe2\x82", "\xe2(\xa1", "\xf0\x9f\x98", "\xf8\x88\x80\x80\x80", "\xc0\x80",
           "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",  // longer than needed
           "\xed\xa0\x80", "\xed\xbf\xbf",                  // surrogates
           "\xf4\x90\x80\x80", "\xf7\xbf\xbf\xbf",          // above U+10FFFF
       })
    EXPECT_FALSE(IsUtf8(text)) << text;
}

}  // namespace
}  // namespace divvy
