#include "language/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/utf8.h"
#include "language/text/jinja/unicode.h"
#include "language/text/jinja/value.h"

namespace tactus::language::jinja {
namespace {

[[noreturn]] void SyntaxError(std::string message, int line) {
  throw TemplateError{TemplateError::Kind::kSyntax, std::move(message), line};
}

bool IsDigitChar(char c) {
  return c >= '0' && c <= '9';
}

// "\r\n" and "\r" become "\n", and the last newline is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t k = 0; k < source.size(); ++k) {
    if (source[k] == '\r') {
      out.push_back('\n');
      if (k + 1 < source.size() && source[k + 1] == '\n') ++k;
    } else {
      out.push_back(source[k]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (pos_ < text_.size()) LexRoot();
    Emit(TokenType::kEnd, {});
    return std::move(tokens_);
  }

 private:
  bool At(std::string_view what, size_t pos) const { return std::string_view(text_).substr(pos, what.size()) == what; }
  size_t SkipSpace(size_t pos) const {
    while (pos < text_.size()) {
      size_t next = pos;
      if (!IsSpace(NextCodePoint(text_, &next))) break;
      pos = next;
    }
    return pos;
  }
  void CountLines(size_t from, size_t to) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(from), text_.begin() + static_cast<ptrdiff_t>(to), '\n'));
  }
  void MoveTo(size_t pos) {
    CountLines(pos_, pos);
    if (pos > pos_) line_starting_ = text_[pos - 1] == '\n';
    pos_ = pos;
  }
  Token& Emit(TokenType type, std::string text) {
    tokens_.push_back({type, line_, std::move(text), 0, 0});
    return tokens_.back();
  }

  // `{%[+-]? raw -?%}` at pos: the start of its body, else 0. trim_blocks does not apply after it.
  size_t RawBegin(size_t pos) const {
    if (!At("{%", pos)) return 0;
    pos += 2;
    if (At("-", pos) || At("+", pos)) ++pos;
    pos = SkipSpace(pos);
    if (!At("raw", pos)) return 0;
    pos = SkipSpace(pos + 3);
    if (At("-%}", pos)) return SkipSpace(pos + 3);
    return At("%}", pos) ? pos + 2 : 0;
  }
  size_t BlockEnd(size_t pos, std::string_view close) const {  // `+%}`, `-%} *`, `%}\n?`; 0: none here
    if (At("+", pos) && At(close, pos + 1)) return pos + 1 + close.size();
    if (At("-", pos) && At(close, pos + 1)) return SkipSpace(pos + 1 + close.size());
    if (!At(close, pos)) return 0;
    pos += close.size();
    return At("\n", pos) ? pos + 1 : pos;
  }

  // The text before a tag, after `-` or lstrip_blocks have been applied.
  void EmitData(size_t begin, size_t end, char sign, bool variable) {
    std::string_view data = std::string_view(text_).substr(begin, end - begin);
    if (sign == '-') {
      data = Strip(data, nullptr, false, true);
    } else if (sign != '+' && !variable) {
      const size_t newline = data.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) && start < data.size() &&
          Strip(data.substr(start), nullptr, true, false).empty()) {
        data = data.substr(0, start);
      }
    }
    if (!data.empty()) Emit(TokenType::kData, std::string(data));
    MoveTo(end);
  }

  void LexRoot() {
    size_t open = pos_;
    while (true) {
      open = text_.find('{', open);
      if (open == std::string::npos) {
        Emit(TokenType::kData, text_.substr(pos_));
        MoveTo(text_.size());
        return;
      }
      if (At("{%", open) || At("{{", open) || At("{#", open)) break;
      ++open;
    }
    const char kind = text_[open + 1];
    const char mark = open + 2 < text_.size() ? text_[open + 2] : '\0';
    const char sign = mark == '-' || mark == '+' ? mark : '\0';
    EmitData(pos_, open, sign, kind == '{');
    if (const size_t body = RawBegin(open); body != 0) {
      MoveTo(body);
      LexRaw();
      return;
    }
    MoveTo(open + (sign == '\0' ? 2 : 3));
    if (kind == '#') {
      LexComment();
    } else {
      Emit(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, {});
      LexTag(kind == '{');
    }
  }

  void LexComment() {
    for (size_t end = pos_; end < text_.size(); ++end) {
      if (const size_t after = BlockEnd(end, "#}"); after != 0) {
        MoveTo(after);
        return;
      }
    }
    if (pos_ < text_.size()) SyntaxError("Missing end of comment tag", line_);
  }

  void LexRaw() {
    for (size_t open = text_.find("{%", pos_); open != std::string::npos; open = text_.find("{%", open + 1)) {
      size_t pos = open + 2;
      char sign = '\0';
      if (At("-", pos) || At("+", pos)) sign = text_[pos++];
      pos = SkipSpace(pos);
      if (!At("endraw", pos)) continue;
      const size_t after = BlockEnd(SkipSpace(pos + 6), "%}");
      if (after == 0) continue;
      EmitData(pos_, open, sign, false);
      MoveTo(after);
      return;
    }
    if (pos_ < text_.size()) SyntaxError("Missing end of raw directive", line_);
  }

  void LexTag(bool variable) {
    std::string closers;  // of the open brackets
    while (pos_ < text_.size()) {
      if (closers.empty()) {
        if (variable && (At("}}", pos_) || At("-}}", pos_))) {
          const bool strip = At("-", pos_);
          Emit(TokenType::kVariableEnd, {});
          MoveTo(strip ? SkipSpace(pos_ + 3) : pos_ + 2);
          return;
        }
        if (const size_t after = variable ? 0 : BlockEnd(pos_, "%}"); after != 0) {
          Emit(TokenType::kBlockEnd, {});
          MoveTo(after);
          return;
        }
      }
      const char c = text_[pos_];
      const size_t after_space = SkipSpace(pos_);
      if (after_space > pos_) {
        MoveTo(after_space);
      } else if (IsDigitChar(c)) {
        LexNumber();
      } else if (c == '\'' || c == '"') {
        LexString();
      } else if (!LexName()) {
        LexOperator(&closers);
      }
    }
  }

  // One more run of `\d` with single underscores between digits.
  size_t DigitRun(size_t pos, int base = 10) const {
    const auto digit = [&](size_t k) {
      if (k >= text_.size()) return false;
      const char c = text_[k];
      if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
      return c >= '0' && c < '0' + std::min(base, 10);
    };
    size_t end = pos;
    while (digit(end) || (end > pos && At("_", end) && digit(end + 1))) ++end;
    return end;
  }

  void LexNumber() {
    const bool after_dot = pos_ > 0 && text_[pos_ - 1] == '.';
    size_t end = DigitRun(pos_);
    bool is_float = false;
    if (!after_dot) {
      if (At(".", end) && DigitRun(end + 1) > end + 1) {
        end = DigitRun(end + 1);
        is_float = true;
      }
      if (At("e", end) || At("E", end)) {
        size_t digits = end + 1;
        if (At("+", digits) || At("-", digits)) ++digits;
        if (DigitRun(digits) > digits) {
          end = DigitRun(digits);
          is_float = true;
        }
      }
    }
    int base = 10;
    size_t digits = pos_;
    if (!is_float && text_[pos_] == '0') {
      const char x = pos_ + 1 < text_.size() ? static_cast<char>(text_[pos_ + 1] | 0x20) : '\0';
      base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
      size_t begin = pos_ + 2;
      if (base != 10 && At("_", begin)) ++begin;
      if (base != 10 && DigitRun(begin, base) > begin) {
        digits = begin;
        end = DigitRun(begin, base);
      } else {  // decimal zero: only more zeros may follow
        base = 10;
        end = pos_ + 1;
        while (At("0", end) || At("_0", end)) ++end;
      }
    }
    std::string plain = text_.substr(digits, end - digits);
    plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
    Token& token = Emit(is_float ? TokenType::kFloat : TokenType::kInteger, text_.substr(pos_, end - pos_));
    const char* last = plain.data() + plain.size();
    if (is_float) {
      token.number = std::strtod(plain.c_str(), nullptr);  // out of range: infinity, as in Python
    } else if (std::from_chars(plain.data(), last, token.integer, base).ec != std::errc()) {
      SyntaxError("the integer " + token.text + " does not fit 64 bits", line_);
    }
    MoveTo(end);
  }

  void LexString() {
    const char quote = text_[pos_];
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) Unexpected();
    Emit(TokenType::kString, Unescape(std::string_view(text_).substr(pos_ + 1, end - pos_ - 1)));
    MoveTo(end + 1);
  }

  // Python's "unicode-escape": unknown escapes stay as written.
  std::string Unescape(std::string_view raw) const {
    std::string out;
    for (size_t k = 0; k < raw.size();) {
      if (raw[k] != '\\') {
        out.push_back(raw[k++]);
        continue;
      }
      if (++k >= raw.size()) SyntaxError("a string ends in a backslash", line_);
      const char c = raw[k];
      if (static_cast<uint8_t>(c) >=
          0x80) {  // jinja2 has already made it an ASCII escape, whose backslash is consumed here
        static const char kHex[] = "0123456789abcdef";
        const uint32_t code = NextCodePoint(raw, &k);
        const int width = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
        out += width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U";
        for (int shift = 4 * (width - 1); shift >= 0; shift -= 4) out.push_back(kHex[(code >> shift) & 15]);
        continue;
      }
      ++k;
      static constexpr std::string_view kPlain = "abfnrtv\\'\"";
      if (const size_t which = kPlain.find(c); which != std::string_view::npos) {
        out.push_back("\a\b\f\n\r\t\v\\'\""[which]);
      } else if (c == '\n') {
      } else if (c >= '0' && c <= '7') {
        uint32_t code = static_cast<uint32_t>(c - '0');
        for (int more = 0; more < 2 && k < raw.size() && raw[k] >= '0' && raw[k] <= '7'; ++more) {
          code = code * 8 + static_cast<uint32_t>(raw[k++] - '0');
        }
        AppendUtf8(code, &out);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        const std::string_view digits = raw.substr(k, width);
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
        if (digits.size() < width || parsed.ptr != digits.data() + width) {
          SyntaxError(c == 'x' ? "truncated \\xXX escape" : "truncated \\u escape", line_);
        }
        if (code > 0x10FFFF) SyntaxError("illegal Unicode character", line_);
        if (code >= 0xD800 && code <= 0xDFFF) SyntaxError("a lone surrogate in a string cannot be encoded", line_);
        AppendUtf8(code, &out);
        k += width;
      } else if (c == 'N') {  // would need the names of all characters; no known template uses it
        throw TemplateError{TemplateError::Kind::kUnsupported, "\\N{...} escapes are not supported; write \\uXXXX",
                            line_};
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  bool LexName() {
    size_t end = pos_;
    while (end < text_.size()) {
      size_t next = end;
      if (!IsIdentifierPart(NextCodePoint(text_, &next))) break;
      end = next;
    }
    if (end == pos_) return false;
    size_t first = pos_;
    if (!IsIdentifierStart(NextCodePoint(text_, &first))) SyntaxError("Invalid character in identifier", line_);
    Emit(TokenType::kName, text_.substr(pos_, end - pos_));
    MoveTo(end);
    return true;
  }

  [[noreturn]] void Unexpected() const {
    size_t end = pos_;
    NextCodePoint(text_, &end);
    std::string shown;
    AppendStringRepr(std::string_view(text_).substr(pos_, end - pos_), &shown);
    SyntaxError("unexpected char " + shown + " at " + std::to_string(CodePointCount(text_.substr(0, pos_))), line_);
  }

  void LexOperator(std::string* closers) {
    static constexpr std::string_view kDouble[] = {"**", "//", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    size_t length = 0;
    for (const std::string_view op : kDouble) {
      if (At(op, pos_)) length = 2;
    }
    if (length == 0 && kSingle.find(text_[pos_]) != std::string_view::npos) length = 1;
    if (length == 0) Unexpected();
    const std::string op = text_.substr(pos_, length);
    if (op == "(" || op == "[" || op == "{") {
      closers->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
    } else if (op == ")" || op == "]" || op == "}") {
      if (closers->empty()) SyntaxError("unexpected '" + op + "'", line_);
      if (closers->back() != op[0]) {
        SyntaxError("unexpected '" + op + "', expected '" + closers->back() + "'", line_);
      }
      closers->pop_back();
    }
    Emit(TokenType::kOperator, op);
    MoveTo(pos_ + length);
  }

  const std::string text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

std::string DescribeToken(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "string";
    case TokenType::kInteger:
      return "integer";
    case TokenType::kFloat:
      return "float";
    case TokenType::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace tactus::language::jinja
