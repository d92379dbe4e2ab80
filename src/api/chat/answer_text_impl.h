// The state machine of AnswerText. Internal to api/: answer_text.cc has content, reasoning and harmony messages,
// call_text.cc the calls.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_text.h"
#include "api/tools/call_values.h"

namespace tactus::api {

inline constexpr size_t kMaxHeadBytes = 256;  // limit for the head of a call, a key or a harmony message

// Whether `c` begins a UTF-8 character. A head that exceeds its limit is given up only there, so that the text after it
// begins with a whole character.
inline bool BeginsCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
}

// The meaning of a marker in the current state.
enum class Mark : uint8_t {
  kReasoningBegin,
  kReasoningEnd,
  kDropped,  // only part of the format
  kSectionBegin,
  kSectionEnd,
  kCallBegin,
  kCallEnd,
  kKeyBegin,
  kValueBegin,
  kValueEnd,
  kHeadBegin,  // head of a harmony message
  kMessageEnd,
};

// A set of markers that are searched for together.
class Markers {
 public:
  void Add(std::string_view text, Mark mark) {
    if (text.empty()) return;
    items_.push_back({text, mark});
    first_[static_cast<unsigned char>(text[0])] = true;
  }
  bool MayBegin(char c) const { return first_[static_cast<unsigned char>(c)]; }
  // kWhole: `text` is the marker *found. kPart: `text` is the beginning of one.
  enum class Match : uint8_t { kNone, kPart, kWhole };
  Match Find(std::string_view text, Mark* found) const {
    Match match = Match::kNone;
    for (const Item& item : items_) {
      if (!item.text.starts_with(text)) continue;
      match = Match::kPart;
      if (item.text.size() != text.size()) continue;
      *found = item.mark;
      return Match::kWhole;
    }
    return match;
  }

 private:
  struct Item {
    std::string_view text;
    Mark mark;
  };
  std::vector<Item> items_;
  std::array<bool, 256> first_{};
};

// One state decides what a byte means; a byte that ends a state is fed to the next one. `raw_` is the consumed text of
// a call that has not begun: plain text if it turns out not to be a call.
class AnswerText::Impl {
 public:
  Impl(AnswerReading reading, std::string id_seed);

  void Append(std::string_view text, std::vector<AnswerPart>* parts);

  void Finish(std::vector<AnswerPart>* parts);

  bool called() const;
  const std::vector<size_t>& turns() const { return turns_; }
  size_t bytes() const { return fed_; }
  bool whole() const { return told_any_ && told_depth_ == 0 && !told_string_; }  // the last call's arguments

 private:
  enum class State : uint8_t {
    kContent,
    kReasoning,
    kSection,    // between the calls of a section
    kCallStart,  // after the marker of a call that has two possible forms
    kHead,       // head of a call
    kArguments,  // JSON
    kCallEnd,    // the call is whole; its end marker is missing
    kKeyOrEnd,   // kParameters
    kKey,
    kValueBegin,
    kValue,
    kObjects,  // kJson: between objects
    kMember,   // in an object, before a key
    kMemberKey,
    kMemberColon,
    kMemberValue,
    kMemberEnd,
    kNames,  // kPythonic: between calls
    kName,
    kPython,
    kHarmonyHead,
    kHarmonyBody,
    kHarmonyGap,  // between two messages
  };
  enum class Role : uint8_t { kName, kArguments, kOther };

  void SetMarkers();

  // --- Output ---
  void Tell(AnswerPart::Kind kind, std::string_view text, int32_t call = -1);
  void TellArguments(std::string_view json);
  void FlushSpace();
  void Plain(AnswerPart::Kind kind, char c);
  void RawIsText();
  // The call is invalid: its consumed text becomes plain text, and `c` is read as content.
  void Fail(char c);
  void ToContent(bool after_call);

  // --- Bytes ---
  bool Thinks() const { return state_ == State::kReasoning || (state_ == State::kHarmonyBody && thinking_); }
  void NoteTurn();  // records in turns_ that the last byte began or ended reasoning
  void Feed(char c);
  const Markers* ActiveMarkers() const;

  void Found(Mark mark, const std::string& marker);
  // An end marker of a call that has not begun: all of it becomes text, the marker too.
  void FailWith(const std::string& marker);

  // A byte that begins no marker, in a state that searches for markers.
  void Released(char c);
  void LeaveWith(char c);

  void Take(char c);

  // --- Calls ---
  void StartCall();
  bool Known(std::string_view name) const;
  // False: no call may have that name here.
  bool BeginCall(std::string_view name);
  void EndCall();

  void HeadByte(char c);

  // A byte of the arguments' JSON of a call whose name came first.
  void ArgumentByte(char c);
  void TellArgument(char c, bool in_string);

  // --- Parameters between markers ---
  void KeyByte(char c);
  std::string KeyJson();
  void BeginValue();
  void ValueByte(char c);
  void ValueText(char c);
  void EndValue();

  // --- JSON objects with a name and arguments ---
  bool BetweenItems(char c, std::string_view separators);
  void BetweenObjects(char c);
  void ObjectByte(char c);
  void BeginMember(char c);
  void MemberByte(char c);
  void FailObject(char c);
  // As ObjectByte, for a byte that raw_ already has.
  void ObjectByteAgain(char c);
  void EndObject(char c);

  // --- Python calls ---
  void BetweenNames(char c);
  void NameByte(char c);
  void PythonByte(char c);

  // --- Harmony: messages with a head. An answer begins inside the head of its first one ---
  void HarmonyHeadByte(char c);
  // The word after `key`; empty: none.
  std::string_view HeadWord(std::string_view key) const;
  void BeginMessage();
  void MessageByte(char c);
  void EndMessage();

  AnswerReading reading_;
  const std::string id_seed_;
  ToolFormat form_;  // that of reading_.calls; default without one: no markers
  Markers content_, after_call_, thought_, section_, tail_, keys_, value_begin_, value_end_, message_, gap_;

  std::vector<AnswerPart>* parts_ = nullptr;
  std::vector<size_t> turns_;
  size_t fed_ = 0, marker_bytes_ = 0;  // bytes read; length of the marker that the last byte completed
  State state_ = State::kContent;
  std::string held_;   // text that may become a marker
  std::string space_;  // white space: text, or next to a marker and dropped
  std::string raw_;
  bool trim_ = false;   // white space belongs to the format
  bool fresh_ = true;   // no text yet since the start, a call or the reasoning
  bool after_ = false;  // only white space since a call
  bool ended_ = false;
  bool in_section_ = false;
  int32_t calls_ = 0;
  // Parse state of the JSON that was output for the last call's arguments.
  int32_t told_depth_ = 0;
  bool told_any_ = false, told_string_ = false, told_escape_ = false;

  // The call that is being read.
  const Tool* tool_ = nullptr;
  std::string head_, key_, value_;
  JsonFollower follower_;
  bool began_ = false;  // some of its arguments have arrived
  // kParameters
  const Tool::Parameter* parameter_ = nullptr;
  int32_t parameters_ = 0;
  bool is_text_ = false, is_json_ = false, at_value_start_ = false, newline_ = false;
  // kJson
  Role role_ = Role::kOther;
  bool listed_ = false, named_ = false, argued_ = false, began_value_ = false;
  int32_t depth_ = 0;
  std::string arguments_;  // arguments that came before the name
  PythonArguments python_;
  // kHarmony
  bool thinking_ = false, calling_ = false;
};

}  // namespace tactus::api
