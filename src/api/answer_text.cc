#include "api/answer_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/call_values.h"
#include "base/hash.h"

namespace tactus::api {
namespace {

using Body = ToolFormat::Body;
using Kind = AnswerPart::Kind;

constexpr size_t kMaxHeadBytes = 256;                   // of a call, a key, a harmony message
constexpr size_t kMaxSpaceBytes = 256;                  // withheld
constexpr size_t kMaxEarlyArguments = size_t{1} << 20;  // that came before their name

bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

bool IsName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), IsNameByte);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// What a marker is to where it was found.
enum class Mark : uint8_t {
  kReasoningBegin,
  kReasoningEnd,
  kDropped,  // part of the form and nothing else
  kSectionBegin,
  kSectionEnd,
  kCallBegin,
  kCallEnd,
  kKeyBegin,
  kValueBegin,
  kValueEnd,
  kHeadBegin,  // of a harmony message
  kMessageEnd,
};

// Markers that are looked for at once.
class Markers {
 public:
  void Add(std::string_view text, Mark mark) {
    if (text.empty()) return;
    items_.push_back({text, mark});
    first_[static_cast<unsigned char>(text[0])] = true;
  }
  bool MayBegin(char c) const { return first_[static_cast<unsigned char>(c)]; }
  // kWhole: `text` is the marker *found. kPart: the beginning of one.
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

std::string CallId(std::string_view seed, int32_t call, bool is_short) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kShort = 9, kLong = 20;
  const std::string text = fmt::format("{}/{}", seed, call);
  Hash128 digest = SipHash128(Hash128{2, 2}, text.data(), text.size());
  std::string id = is_short ? "" : "call_";
  for (size_t i = 0; i < (is_short ? kShort : kLong); ++i) {
    uint64_t& half = i % 2 == 0 ? digest.low : digest.high;
    id += kDigits[half % kDigits.size()];
    half /= kDigits.size();
  }
  return id;
}

}  // namespace

// Where a byte goes is one state; a byte that ends a state is given to the next one. `raw_` has what was taken of a
// call that has not begun: it is text if no call comes of it.
class AnswerText::Impl {
 public:
  Impl(AnswerReading reading, std::string id_seed) : reading_(std::move(reading)), id_seed_(std::move(id_seed)) {
    const bool harmony = reading_.calls != nullptr && reading_.calls->body == Body::kHarmony;
    if (!harmony && reading_.tools == nullptr) reading_.calls = nullptr;
    if (reading_.calls != nullptr) form_ = *reading_.calls;
    if (harmony) {
      state_ = State::kHarmonyHead;
    } else if (reading_.begins_in_reasoning && reading_.reasoning != nullptr) {
      state_ = State::kReasoning;
      trim_ = true;
    }
    SetMarkers();
  }

  void Append(std::string_view text, std::vector<AnswerPart>* parts) {
    parts_ = parts;
    for (const char c : text) Feed(c);
  }

  void Finish(std::vector<AnswerPart>* parts) {
    parts_ = parts;
    ended_ = true;
    // What might have become a marker is what it looks like.
    const std::string held = std::exchange(held_, {});
    const bool in_call = state_ != State::kContent && state_ != State::kReasoning && state_ != State::kHarmonyBody;
    if (!in_call || state_ == State::kValue) {
      for (const char c : held) Released(c);
      if (!raw_.empty()) RawIsText();  // a call of which nothing but its beginning came
    } else if (!raw_.empty()) {
      raw_ += held;
      RawIsText();
    }
    FlushSpace();
  }

  bool called() const { return calls_ > 0; }

 private:
  enum class State : uint8_t {
    kContent,
    kReasoning,
    kSection,    // between the calls of a section
    kCallStart,  // behind the marker of a call that may have two forms
    kHead,       // of a call
    kArguments,  // JSON
    kCallEnd,    // the call is whole; its end marker is missing
    kKeyOrEnd,   // kParameters
    kKey,
    kValueBegin,
    kValue,
    kObjects,  // kJson: between objects
    kMember,   // in one, before a key
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

