// Parses values in the arguments of a call byte by byte: JSON, Python literals, and bare text by its schema's type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/tools/tools.h"

namespace tactus::api {

// Whether `c` is JSON white space.
inline bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
std::string_view Trimmed(std::string_view text);

// The effect of a byte on the value that is being read.
enum class ValueStep : uint8_t {
  kMore,       // part of the value
  kEnd,        // its last byte
  kEndBefore,  // not part of the value: a number or word ended before it
  kBad,        // invalid
};

// Follows one JSON value. Unescaped control characters inside strings, which JSON forbids and models write, are
// accepted (AppendArgumentByte escapes them).
class JsonFollower {
 public:
  ValueStep Next(char c);
  bool in_string() const { return state_ == State::kString; }  // and not within an escape
  void Reset() { *this = JsonFollower(); }

 private:
  enum class State : uint8_t { kValue, kFirstItem, kFirstKey, kKey, kColon, kAfter, kString, kEscape, kHex, kScalar };
  ValueStep ValueEnded();
  ValueStep Scalar(char c);

  State state_ = State::kValue;
  bool key_ = false;  // the string is a key
  uint8_t hex_left_ = 0;
  std::string open_;    // '{' and '[', outermost first
  std::string scalar_;  // the number or word so far
};

// Appends a byte of JSON, escaped if a string needs it.
void AppendArgumentByte(char c, bool in_string, std::string* out);
// Appends one byte of text to the inside of a JSON string.
void AppendStringByte(char c, std::string* out);
// Whether the text is exactly one JSON value.
bool IsJson(std::string_view text);
bool IsJsonObject(std::string_view text);
// Decodes a JSON string; false if it is not one.
bool DecodeJsonString(std::string_view json, std::string* out);

// Converts `a=1, b='x')` into `"a": 1, "b": "x"}`, byte by byte: keyword arguments of a Python call after its "(".
class PythonArguments {
 public:
  // Appends the JSON that the byte adds. kEnd at the closing parenthesis.
  ValueStep Next(char c, std::string* json);
  // Consumed text that has added nothing yet: a key or a word.
  std::string_view pending() const {
    return state_ == State::kInKey || state_ == State::kAfterKey || state_ == State::kWord ? word_ : std::string_view();
  }

 private:
  enum class State : uint8_t {
    kKey,
    kInKey,
    kAfterKey,
    kItem,
    kDictKey,
    kDictColon,
    kAfter,
    kString,
    kEscape,
    kHex,
    kWord
  };
  bool BeginItem(char c, std::string* json);
  bool EndWord(std::string* json);
  bool Close(char c, std::string* json);
  void Separate(std::string* json);
  State AfterItem() const;

  State state_ = State::kKey;
  bool first_ = true;      // first item in this bracket
  bool dict_key_ = false;  // the item is a key of a dictionary
  char quote_ = 0;
  uint8_t hex_left_ = 0;
  uint32_t code_ = 0;
  std::string open_;  // '[', '(' and '{'
  std::string word_;
};

// The JSON of a value that a model wrote as bare text. Text that does not fit its parameter's types stays a string.
// `parameter` null: no schema lists the parameter.
std::string ParameterJson(std::string_view text, const Tool::Parameter* parameter);

}  // namespace tactus::api
