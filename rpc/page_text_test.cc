#include "rpc/page_text.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(PageTextTest, MarkupIsEscaped) {
  EXPECT_EQ(HtmlEscaped("<a href=\"x\" title='y'>&amp;"),
            "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;amp;");
}

TEST(PageTextTest, ATimeHasThreeDigitsAndNoExponent) {
  const auto text = [](double ns) { return TimeText(absl::Nanoseconds(ns)); };
  EXPECT_EQ(text(0), "0 ns");
  EXPECT_EQ(text(-5), "0 ns");
  EXPECT_EQ(text(50), "50 ns");
  EXPECT_EQ(text(999), "999 ns");
  EXPECT_EQ(text(1'000), "1.00 us");
  EXPECT_EQ(text(12'345), "12.3 us");
  EXPECT_EQ(text(999'400), "999 us");
  EXPECT_EQ(text(999'600), "1.00 ms");
  EXPECT_EQ(text(9'994'000), "9.99 ms");
  EXPECT_EQ(text(9'996'000), "10.0 ms");
  EXPECT_EQ(text(99'960'000), "100 ms");
  EXPECT_EQ(text(999.4e6), "999 ms");
  EXPECT_EQ(text(999.6e6), "1.00 s");
  EXPECT_EQ(text(59.94e9), "59.9 s");
  EXPECT_EQ(text(59.96e9), "1 min 0 s");
  EXPECT_EQ(text(1800e9), "30 min 0 s");
  EXPECT_EQ(TimeText(absl::Hours(50)), "2 d 2 h");
}

TEST(PageTextTest, ATimeBeforeNowIsToldInSecondsAndMore) {
  EXPECT_EQ(AgoText(absl::Milliseconds(999)), "just now");
  EXPECT_EQ(AgoText(absl::Seconds(-3)), "just now") << "another clock";
  EXPECT_EQ(AgoText(absl::Seconds(65)), "1 min 5 s ago");
}

TEST(PageTextTest, ATaskIsNamedByItsRoleAndIndex) {
  EXPECT_EQ(NameOfTask(v1::CHIEF, 0), "chief");
  EXPECT_EQ(NameOfTask(v1::PS, 3), "ps 3");
  EXPECT_EQ(NameOfTask(v1::WORKER, 0), "worker 0");
  EXPECT_EQ(NameOfTask(v1::JOB_NONE, 0), "?");
  EXPECT_EQ(NameOfTask(static_cast<v1::Job>(77), 0), "?");
}

TEST(PageTextTest, JsonHasAllFieldsWithTheNamesOfTheProtocol) {
  v1::ServedCall call;
  call.set_took_ns(7);
  const std::string json = JsonText(call);
  EXPECT_NE(json.find("\"took_ns\":\"7\""), json.npos) << json;
  EXPECT_NE(json.find("\"commit\":false"), json.npos) << json;
  EXPECT_EQ(json.find('\n'), json.npos);
  EXPECT_NE(JsonText(call, JsonLines::kMany).find('\n'), std::string::npos);
}

}  // namespace
}  // namespace divvy
