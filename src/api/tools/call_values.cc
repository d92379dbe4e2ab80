#include "api/tools/call_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace tactus::api {
namespace {

constexpr size_t kMaxDepth = 64;         // as in requests
constexpr size_t kMaxScalarBytes = 512;  // a number or a word

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool IsWordByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
         c == '+' || c == '-';
}
bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Whether the text is a JSON number.
bool IsNumber(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view digits = text.substr(exponent + 1);
    if (digits.starts_with('+') || digits.starts_with('-')) digits.remove_prefix(1);
    if (!IsDigits(digits)) return false;
    text = text.substr(0, exponent);
  }
  const size_t dot = text.find('.');
  if (dot != std::string_view::npos && !IsDigits(text.substr(dot + 1))) return false;
  const std::string_view whole = text.substr(0, dot);
  return IsDigits(whole) && (whole.size() == 1 || whole[0] != '0');
}

bool IsScalar(std::string_view text) {
  return text == "true" || text == "false" || text == "null" || IsNumber(text);
}

// Whether the text is a JSON scalar or the beginning of one.
bool MayBeScalar(std::string_view text) {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (word.starts_with(text)) return true;
  }
  return IsNumber(text) || IsNumber(std::string(text) + "0");
}

// The JSON of a Python word or number; empty: JSON has no such value.
std::string JsonOfPythonWord(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  std::string number;
  if (word.starts_with('+')) word.remove_prefix(1);
  for (const char c : word) {
    if (c == '.' && (number.empty() || number == "-")) number += '0';
    if (c != '_') number += c;
  }
  if (number.ends_with('.')) number += '0';
  return IsNumber(number) ? number : std::string();
}

// A Python literal as JSON; empty: not a literal.
std::string JsonOfPython(std::string_view text) {
  PythonArguments arguments;
  std::string json;
  for (const char c : std::string("v=") + std::string(text)) {
    if (arguments.Next(c, &json) != ValueStep::kMore) return {};
  }
  if (arguments.Next(')', &json) != ValueStep::kEnd) return {};
  constexpr std::string_view kBefore = "\"v\": ";
  const std::string value = json.substr(kBefore.size(), json.size() - kBefore.size() - 1);
  return IsJson(value) ? value : std::string();
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

ValueStep JsonFollower::ValueEnded() {
  state_ = State::kAfter;
  return open_.empty() ? ValueStep::kEnd : ValueStep::kMore;
}

ValueStep JsonFollower::Scalar(char c) {
  if (IsWordByte(c)) {
    scalar_ += c;
    return scalar_.size() <= kMaxScalarBytes && MayBeScalar(scalar_) ? ValueStep::kMore : ValueStep::kBad;
  }
  if (!IsScalar(scalar_)) return ValueStep::kBad;
  scalar_.clear();
  if (ValueEnded() == ValueStep::kEnd) return ValueStep::kEndBefore;
  return Next(c);
}

ValueStep JsonFollower::Next(char c) {
  switch (state_) {
    case State::kString:
      if (c == '\\')
        state_ = State::kEscape;
      else if (c == '"' && key_)
        state_ = State::kColon;
      else if (c == '"')
        return ValueEnded();
      return ValueStep::kMore;
    case State::kEscape:
      if (c == 'u') {
        state_ = State::kHex;
        hex_left_ = 4;
        return ValueStep::kMore;
      }
      state_ = State::kString;
      return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos ? ValueStep::kMore : ValueStep::kBad;
    case State::kHex:
      if (!IsHex(c)) return ValueStep::kBad;
      if (--hex_left_ == 0) state_ = State::kString;
      return ValueStep::kMore;
    case State::kScalar:
      return Scalar(c);
    default:
      break;
  }
  if (IsSpace(c)) return ValueStep::kMore;
  switch (state_) {
    case State::kFirstItem:
      if (c == ']') {
        open_.pop_back();
        return ValueEnded();
      }
      [[fallthrough]];
    case State::kValue:
      if (c == '{' || c == '[') {
        if (open_.size() >= kMaxDepth) return ValueStep::kBad;
        open_ += c;
        state_ = c == '{' ? State::kFirstKey : State::kFirstItem;
        return ValueStep::kMore;
      }
      key_ = false;
      state_ = c == '"' ? State::kString : State::kScalar;
      if (c == '"') return ValueStep::kMore;
      return IsWordByte(c) ? Scalar(c) : ValueStep::kBad;
    case State::kFirstKey:
      if (c == '}') {
        open_.pop_back();
        return ValueEnded();
      }
      [[fallthrough]];
    case State::kKey:
      key_ = true;
      state_ = State::kString;
      return c == '"' ? ValueStep::kMore : ValueStep::kBad;
    case State::kColon:
      state_ = State::kValue;
      return c == ':' ? ValueStep::kMore : ValueStep::kBad;
    default:  // kAfter
      if (open_.empty()) return ValueStep::kBad;
      if (c == ',') {
        state_ = open_.back() == '{' ? State::kKey : State::kValue;
        return ValueStep::kMore;
      }
      if (c != (open_.back() == '{' ? '}' : ']')) return ValueStep::kBad;
      open_.pop_back();
      return ValueEnded();
  }
}

void AppendArgumentByte(char c, bool in_string, std::string* out) {
  if (in_string && static_cast<unsigned char>(c) < 0x20)
    AppendStringByte(c, out);
  else
    *out += c;
}

void AppendStringByte(char c, std::string* out) {
  switch (c) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      if (static_cast<unsigned char>(c) < 0x20)
        fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned char>(c));
      else
        *out += c;
  }
}

