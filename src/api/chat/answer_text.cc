#include "api/chat/answer_text.h"

#include <algorithm>
#include <utility>

#include "api/chat/answer_text_impl.h"

namespace tactus::api {
namespace {

using Body = ToolFormat::Body;
using Kind = AnswerPart::Kind;

constexpr size_t kMaxSpaceBytes = 256;  // withheld

}  // namespace

AnswerText::Impl::Impl(AnswerReading reading, std::string id_seed)
    : reading_(std::move(reading)), id_seed_(std::move(id_seed)) {
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
  NoteTurn();
}

void AnswerText::Impl::Append(std::string_view text, std::vector<AnswerPart>* parts) {
  parts_ = parts;
  for (const char c : text) {
    ++fed_;
    marker_bytes_ = 0;
    Feed(c);
    NoteTurn();
  }
}

void AnswerText::Impl::NoteTurn() {
  const bool thought = turns_.size() % 2 == 1;
  if (Thinks() != thought) turns_.push_back(thought ? fed_ - marker_bytes_ : fed_);
}

void AnswerText::Impl::Finish(std::vector<AnswerPart>* parts) {
  parts_ = parts;
  ended_ = true;
  // Withheld text that might have become a marker is plain text.
  const std::string held = std::exchange(held_, {});
  const bool in_call = state_ != State::kContent && state_ != State::kReasoning && state_ != State::kHarmonyBody;
  // If a call is required, the incomplete head of a call is not content.
  const bool must_call = reading_.tools != nullptr && reading_.tools->choice != ToolSet::Choice::kAuto;
  if (must_call && state_ == State::kContent) {
    raw_.clear();
  } else if (!in_call || state_ == State::kValue) {
    for (const char c : held) Released(c);
    if (!raw_.empty() && !must_call) RawIsText();  // a call that ended after its beginning
  } else if (!raw_.empty() && !must_call) {
    raw_ += held;
    RawIsText();
  }
  FlushSpace();
  const bool in_arguments = state_ == State::kArguments || (state_ == State::kHarmonyBody && calling_);
  if (in_arguments && !began_) TellArguments("{}");  // the call has no arguments
}

bool AnswerText::Impl::called() const {
  return calls_ > 0;
}

void AnswerText::Impl::SetMarkers() {
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

void AnswerText::Impl::Tell(AnswerPart::Kind kind, std::string_view text, int32_t call) {
  if (text.empty()) return;
  if (parts_->empty() || parts_->back().kind != kind || parts_->back().call != call) {
    AnswerPart& part = parts_->emplace_back();
    part.kind = kind;
    part.call = call;
  }
  parts_->back().text += text;
}

void AnswerText::Impl::TellArguments(std::string_view json) {
  Tell(Kind::kCallArguments, json, calls_ - 1);
  for (const char c : json) {
    if (told_escape_) {
      told_escape_ = false;
    } else if (told_string_) {
      told_escape_ = c == '\\';
      told_string_ = c != '"';
    } else {
      told_string_ = c == '"';
      told_depth_ += (c == '{' || c == '[') - (c == '}' || c == ']');
      told_any_ = true;
    }
  }
}

void AnswerText::Impl::FlushSpace() {
  Tell(state_ == State::kReasoning || thinking_ ? Kind::kReasoning : Kind::kText, space_);
  space_.clear();
}

void AnswerText::Impl::Plain(AnswerPart::Kind kind, char c) {
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

void AnswerText::Impl::RawIsText() {
  const std::string raw = std::exchange(raw_, {});
  thinking_ = false;
  state_ = State::kContent;
  for (const char c : raw) Plain(Kind::kText, c);
}

void AnswerText::Impl::Fail(char c) {
  held_.clear();
  in_section_ = false;
  after_ = false;
  fresh_ = false;
  RawIsText();
  Feed(c);
}

void AnswerText::Impl::ToContent(bool after_call) {
  state_ = State::kContent;
  thinking_ = false;
  in_section_ = false;
  raw_.clear();
  trim_ = true;
  fresh_ = true;
  after_ = after_call;
}

void AnswerText::Impl::Feed(char c) {
  const Markers* markers = ActiveMarkers();
  if (markers == nullptr) return Take(c);
  if (held_.empty() && !markers->MayBegin(c)) return Released(c);
  held_ += c;
  Mark mark{};
  switch (markers->Find(held_, &mark)) {
    case Markers::Match::kPart:
      return;
    case Markers::Match::kWhole: {
      const std::string marker = std::exchange(held_, {});
      marker_bytes_ = marker.size();
      return Found(mark, marker);
    }
    case Markers::Match::kNone: {
      // The first byte begins no marker; the others are fed again in the resulting state.
      const std::string held = std::exchange(held_, {});
      Released(held[0]);
      for (const char rest : std::string_view(held).substr(1)) Feed(rest);
      return;
    }
  }
}

const Markers* AnswerText::Impl::ActiveMarkers() const {
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

void AnswerText::Impl::Found(Mark mark, const std::string& marker) {
  switch (mark) {
    case Mark::kReasoningBegin:
      if (!fresh_) {  // within text it is plain text
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
      if (state_ != State::kSection && !raw_.empty()) RawIsText();  // the unfinished call is text
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

void AnswerText::Impl::FailWith(const std::string& marker) {
  raw_ += marker;
  in_section_ = false;
  after_ = false;
  fresh_ = false;
  RawIsText();
}

void AnswerText::Impl::Released(char c) {
  switch (state_) {
    case State::kContent:
      if (after_ && fresh_ && form_.bare && (c == ';' || c == ',')) return;  // separates two calls
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

void AnswerText::Impl::LeaveWith(char c) {
  ToContent(true);
  Feed(c);
}

void AnswerText::Impl::Take(char c) {
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

void AnswerText::Impl::HarmonyHeadByte(char c) {
  raw_ += c;
  head_ += c;
  if (head_.ends_with(form_.head_end)) {
    head_.resize(head_.size() - form_.head_end.size());
    raw_.clear();
    return BeginMessage();
  }
  // At the start of the answer the head may be missing.
  const std::string_view start = Trimmed(head_);
  const size_t known = std::min<size_t>(start.size(), 3);
  const bool may_be =
      start.empty() || start[0] == '<' || start.substr(0, known) == std::string_view("to=").substr(0, known);
  if (may_be && head_.size() <= kMaxHeadBytes) return;
  raw_.pop_back();
  Fail(c);
}

std::string_view AnswerText::Impl::HeadWord(std::string_view key) const {
  const size_t at = head_.find(key);
  if (at == std::string::npos) return {};
  const std::string_view rest = std::string_view(head_).substr(at + key.size());
  return rest.substr(0, rest.find_first_of(" \n<"));
}

void AnswerText::Impl::BeginMessage() {
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

void AnswerText::Impl::MessageByte(char c) {
  if (!calling_) return Plain(thinking_ ? Kind::kReasoning : Kind::kText, c);
  if (IsSpace(c) && !follower_.in_string() && (!began_ || argued_)) return;
  if (argued_) return;
  began_ = true;
  const bool in_string = follower_.in_string();
  const ValueStep step = follower_.Next(c);
  if (step == ValueStep::kBad) {  // the rest is not JSON
    calling_ = false;
    trim_ = false;
    return Plain(Kind::kText, c);
  }
  TellArgument(c, in_string);
  argued_ = step == ValueStep::kEnd;
}

void AnswerText::Impl::EndMessage() {
  space_.clear();
  if (calling_ && !began_) TellArguments("{}");
  calling_ = argued_ = false;
  thinking_ = false;
}

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
bool AnswerText::broken() const {
  return impl_->called() && !impl_->whole();
}
const std::vector<size_t>& AnswerText::reasoning_turns() const {
  return impl_->turns();
}
size_t AnswerText::bytes() const {
  return impl_->bytes();
}

}  // namespace tactus::api