  void SetMarkers() {
    const auto [begin, end, answer_begin, answer_end] =
        reading_.reasoning == nullptr
            ? std::array<std::string_view, 4>{}
            : std::array<std::string_view, 4>{reading_.reasoning->begin, reading_.reasoning->end,
                                              reading_.reasoning->answer_begin, reading_.reasoning->answer_end};
    content_.Add(begin, Mark::kReasoningBegin);
    for (const std::string_view dropped : {answer_begin, answer_end}) content_.Add(dropped, Mark::kDropped);
    thought_.Add(end, Mark::kReasoningEnd);
    for (Markers* markers : {&content_, &after_call_, &tail_}) {
      markers->Add(form_.section_begin, Mark::kSectionBegin);
      markers->Add(form_.call_begin, Mark::kCallBegin);
    }
    after_call_.Add(begin, Mark::kReasoningBegin);
    for (const std::string_view dropped : {answer_begin, answer_end, form_.section_end, form_.call_end})
      after_call_.Add(dropped, Mark::kDropped);
    for (Markers* markers : {&tail_, &keys_}) {
      markers->Add(form_.call_end, Mark::kCallEnd);
      markers->Add(form_.section_end, Mark::kSectionEnd);
    }
    section_.Add(form_.call_begin, Mark::kCallBegin);
    section_.Add(form_.section_end, Mark::kSectionEnd);
    keys_.Add(form_.key_begin, Mark::kKeyBegin);
    value_begin_.Add(form_.value_begin, Mark::kValueBegin);
    value_end_.Add(form_.value_end, Mark::kValueEnd);
    if (form_.body != Body::kHarmony) return;
    for (const std::string_view end_of : {"<|end|>", "<|call|>", "<|return|>"}) {
      message_.Add(end_of, Mark::kMessageEnd);
      gap_.Add(end_of, Mark::kMessageEnd);
    }
    for (const std::string_view head : {"<|start|>", "<|channel|>"}) {
      message_.Add(head, Mark::kHeadBegin);
      gap_.Add(head, Mark::kHeadBegin);
    }
  }

  // --- What is told ---
  void Tell(Kind kind, std::string_view text, int32_t call = -1) {
    if (text.empty()) return;
    if (parts_->empty() || parts_->back().kind != kind || parts_->back().call != call) {
      AnswerPart& part = parts_->emplace_back();
      part.kind = kind;
      part.call = call;
    }
    parts_->back().text += text;
  }
  void TellArguments(std::string_view json) { Tell(Kind::kCallArguments, json, calls_ - 1); }
  void FlushSpace() {
    Tell(state_ == State::kReasoning || thinking_ ? Kind::kReasoning : Kind::kText, space_);
    space_.clear();
  }
  void Plain(Kind kind, char c) {
    if (IsSpace(c)) {
      if (trim_) return;
      space_ += c;
      if (space_.size() >= kMaxSpaceBytes) FlushSpace();
      return;
    }
    FlushSpace();
    trim_ = false;
    fresh_ = kind != Kind::kText;
    Tell(kind, {&c, 1});
  }
  void RawIsText() {
    const std::string raw = std::exchange(raw_, {});
    thinking_ = false;
    state_ = State::kContent;
    for (const char c : raw) Plain(Kind::kText, c);
  }
  // No call comes of it: what was taken of it is text, and `c` what it may be.
  void Fail(char c) {
    held_.clear();
    in_section_ = false;
    after_ = false;
    fresh_ = false;
    RawIsText();
    Feed(c);
  }
  void ToContent(bool after_call) {
    state_ = State::kContent;
    thinking_ = false;
    in_section_ = false;
    raw_.clear();
    trim_ = true;
    fresh_ = true;
    after_ = after_call;
  }

  // --- Bytes ---
  void Feed(char c) {
    const Markers* markers = Looked();
    if (markers == nullptr) return Take(c);
    if (held_.empty() && !markers->MayBegin(c)) return Released(c);
    held_ += c;
    Mark mark{};
    switch (markers->Find(held_, &mark)) {
      case Markers::Match::kPart:
        return;
      case Markers::Match::kWhole: {
        const std::string marker = std::exchange(held_, {});
        return Found(mark, marker);
      }
      case Markers::Match::kNone: {
        // The first byte begins no marker; the others are looked at again, wherever that byte leads.
        const std::string held = std::exchange(held_, {});
        Released(held[0]);
        for (const char rest : std::string_view(held).substr(1)) Feed(rest);
        return;
      }
    }
  }
  const Markers* Looked() const {
    switch (state_) {
      case State::kContent:
        return after_ ? &after_call_ : &content_;
      case State::kReasoning:
        return &thought_;
      case State::kSection:
        return &section_;
      case State::kCallEnd:
      case State::kObjects:
      case State::kNames:
        return &tail_;
      case State::kKeyOrEnd:
        return &keys_;
      case State::kValueBegin:
        return &value_begin_;
      case State::kValue:
        return &value_end_;
      case State::kHarmonyBody:
        return &message_;
      case State::kHarmonyGap:
        return &gap_;
      default:
        return nullptr;
    }
  }

