#include "api/chat/history.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "api/tools/written_calls.h"
#include "base/hash.h"
#include "base/json.h"

namespace tactus::api {
namespace {

using Silence = HistoryForm::Silence;
using Words = HistoryForm::Words;
using CallNames = std::map<std::string, std::string, std::less<>>;  // names of functions, by the ids of their calls

constexpr const char* kReasoningNames[] = {"reasoning_content", "reasoning", "thinking"};

std::string_view TextField(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? std::string_view(it->get_ref<const std::string&>())
                                               : std::string_view();
}

Json* CallsOf(Json* message) {
  const auto calls = message->find("tool_calls");
  return calls == message->end() || !calls->is_array() || calls->empty() ? nullptr : &*calls;
}

Json* FunctionOf(Json* call) {
  const auto function = call->find("function");
  return function == call->end() || !function->is_object() ? nullptr : &*function;
}

void Learn(Json* calls, CallNames* names) {
  for (Json& call : *calls) {
    if (const Json* function = FunctionOf(&call))
      names->insert_or_assign(std::string(TextField(call, "id")), std::string(TextField(*function, "name")));
  }
}

std::string_view NameOfResult(const Json& result, const CallNames& names) {
  const auto known = names.find(TextField(result, "tool_call_id"));
  return known == names.end() ? std::string_view() : std::string_view(known->second);
}

// Moves calls into the content, as the model wrote them or as its system message requests, and results into user
// messages.
void WriteInWords(const ToolFormat* calls_format, bool results_too, Json* messages) {
  CallNames names;
  for (Json& message : *messages) {
    if (message["role"] == "tool" && results_too) {
      std::string_view name = TextField(message, "name");
      if (name.empty()) name = NameOfResult(message, names);
      std::string text = fmt::format("Result of {}:\n{}", name, TextField(message, "content"));
      message = Json{{"role", "user"}, {"content", std::move(text)}};
      continue;
    }
    Json* const calls = CallsOf(&message);
    if (calls == nullptr) continue;
    Learn(calls, &names);
    std::string text(TextField(message, "content"));
    const std::string written = WrittenCalls(calls_format, *calls);
    if (!text.empty() && !written.empty()) text += '\n';
    message["content"] = text + written;
    message.erase("tool_calls");
  }
}

std::string ShortId(std::string_view id) {
  constexpr size_t kChars = 9;
  constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool fits = id.size() == kChars && id.find_first_not_of(kAlphabet) == std::string_view::npos;
  if (fits) return std::string(id);
  uint64_t rest = SipHash128({}, id.data(), id.size()).low;
  std::string made;
  for (size_t i = 0; i < kChars; ++i, rest /= kAlphabet.size()) made += kAlphabet[rest % kAlphabet.size()];
  return made;
}

void Shorten(Json* object, const char* name) {
  const auto id = object->find(name);
  if (id != object->end() && id->is_string()) *id = ShortId(id->get_ref<const std::string&>());
}

class Fitting {
 public:
  explicit Fitting(const HistoryForm& form) : form_(form) {}

  Json Run(Json* messages) && {
    for (size_t i = 0; i < messages->size(); ++i) {
      Json& message = (*messages)[i];
      if (message["role"] == "tool") FitResult(&message);
      if (message["role"] != "assistant") {
        out_.push_back(std::move(message));
        continue;
      }
      FitTurn(&message);
      Json* const calls = CallsOf(&message);
      if (form_.one_call_a_turn && calls != nullptr && calls->size() > 1)
        i = Split(messages, i);
      else
        out_.push_back(std::move(message));
    }
    return std::move(out_);
  }

 private:
  void FitResult(Json* result) const {
    if (form_.named_results && !result->contains("name"))
      (*result)["name"] = std::string(NameOfResult(*result, names_));
    if (form_.short_ids) Shorten(result, "tool_call_id");
  }

  void FitTurn(Json* turn) {
    if (!form_.takes_reasoning) {
      for (const char* name : kReasoningNames) turn->erase(name);
    }
    Json* const calls = CallsOf(turn);
    const bool silent = TextField(*turn, "content").empty();
    if (calls == nullptr) {
      if (silent) (*turn)["content"] = form_.nothing;
      return;
    }
    if (form_.named_results) Learn(calls, &names_);
    for (Json& call : *calls) FitCall(&call);
    if (silent) return LeaveSilent(turn);
    if (form_.words == Words::kInReasoning) WordsIntoReasoning(turn);
    if (form_.words == Words::kBeforeCalls) {
      out_.push_back(Json{{"role", "assistant"}, {"content", std::move((*turn)["content"])}});
      LeaveSilent(turn);
    }
  }