bool IsJson(std::string_view text) {
  JsonFollower follower;
  bool ended = false;
  for (const char c : text) {
    if (ended && IsSpace(c)) continue;
    if (ended || (follower.in_string() && static_cast<unsigned char>(c) < 0x20)) return false;
    const ValueStep step = follower.Next(c);
    if (step == ValueStep::kBad) return false;
    if (step == ValueStep::kEndBefore && !IsSpace(c)) return false;
    ended = step != ValueStep::kMore;
  }
  return ended || follower.Next(' ') == ValueStep::kEndBefore;  // the end ends a number
}

bool IsJsonObject(std::string_view text) {
  return Trimmed(text).starts_with('{') && IsJson(text);
}

bool DecodeJsonString(std::string_view json, std::string* out) {
  const Result<Json> value = ParseJson(json);
  if (!value.ok() || !value->is_string()) return false;
  *out = value->get<std::string>();
  return true;
}

void PythonArguments::Separate(std::string* json) {
  if (!first_) *json += ", ";
  first_ = false;
}

PythonArguments::State PythonArguments::AfterItem() const {
  return dict_key_ ? State::kDictColon : State::kAfter;
}

bool PythonArguments::BeginItem(char c, std::string* json) {
  dict_key_ = state_ == State::kDictKey;
  const bool named = open_.empty();  // its separator was written with its key
  if (c == '[' || c == '(' || c == '{') {
    if (dict_key_ || open_.size() >= kMaxDepth) return false;
    if (!named && !(open_.back() == '{')) Separate(json);
    *json += c == '{' ? '{' : '[';
    open_ += c;
    first_ = true;
    state_ = c == '{' ? State::kDictKey : State::kItem;
    return true;
  }
  if (dict_key_ || (!named && open_.back() != '{')) Separate(json);
  if (c == '"' || c == '\'') {
    quote_ = c;
    *json += '"';
    state_ = State::kString;
    return true;
  }
  if (!IsWordByte(c)) return false;
  word_ = c;
  state_ = State::kWord;
  return true;
}

bool PythonArguments::EndWord(std::string* json) {
  const std::string value = JsonOfPythonWord(word_);
  if (value.empty()) return false;
  *json += dict_key_ ? "\"" + value + "\"" : value;
  state_ = AfterItem();
  return true;
}

bool PythonArguments::Close(char c, std::string* json) {
  const char open = open_.back();
  if (c != (open == '{' ? '}' : open == '[' ? ']' : ')')) return false;
  open_.pop_back();
  *json += open == '{' ? '}' : ']';
  first_ = false;
  dict_key_ = false;
  state_ = State::kAfter;
  return true;
}