  void Found(Mark mark, const std::string& marker) {
    switch (mark) {
      case Mark::kReasoningBegin:
        if (!fresh_) {  // in the middle of a text it is a word like others
          for (const char c : marker) Plain(Kind::kText, c);
          return;
        }
        space_.clear();
        state_ = State::kReasoning;
        trim_ = true;
        return;
      case Mark::kReasoningEnd:
        space_.clear();
        return ToContent(false);
      case Mark::kDropped:
        space_.clear();
        trim_ = true;
        return;
      case Mark::kSectionBegin:
        if (!raw_.empty()) RawIsText();
        raw_ = marker;
        in_section_ = true;
        if (form_.call_begin.empty())
          StartCall();
        else
          state_ = State::kSection;
        return;
      case Mark::kCallBegin:
        if (state_ != State::kSection && !raw_.empty()) RawIsText();  // one that came to nothing
        raw_ += marker;
        return StartCall();
      case Mark::kCallEnd:
        if (state_ == State::kKeyOrEnd) TellArguments(parameters_ == 0 ? "{}" : "}");
        if (!raw_.empty()) return FailWith(marker);
        return EndCall();
      case Mark::kSectionEnd:
        if (state_ == State::kKeyOrEnd) TellArguments(parameters_ == 0 ? "{}" : "}");
        if (!raw_.empty()) return FailWith(marker);
        return ToContent(true);
      case Mark::kKeyBegin:
        state_ = State::kKey;
        key_.clear();
        return;
      case Mark::kValueBegin:
        return BeginValue();
      case Mark::kValueEnd:
        return EndValue();
      case Mark::kHeadBegin:
        EndMessage();
        state_ = State::kHarmonyHead;
        raw_.clear();
        head_ = marker;
        return;
      case Mark::kMessageEnd:
        EndMessage();
        state_ = State::kHarmonyGap;
        return;
    }
  }
  // The end of what has not begun: all of it is text, the marker too.
  void FailWith(const std::string& marker) {
    raw_ += marker;
    in_section_ = false;
    after_ = false;
    fresh_ = false;
    RawIsText();
  }

  // A byte that begins no marker, where markers are looked for.
  void Released(char c) {
    switch (state_) {
      case State::kContent:
        if (after_ && fresh_ && form_.bare && (c == ';' || c == ',')) return;  // between two calls
        if (!ended_ && fresh_ && form_.bare && (c == '[' || (c == '{' && form_.body == Body::kJson))) {
          state_ = form_.body == Body::kPythonic ? State::kNames : State::kObjects;
          listed_ = false;
          return Released(c);
        }
        if (after_ && !IsSpace(c)) after_ = false;
        return Plain(Kind::kText, c);
      case State::kReasoning:
        return Plain(Kind::kReasoning, c);
      case State::kSection:
        if (!IsSpace(c)) return Fail(c);
        if (!raw_.empty()) raw_ += c;
        return;
      case State::kCallEnd:
        if (!IsSpace(c)) return LeaveWith(c);
        return;
      case State::kObjects:
        return BetweenObjects(c);
      case State::kNames:
        return BetweenNames(c);
      case State::kKeyOrEnd:
      case State::kValueBegin:
        if (!IsSpace(c)) Fail(c);
        return;
      case State::kValue:
        return ValueByte(c);
      case State::kHarmonyBody:
        return MessageByte(c);
      default:  // kHarmonyGap
        if (IsSpace(c)) return;
        ToContent(true);
        return Feed(c);
    }
  }
  void LeaveWith(char c) {
    ToContent(true);
    Feed(c);
  }

