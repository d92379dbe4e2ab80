// tokenizer.json and tokenizer_config.json: spellings, flags, and refused features.
#include "golden_cases.h"

namespace tactus::tokenizer_json_test {
namespace {

using Ids = std::vector<TokenId>;

Json Small() {
  return Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "<e>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": ["a b", "ab a"]}
  })");
}

Ids Encode(const Json& json, std::string_view text, const std::string& config = {}) {
  const auto tokenizer = language::MustMake(language::ParseTokenizerJson(json.dump(), config));
  return tokenizer == nullptr ? Ids{-1} : tokenizer->Encode(text, true, true);
}

Status Refusal(const Json& json, const std::string& config = {}) {
  const Result<language::TokenizerSpec> spec = language::ParseTokenizerJson(json.dump(), config);
  return spec.ok() ? language::MakeTokenizer(*spec).status() : spec.status();
}

TEST(TokenizerJson, ReadsMergesInBothSpellings) {
  Json json = Small();
  EXPECT_EQ(Encode(json, "abaab"), (Ids{3, 2}));
  json["model"]["merges"] = Json::parse(R"([["a", "b"], ["ab", "a"]])");
  EXPECT_EQ(Encode(json, "abaab"), (Ids{3, 2}));
  json["model"]["merges"][1] = "ab a a";
  EXPECT_EQ(Refusal(json).code(), StatusCode::kDataLoss);
  json["model"].erase("type");
  json["model"]["merges"][1] = "ab a";
  EXPECT_EQ(Encode(json, "abaab"), (Ids{3, 2}));
}

TEST(TokenizerJson, MissingTablesAreRefusedByName) {
  for (const char* table : {"vocab", "merges"}) {
    Json json = Small();
    json["model"].erase(table);
    EXPECT_EQ(Refusal(json).code(), StatusCode::kDataLoss);
    EXPECT_NE(Refusal(json).message().find(std::string("model (BPE): ") + table + " is missing"), std::string::npos)
        << Refusal(json).message();
  }
  Json json = Small();
  json["model"]["merges"] = Json::array();
  EXPECT_EQ(Encode(json, "ab"), (Ids{0, 1})) << "an empty list is explicit: letters, as in the reference";
}

// As in transformers: names in tokenizer_config.json are single tokens, also without added_tokens.
TEST(TokenizerJson, SpecialTokensComeFromTheConfigWithoutAddedTokens) {
  Json json = Small();
  json.erase("added_tokens");
  json["model"]["vocab"]["<"] = 6;
  json["model"]["vocab"]["s"] = 7;
  json["model"]["vocab"][">"] = 8;
  json["model"]["vocab"]["<s>"] = 4;
  json["model"]["vocab"]["e"] = 9;
  json["model"]["vocab"]["<e>"] = 5;
  EXPECT_EQ(Encode(json, "a<s>"), (Ids{0, 6, 7, 8}));
  EXPECT_EQ(Encode(json, "a<s><e>", R"({"eos_token": "<s>", "additional_special_tokens": ["<e>"]})"), (Ids{0, 4, 5}));
  EXPECT_EQ(Encode(json, "a<s><e>",
                   R"({"added_tokens_decoder": {"4": {"content": "<s>", "special": true}, "5": {"content": "<e>"}}})"),
            (Ids{0, 4, 5}));
  EXPECT_EQ(Encode(json, "a<e>", R"({"eos_token": "<s>", "pad_token": "<new>"})"), (Ids{0, 6, 9, 8}));
}

TEST(TokenizerJson, AppliesTemplateAndConfig) {
  Json json = Small();
  json["post_processor"] =
      Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}}]})");
  EXPECT_EQ(Encode(json, "a"), (Ids{4, 0}));
  EXPECT_EQ(Encode(json, "a", R"({"add_bos_token": false})"), (Ids{0}));
  EXPECT_EQ(Encode(json, "a", R"({"add_eos_token": true, "eos_token": {"content": "<e>"}})"), (Ids{4, 0, 5}));
  EXPECT_EQ(Encode(Small(), "a"), (Ids{0}));
  EXPECT_EQ(Encode(Small(), "a", R"({"add_bos_token": true, "bos_token": "<s>"})"), (Ids{4, 0}));
  EXPECT_EQ(Encode(Small(), "a", R"({"add_bos_token": null, "bos_token": "<s>"})"), (Ids{0}));
  const auto tokenizer = language::MustMake(
      language::ParseTokenizerJson(Small().dump(), R"({"bos_token": "<s>", "eos_token": {"content": "<e>"}})"));
  EXPECT_EQ(tokenizer->bos_id(), 4);
  EXPECT_EQ(tokenizer->eos_id(), 5);
}

TEST(TokenizerJson, AcceptsIdsWithHoles) {
  Json json = Small();
  json["added_tokens"].push_back({{"id", 9}, {"content", "<far>"}, {"special", false}});
  const auto tokenizer = language::MustMake(language::ParseTokenizerJson(json.dump()));
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_EQ(tokenizer->Encode("a<far>b", true, true), (Ids{0, 9, 1}));
  EXPECT_EQ(tokenizer->Decode(Ids{7, 9, 8}, false), "<far>");
}

