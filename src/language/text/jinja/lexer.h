// Template source to tokens, with jinja2's white-space control: trim_blocks, lstrip_blocks, "-" and "+" marks, raw
// blocks, comments, one trailing newline dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tactus::language::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 0;
  std::string text;  // data, names, decoded strings, operators as written
  int64_t integer = 0;
  double number = 0;
};

// Throws TemplateError with the line. The source is valid UTF-8.
std::vector<Token> Tokenize(std::string_view source);
std::string DescribeToken(const Token& token);  // as named in jinja2's messages

}  // namespace tactus::language::jinja
