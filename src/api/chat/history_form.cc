// Probes what history a chat template accepts.
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "api/chat/history.h"
#include "base/json.h"

namespace tactus::api {
namespace {

using Silence = HistoryForm::Silence;
using Words = HistoryForm::Words;

// Sample messages of a client, with words that no template contains.
constexpr const char* kName = "probed_tool";
constexpr std::string_view kBrokenArguments = R"({"city": "Zq1)";
constexpr std::string_view kFirstId = "abcdef123", kSecondId = "abcdef124", kLongId = "call_abcdef1234567890";
constexpr const char* kWords = "Zq3";
constexpr const char* kThought = "Zq4";

size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// How often the text contains a null value, which a template prints where it expects a text.
size_t CountNone(std::string_view text) {
  return Count(text, "None") + Count(text, "null") + Count(text, "Undefined") + Count(text, "undefined");
}

// The text as the inside of a JSON string.
std::string Escaped(std::string_view text) {
  std::string out;
  AppendJsonString(&out, text);
  return out.substr(1, out.size() - 2);
}

Json User(const char* content) {
  return {{"role", "user"}, {"content", content}};
}
Json Spoken(const std::string& content) {
  return {{"role", "assistant"}, {"content", content}};
}
Json CallOf(std::string_view id, Json arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", kName}, {"arguments", std::move(arguments)}}}};
}
Json ResultOf(std::string_view id, const char* content) {
  return {{"role", "tool"}, {"name", kName}, {"tool_call_id", id}, {"content", content}};
}

class Asker {
 public:
  Asker(const Engine& engine, bool with_tools) : engine_(engine), with_tools_(with_tools) {
    const auto question = Render({User("Q")});
    can_render_ = question.has_value();
    if (!can_render_) return;
    names_before_ = Count(*question, kName);
    nones_before_ = CountNone(*question);
  }

  HistoryForm Ask() {
    if (!can_render_) return form_;
    AskCalls();
    if (form_.shows_calls) AskMoreOfCalls();
    AskTurns();
    return form_;
  }

