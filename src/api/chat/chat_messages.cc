// Parses messages and the other fields that a chat template may read, and writes them as the template's JSON variables.
// Roles and their extra fields (name, tool_calls, tool_call_id) pass through; content becomes one string; the history
// is fitted to the template (api/chat/history.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "api/chat/history.h"
#include "api/chat/request_fields.h"
#include "base/json.h"

namespace tactus::api {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

bool KnownRole(std::string_view role) {
  for (const auto known : kRoles) {
    if (role == known) return true;
  }
  return false;
}

// Whether a part of an assistant's message has no text: a null refusal, or encrypted reasoning of other servers.
bool TellsNothing(const Json& part, std::string_view role) {
  if (role != "assistant" || !part.is_object()) return false;
  const Json type = part.value("type", Json());
  return type == "redacted_thinking" || (type == "refusal" && part.contains("refusal") && part["refusal"].is_null());
}

// A part {"type": "thinking", "thinking": ...}: a text, or a list of text parts.
Status AddThoughts(const Json& part, const std::string& where, std::string* reasoning) {
  const std::string name = where + ".thinking";
  const auto thinking = part.find("thinking");
  if (thinking != part.end() && thinking->is_string()) {
    *reasoning += thinking->get_ref<const std::string&>();
    return Status();
  }
  if (thinking == part.end() || !thinking->is_array())
    return InvalidArgument(name + ": expected a string or a list of text parts", name);
  for (size_t i = 0; i < thinking->size(); ++i) {
    const Json& one = (*thinking)[i];
    const auto text = one.is_object() ? one.find("text") : one.end();
    if (!one.is_object() || text == one.end() || !text->is_string()) {
      const std::string inner = fmt::format("{}[{}]", name, i);
      return InvalidArgument(fmt::format("{}: expected an object with a text", inner), inner);
    }
    *reasoning += text->get_ref<const std::string&>();
  }
  return Status();
}

// Joins a list of text parts with newlines. In a tool's result a part that is not text is replaced by its name: the
// model has requested it, so it cannot be left out. Thinking parts of the assistant go to `reasoning`.
Status JoinParts(const Json& parts, std::string_view role, const std::string& where, Json* content,
                 std::string* reasoning) {
  std::string text;
  bool any = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string name = fmt::format("{}[{}]", where, i);
    if (TellsNothing(part, role)) continue;
    if (role == "assistant" && part.is_object() && part.value("type", Json()) == "thinking") {
      TACTUS_RETURN_IF_ERROR(AddThoughts(part, name, reasoning));
      continue;
    }
    if (any) text += '\n';
    any = true;
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      return InvalidArgument(fmt::format("{}: expected an object with a type, got {}", name, TypeName(part)), name);
    }
    const bool refusal = role == "assistant" && *type == "refusal";
    if (!refusal && *type != "text") {
      if (role != "tool") {
        return Unimplemented(fmt::format("{}: parts of type {} are not supported yet; only text", name, Shown(*type)),
                             name);
      }
      text += NotShown(type->get_ref<const std::string&>());
      continue;
    }
    const char* member = refusal ? "refusal" : "text";
    const auto value = part.find(member);
    if (value == part.end() || !value->is_string()) {
      const std::string inner = fmt::format("{}.{}", name, member);
      return InvalidArgument(fmt::format("{}: expected a string", inner), inner);
    }
    text += value->get_ref<const std::string&>();
  }
  *content = std::move(text);
  return Status();
}

template <class Says>
void EraseIf(Json* object, const Says& says_nothing) {
  auto& members = object->get_ref<Json::object_t&>();
  if (std::none_of(members.begin(), members.end(), says_nothing)) return;
  Json::object_t kept;
  for (auto& member : members) {
    if (!says_nothing(member)) kept.emplace_back(member.first, std::move(member.second));  // keys are unique already
  }
  members = std::move(kept);
}

void EraseNulls(Json* object) {
  EraseIf(object, [](const auto& member) { return member.second.is_null(); });
}

// Clients send these fields of a message even if they are empty: null, "", [] or {}.
constexpr std::string_view kMayBeEmpty[] = {"tool_calls",  "function_call", "audio",        "refusal",
                                            "annotations", "name",          "tool_call_id", "reasoning_content",
                                            "reasoning",   "thinking"};