  void Take(char c) {
    switch (state_) {
      case State::kCallStart:
        if (IsSpace(c)) {
          raw_ += c;
          return;
        }
        state_ = c == '{' || c == '[' ? State::kObjects : State::kHead;
        return Feed(c);
      case State::kHead:
        return HeadByte(c);
      case State::kArguments:
        return ArgumentByte(c);
      case State::kKey:
        return KeyByte(c);
      case State::kName:
        return NameByte(c);
      case State::kPython:
        return PythonByte(c);
      case State::kHarmonyHead:
        return HarmonyHeadByte(c);
      default:
        return ObjectByte(c);
    }
  }

  // --- Calls ---
  void StartCall() {
    head_.clear();
    listed_ = false;
    switch (form_.body) {
      case Body::kJson:
        state_ = form_.either ? State::kCallStart : State::kObjects;
        return;
      case Body::kPythonic:
        state_ = State::kNames;
        return;
      default:
        state_ = form_.either ? State::kCallStart : State::kHead;
    }
  }
  bool Known(std::string_view name) const { return reading_.tools != nullptr && reading_.tools->Find(name) != nullptr; }
  // False: no call can have that name here.
  bool BeginCall(std::string_view name) {
    if (form_.bare ? !Known(name) : !IsName(name)) return false;
    raw_.clear();
    space_.clear();
    AnswerPart& part = parts_->emplace_back();
    part.kind = Kind::kCallBegin;
    part.name = name;
    part.call = calls_;
    part.id = CallId(id_seed_, calls_, form_.short_ids);
    ++calls_;
    tool_ = reading_.tools == nullptr ? nullptr : reading_.tools->Find(name);
    parameters_ = 0;
    follower_.Reset();
    return true;
  }
  void EndCall() {
    if (in_section_ && !form_.call_begin.empty())
      state_ = State::kSection;
    else
      ToContent(true);
  }

  void HeadByte(char c) {
    const bool stops = form_.head_stop != 0 && c == form_.head_stop;
    if (!stops) {
      raw_ += c;
      head_ += c;
      const bool ends = !form_.head_end.empty() && head_.ends_with(form_.head_end);
      if (!ends) {
        if (head_.size() <= kMaxHeadBytes) return;
        raw_.pop_back();
        return Fail(c);
      }
      head_.resize(head_.size() - form_.head_end.size());
    }
    std::string_view name = head_;
    if (const size_t at = form_.name_after.empty() ? std::string_view::npos : name.rfind(form_.name_after);
        at != std::string_view::npos)
      name.remove_prefix(at + form_.name_after.size());
    if (!form_.name_before.empty()) name = name.substr(0, name.find(form_.name_before));
    if (!BeginCall(Trimmed(name))) {
      if (stops) return Fail(c);
      raw_.pop_back();
      return Fail(c);
    }
    state_ = form_.body == Body::kParameters ? State::kKeyOrEnd : State::kArguments;
    head_.clear();
    began_ = false;
    if (stops) Feed(c);
  }

  // The arguments' JSON of a call whose name came before it.
  void ArgumentByte(char c) {
    if (!began_ && IsSpace(c)) return;
    if (!began_ && c != '{') {  // none
      TellArguments("{}");
      state_ = State::kCallEnd;
      return Feed(c);
    }
    began_ = true;
    const bool in_string = follower_.in_string();
    const ValueStep step = follower_.Next(c);
    if (step == ValueStep::kBad) return Fail(c);
    TellArgument(c, in_string);
    if (step != ValueStep::kEnd) return;
    if (form_.call_end.empty())
      EndCall();
    else
      state_ = State::kCallEnd;
  }
  void TellArgument(char c, bool in_string) {
    std::string json;
    AppendArgumentByte(c, in_string, &json);
    TellArguments(json);
  }