ValueStep PythonArguments::Next(char c, std::string* json) {
  const auto more = [](bool good) { return good ? ValueStep::kMore : ValueStep::kBad; };
  switch (state_) {
    case State::kString:
      if (c == '\\') {
        state_ = State::kEscape;
      } else if (c == quote_) {
        *json += '"';
        state_ = AfterItem();
      } else {
        AppendStringByte(c, json);
      }
      return ValueStep::kMore;
    case State::kEscape:
      state_ = State::kString;
      if (c == 'x' || c == 'u' || c == 'U') {
        state_ = State::kHex;
        hex_left_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        code_ = 0;
      } else if (c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f') {
        *json += '\\';
        *json += c;
      } else if (c == '\'' || c == '"' || c == '\\') {
        AppendStringByte(c, json);
      } else if (c != '\n') {  // an escaped newline continues the line
        *json += "\\\\";       // an unknown escape is kept as it is
        AppendStringByte(c, json);
      }
      return ValueStep::kMore;
    case State::kHex:
      if (!IsHex(c)) return ValueStep::kBad;
      code_ = code_ * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      if (--hex_left_ > 0) return ValueStep::kMore;
      state_ = State::kString;
      if (code_ > 0x10ffff) return ValueStep::kBad;
      if (code_ > 0xffff)
        fmt::format_to(std::back_inserter(*json), "\\u{:04x}\\u{:04x}", 0xd800 + ((code_ - 0x10000) >> 10),
                       0xdc00 + ((code_ - 0x10000) & 0x3ff));
      else
        fmt::format_to(std::back_inserter(*json), "\\u{:04x}", code_);
      return ValueStep::kMore;
    case State::kWord:
      if (IsWordByte(c)) {
        word_ += c;
        return more(word_.size() <= kMaxScalarBytes);
      }
      if (!EndWord(json)) return ValueStep::kBad;
      return Next(c, json);
    case State::kInKey:
      if (IsWordByte(c) || static_cast<unsigned char>(c) >= 0x80) {
        word_ += c;
        return more(word_.size() <= kMaxScalarBytes);
      }
      state_ = State::kAfterKey;
      return Next(c, json);
    default:
      break;
  }
  if (IsSpace(c)) return ValueStep::kMore;
  switch (state_) {
    case State::kKey:
      if (c == ')') {
        *json += '}';
        return ValueStep::kEnd;
      }
      if ((!IsWordByte(c) && static_cast<unsigned char>(c) < 0x80) || c == '-' || c == '+' || c == '.' ||
          (c >= '0' && c <= '9'))
        return ValueStep::kBad;
      word_ = c;
      state_ = State::kInKey;
      return ValueStep::kMore;
    case State::kAfterKey:
      if (c != '=') return ValueStep::kBad;
      Separate(json);
      AppendJsonString(json, word_);
      *json += ": ";
      state_ = State::kItem;
      return ValueStep::kMore;
    case State::kDictKey:
    case State::kItem:
      if (!open_.empty() && (c == ']' || c == ')' || c == '}')) {
        if (state_ == State::kItem && open_.back() == '{') return ValueStep::kBad;  // a key without a value
        return more(Close(c, json));
      }
      return more(BeginItem(c, json));
    case State::kDictColon:
      if (c != ':') return ValueStep::kBad;
      *json += ": ";
      dict_key_ = false;
      state_ = State::kItem;
      return ValueStep::kMore;
    default:  // kAfter
      if (open_.empty()) {
        if (c == ')') {
          *json += '}';
          return ValueStep::kEnd;
        }
        state_ = State::kKey;
        return more(c == ',');
      }
      if (c == ',') {
        state_ = open_.back() == '{' ? State::kDictKey : State::kItem;
        return ValueStep::kMore;
      }
      return more(Close(c, json));
  }
}

std::string ParameterJson(std::string_view text, const Tool::Parameter* parameter) {
  const auto allows = [&](std::string_view type) {
    if (parameter == nullptr || parameter->types.empty()) return true;
    return std::find(parameter->types.begin(), parameter->types.end(), type) != parameter->types.end();
  };
  const std::string_view value = Trimmed(text);
  if (allows("null") && (value == "null" || value == "None")) return "null";
  if (allows("boolean") && (value == "true" || value == "True")) return "true";
  if (allows("boolean") && (value == "false" || value == "False")) return "false";
  if ((allows("number") || allows("integer")) && IsNumber(value)) return std::string(value);
  if ((allows("object") && value.starts_with('{')) || (allows("array") && value.starts_with('['))) {
    if (IsJson(value)) return std::string(value);
    if (std::string json = JsonOfPython(value); !json.empty()) return json;
  }
  if (allows("array") && value.starts_with('(')) {
    if (std::string json = JsonOfPython(value); !json.empty()) return json;
  }
  std::string json;
  AppendJsonString(&json, text);
  return json;
}

}  // namespace tactus::api