void EraseEmpty(Json* message) {
  EraseIf(message, [](const auto& member) {
    const auto& [name, value] = member;
    if (value.is_null()) return true;
    const bool empty = value.is_string() ? value.template get_ref<const std::string&>().empty()
                                         : value.is_structured() && value.empty();
    return empty && std::find(std::begin(kMayBeEmpty), std::end(kMayBeEmpty), name) != std::end(kMayBeEmpty);
  });
}

constexpr std::string_view kEnd = "*";  // end of a place; everything below belongs to it
// The places of values that a template prints: arguments of earlier calls in chats and in /v1/messages, documents,
// template variables. "": an item of a list.
constexpr std::string_view kShownPlaces[][6] = {
    {"messages", "", "tool_calls", "", "function", "arguments"},
    {"messages", "", "content", "", "input", kEnd},
    {"documents", "", kEnd, kEnd, kEnd, kEnd},
    {"chat_template_kwargs", kEnd, kEnd, kEnd, kEnd, kEnd},
};

// Walks a body in the order of its text.
class LargeIntegers {
 public:
  LargeIntegers(const std::vector<json_text::LargeInteger>& large, int64_t place) : large_(large), place_(place) {
    while (at_ < large.size() && large[at_].place < place) ++at_;
  }

  void Quote(Json* body) { Quote(body, 0, kAllPlaces); }
  bool too_many() const { return too_many_; }

 private:
  static constexpr size_t kPlaces = std::size(kShownPlaces), kNames = std::size(kShownPlaces[0]);
  static constexpr unsigned kAllPlaces = (1U << kPlaces) - 1;

  // `depth`: the number of names that lead to `value`. `places`: a bit for each place in kShownPlaces that begins with
  // them.
  void Quote(Json* value, size_t depth, unsigned places) {
    const int64_t place = place_++;
    if (value->is_array()) {
      for (Json& item : *value) Quote(&item, depth + 1, Next("", depth, places));
    } else if (value->is_object()) {
      for (auto& [name, member] : value->get_ref<Json::object_t&>())
        Quote(&member, depth + 1, Next(name, depth, places));
    } else if (value->is_number_float()) {
      const bool is_shown = IsWithin(depth, places);
      const bool is_large = at_ < large_.size() && large_[at_].place == place;
      if (is_shown && is_large) *value = large_[at_].text;
      too_many_ |= is_shown && at_ == JsonLimits::kMostRounded && std::abs(value->get<double>()) >= 0x1p63;
      if (is_large) ++at_;
    }
  }
  static unsigned Next(std::string_view name, size_t depth, unsigned places) {
    for (size_t i = 0; i < kPlaces; ++i) {
      const bool leads = depth >= kNames || kShownPlaces[i][depth] == kEnd || kShownPlaces[i][depth] == name;
      if (!leads) places &= ~(1U << i);
    }
    return places;
  }
  static bool IsWithin(size_t depth, unsigned places) {
    for (size_t i = 0; i < kPlaces; ++i) {
      const bool whole = depth >= kNames || kShownPlaces[i][depth] == kEnd;
      if (whole && (places >> i & 1U) != 0) return true;
    }
    return false;
  }

  const std::vector<json_text::LargeInteger>& large_;
  int64_t place_;
  size_t at_ = 0;  // index in large_
  bool too_many_ = false;
};

// The JSON with integers beyond 64 bits in quotes, so that templates keep all digits. Empty: there are none.
std::string QuoteLargeIntegers(std::string_view json) {
  constexpr size_t kSafeDigits = 18;
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      for (++at; at < json.size() && json[at] != '"'; ++at) at += json[at] == '\\' ? 1 : 0;
      ++at;
      continue;
    }
    const size_t end = std::min(json.find_first_not_of("+-.0123456789eE", at), json.size());
    const std::string_view number = json.substr(at, end - at);
    const auto fits = [number](auto value) {
      return std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc();
    };
    const bool large = number.size() > kSafeDigits && number.find_first_of(".eE") == std::string_view::npos &&
                       !fits(int64_t{0}) && !fits(uint64_t{0});
    if (large) {
      out += json.substr(copied, at - copied);
      out += fmt::format("\"{}\"", number);
      copied = end;
    }
    at = std::max(end, at + 1);
  }
  return copied == 0 ? std::string() : out + std::string(json.substr(copied));
}