  // --- Parameters between markers ---
  void KeyByte(char c) {
    key_ += c;
    if (!key_.ends_with(form_.typed_keys ? std::string_view(">") : form_.key_end)) {
      if (key_.size() > kMaxHeadBytes) Fail(c);
      return;
    }
    std::string_view key = key_;
    key.remove_suffix(form_.typed_keys ? 1 : form_.key_end.size());
    is_text_ = key.find("string=\"true\"") != std::string_view::npos && form_.typed_keys;
    is_json_ = key.find("string=\"false\"") != std::string_view::npos && form_.typed_keys;
    if (form_.typed_keys) key = key.substr(0, key.find('"'));
    key_ = std::string(Trimmed(key));
    parameter_ = tool_ == nullptr ? nullptr : tool_->Find(key_);
    if (!is_json_ && parameter_ != nullptr)
      is_text_ = is_text_ || (parameter_->types.size() == 1 && parameter_->types[0] == "string");
    if (form_.value_begin.empty())
      BeginValue();
    else
      state_ = State::kValueBegin;
  }
  std::string KeyJson() {
    std::string json = parameters_++ == 0 ? "{" : ", ";
    AppendJsonString(&json, key_);
    return json + ": ";
  }
  void BeginValue() {
    state_ = State::kValue;
    value_.clear();
    at_value_start_ = true;
    newline_ = false;
    if (is_text_) TellArguments(KeyJson() + '"');
  }
  void ValueByte(char c) {
    if (form_.value_on_own_lines) {
      const bool first = std::exchange(at_value_start_, false);
      if (first && c == '\n') return;
      if (newline_) ValueText('\n');
      newline_ = c == '\n';
      if (newline_) return;
    }
    ValueText(c);
  }
  void ValueText(char c) {
    if (!is_text_) {
      value_ += c;
      return;
    }
    std::string json;
    AppendStringByte(c, &json);
    TellArguments(json);
  }
  void EndValue() {
    if (is_text_) {
      TellArguments("\"");
    } else {
      const Tool::Parameter any;
      TellArguments(KeyJson() + ParameterJson(value_, is_json_ ? &any : parameter_));
    }
    value_.clear();
    state_ = State::kKeyOrEnd;
  }

  // --- JSON objects with a name and arguments ---
  void BetweenObjects(char c) {
    if (IsSpace(c) || c == ',' || c == ';') {
      if (!raw_.empty()) raw_ += c;
      if (IsSpace(c) || raw_.empty()) return;
      raw_.pop_back();
      return Fail(c);
    }
    if (c == '[' && !listed_ && (!raw_.empty() || form_.bare)) {
      listed_ = true;
      raw_ += c;
      return;
    }
    if (c == ']' && listed_) {
      if (!raw_.empty()) return Fail(c);  // an empty list
      listed_ = false;
      if (form_.bare) ToContent(true);
      return;
    }
    if (c != '{') return raw_.empty() ? LeaveWith(c) : Fail(c);
    raw_ += c;
    state_ = State::kMember;
    depth_ = 0;
    named_ = argued_ = false;
    arguments_.clear();
  }
  void ObjectByte(char c) {
    if (!named_) raw_ += c;
    const auto fail = [&] {
      if (!named_) raw_.pop_back();
      Fail(c);
    };
    switch (state_) {
      case State::kMember:
        if (IsSpace(c)) return;
        if (c == '}') return EndObject(fail);
        if (c != '"') return fail();
        key_ = c;
        state_ = State::kMemberKey;
        follower_.Reset();
        follower_.Next(c);
        return;
      case State::kMemberKey: {
        key_ += c;
        const ValueStep step = follower_.Next(c);
        if (step == ValueStep::kBad || key_.size() > kMaxHeadBytes) return fail();
        if (step != ValueStep::kEnd) return;
        if (!DecodeJsonString(std::string(key_), &key_)) return fail();
        state_ = State::kMemberColon;
        return;
      }
      case State::kMemberColon:
        if (IsSpace(c)) return;
        if (c == ':' && !began_value_) {
          began_value_ = true;
          return;
        }
        if (!began_value_) return fail();
        began_value_ = false;
        return BeginMember(c, fail);
      case State::kMemberValue:
        return MemberByte(c, fail);
      default:  // kMemberEnd
        if (IsSpace(c)) return;
        if (c == ',') {
          state_ = State::kMember;
          return;
        }
        if (c != '}') return fail();
        return EndObject(fail);
    }
  }
  template <class FailFn>
  void BeginMember(char c, FailFn& fail) {
    const bool is_function = key_ == "function";
    if (is_function && c == '{') {
      if (depth_ > 0) return fail();
      ++depth_;
      state_ = State::kMember;
      return;
    }
    if (form_.name_is_key) {
      if (!BeginCall(key_)) return fail();
      named_ = true;
      argued_ = false;
      role_ = Role::kArguments;
    } else if (key_ == form_.name_key || key_ == "name" || key_ == "tool_name" || is_function) {
      role_ = Role::kName;
    } else if (key_ == form_.arguments_key || key_ == "arguments" || key_ == "parameters") {
      role_ = Role::kArguments;
    } else {
      role_ = Role::kOther;
      // A bare object is an answer like others unless it looks like a call.
      if (form_.bare && !named_ && key_ != "type" && key_ != "id" && key_ != "tool_call_id") return fail();
    }
    if ((role_ == Role::kName && named_) || (role_ == Role::kArguments && argued_)) return fail();
    value_.clear();
    is_json_ = c == '{';  // told as it comes
    follower_.Reset();
    state_ = State::kMemberValue;
    MemberByte(c, fail);
  }
  template <class FailFn>
  void MemberByte(char c, FailFn& fail) {
    const bool in_string = follower_.in_string();
    const ValueStep step = follower_.Next(c);
    if (step == ValueStep::kBad) return fail();
    if (step != ValueStep::kEndBefore) {
      if (role_ == Role::kArguments && is_json_ && named_)
        TellArgument(c, in_string);
      else if (role_ == Role::kArguments && is_json_)
        AppendArgumentByte(c, in_string, &arguments_);
      else if (role_ != Role::kOther)
        AppendArgumentByte(c, in_string, &value_);
      if (arguments_.size() > kMaxEarlyArguments || (role_ == Role::kName && value_.size() > kMaxHeadBytes))
        return fail();
      if (step == ValueStep::kMore) return;
    }
    if (role_ == Role::kArguments) {
      argued_ = true;
      if (!is_json_) {
        std::string text;
        if (value_ == "null")
          text = "{}";
        else if (!DecodeJsonString(value_, &text) || !IsJsonObject(text))
          text = value_;
        if (named_)
          TellArguments(text);
        else
          arguments_ = text;
      }
    } else if (role_ == Role::kName) {
      std::string name;
      if (!DecodeJsonString(value_, &name) || !BeginCall(name)) return fail();
      named_ = true;
      TellArguments(arguments_);
      arguments_.clear();
    }
    state_ = State::kMemberEnd;
    if (step == ValueStep::kEndBefore) ObjectByteAgain(c);
  }
  // A byte that raw_ has already.
  void ObjectByteAgain(char c) {
    if (!named_) raw_.pop_back();
    ObjectByte(c);
  }
  template <class FailFn>
  void EndObject(FailFn& fail) {
    if (depth_ > 0) {
      --depth_;
      state_ = State::kMemberEnd;
      return;
    }
    if (!named_) return fail();
    if (!argued_) TellArguments("{}");
    named_ = false;
    raw_.clear();
    if (form_.bare && !listed_)
      ToContent(true);
    else
      state_ = State::kObjects;
  }

