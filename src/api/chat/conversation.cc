#include "api/chat/conversation.h"

#include <fmt/format.h>

#include <utility>

#include "api/fields/json.h"
#include "api/tools/loose_schema.h"
#include "api/tools/tool_rule.h"
#include "base/json.h"

namespace tactus::api {
namespace {

Status CheckRunning(StopToken stop) {
  return stop.stopped() ? Status(StatusCode::kCancelled, "the request is over") : Status();
}

// `checks` may reject the rendered text before it is tokenised.
template <class Checks>
Result<std::vector<TokenId>> ChatTokens(const Engine& engine, const std::string& variables, StopToken stop,
                                        Checks checks) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, engine.ApplyChatTemplate(variables, stop));
  TACTUS_RETURN_IF_ERROR(checks(text));
  std::vector<TokenId> tokens = engine.TokenizeChat(text, stop);
  TACTUS_RETURN_IF_ERROR(CheckRunning(stop));
  return tokens;
}

AnswerShape ShapeOf(const ParsedRequest& parsed) {
  AnswerShape shape;
  shape.choices_per_prompt = parsed.base.n;
  shape.chat = parsed.chat;
  shape.stream = parsed.stream;
  shape.echo = parsed.echo;
  shape.prompt_only = parsed.prompt_only;
  shape.echo_members = parsed.echo_members;
  shape.prompt_logprobs = parsed.base.prompt_logprobs;
  shape.logprobs = parsed.base.sampling.logprobs;
  shape.include_usage = parsed.include_usage;
  shape.continuous_usage = parsed.continuous_usage;
  return shape;
}

// Whether the grammar contains the parameters of tool `i`.
bool Bears(const ToolSet& tools, size_t i) {
  return tools.choice == ToolSet::Choice::kNamed ? i == tools.named : true;
}

// After the rule of all tools has failed to compile: an error that names the first tool whose parameters do not
// compile.
Status FaultOfTools(const ToolSet& tools, const Engine& engine, StopToken stop, RuleWait* wait) {
  for (size_t i = 0; i < tools.tools.size(); ++i) {
    if (wait->over) return Status();  // the request's compile budget is used up, so the tool stays unknown
    if (!Bears(tools, i) || (tools.choice == ToolSet::Choice::kAuto && !tools.tools[i].strict)) continue;
    const auto alone = engine.CompileRule({OutputRule::Kind::kJsonSchema, tools.tools[i].parameters}, stop, wait);
    if (alone.ok()) continue;
    if (wait->over && i > 0) return Status();
    const std::string field = fmt::format("tools[{}].function.parameters", i);
    return Status(alone.status().code(), fmt::format("{}: {}", field, alone.status().message()), field);
  }
  return Status();
}

Status FaultOfRule(const ParsedRequest& parsed, const Status& status) {
  return Status(status.code(), fmt::format("{}: {}", parsed.output_param, status.message()), parsed.output_param);
}

// Compiles the request's output rule, if any; an error names the rule's field.
Status Compile(ParsedRequest* parsed, const Engine& engine, StopToken stop, RuleWait* wait) {
  if (!parsed->base.output.any()) return Status();
  auto grammar = engine.CompileRule(parsed->base.output, stop, wait);
  if (!grammar.ok()) {
    const bool of_tools = parsed->output_param == "tools" || parsed->output_param == "tool_choice";
    if (of_tools && grammar.status().code() == StatusCode::kInvalidArgument)
      TACTUS_RETURN_IF_ERROR(FaultOfTools(*parsed->tools, engine, stop, wait));
    return FaultOfRule(*parsed, grammar.status());
  }
  parsed->base.grammar = std::move(grammar).value();
  return Status();
}

// The tools, with the parameters of non-strict ones loosened until a grammar accepts them; after the wait is over,
// reduced to their names. Null: all parameters are accepted, so the failure has another cause.
std::shared_ptr<const ToolSet> Loosened(const ToolSet& tools, const Engine& engine, StopToken stop, RuleWait* wait) {
  auto loose = std::make_shared<ToolSet>(tools);
  bool changed = false;
  for (size_t i = 0; i < tools.tools.size(); ++i) {
    Tool& tool = loose->tools[i];
    if (tool.strict || !Bears(tools, i)) continue;
    for (const Looseness next : {Looseness::kReadable, Looseness::kShape, Looseness::kNames}) {
      if (!wait->over) {
        const auto alone = engine.CompileRule(LooseRule(tool.parameters), stop, wait);
        if (alone.ok() || (alone.status().code() != StatusCode::kInvalidArgument && !wait->over)) break;
      }
      if (wait->over && next != Looseness::kNames) continue;
      tool.parameters = LooseSchema(tools.tools[i].parameters, next);
      changed = true;
    }
  }
  return changed ? loose : nullptr;
}