Status Expected(const std::string& name, const char* expected, const Json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end() || found->is_null())
    return InvalidArgument(fmt::format("{}: missing; give {}", name, expected), name);
  return InvalidArgument(fmt::format("{}: expected {}, got {}", name, expected, TypeName(*found)), name);
}

// A call must name its function, which templates print.
Status CheckCall(const Json& call, const std::string& name) {
  if (const auto type = call.find("type"); type != call.end() && *type != "function" && *type != "") {
    return InvalidArgument(fmt::format("{}.type: {} is not supported; there is \"function\"", name, Shown(*type)),
                           name + ".type");
  }
  const auto function = call.find("function");
  if (function == call.end() || !function->is_object())
    return Expected(name + ".function", "an object with a name and arguments", call, "function");
  const auto called = function->find("name");
  if (called == function->end() || !called->is_string())
    return Expected(name + ".function.name", "a string", *function, "name");
  return Status();
}

// Converts the arguments of the calls in an assistant's message to objects, which most templates need, or to text. Text
// that is not an object comes from the model and may have been cut off: it is kept.
Status ReadCalls(const std::string& where, bool arguments_as_text, Json* calls) {
  for (size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    if (!call.is_object()) {
      const std::string name = fmt::format("{}[{}]", where, i);
      return InvalidArgument(fmt::format("{}: expected an object, got {}", name, TypeName(call)), name);
    }
    EraseNulls(&call);
    TACTUS_RETURN_IF_ERROR(CheckCall(call, fmt::format("{}[{}]", where, i)));
    call["type"] = "function";  // empty if a client joined stream chunks, none of which had it
    const auto function = call.find("function");
    EraseNulls(&*function);
    Json& arguments = (*function)["arguments"];
    const bool none = arguments.is_null() || (arguments.is_string() && arguments.get_ref<const std::string&>().empty());
    if (none) arguments = Json::object();
    if (!arguments.is_string() && !arguments.is_object()) {
      const std::string name = fmt::format("{}[{}].function.arguments", where, i);
      return InvalidArgument(
          fmt::format("{}: expected a string of JSON or an object, got {}", name, TypeName(arguments)), name);
    }
    const bool object = arguments.is_object();
    const std::string text = object ? arguments.dump() : arguments.get<std::string>();
    if (arguments_as_text) {
      arguments = text;
      continue;
    }
    const std::string quoted = QuoteLargeIntegers(text);
    if (object && quoted.empty()) continue;
    auto read = ParseJson(quoted.empty() ? text : quoted);
    if (read.ok() && read->is_object()) arguments = std::move(read).value();
  }
  return Status();
}

// --- Tools for a model whose template knows none ---

// Adds the tools to the messages: a new first message, or part of the existing one.
void TellTools(const Json& tools, bool as_system, Json* messages) {
  std::string text = "You can call these tools:\n";
  for (const Json& tool : tools) text += tool["function"].dump() + "\n";
  text +=
      "To call one, answer with nothing but a JSON object {\"name\": ..., \"arguments\": {...}}; for several calls, "
      "one "
      "object on each line. If no tool is needed, answer in words.";
  Json& first = (*messages)[0];
  const char* role = as_system ? "system" : "user";
  if (first["role"] == role && first["content"].is_string())
    first["content"] = as_system ? first["content"].get<std::string>() + "\n\n" + text
                                 : text + "\n\n" + first["content"].get<std::string>();
  else
    messages->insert(messages->begin(), Json{{"role", role}, {"content", text}});
}

