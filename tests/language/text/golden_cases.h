// Test data written by tools/make_tokenizer_golden.py, and a tokeniser from its file.
#pragma once

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"
#include "language/text/tokenizer.h"
#include "support/source_path.h"

namespace tactus::language {

inline std::string ReadFile(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

inline std::string TextData(const std::string& name) {
  return ReadFile(test::SourcePath("tests/language/text/data/") + name);
}

inline SortedJson GoldenCases(const std::string& name) {
  return SortedJson::parse(TextData(name + ".golden.json")).at("cases");
}

inline std::unique_ptr<Tokenizer> MustMake(Result<TokenizerSpec> spec) {
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  if (!spec.ok()) return nullptr;
  Result<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

inline std::unique_ptr<Tokenizer> FromJson(const std::string& name) {
  return MustMake(ParseTokenizerJson(TextData(name + ".tokenizer.json")));
}

inline std::string Streamed(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special) {
  Detokenizer detokenizer(&tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Flush();
}

}  // namespace tactus::language