// Sets how the answer to a chat's rendered prompt is parsed, and the rule that it must match.
Status SetReading(ParsedRequest* parsed, const Engine& engine, const ChatStyle& style, std::string_view prompt,
                  StopToken stop, AnswerShape* shape) {
  const bool calls = parsed->tools != nullptr && style.calls != nullptr;
  if (parsed->tools != nullptr && !calls && parsed->tools->choice != ToolSet::Choice::kAuto) {
    return InvalidArgument("tool_choice: this server parses no calls (--tool-call-parser); give \"auto\" or \"none\"",
                           "tool_choice");
  }
  if (!calls && style.reasoning == nullptr && !style.harmony()) return Status();
  AnswerReading reading = ReadingOf(style, parsed->tools, prompt);
  OutputRule& output = parsed->base.output;
  if (calls && output.any() && parsed->tools->choice != ToolSet::Choice::kAuto) {
    return InvalidArgument(fmt::format("tool_choice: a call that is required leaves no room for {}; leave one out",
                                       parsed->names.Original(parsed->output_param)),
                           "tool_choice");
  }
  if (output.kind == OutputRule::Kind::kRegex) {  // cannot be part of a grammar
    if (calls) {
      return InvalidArgument(fmt::format("{}: with tools an expression leaves no room for a call; give a schema or a "
                                         "grammar, or leave out tools",
                                         parsed->output_param),
                             parsed->output_param);
    }
    reading.begins_in_reasoning = false;
  }
  if (calls || (output.any() && reading.begins_in_reasoning)) {
    RuleWait wait{.client = parsed->rule_client};
    TACTUS_RETURN_IF_ERROR(Compile(parsed, engine, stop, &wait));  // compiled alone, so that an error names its field
    const OutputRule format = output;
    TACTUS_ASSIGN_OR_RETURN(OutputRule rule, ToolRule(engine, reading, format));
    if (rule.any()) {
      output = std::move(rule);
      if (calls) parsed->output_param = parsed->tools->choice == ToolSet::Choice::kAuto ? "tools" : "tool_choice";
      const auto compiled = engine.CompileRule(output, stop, &wait);
      if (!compiled.ok() && compiled.status().code() != StatusCode::kInvalidArgument)
        return FaultOfRule(*parsed, compiled.status());
      if (calls && !compiled.ok()) {
        AnswerReading loose = reading;
        loose.tools = Loosened(*parsed->tools, engine, stop, &wait);
        if (loose.tools != nullptr) {
          TACTUS_ASSIGN_OR_RETURN(output, ToolRule(engine, loose, format));
          wait = {.client = parsed->rule_client};  // the loosened schemas compile quickly
        }
      }
      TACTUS_RETURN_IF_ERROR(Compile(parsed, engine, stop, &wait));
    }
  }
  parsed->base.shown_specials = style.specials;
  shape->reading = std::move(reading);
  return Status();
}

// Tokenises the prompts; one that is too long is rejected as early as possible.
Result<std::vector<AnswerShape::Prompt>> Tokenise(ParsedRequest* parsed, Engine& engine, const RequestLimits& limits,
                                                  StopToken stop, bool count_refused, AnswerShape* shape) {
  const auto check_fits = [&](std::string_view text) {
    Status status = CheckLeastTokens(*parsed, engine.LeastTokens(text), limits);
    if (!status.ok() && count_refused) engine.CountRefused(parsed->base, status);
    return status;
  };
  std::vector<AnswerShape::Prompt> prompts;
  const auto add = [&](std::vector<TokenId> tokens, std::string echo) {
    prompts.push_back({std::make_shared<const std::vector<TokenId>>(std::move(tokens)), std::move(echo)});
  };
  if (parsed->chat) {
    const auto checks = [&](std::string_view text) {
      TACTUS_RETURN_IF_ERROR(check_fits(text));
      return SetReading(parsed, engine, limits.style, text, stop, shape);
    };
    TACTUS_ASSIGN_OR_RETURN(auto tokens, ChatTokens(engine, parsed->template_variables, stop, checks));
    add(std::move(tokens), {});
  }
  for (Prompt& prompt : parsed->prompts) {
    if (auto* text = std::get_if<std::string>(&prompt)) {
      TACTUS_RETURN_IF_ERROR(check_fits(*text));
      auto tokens = engine.Tokenize(*text, parsed->add_special_tokens, stop);
      add(std::move(tokens), parsed->echo ? std::move(*text) : std::string());
    } else {
      auto& ids = std::get<std::vector<TokenId>>(prompt);
      std::string shown = parsed->echo ? engine.Detokenize(ids) : std::string();
      add(std::move(ids), std::move(shown));
    }
    TACTUS_RETURN_IF_ERROR(CheckRunning(stop));
  }
  return prompts;
}