  // --- Python calls ---
  void BetweenNames(char c) {
    if (IsSpace(c) || c == ',') {
      if (!raw_.empty()) raw_ += c;
      if (IsSpace(c) || raw_.empty()) return;
      raw_.pop_back();
      return Fail(c);
    }
    if (c == '[' && !listed_ && (!raw_.empty() || form_.bare)) {
      listed_ = true;
      raw_ += c;
      return;
    }
    if (c == ']' && listed_) {
      if (!raw_.empty()) return Fail(c);
      listed_ = false;
      if (form_.bare && form_.section_end.empty()) ToContent(true);
      return;
    }
    if (!IsNameByte(c)) return raw_.empty() ? LeaveWith(c) : Fail(c);
    raw_ += c;
    head_ = c;
    state_ = State::kName;
  }
  void NameByte(char c) {
    if (c == '(') {
      if (!BeginCall(Trimmed(head_))) return Fail(c);
      TellArguments("{");
      python_ = PythonArguments();
      state_ = State::kPython;
      return;
    }
    if ((!IsNameByte(c) && c != ' ') || head_.size() > kMaxHeadBytes) return Fail(c);
    raw_ += c;
    head_ += c;
  }
  void PythonByte(char c) {
    std::string json;
    const ValueStep step = python_.Next(c, &json);
    if (step == ValueStep::kBad) {
      raw_ = python_.pending();
      return Fail(c);
    }
    TellArguments(json);
    if (step == ValueStep::kEnd) state_ = State::kNames;
  }

