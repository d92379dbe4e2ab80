#include "api/request_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/chat/request_fields.h"
#include "api/messages/messages_request.h"
#include "api/other_fields.h"
#include "api/responses/responses_request.h"
#include "api/tools/output_rule.h"
#include "base/json.h"

namespace tactus::api {
namespace {

constexpr int64_t kCompletionDefaultTokens = 16;  // as in OpenAI's legacy API
constexpr std::string_view kCompletionsPath = "/v1/completions", kChatPath = "/v1/chat/completions",
                           kResponsesPath = "/v1/responses", kMessagesPath = "/v1/messages",
                           kCountTokensPath = "/v1/messages/count_tokens", kTokenizePath = "/tokenize",
                           kDetokenizePath = "/detokenize";

Result<ParsedRequest> ReadChat(const Json& body, const RequestLimits& limits, const ToolLimits& tool_limits);

Status TooMany(size_t count, int64_t limit) {
  return InvalidArgument(fmt::format("prompt: {} prompts are more than {}, the limit of one request", count, limit),
                         "prompt");
}

// `prompt` may be a string, a list of strings, a list of token ids, or a list of such lists.
void ReadPrompts(Fields* fields, const RequestLimits& limits, ParsedRequest* out) {
  const Json* prompt = fields->Find("prompt");
  if (prompt == nullptr) {
    return fields->Fail(InvalidArgument("prompt: missing; give a text, a list of texts or token ids", "prompt"));
  }
  if (prompt->is_string()) {
    out->prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty()) {
    return fields->FailType("prompt", "a string, a list of strings, a list of token ids or a list of such lists",
                            *prompt);
  }
  if (prompt->front().is_number()) {
    std::vector<TokenId> ids;
    if (ReadTokens(fields, "prompt", *prompt, limits.vocab_size, &ids)) out->prompts.emplace_back(std::move(ids));
    return;
  }
  if (static_cast<int64_t>(prompt->size()) > limits.max_prompts)
    return fields->Fail(TooMany(prompt->size(), limits.max_prompts));
  for (const Json& item : *prompt) {
    if (item.is_string()) {
      out->prompts.emplace_back(item.get<std::string>());
      continue;
    }
    std::vector<TokenId> ids;
    if (!item.is_array()) return fields->FailType("prompt", "strings or lists of token ids in the list", item);
    if (!ReadTokens(fields, "prompt", item, limits.vocab_size, &ids)) return;
    out->prompts.emplace_back(std::move(ids));
  }
}

void ReadCommon(Fields* fields, const RequestLimits& limits, int64_t least_tokens, ParsedRequest* out) {
  ReadModel(fields, limits);
  ReadSampling(fields, limits, out);
  ReadStop(fields, limits, least_tokens, out);
  ReadSlo(fields, &out->base);
  ReadStreaming(fields, out);
  ReadIdentity(fields, out);
  ReadRule read = ReadOutputRule(fields);
  out->base.output = std::move(read.rule);
  out->output_param = std::move(read.param);
  RefuseUnbuilt(fields);
}

}  // namespace

Result<ParsedRequest> ParseCompletionRequest(std::string_view body, const RequestLimits& limits, StopToken stop) {
  Json doc;
  TACTUS_RETURN_IF_ERROR(ParseBody(body, stop, &doc));
  return ReadCompletionRequest(doc, limits);
}

Result<ParsedRequest> ReadCompletionRequest(const Json& body, const RequestLimits& limits) {
  TACTUS_RETURN_IF_ERROR(CheckBody(body));
  Fields fields(body);
  ParsedRequest out;
  out.default_max_tokens = kCompletionDefaultTokens;
  out.echo = fields.Boolean("echo").value_or(false);
  ReadCommon(&fields, limits, out.echo ? 0 : 1, &out);
  ReadPrompts(&fields, limits, &out);
  if (fields.Has("messages"))
    fields.Fail(InvalidArgument("messages: belongs to /v1/chat/completions; here give prompt", "messages"));
  for (const char* name : {"tools", "tool_choice", "reasoning_effort"}) {
    if (fields.Has(name))
      fields.Fail(InvalidArgument(fmt::format("{}: belongs to /v1/chat/completions; leave it out", name), name));
  }
  if (auto v = fields.Integer("logprobs", 0, kMaxLogprobs)) out.base.sampling.logprobs = static_cast<int32_t>(*v);
  out.add_special_tokens = fields.Boolean("add_special_tokens").value_or(true);
  // One token is generated with the prompt's last step, and is not sent.
  out.prompt_only = out.max_tokens == 0;
  if (out.prompt_only) out.max_tokens = 1;
  out.base.prompt_logprobs = out.echo && out.base.sampling.logprobs >= 0;
  const auto choices = static_cast<int64_t>(out.prompts.size()) * out.base.n;
  if (choices > limits.max_prompts) {
    fields.Fail(InvalidArgument(fmt::format("n: {} prompts times n {} are {} choices, more than {}, the limit",
                                            out.prompts.size(), out.base.n, choices, limits.max_prompts),
                                "n"));
  }
  if (!fields.ok()) return fields.status();
  TACTUS_RETURN_IF_ERROR(ReadOtherFields(body, kCompletionsPath, limits, &out.ignored));
  return out;
}

Result<ParsedRequest> ParseChatRequest(std::string_view body, const RequestLimits& limits, StopToken stop) {
  Json doc;
  TACTUS_RETURN_IF_ERROR(ParseBody(body, stop, &doc));
  return ReadChatRequest(doc, limits);
}

Result<ParsedRequest> ReadChatRequest(const Json& body, const RequestLimits& limits) {
  TACTUS_ASSIGN_OR_RETURN(ParsedRequest out, ReadChat(body, limits, {}));
  TACTUS_RETURN_IF_ERROR(ReadOtherFields(body, kChatPath, limits, &out.ignored));
  return out;
}

namespace {

Result<ParsedRequest> ReadChat(const Json& body, const RequestLimits& limits, const ToolLimits& tool_limits) {
  TACTUS_RETURN_IF_ERROR(CheckBody(body));
  Fields fields(body);
  ParsedRequest out;
  out.chat = true;
  out.default_max_tokens = limits.default_max_tokens;
  ReadCommon(&fields, limits, 1, &out);
  if (fields.Has("prompt"))
    fields.Fail(InvalidArgument("prompt: belongs to /v1/completions; here give messages", "prompt"));
  const bool logprobs = fields.Boolean("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMaxLogprobs);
  if (top.value_or(0) > 0 && !logprobs)
    fields.Fail(InvalidArgument("top_logprobs: only with \"logprobs\": true", "top_logprobs"));
  if (logprobs) out.base.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  fields.RefuseTrue("echo", "in chats");
  fields.RefuseTrue("add_special_tokens", "in chats, whose template writes them");
  auto tools = ReadTools(body, tool_limits);
  if (tools.ok())
    out.tools = std::move(tools).value();
  else
    fields.Fail(tools.status());
  if (fields.ok()) out.template_variables = ReadChatVariables(&fields, limits.style, out.tools.get());
  if (!fields.ok()) return fields.status();
  return out;
}

// `translation` was made from `body`, of the API at `path`.
Result<ParsedRequest> ReadTranslated(Translation translation, const Json& body, std::string_view path,
                                     const RequestLimits& limits) {
  auto parsed = ReadChat(translation.chat, limits, translation.tools);
  if (!parsed.ok()) return translation.names.Original(parsed.status());
  parsed->names = std::move(translation.names);
  parsed->ignored = std::move(translation.ignored);
  TACTUS_RETURN_IF_ERROR(ReadOtherFields(body, path, limits, &parsed->ignored));
  return parsed;
}

}  // namespace

Result<ParsedRequest> ParseResponsesRequest(std::string_view body, const RequestLimits& limits, StopToken stop) {
  Json doc;
  TACTUS_RETURN_IF_ERROR(ParseBody(body, stop, &doc));
  return ReadResponsesRequest(doc, limits);
}

Result<ParsedRequest> ReadResponsesRequest(const Json& body, const RequestLimits& limits) {
  TACTUS_RETURN_IF_ERROR(CheckBody(body));
  TACTUS_ASSIGN_OR_RETURN(Translation translation, ChatOfResponses(body));
  TACTUS_ASSIGN_OR_RETURN(ParsedRequest parsed, ReadTranslated(std::move(translation), body, kResponsesPath, limits));
  parsed.echo_members = EchoOfResponses(body, parsed.base.sampling);
  return parsed;
}

Result<ParsedRequest> ParseMessagesRequest(std::string_view body, const RequestLimits& limits, StopToken stop,
                                           bool counting) {
  Json doc;
  TACTUS_RETURN_IF_ERROR(ParseBody(body, stop, &doc));
  TACTUS_ASSIGN_OR_RETURN(Translation translation, ChatOfMessages(doc, counting));
  return ReadTranslated(std::move(translation), doc, counting ? kCountTokensPath : kMessagesPath, limits);
}

Result<TokenizeRequest> ParseTokenizeRequest(std::string_view body, const RequestLimits& limits, StopToken stop) {
  Json doc;
  TACTUS_RETURN_IF_ERROR(ParseBody(body, stop, &doc));
  Fields fields(doc);
  ReadModel(&fields, limits);
  TokenizeRequest out;
  out.chat = fields.Has("messages");
  if (out.chat && fields.Has("prompt"))
    fields.Fail(InvalidArgument("prompt: give either prompt or messages", "prompt"));
  if (out.chat) {
    fields.RefuseTrue("add_special_tokens", "with messages, whose template writes them");
    fields.RefuseTrue("continue_final_message");
    const auto tools = ReadTools(doc);
    if (!tools.ok()) return tools.status();
    out.template_variables = ReadChatVariables(&fields, limits.style, tools->get());
  } else if (auto prompt = fields.String("prompt", body.size())) {
    out.prompt = std::move(*prompt);
  } else {
    fields.Fail(InvalidArgument("prompt: missing; give prompt or messages", "prompt"));
  }
  out.add_special_tokens = fields.Boolean("add_special_tokens").value_or(true);
  out.return_token_strs = fields.Boolean("return_token_strs").value_or(false);
  if (!fields.ok()) return fields.status();
  TACTUS_RETURN_IF_ERROR(ReadOtherFields(doc, kTokenizePath, limits, &out.ignored));
  return out;
}

Result<std::vector<TokenId>> ParseDetokenizeRequest(std::string_view body, const RequestLimits& limits, StopToken stop,
                                                    std::vector<std::string>* ignored) {
  Json doc;
  TACTUS_RETURN_IF_ERROR(ParseBody(body, stop, &doc));
  Fields fields(doc);
  ReadModel(&fields, limits);
  std::vector<TokenId> tokens;
  if (const Json* list = fields.Find("tokens"))
    ReadTokens(&fields, "tokens", *list, limits.vocab_size, &tokens);
  else
    fields.Fail(InvalidArgument("tokens: missing; give a list of token ids", "tokens"));
  if (!fields.ok()) return fields.status();
  std::vector<std::string> others;
  TACTUS_RETURN_IF_ERROR(ReadOtherFields(doc, kDetokenizePath, limits, &others));
  if (ignored != nullptr) *ignored = std::move(others);
  return tokens;
}

}  // namespace tactus::api