ParsedRequest Defaults(const RequestLimits& limits) {
  ParsedRequest out;
  out.base.sampling = limits.generation_defaults;
  out.base.sampling.logprobs = -1;
  out.default_max_tokens = limits.default_max_tokens;
  return out;
}

}  // namespace

RequestLimits LimitsOf(const Engine& engine, int64_t default_max_tokens, std::string_view tool_parser,
                       std::string_view reasoning_parser) {
  const ModelInfo& model = engine.model();
  RequestLimits limits;
  limits.style = ChatStyleOf(engine, tool_parser, reasoning_parser);
  limits.model = model.name;
  limits.other_models = model.other_names;
  limits.max_model_len = model.max_model_len;
  limits.vocab_size = model.vocab_size;
  limits.default_max_tokens = default_max_tokens;
  limits.generation_defaults = model.generation_defaults;
  return limits;
}

ParsedRequest ChatOf(const std::vector<ChatMessage>& messages, const RequestLimits& limits) {
  ParsedRequest out = Defaults(limits);
  out.chat = true;
  Json list = Json::array();
  for (const ChatMessage& message : messages)
    list.push_back(Json{{"role", message.role}, {"content", message.content}});
  FitHistory(limits.style.plain_history, limits.style.calls, limits.style.template_knows_tools, &list);
  AlternateRoles(limits.style.plain_history, &list);
  const Json variables = {{"messages", std::move(list)}, {"add_generation_prompt", true}};
  out.template_variables = variables.dump(-1, ' ', false, Json::error_handler_t::replace);
  return out;
}

ParsedRequest ContinuationOf(std::string text, const RequestLimits& limits) {
  ParsedRequest out = Defaults(limits);
  out.prompts.emplace_back(std::move(text));
  return out;
}

bool MayFollowRule(const ParsedRequest& parsed) {
  return parsed.base.output.any() || parsed.tools != nullptr;
}

int64_t SequenceCount(const ParsedRequest& parsed) {
  return (parsed.chat ? 1 : static_cast<int64_t>(parsed.prompts.size())) * parsed.base.n;
}

namespace {

Result<Prepared> Prepare(ParsedRequest* given, Engine& engine, const RequestLimits& limits, StopToken stop,
                         bool count_refused) {
  ParsedRequest& parsed = *given;
  Prepared out;
  out.shape = ShapeOf(parsed);
  out.shape.engine = &engine;
  TACTUS_ASSIGN_OR_RETURN(out.shape.prompts, Tokenise(&parsed, engine, limits, stop, count_refused, &out.shape));
  if (parsed.base.grammar == nullptr) {
    RuleWait wait{.client = parsed.rule_client};
    TACTUS_RETURN_IF_ERROR(Compile(&parsed, engine, stop, &wait));
  }
  out.shape.rule_field = parsed.names.Original(parsed.output_param);
  const size_t count = out.shape.prompts.size();
  out.requests.assign(count, parsed.base);
  for (size_t i = 0; i < count; ++i) {
    Request& request = out.requests[i];
    if (count > 1) request.id = fmt::format("{}-{}", parsed.base.id, i);
    request.prompt = out.shape.prompts[i].tokens;
    const Status placed = PlaceInContext(parsed, static_cast<int64_t>(request.prompt->size()), limits, &request.stop);
    if (!placed.ok()) {
      if (count_refused) engine.CountRefused(request, placed);
      return placed;
    }
  }
  return out;
}

}  // namespace

Result<Prepared> PrepareConversation(ParsedRequest parsed, Engine& engine, const RequestLimits& limits, StopToken stop,
                                     bool count_refused) {
  auto prepared = Prepare(&parsed, engine, limits, stop, count_refused);
  if (!prepared.ok()) return parsed.names.Original(prepared.status());
  return prepared;
}

Result<std::vector<TokenId>> ChatTokens(const Engine& engine, const std::string& variables, StopToken stop) {
  return ChatTokens(engine, variables, stop, [](std::string_view) { return Status(); });
}

}  // namespace tactus::api