TEST(TokenizerJson, RefusesUnsupportedFeaturesByName) {
  const auto expect = [](const Json& json, std::string_view word) {
    const Status status = Refusal(json);
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  Json json = Small();
  json["model"]["type"] = "Neural";
  expect(json, "model: type \"Neural\"");
  json = Small();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Rot13"}}}}};
  expect(json, "normalizer 1 (Rot13)");
  json = Small();
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Sentences"}}, {{"type", "ByteLevel"}}}}};
  expect(json, "pre_tokenizer 0 (Sentences)");
  json = Small();
  json["model"]["dropout"] = 0.1;
  expect(json, "dropout");
  json = Small();
  json["decoder"] = {{"type", "CTC"}};
  expect(json, "decoder (CTC)");
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders", {{{"type", "Fuse"}}, {{"type", "WordPiece"}, {"prefix", "##"}}}}};
  expect(json, "cannot be streamed");
  json = Small();
  json["post_processor"] = {{"type", "Pairs"}};
  expect(json, "post_processor (Pairs)");
  json = Small();
  json["model"]["vocab"]["huge"] = 1 << 30;
  expect(json, "1073741824");
  json = Small();
  json["model"]["vocab"]["negative"] = -1;
  expect(json, "-1");
  json = Small();
  json["model"]["vocab"]["twice"] = 0;
  expect(json, "is both");
  json = Small();
  json["model"]["merges"].push_back("b b");
  expect(json, "\"bb\"");
}

// A damaged member is named with its component.
TEST(TokenizerJson, DamageIsNamedByComponentAndMember) {
  struct Damage {
    const char *path, *value, *named;
  };
  const Damage damages[] = {
      {"/model/vocab", "7", "model (BPE): vocab is of type number, not object"},
      {"/model/vocab/a", "\"x\"", "model (BPE): vocab: the id of \"a\""},
      {"/model/merges/1", "[\"a\"]", "model (BPE): merges: merge 1"},
      {"/model/byte_fallback", "1", "model (BPE): byte_fallback is of type number, not boolean"},
      {"/added_tokens/1/id", "1.5", "added token 1: id is of type number, not integer"},
      {"/added_tokens/0", "{}", "added token 0: content is missing"},
      {"/normalizer", R"({"type": "Replace", "pattern": 3, "content": ""})",
       "normalizer (Replace): pattern is neither"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Prepend"}]})",
       "normalizer 0 (Prepend): prepend is missing"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "?"})", "precompiled_charsmap is not base64"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "/////w=="})", "names a trie of"},
      {"/normalizer", "[]", "normalizer: type is missing"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})", "pattern \"(\""},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Eaten"})", "behavior \"Eaten\""},
      {"/pre_tokenizer", R"({"type": "FixedLength", "length": 0})", "pre_tokenizer (FixedLength): length is below 1"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "replacement is not one character"},
      {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "start or stop is negative"},
      {"/post_processor", R"({"type": "BertProcessing", "sep": ["x", 1]})", "post_processor (BertProcessing): cls is"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q"}}]})",
       "special_tokens \"q\": ids is missing"},
      {"/model", R"({"type": "Unigram", "vocab": [["a", 0], ["b"]], "unk_id": 0})", "model (Unigram): vocab: entry 1"},
      {"/model", R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})", "unk_id is 1, but vocab has 1"},
      {"/model", R"({"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": "x"})",
       "model (WordPiece): max_input_chars_per_word"},
  };
  for (const Damage& damage : damages) {
    Json json = Small();
    json[Json::json_pointer(damage.path)] = Json::parse(damage.value);
    const Status status = Refusal(json);
    EXPECT_FALSE(status.ok()) << damage.path;
    EXPECT_NE(status.message().find(damage.named), std::string::npos) << damage.path << ": " << status.message();
  }
}

TEST(TokenizerJson, WrongTypesAreErrorsNotExceptions) {
  int refused = 0;
  for (const char* name : {"llama3", "kinds/albert", "kinds/bert", "kinds/roberta", "kinds/split_removed",
                           "kinds/gemma", "kinds/word_parts", "kinds/scripts"}) {
    Json original = Json::parse(language::TextData(std::string(name) + ".tokenizer.json"));
    // The tables have tests above; small ones keep this one short.
    original["model"]["vocab"] = original["model"]["vocab"].is_array() ? Json::parse(R"([["a", -1.5], ["b", -2]])")
                                                                       : Json::parse(R"({"a": 0, "b": 1})");
    if (original["model"].contains("merges")) original["model"]["merges"] = Json::array();
    const Json flat = original.flatten();
    for (const auto& [path, value] : flat.items()) {
      for (const Json& wrong : {Json(nullptr), Json(-7), Json("x"), Json::array(), Json::object(), Json(true)}) {
        Json json = original;
        json[Json::json_pointer(path)] = wrong;
        refused += !Refusal(json).ok();
      }
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_EQ(language::ParseTokenizerJson("{").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(language::ParseTokenizerJson("[]").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(language::ParseTokenizerJson("{}").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(language::ParseTokenizerJson(Small().dump(), "x").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(language::ParseTokenizerJson(std::string(100'000, '[')).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tactus::tokenizer_json_test