 private:
  std::optional<std::string> Render(std::initializer_list<Json> messages) const {
    Json variables = {{"messages", Json::array()}, {"add_generation_prompt", true}};
    for (const Json& message : messages) variables["messages"].push_back(message);
    if (with_tools_) {
      variables["tools"] = Json::parse(
          R"([{"type": "function", "function": {"name": "probed_tool", "description": "D.", "parameters":
          {"type": "object", "properties": {"city": {"type": "string", "description": "C."}}, "required": ["city"]}}}])");
    }
    auto text = engine_.ApplyChatTemplate(variables.dump());
    if (!text.ok()) return std::nullopt;
    return std::move(text).value();
  }
  bool Takes(std::initializer_list<Json> messages) const { return Render(messages).has_value(); }
  bool Shows(std::initializer_list<Json> messages, std::initializer_list<std::string_view> parts) const {
    const auto text = Render(messages);
    return text && std::all_of(parts.begin(), parts.end(),
                               [&](std::string_view part) { return text->find(part) != std::string::npos; });
  }

  Json Arguments(const char* city) const {
    const Json object = {{"city", city}};
    return form_.arguments_as_text ? Json(object.dump()) : object;
  }
  // A turn with calls, in the form found so far.
  Json Calls(std::initializer_list<Json> calls) const {
    Json turn = {{"role", "assistant"}};
    if (form_.silence != Silence::kAbsent) turn["content"] = form_.silence == Silence::kNull ? Json(nullptr) : Json("");
    turn["tool_calls"] = Json::array();
    for (const Json& call : calls) turn["tool_calls"].push_back(call);
    return turn;
  }
  Json FirstCall() const { return Calls({CallOf(kFirstId, Arguments("Zq1"))}); }
  static Json FirstResult() { return ResultOf(kFirstId, "Zr1"); }
  static Json With(Json turn, const char* member, const char* text) {
    turn[member] = text;
    return turn;
  }

  // The total bytes of a conversation with a call and of one that continues after it. Nothing: the template fails, does
  // not show the call, or prints a null value.
  std::optional<size_t> Size() const {
    const auto text = Render({User("Q"), FirstCall(), FirstResult()});
    const auto more = Render({User("Q"), FirstCall(), FirstResult(), Spoken("A"), User("Q")});
    if (!text || !more || Count(*text, kName) <= names_before_ || text->find("Zq1") == std::string::npos)
      return std::nullopt;
    const auto said = Render({User("Q"), With(FirstCall(), "content", kWords), FirstResult()});
    if (CountNone(*text) > (said ? CountNone(*said) : nones_before_)) return std::nullopt;
    return text->size() + more->size();
  }

  // Finds the form of calls with the shortest rendering: in other forms the template adds text around empty content.
  void AskCalls() {
    HistoryForm best = form_;
    best.shows_calls = false;
    size_t best_size = 0;
    for (const bool as_text : {false, true}) {
      for (const Silence silence : {Silence::kEmptyText, Silence::kNull, Silence::kAbsent}) {
        form_.arguments_as_text = as_text;
        form_.silence = silence;
        const auto size = Size();
        if (!size || (best.shows_calls && *size >= best_size)) continue;
        best = form_;
        best.shows_calls = true;
        best_size = *size;
      }
      if (best.shows_calls) break;
    }
    form_ = best;
    if (form_.shows_calls) return;
    form_.silence = Silence::kEmptyText;
    form_.arguments_as_text = false;
    form_.shows_results = Shows({User("Q"), Spoken("A"), FirstResult()}, {"Zr1"});
  }

  void AskMoreOfCalls() {
    const Json broken = Calls({CallOf(kFirstId, kBrokenArguments)});
    form_.broken_arguments = Shows({User("Q"), broken, FirstResult()}, {kBrokenArguments}) ||
                             Shows({User("Q"), broken, FirstResult()}, {Escaped(kBrokenArguments)});

    const Json second = CallOf(kSecondId, Arguments("Zq2")), result = ResultOf(kSecondId, "Zr2");
    const Json both = Calls({CallOf(kFirstId, Arguments("Zq1")), second});
    const auto all = {std::string_view("Zq1"), std::string_view("Zq2"), std::string_view("Zr1"),
                      std::string_view("Zr2")};
    form_.one_call_a_turn = !Shows({User("Q"), both, FirstResult(), result}, all) &&
                            Shows({User("Q"), FirstCall(), FirstResult(), Calls({second}), result}, all);

    form_.short_ids = !Takes({User("Q"), Calls({CallOf(kLongId, Arguments("Zq1"))}), ResultOf(kLongId, "Zr1")});
    Json nameless = FirstResult();
    nameless.erase("name");
    form_.named_results = !Takes({User("Q"), FirstCall(), nameless});

    const Json thinks = With(FirstCall(), "reasoning_content", kThought);
    form_.takes_reasoning = Shows({User("Q"), thinks, FirstResult()}, {"Zq1"});
    const Json says = With(FirstCall(), "content", kWords);
    if (!Shows({User("Q"), says, FirstResult()}, {"Zq1"})) {
      if (Shows({User("Q"), Spoken(kWords), FirstCall(), FirstResult()}, {"Zq1"})) form_.words = Words::kBeforeCalls;
    } else if (form_.takes_reasoning && !Shows({User("Q"), With(thinks, "content", kWords), FirstResult()}, {"Zq1"})) {
      form_.words = Words::kInReasoning;
    }
  }

  void AskTurns() {
    const Json user = User("Q");
    const bool takes = Takes({user, Spoken("A"), user});
    if (!takes) return;
    if (!Takes({user, With(Spoken("A"), "reasoning_content", kThought), user})) form_.takes_reasoning = false;
    // Empty text is best; the others are for templates that reject it.
    for (const char* nothing : {"", " ", "(no answer)"}) {
      if (!Takes({user, Spoken(nothing), user})) continue;
      form_.nothing = nothing;
      break;
    }
    form_.roles_alternate = !Takes({user, user}) || !Takes({user, Spoken("A"), Spoken("A"), user});
    if (form_.shows_calls && !Takes({user, FirstCall(), FirstResult(), user}))
      form_.results_answered = Takes({user, FirstCall(), FirstResult(), Spoken(form_.nothing), user});
  }

  const Engine& engine_;
  const bool with_tools_;
  bool can_render_ = false;
  size_t names_before_ = 0, nones_before_ = 0;  // occurrences in a rendered question, which may list the tool
  HistoryForm form_;
};

}  // namespace

HistoryForm AskTemplate(const Engine& engine, bool with_tools) {
  return Asker(engine, with_tools).Ask();
}

}  // namespace tactus::api
