// Parses tool calls in an answer's text: heads, arguments, parameters, objects and Python calls
// (api/chat/answer_text_impl.h).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/chat/answer_text_impl.h"
#include "base/hash.h"

namespace tactus::api {
namespace {

using Body = ToolFormat::Body;
using Kind = AnswerPart::Kind;

constexpr size_t kMaxEarlyArguments = size_t{1} << 20;  // arguments that came before the name

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

bool IsName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), IsNameByte);
}

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

void AnswerText::Impl::StartCall() {
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

bool AnswerText::Impl::Known(std::string_view name) const {
  return reading_.tools != nullptr && reading_.tools->Find(name) != nullptr;
}

bool AnswerText::Impl::BeginCall(std::string_view name) {
  if (form_.bare ? !Known(name) : !IsName(name)) return false;
  raw_.clear();
  space_.clear();
  AnswerPart& part = parts_->emplace_back();
  part.kind = Kind::kCallBegin;
  part.name = name;
  part.call = calls_;
  part.id = CallId(id_seed_, calls_, form_.short_ids);
  ++calls_;
  told_depth_ = 0;
  told_any_ = told_string_ = told_escape_ = false;
  tool_ = reading_.tools == nullptr ? nullptr : reading_.tools->Find(name);
  parameters_ = 0;
  follower_.Reset();
  return true;
}

void AnswerText::Impl::EndCall() {
  if (in_section_ && !form_.call_begin.empty())
    state_ = State::kSection;
  else
    ToContent(true);
}

void AnswerText::Impl::HeadByte(char c) {
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

void AnswerText::Impl::ArgumentByte(char c) {
  if (!began_ && IsSpace(c)) return;
  if (!began_ && c != '{') {  // no arguments
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

void AnswerText::Impl::TellArgument(char c, bool in_string) {
  std::string json;
  AppendArgumentByte(c, in_string, &json);
  TellArguments(json);
}

void AnswerText::Impl::KeyByte(char c) {
  key_ += c;
  if (!key_.ends_with(form_.typed_keys ? std::string_view(">") : form_.key_end)) {
    if (key_.size() > kMaxHeadBytes && BeginsCharacter(c)) Fail(c);
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

std::string AnswerText::Impl::KeyJson() {
  std::string json = parameters_++ == 0 ? "{" : ", ";
  AppendJsonString(&json, key_);
  return json + ": ";
}

void AnswerText::Impl::BeginValue() {
  state_ = State::kValue;
  value_.clear();
  at_value_start_ = true;
  newline_ = false;
  if (is_text_) TellArguments(KeyJson() + '"');
}

void AnswerText::Impl::ValueByte(char c) {
  if (form_.value_on_own_lines) {
    const bool first = std::exchange(at_value_start_, false);
    if (first && c == '\n') return;
    if (newline_) ValueText('\n');
    newline_ = c == '\n';
    if (newline_) return;
  }
  ValueText(c);
}

void AnswerText::Impl::ValueText(char c) {
  if (!is_text_) {
    value_ += c;
    return;
  }
  std::string json;
  AppendStringByte(c, &json);
  TellArguments(json);
}

void AnswerText::Impl::EndValue() {
  if (is_text_) {
    TellArguments("\"");
  } else {
    const Tool::Parameter any;
    TellArguments(KeyJson() + ParameterJson(value_, is_json_ ? &any : parameter_));
  }
  value_.clear();
  state_ = State::kKeyOrEnd;
}

// A byte between the items of a list of calls: white space, separator or closing bracket. False: `c` is none of them.
bool AnswerText::Impl::BetweenItems(char c, std::string_view separators) {
  if (IsSpace(c) || separators.find(c) != std::string_view::npos) {
    if (!raw_.empty()) raw_ += c;
    if (IsSpace(c) || raw_.empty()) return true;
    raw_.pop_back();
    Fail(c);
    return true;
  }
  if (c == '[' && !listed_ && (!raw_.empty() || form_.bare)) {
    listed_ = true;
    raw_ += c;
    return true;
  }
  if (c != ']' || !listed_) return false;
  if (!raw_.empty()) {  // an empty list
    Fail(c);
    return true;
  }
  listed_ = false;
  if (form_.bare && form_.section_end.empty()) ToContent(true);
  return true;
}

void AnswerText::Impl::BetweenObjects(char c) {
  if (BetweenItems(c, ",;")) return;
  if (c != '{') return raw_.empty() ? LeaveWith(c) : Fail(c);
  raw_ += c;
  state_ = State::kMember;
  depth_ = 0;
  named_ = argued_ = false;
  arguments_.clear();
}

void AnswerText::Impl::ObjectByte(char c) {
  if (!named_) raw_ += c;
  switch (state_) {
    case State::kMember:
      if (IsSpace(c)) return;
      if (c == '}') return EndObject(c);
      if (c != '"') return FailObject(c);
      key_ = c;
      state_ = State::kMemberKey;
      follower_.Reset();
      follower_.Next(c);
      return;
    case State::kMemberKey: {
      key_ += c;
      const ValueStep step = follower_.Next(c);
      if (step == ValueStep::kBad || (key_.size() > kMaxHeadBytes && BeginsCharacter(c))) return FailObject(c);
      if (step != ValueStep::kEnd) return;
      if (!DecodeJsonString(std::string(key_), &key_)) return FailObject(c);
      state_ = State::kMemberColon;
      return;
    }
    case State::kMemberColon:
      if (IsSpace(c)) return;
      if (c == ':' && !began_value_) {
        began_value_ = true;
        return;
      }
      if (!began_value_) return FailObject(c);
      began_value_ = false;
      return BeginMember(c);
    case State::kMemberValue:
      return MemberByte(c);
    default:  // kMemberEnd
      if (IsSpace(c)) return;
      if (c == ',') {
        state_ = State::kMember;
        return;
      }
      if (c != '}') return FailObject(c);
      return EndObject(c);
  }
}

void AnswerText::Impl::BeginMember(char c) {
  const bool is_function = key_ == "function";
  if (is_function && c == '{') {
    if (depth_ > 0) return FailObject(c);
    ++depth_;
    state_ = State::kMember;
    return;
  }
  if (form_.name_is_key) {
    if (!BeginCall(key_)) return FailObject(c);
    named_ = true;
    argued_ = false;
    role_ = Role::kArguments;
  } else if (key_ == form_.name_key || key_ == "name" || key_ == "tool_name" || is_function) {
    role_ = Role::kName;
  } else if (key_ == form_.arguments_key || key_ == "arguments" || key_ == "parameters") {
    role_ = Role::kArguments;
  } else {
    role_ = Role::kOther;
    // A bare object is plain text unless it looks like a call.
    if (form_.bare && !named_ && key_ != "type" && key_ != "id" && key_ != "tool_call_id") return FailObject(c);
  }
  if ((role_ == Role::kName && named_) || (role_ == Role::kArguments && argued_)) return FailObject(c);
  value_.clear();
  is_json_ = c == '{';  // output as it arrives
  follower_.Reset();
  state_ = State::kMemberValue;
  MemberByte(c);
}

void AnswerText::Impl::MemberByte(char c) {
  const bool in_string = follower_.in_string();
  const ValueStep step = follower_.Next(c);
  if (step == ValueStep::kBad) return FailObject(c);
  if (step != ValueStep::kEndBefore) {
    if (role_ == Role::kArguments && is_json_ && named_)
      TellArgument(c, in_string);
    else if (role_ == Role::kArguments && is_json_)
      AppendArgumentByte(c, in_string, &arguments_);
    else if (role_ != Role::kOther)
      AppendArgumentByte(c, in_string, &value_);
    const bool too_long =
        arguments_.size() > kMaxEarlyArguments || (role_ == Role::kName && value_.size() > kMaxHeadBytes);
    if (too_long && BeginsCharacter(c)) return FailObject(c);
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
    if (!DecodeJsonString(value_, &name) || !BeginCall(name)) return FailObject(c);
    named_ = true;
    TellArguments(arguments_);
    arguments_.clear();
  }
  state_ = State::kMemberEnd;
  if (step == ValueStep::kEndBefore) ObjectByteAgain(c);
}

void AnswerText::Impl::FailObject(char c) {
  if (!named_) raw_.pop_back();
  Fail(c);
}

void AnswerText::Impl::ObjectByteAgain(char c) {
  if (!named_) raw_.pop_back();
  ObjectByte(c);
}

void AnswerText::Impl::EndObject(char c) {
  if (depth_ > 0) {
    --depth_;
    state_ = State::kMemberEnd;
    return;
  }
  if (!named_) return FailObject(c);
  if (!argued_) TellArguments("{}");
  named_ = false;
  raw_.clear();
  if (form_.bare && !listed_)
    ToContent(true);
  else
    state_ = State::kObjects;
}

void AnswerText::Impl::BetweenNames(char c) {
  if (BetweenItems(c, ",")) return;
  if (!IsNameByte(c)) return raw_.empty() ? LeaveWith(c) : Fail(c);
  raw_ += c;
  head_ = c;
  state_ = State::kName;
}

void AnswerText::Impl::NameByte(char c) {
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

void AnswerText::Impl::PythonByte(char c) {
  std::string json;
  const ValueStep step = python_.Next(c, &json);
  if (step == ValueStep::kBad) {
    raw_ = python_.pending();
    return Fail(c);
  }
  TellArguments(json);
  if (step == ValueStep::kEnd) state_ = State::kNames;
}

}  // namespace tactus::api