// Moves a refusal into the content, after the text if there is any.
Status TakeRefusal(const std::string& where, Json* message) {
  const auto refusal = message->find("refusal");
  if (refusal == message->end()) return Status();
  if (!refusal->is_string()) {
    return InvalidArgument(fmt::format("{}.refusal: expected a string, got {}", where, TypeName(*refusal)),
                           where + ".refusal");
  }
  std::string text = refusal->get<std::string>();
  message->erase("refusal");
  const auto content = message->find("content");
  if (content != message->end() && !content->get_ref<const std::string&>().empty())
    text = content->get<std::string>() + "\n" + text;
  (*message)["content"] = std::move(text);
  return Status();
}

Status ReadMessage(const Json& message, const std::string& where, bool arguments_as_text, Json* out) {
  if (!message.is_object())
    return InvalidArgument(fmt::format("{}: expected an object, got {}", where, TypeName(message)), where);
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || !KnownRole(role->get_ref<const std::string&>())) {
    return InvalidArgument(fmt::format("{}.role: {} is none of system, developer, user, assistant, tool", where,
                                       role == message.end() ? "nothing" : Shown(*role)),
                           where + ".role");
  }
  // Fields of other servers that no template knows.
  for (const char* goes_on : {"prefix", "partial"}) {
    if (const auto asked = message.find(goes_on); asked != message.end() && *asked == true) {
      const std::string name = fmt::format("{}.{}", where, goes_on);
      return Unimplemented(name +
                               ": continuing the assistant's last message is not supported; give "
                               "the text to /v1/completions, or leave it out",
                           name);
    }
  }
  if (const auto images = message.find("images"); images != message.end() && !images->is_null() && !images->empty()) {
    return Unimplemented(where + ".images: images are not supported; leave them out", where + ".images");
  }
  *out = message;
  // An answer without text, or an empty tool result: content becomes "" and keeps its position among the fields.
  const bool may_be_null = *role == "assistant" || *role == "tool";
  if (const auto content = out->find("content"); may_be_null && content != out->end() && content->is_null())
    *content = "";
  EraseEmpty(out);
  // Templates know "system"; "developer" is its newer name.
  if (*role == "developer") (*out)["role"] = "system";
  for (const auto& [name, instead] :
       {std::pair("function_call", "give tool_calls"), std::pair("audio", "give its transcript as content")}) {
    if (out->contains(name))
      return Unimplemented(fmt::format("{0}.{1}: not supported; {2}", where, name, instead), where + "." + name);
  }
  if (const auto calls = out->find("tool_calls"); calls != out->end()) {
    if (!calls->is_array()) {
      return InvalidArgument(fmt::format("{}.tool_calls: expected a list, got {}", where, TypeName(*calls)),
                             where + ".tool_calls");
    }
    TACTUS_RETURN_IF_ERROR(ReadCalls(where + ".tool_calls", arguments_as_text, &*calls));
  }
  if (const auto content = out->find("content"); content != out->end()) {
    if (content->is_array()) {
      const Json parts = std::move(*content);
      std::string reasoning;
      TACTUS_RETURN_IF_ERROR(
          JoinParts(parts, role->get_ref<const std::string&>(), where + ".content", &*content, &reasoning));
      const bool has_own =
          out->contains("reasoning_content") || out->contains("reasoning") || out->contains("thinking");
      if (!reasoning.empty() && !has_own) (*out)["reasoning_content"] = std::move(reasoning);
    } else if (!content->is_string()) {
      return InvalidArgument(
          fmt::format("{}.content: expected a string or a list of text parts, got {}", where, TypeName(*content)),
          where + ".content");
    }
  } else if (*role != "assistant") {  // an assistant's turn may have only reasoning, or be empty
    return InvalidArgument(fmt::format("{}.content: missing", where), where + ".content");
  }
  return TakeRefusal(where, out);
}

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

// Templates know the effort by one of three names; chat_template_kwargs can set them one by one.
void ReadEffort(Fields* fields, Json* variables) {
  const auto effort = fields->String("reasoning_effort", kMaxNameBytes);
  if (!effort) return;
  if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    return fields->Fail(
        InvalidArgument(fmt::format("reasoning_effort: '{}' is none of none, minimal, low, medium, high, xhigh, max",
                                    effort->substr(0, 60)),
                        "reasoning_effort"));
  }
  const bool thinks = *effort != "none";
  if (thinks) (*variables)["reasoning_effort"] = *effort;
  (*variables)["enable_thinking"] = thinks;
  (*variables)["thinking"] = thinks;
}

