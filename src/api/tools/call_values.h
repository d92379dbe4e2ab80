// Values in the arguments of a call, read byte by byte: JSON, Python literals, and bare text by its schema's type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/tools/tools.h"

namespace tactus::api {

// JSON's white space.
inline bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
std::string_view Trimmed(std::string_view text);

// What a byte was to the value that is being read.
enum class ValueStep : uint8_t {
  kMore,       // part of it
  kEnd,        // its last
  kEndBefore,  // not part of it: a number or a word had ended
  kBad,        // it cannot be
};

// Follows one JSON value. Control characters inside strings, which JSON wants escaped and models write as they are, are
// taken (AppendArgumentByte escapes them).
class JsonFollower {
 public:
  ValueStep Next(char c);
  bool in_string() const { return state_ == State::kString; }  // and not in an escape
  void Reset() { *this = JsonFollower(); }

 private:
  enum class State : uint8_t { kValue, kFirstItem, kFirstKey, kKey, kColon, kAfter, kString, kEscape, kHex, kScalar };
  ValueStep ValueEnded();
  ValueStep Scalar(char c);

  State state_ = State::kValue;
  bool key_ = false;  // the string is a key
  uint8_t hex_left_ = 0;
  std::string open_;    // '{' and '[', outermost first
  std::string scalar_;  // a number or a word so far
};

// A byte of JSON as it may go to a client.
void AppendArgumentByte(char c, bool in_string, std::string* out);
// The inside of a JSON string, one byte of text.
void AppendStringByte(char c, std::string* out);
// Exactly one JSON value.
bool IsJson(std::string_view text);
bool IsJsonObject(std::string_view text);
// What a JSON string says; nothing when it is none.
bool DecodeJsonString(std::string_view json, std::string* out);

// Turns `a=1, b='x')` into `"a": 1, "b": "x"}`, byte by byte: keyword arguments of a Python call from behind its "(".
class PythonArguments {
 public:
  // Appends what the byte adds. kEnd at the closing parenthesis.
  ValueStep Next(char c, std::string* json);
  // What has been taken and has added nothing yet: a key or a word.
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
  bool first_ = true;      // nothing stands before in this bracket
  bool dict_key_ = false;  // the item is a key of a dictionary
  char quote_ = 0;
  uint8_t hex_left_ = 0;
  uint32_t code_ = 0;
  std::string open_;  // '[', '(' and '{'
  std::string word_;
};

// The JSON of a value that a model wrote as bare text. A text that does not fit its parameter's types stays a string.
// `parameter` null: of a parameter that no schema lists.
std::string ParameterJson(std::string_view text, const Tool::Parameter* parameter);

}  // namespace tactus::api
