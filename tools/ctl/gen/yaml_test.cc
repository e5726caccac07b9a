#include "tools/ctl/gen/yaml.h"

#include "gtest/gtest.h"

namespace divvy::gen {
namespace {

TEST(YamlTest, KeepsTheOrderOfTheEntriesAndLeavesOutWhatIsNothing) {
  EXPECT_EQ(PrintYaml({"first", "second"},
                      {Yaml::Map({{"kind", "Job"},
                                  {"absent", Yaml()},
                                  {"replicas", 5},
                                  {"ready", true},
                                  {"empty", Yaml::Map({})},
                                  {"items", Yaml::List({Yaml::Map({{"a", 1}, {"b", 2}})})}}),
                       Yaml::Map({{"kind", "Service"}})}),
            "# first\n"
            "# second\n"
            "kind: Job\n"
            "replicas: 5\n"
            "ready: true\n"
            "empty: {}\n"
            "items:\n"
            "  - a: 1\n"
            "    b: 2\n"
            "---\n"
            "kind: Service\n");
}

TEST(YamlTest, ATextThatLooksLikeSomethingElseIsQuoted) {
  const std::vector<std::string> texts = {"8080", "yes", "NULL", "1e3", ".5", "",     "-x",
                                          "a: b", "a #", "a:",   "*a",  "~",  "12:30"};
  const std::string printed = PrintYaml({}, {Yaml::Texts(texts)});
  const YAML::Node list = YAML::Load(printed);
  ASSERT_EQ(list.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(list[i].Scalar(), texts[i]);
    EXPECT_EQ(list[i].Tag(), "!") << texts[i] << " is not in quotes";
  }
}

TEST(YamlTest, PlainWordsFlagsAndPathsNeedNoQuotes) {
  EXPECT_EQ(PrintYaml({}, {Yaml::Texts({"digits:1", "--epochs=3", "/certs/ps-$(TASK_INDEX).pem"})}),
            "- digits:1\n- --epochs=3\n- /certs/ps-$(TASK_INDEX).pem\n");
}

TEST(YamlTest, AnyTextComesBackAsItWas) {
  for (const char* text : {"it's \"x\" $HOME", "a\\b \"c\"", "\xc3\xbc: %i", "{\"a\":[\"b:1\"]}"})
    EXPECT_EQ(YAML::Load(PrintYaml({}, {Yaml::Map({{"key", text}})}))["key"].Scalar(), text);
}

TEST(YamlTest, JsonIsInSingleQuotes) {
  EXPECT_EQ(PrintYaml({}, {Yaml::Map({{"TF_CONFIG", R"({"task":{}})"}})}),
            "TF_CONFIG: '{\"task\":{}}'\n");
}

TEST(YamlTest, NumbersAreInOneLine) {
  EXPECT_EQ(PrintYaml({}, {Yaml::Map({{"codes", Yaml::Numbers({1, 2})}, {"end", 3}})}),
            "codes: [1, 2]\nend: 3\n");
}

}  // namespace
}  // namespace divvy::gen