  // --- Harmony: messages with a head. An answer begins inside the head of its first one ---
  void HarmonyHeadByte(char c) {
    raw_ += c;
    head_ += c;
    if (head_.ends_with(form_.head_end)) {
      head_.resize(head_.size() - form_.head_end.size());
      raw_.clear();
      return BeginMessage();
    }
    // At the start of the answer there may be no head at all.
    const std::string_view start = Trimmed(head_);
    const size_t known = std::min<size_t>(start.size(), 3);
    const bool may_be =
        start.empty() || start[0] == '<' || start.substr(0, known) == std::string_view("to=").substr(0, known);
    if (may_be && head_.size() <= kMaxHeadBytes) return;
    raw_.pop_back();
    Fail(c);
  }
  // The word behind `key`; empty: none.
  std::string_view HeadWord(std::string_view key) const {
    const size_t at = head_.find(key);
    if (at == std::string::npos) return {};
    const std::string_view rest = std::string_view(head_).substr(at + key.size());
    return rest.substr(0, rest.find_first_of(" \n<"));
  }
  void BeginMessage() {
    constexpr std::string_view kFunctions = "functions.";
    const std::string_view channel = HeadWord("<|channel|>"), recipient = HeadWord("to=");
    state_ = State::kHarmonyBody;
    calling_ = false;
    thinking_ = false;
    trim_ = true;
    began_ = false;
    if (recipient.starts_with(kFunctions) && reading_.tools != nullptr) {
      calling_ = BeginCall(recipient.substr(kFunctions.size()));
      if (calling_) return;
    }
    thinking_ = channel == "analysis" && recipient.empty();
  }
  void MessageByte(char c) {
    if (!calling_) return Plain(thinking_ ? Kind::kReasoning : Kind::kText, c);
    if (IsSpace(c) && !follower_.in_string() && (!began_ || argued_)) return;
    if (argued_) return;
    began_ = true;
    const bool in_string = follower_.in_string();
    const ValueStep step = follower_.Next(c);
    if (step == ValueStep::kBad) {  // the rest is no JSON
      calling_ = false;
      trim_ = false;
      return Plain(Kind::kText, c);
    }
    TellArgument(c, in_string);
    argued_ = step == ValueStep::kEnd;
  }
  void EndMessage() {
    space_.clear();
    if (calling_ && !began_) TellArguments("{}");
    calling_ = argued_ = false;
    thinking_ = false;
  }

  AnswerReading reading_;
  const std::string id_seed_;
  ToolFormat form_;  // of reading_.calls; without one: no markers
  Markers content_, after_call_, thought_, section_, tail_, keys_, value_begin_, value_end_, message_, gap_;

  std::vector<AnswerPart>* parts_ = nullptr;
  State state_ = State::kContent;
  std::string held_;   // may become a marker
  std::string space_;  // text, or beside a marker
  std::string raw_;
  bool trim_ = false;   // white space is of the form
  bool fresh_ = true;   // no text since the start, a call or the reasoning
  bool after_ = false;  // nothing but white space since a call
  bool ended_ = false;
  bool in_section_ = false;
  int32_t calls_ = 0;

  // Of the call that is read.
  const Tool* tool_ = nullptr;
  std::string head_, key_, value_;
  JsonFollower follower_;
  bool began_ = false;  // something of its arguments has come
  // kParameters
  const Tool::Parameter* parameter_ = nullptr;
  int32_t parameters_ = 0;
  bool is_text_ = false, is_json_ = false, at_value_start_ = false, newline_ = false;
  // kJson
  Role role_ = Role::kOther;
  bool listed_ = false, named_ = false, argued_ = false, began_value_ = false;
  int32_t depth_ = 0;
  std::string arguments_;  // that came before the name
  PythonArguments python_;
  // kHarmony
  bool thinking_ = false, calling_ = false;
};

AnswerText::AnswerText(AnswerReading reading, std::string id_seed)
    : impl_(std::make_unique<Impl>(std::move(reading), std::move(id_seed))) {}
AnswerText::~AnswerText() = default;

void AnswerText::Append(std::string_view text, std::vector<AnswerPart>* parts) {
  impl_->Append(text, parts);
}
void AnswerText::Finish(std::vector<AnswerPart>* parts) {
  impl_->Finish(parts);
}
bool AnswerText::called() const {
  return impl_->called();
}

}  // namespace tactus::api
