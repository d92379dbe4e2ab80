// The tokens that end an answer, for model files that name them rightly or wrongly.
#include "engine/start/turn_ends.h"

#include <gtest/gtest.h>

#include "engine/start/model_text.h"

namespace tactus::engine {
namespace {

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Letters, then markers: <|endoftext|> 27, <|im_start|> 28, <|im_end|> 29.
compute::ModelDescription Gguf(const std::string& chat_template, int64_t eos, std::vector<std::string> markers = {},
                               int32_t marker_type = 3) {
  compute::ModelDescription d;
  d.source = compute::ModelDescription::Source::kGguf;
  auto& t = d.gguf_tokenizer;
  t.model = "gpt2";
  t.pre = "gpt-2";
  for (char c = 'a'; c <= 'z'; ++c) t.tokens.emplace_back(1, c);
  t.tokens.emplace_back("\xC4\x8A");  // a line break
  t.types.assign(t.tokens.size(), 1);
  if (markers.empty()) markers = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (std::string& marker : markers) {
    t.tokens.push_back(std::move(marker));
    t.types.push_back(marker_type);
  }
  t.eos = eos;
  d.config.vocab_size = static_cast<int64_t>(t.tokens.size());
  if (eos >= 0) d.config.stop_ids = {static_cast<TokenId>(eos)};
  d.chat_template = chat_template;
  return d;
}

TurnEnds EndsOf(const compute::ModelDescription& d) {
  const auto text = LoadModelText(d, {});
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? FindTurnEnds(d, *text) : TurnEnds();
}

std::string SourceOf(const TurnEnds& ends, TokenId id) {
  for (const compute::EndToken& end : ends.tokens) {
    if (end.id == id) return end.source;
  }
  return "none";
}

TEST(TurnEnds, TheEndTokenOfAConsistentFileIsUsedWithoutWarning) {
  const TurnEnds ends = EndsOf(Gguf(kChatMl, 29));
  EXPECT_EQ(ends.ids(), (std::vector<TokenId>{29, 27}));
  EXPECT_EQ(SourceOf(ends, 29), "tokenizer.ggml.eos_token_id");
  EXPECT_EQ(SourceOf(ends, 27), "well-known control token");
  EXPECT_TRUE(ends.warnings.empty()) << ends.warnings[0];
}

TEST(TurnEnds, TheMarkerThatTheTemplateWritesAfterAnAnswerIsAnEnd) {
  const TurnEnds ends = EndsOf(Gguf(kChatMl, 27));
  EXPECT_EQ(ends.ids(), (std::vector<TokenId>{27, 29}));
  EXPECT_EQ(SourceOf(ends, 29), "chat template");
  ASSERT_EQ(ends.warnings.size(), 1u);
  EXPECT_NE(ends.warnings[0].find("27 '<|endoftext|>' (tokenizer.ggml.eos_token_id)"), std::string::npos);
  EXPECT_NE(ends.warnings[0].find("29 '<|im_end|>'"), std::string::npos) << ends.warnings[0];
}

// Ends of families whose files and templates often leave one of them out.
TEST(TurnEnds, KnownMarkersOfFamiliesAreEnds) {
  for (const char* marker : {"[|endofturn|]", "<|end_of_sentence|>", "<seed:eos>", "[e~[", "<|observation|>",
                             "<|tool_response>", "<end_of_turn>", "<turn|>"}) {
    const TurnEnds ends = EndsOf(Gguf("", -1, {marker}));
    EXPECT_EQ(ends.ids(), std::vector<TokenId>{27}) << marker;
    EXPECT_EQ(SourceOf(ends, 27), "well-known control token");
  }
}

// Markers of any name, also where the file's token type is user-defined.
TEST(TurnEnds, MarkersOfAnyNameEndAnAnswer) {
  for (const int32_t type : {3, 4}) {
    const TurnEnds ends = EndsOf(Gguf("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }} \n<fin>{% endfor %}",
                                      -1, {"<fin>", "<other>"}, type));
    EXPECT_EQ(ends.ids(), std::vector<TokenId>{27}) << type;
    EXPECT_EQ(SourceOf(ends, 27), "chat template");
    ASSERT_EQ(ends.warnings.size(), 1u);
    EXPECT_NE(ends.warnings[0].find("no token ends a text"), std::string::npos) << ends.warnings[0];
  }
}

// A template that writes no end relies on the marker of the next turn.
TEST(TurnEnds, TheMarkerOfTheNextTurnEndsThisTurn) {
  const TurnEnds ends = EndsOf(Gguf("{% for m in messages %}<{{ m.role }}>\n{{ m.content }}{% endfor %}", 27,
                                    {"<|endoftext|>", "<user>", "<assistant>"}));
  EXPECT_EQ(ends.ids(), (std::vector<TokenId>{27, 28}));
}

TEST(TurnEnds, KnownControlTokensEndWithoutATemplate) {
  const TurnEnds ends = EndsOf(Gguf("", 27));
  EXPECT_EQ(ends.ids(), (std::vector<TokenId>{27, 29}));
  EXPECT_EQ(SourceOf(ends, 29), "well-known control token");
  EXPECT_TRUE(ends.warnings.empty());
}

// In harmony <|end|> ends a message in the middle of a turn.
TEST(TurnEnds, TheEndOfAMessageIsNotAnEndOfATurn) {
  EXPECT_EQ(EndsOf(Gguf("", -1, {"<|end|>"})).ids(), std::vector<TokenId>{27});
  EXPECT_EQ(EndsOf(Gguf("", -1, {"<|end|>", "<|return|>"})).ids(), std::vector<TokenId>{28});
}

TEST(TurnEnds, WarnsOfAnEndThatIsTextAndOfNoEnd) {
  const TurnEnds text = EndsOf(Gguf("{% for m in messages %}{{ m.content }}abc{% endfor %}", 27));
  ASSERT_EQ(text.warnings.size(), 1u);
  EXPECT_NE(text.warnings[0].find("'abc'"), std::string::npos) << text.warnings[0];
  const TurnEnds none = EndsOf(Gguf("", -1, {"<x>"}));
  EXPECT_TRUE(none.tokens.empty());
  ASSERT_EQ(none.warnings.size(), 1u);
  EXPECT_NE(none.warnings[0].find("by their length alone"), std::string::npos);
  const TurnEnds letter = EndsOf(Gguf("", 3));
  EXPECT_EQ(SourceOf(letter, 3), "tokenizer.ggml.eos_token_id");
  ASSERT_EQ(letter.warnings.size(), 1u);
  EXPECT_NE(letter.warnings[0].find("3 'd', which is not a control token"), std::string::npos) << letter.warnings[0];
}

TEST(TurnEnds, ATemplateThatFailsNamesNoEnd) {
  EXPECT_EQ(EndsOf(Gguf("{{ raise_exception('no') }}", 27)).ids(), (std::vector<TokenId>{27, 29}));
}

// A folder whose config.json names no end has the one that transformers assumes, unless that is an ordinary token.
TEST(TurnEnds, FoldersWithoutGenerationConfigHaveTheAssumedEnd) {
  compute::ModelDescription d;
  d.config.vocab_size = 8;
  d.config.stop_ids = {2};
  d.config.assumed_stop_id = 2;
  d.tokenizer_json = R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "<e>", "special": true},
                     {"id": 6, "content": "<t>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": ["a b", "ab a"]}})";
  d.tokenizer_config_json = R"({"eos_token": "<e>"})";
  d.chat_template = "{% for m in messages %}{{ m.content }}<t>{% endfor %}";
  const TurnEnds ends = EndsOf(d);
  EXPECT_EQ(ends.ids(), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(SourceOf(ends, 5), "tokenizer_config.json");
  EXPECT_EQ(SourceOf(ends, 6), "chat template");
  d.config.assumed_stop_id = -1;  // config.json names it
  EXPECT_EQ(EndsOf(d).ids(), (std::vector<TokenId>{2, 5, 6}));
  d.config.stop_ids = {4};
  d.config.assumed_stop_id = 4;
  EXPECT_EQ(SourceOf(EndsOf(d), 4), "assumed of the architecture");
}

}  // namespace
}  // namespace tactus::engine
