// docs/concepts/policies.md against the program: every preset and choice is on the page, and its example of a new
// policy is the file and the line that are compiled.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/loop/harness.h"
#include "support/source_path.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;

std::string Read(const char* path) {
  std::ifstream in(test::SourcePath(path));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(PoliciesPage, NamesEveryPresetAndEveryChoice) {
  const std::string page = Read("docs/concepts/policies.md");
  ASSERT_FALSE(page.empty());
  for (const auto& preset : Presets()) {
    EXPECT_NE(page.find("`" + std::string(preset.name) + "`"), std::string::npos) << preset.name;
  }
  for (const Choice choice : kAllChoices) {
    for (const auto& value : Values(choice)) {
      EXPECT_NE(page.find("`" + std::string(value.name) + "`"), std::string::npos) << value.name;
    }
  }
}

TEST(PoliciesPage, NamesEveryKnob) {
  const std::string pages = Read("docs/concepts/policies.md") + Read("docs/concepts/policies_accelgen.md") +
                            Read("docs/concepts/policies_fastserve.md");
  for (const KnobDeclaration* knob : DeclaredKnobs()) {
    EXPECT_NE(pages.find("`--" + std::string(knob->name)), std::string::npos) << knob->name;
  }
}

TEST(PoliciesPage, ShowsTheExampleAsCompiled) {
  const std::string page = Read("docs/concepts/policies.md"), file = Read("src/core/sched/order/shortest_prompt.cc");
  ASSERT_FALSE(file.empty());
  EXPECT_NE(page.find("```cpp\n" + file + "```"), std::string::npos);
  const std::string line =
      "TACTUS_CHOICE(Order, \"shortest-prompt\", MakeShortestPromptOrder, \"the shortest prompt first\")\n";
  EXPECT_NE(Read("src/core/sched/choices.def").find(line), std::string::npos);
  EXPECT_NE(page.find("```cpp\n" + line + "```"), std::string::npos);
}

// The page's example of a policy with a knob and a note is in the file and the row of added_policy_test.
TEST(PoliciesPage, ShowsTheKnobAndNoteExampleAsCompiled) {
  const std::string page = Read("docs/concepts/policies.md");
  const std::string code =
      Read("tests/core/sched/added_policy/patient.cc") + Read("tests/core/sched/added_policy/core/sched/choices.def");
  const size_t begin = page.find("### With a knob and a memory");
  ASSERT_NE(begin, std::string::npos);
  const std::string fence = "```cpp\n";
  int blocks = 0;
  for (size_t at = page.find(fence, begin); at != std::string::npos; at = page.find(fence, at), ++blocks) {
    at += fence.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    EXPECT_NE(code.find(block), std::string::npos) << block;
  }
  EXPECT_EQ(blocks, 3);
  EXPECT_NE(code.find("constinit const KnobList kPatientKnobs{&kPatience};"), std::string::npos);
}

TEST(PoliciesPage, TheExampleRunsShortestPromptsFirst) {
  HarnessConfig c;
  c.scheduler.order = "shortest-prompt";
  c.max_num_seqs = 1;
  c.prefix_caching = false;
  Harness h(c);
  for (const int32_t prompt : {9, 20, 4, 9}) {
    h.MustSubmit(
        testing::MakeRequest(testing::Tokens(static_cast<uint64_t>(prompt) + h.handles().size() * 100, prompt), 1));
  }
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (std::vector<std::string>{"2:0+4*", "0:0+9*", "3:0+9*", "1:0+20*"}));
}

}  // namespace
}  // namespace tactus::core