// The `thinking` field of Anthropic's API and of servers of reasoning models.
void ReadThinking(Fields* fields, Json* variables) {
  const Json* thinking = fields->Find("thinking");
  if (thinking == nullptr) return;
  const auto type = thinking->is_object() ? thinking->find("type") : thinking->end();
  const bool enabled = type != thinking->end() && *type == "enabled";
  if (!thinking->is_object() || type == thinking->end() || (!enabled && *type != "disabled" && *type != "adaptive")) {
    return fields->Fail(
        InvalidArgument("thinking: give {\"type\": ...} with \"enabled\", \"disabled\" or \"adaptive\"", "thinking"));
  }
  if (*type == "adaptive") return;
  (*variables)["enable_thinking"] = enabled;
  (*variables)["thinking"] = enabled;
}

}  // namespace

Status KeepLargeIntegers(const std::vector<json_text::LargeInteger>& large, int64_t place, Json* body) {
  if (large.empty()) return Status();
  LargeIntegers walk(large, place);
  walk.Quote(body);
  if (!walk.too_many()) return Status();
  return InvalidArgument(fmt::format("messages: more than {} integers of the body are beyond 64 bits, the limit; write "
                                     "those of calls, documents and chat_template_kwargs as strings",
                                     JsonLimits::kMostRounded),
                         "messages");
}

std::string NotShown(std::string_view type) {
  return fmt::format("[{}: not shown, this model reads text alone]", type);
}

std::string ReadChatVariables(Fields* fields, const ChatStyle& style, const ToolSet* tools) {
  const Json* messages = fields->Find("messages");
  if (messages == nullptr) {
    fields->Fail(InvalidArgument("messages: missing; give a list of messages", "messages"));
    return {};
  }
  if (!messages->is_array() || messages->empty() || messages->size() > kMaxMessages) {
    if (!messages->is_array())
      fields->FailType("messages", "a list", *messages);
    else
      fields->Fail(InvalidArgument(fmt::format("messages: {} of them; give 1 to {}", messages->size(), kMaxMessages),
                                   "messages"));
    return {};
  }
  const bool tells_tools = tools != nullptr && style.template_knows_tools;
  const HistoryForm& form = tells_tools ? style.tool_history : style.plain_history;
  Json variables = Json::object();
  Json& list = variables["messages"] = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    list.emplace_back();
    Status status = ReadMessage((*messages)[i], fmt::format("messages[{}]", i), form.arguments_as_text, &list.back());
    if (!status.ok()) {
      fields->Fail(std::move(status));
      return {};
    }
  }
  FitHistory(form, style.calls, style.template_knows_tools, &list);
  if (tells_tools)
    variables["tools"] = *fields->Find("tools");
  else if (tools != nullptr)
    TellTools(*fields->Find("tools"), style.template_knows_system, &list);
  AlternateRoles(form, &variables["messages"]);  // `list` may have moved
  if (const Json* documents = fields->Find("documents")) {
    if (documents->is_array())
      variables["documents"] = *documents;
    else
      fields->FailType("documents", "a list", *documents);
  }
  variables["add_generation_prompt"] = fields->Boolean("add_generation_prompt").value_or(true);
  ReadEffort(fields, &variables);
  ReadThinking(fields, &variables);
  if (const Json* extra = fields->Find("chat_template_kwargs")) {
    if (!extra->is_object()) {
      fields->FailType("chat_template_kwargs", "an object", *extra);
      return {};
    }
    for (const auto& [key, value] : extra->get_ref<const Json::object_t&>()) {
      if (key == "messages" || key == "tools" || key == "documents" || key == "add_generation_prompt") {
        fields->Fail(InvalidArgument(fmt::format("chat_template_kwargs.{}: give it as a field of the request", key),
                                     "chat_template_kwargs." + key));
        return {};
      }
      if (key == "reasoning_effort" || key == "enable_thinking" || key == "thinking") variables.erase(key);
      variables.get_ref<Json::object_t&>().emplace_back(key, value);  // keys are unique already
    }
  }
  return variables.dump();
}

}  // namespace tactus::api