  void FitCall(Json* call) const {
    if (form_.short_ids) Shorten(call, "id");
    Json* const function = FunctionOf(call);
    if (function == nullptr || form_.broken_arguments) return;
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) return;
    if (form_.arguments_as_text && Json::accept(arguments->get_ref<const std::string&>())) return;
    Json wrapped = {{kIncompleteKey, std::move(*arguments)}};
    *arguments = form_.arguments_as_text ? Json(wrapped.dump()) : std::move(wrapped);
  }

  void LeaveSilent(Json* turn) const {
    if (form_.silence == Silence::kAbsent)
      turn->erase("content");
    else
      (*turn)["content"] = form_.silence == Silence::kNull ? Json(nullptr) : Json("");
  }

  void WordsIntoReasoning(Json* turn) const {
    std::string thought;
    for (const char* name : kReasoningNames) {
      if (thought.empty()) thought = TextField(*turn, name);
    }
    if (thought.empty()) return;
    for (const char* name : kReasoningNames) turn->erase(name);
    thought += "\n\n";
    thought += TextField(*turn, "content");
    (*turn)["reasoning_content"] = std::move(thought);
    LeaveSilent(turn);
  }

  // Splits messages[at] into a turn for each call, each followed by its results, which come in any order. Returns the
  // index of the last consumed message.
  size_t Split(Json* messages, size_t at) {
    Json turn = std::move((*messages)[at]);
    Json calls = std::move(turn["tool_calls"]);
    std::map<std::string, size_t, std::less<>> places;
    for (size_t i = 0; i < calls.size(); ++i) places.emplace(TextField(calls[i], "id"), i);
    std::vector<std::vector<Json>> results(calls.size());
    for (; at + 1 < messages->size() && (*messages)[at + 1]["role"] == "tool"; ++at) {
      Json& result = (*messages)[at + 1];
      FitResult(&result);
      const auto place = places.find(TextField(result, "tool_call_id"));
      results[place == places.end() ? calls.size() - 1 : place->second].push_back(std::move(result));
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      turn["tool_calls"] = Json::array({std::move(calls[i])});
      out_.push_back(std::move(turn));
      for (Json& result : results[i]) out_.push_back(std::move(result));
      turn = Json{{"role", "assistant"}};
      LeaveSilent(&turn);
    }
    return at;
  }

  const HistoryForm& form_;
  CallNames names_;
  Json out_ = Json::array();
};

bool IsPlainTurn(const Json& message) {
  return (message["role"] == "user" || message["role"] == "assistant") && !message.contains("tool_calls");
}

// Appends the texts of `next` to those of `turn`.
void Join(const std::string& nothing, const Json& next, Json* turn) {
  for (const char* name : {"content", "reasoning_content", "reasoning", "thinking"}) {
    const std::string_view more = TextField(next, name);
    const bool content = name == std::string_view("content");
    if (more.empty() || (content && more == nothing)) continue;
    std::string text(TextField(*turn, name));
    if (content && text == nothing) text.clear();
    if (!text.empty()) text += "\n\n";
    text += more;
    (*turn)[name] = std::move(text);
  }
}

}  // namespace

void FitHistory(const HistoryForm& form, const ToolFormat* calls, bool knows_tools, Json* messages) {
  if (!knows_tools || !form.shows_calls)
    WriteInWords(knows_tools ? calls : nullptr, !knows_tools || !form.shows_results, messages);
  *messages = Fitting(form).Run(messages);
}

void AlternateRoles(const HistoryForm& form, Json* messages) {
  if (!form.roles_alternate && !form.results_answered) return;
  Json out = Json::array();
  bool answered = true;  // the last user message has an answer
  for (Json& message : *messages) {
    const bool user = message["role"] == "user";
    if (user && !answered && form.results_answered && out.back()["role"] != "user")
      out.push_back(Json{{"role", "assistant"}, {"content", form.nothing}});
    const bool follows =
        form.roles_alternate && !out.empty() && IsPlainTurn(out.back()) && message["role"] == out.back()["role"];
    if (follows && IsPlainTurn(message)) {
      Join(form.nothing, message, &out.back());
    } else if (follows && form.words == Words::kBesideCalls) {  // text, then calls: one turn
      Json turn = std::move(out.back());
      Join(form.nothing, message, &turn);
      turn["tool_calls"] = std::move(message["tool_calls"]);
      out.back() = std::move(turn);
      answered = false;
    } else {
      out.push_back(std::move(message));
    }
    const Json& last = out.back();
    answered = last["role"] == "user" ? false : answered || (last["role"] == "assistant" && IsPlainTurn(last));
  }
  *messages = std::move(out);
}

}  // namespace tactus::api
