// Request bodies: accepted ones are within the limits, and errors are valid UTF-8.
#include <cstdint>
#include <cstdlib>

#include "api/fields/json.h"
#include "api/request_parser.h"
#include "base/json.h"

namespace {

using namespace tactus;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckRefusal(const Status& status) {
  Require(!status.message().empty() && status.message().size() < 4096);
  Require(api::ReplaceInvalidUtf8(status.message()) == status.message());
  Require(api::ReplaceInvalidUtf8(status.param()) == status.param());
}

void Check(const Result<api::ParsedRequest>& parsed, const api::RequestLimits& limits) {
  if (!parsed.ok()) return CheckRefusal(parsed.status());
  const SamplingParams& s = parsed->base.sampling;
  Require(s.temperature >= 0 && s.temperature <= 2 && s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 && s.min_p <= 1 &&
          s.top_k >= 0);
  Require(s.repetition_penalty > 0 && s.logprobs >= -1 && s.logprobs <= 20);
  for (size_t i = 0; i < s.logit_bias.size(); ++i) {
    Require(s.logit_bias[i].first >= 0 && s.logit_bias[i].first < limits.vocab_size);
    Require(i == 0 || s.logit_bias[i - 1].first < s.logit_bias[i].first);
  }
  Require(parsed->base.n >= 1 && parsed->base.n <= limits.max_choices);
  for (const std::string& stop : parsed->base.stop.stop) Require(!stop.empty());
  for (const auto& prompt : parsed->prompts) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      for (const TokenId id : *ids) Require(id >= 0 && id < limits.vocab_size);
    }
  }
  if (parsed->chat) Require(api::ParseJson(parsed->template_variables).ok());
  if (!parsed->echo_members.empty()) Require(api::ParseJson("{\"\":0" + parsed->echo_members + "}").ok());
  for (const int64_t prompt_tokens : {int64_t{1}, limits.max_model_len - 1, limits.max_model_len}) {
    StopConditions stop = parsed->base.stop;
    if (api::PlaceInContext(*parsed, prompt_tokens, limits, &stop).ok()) {
      Require(stop.max_tokens >= 1 && prompt_tokens + stop.max_tokens <= limits.max_model_len &&
              stop.min_tokens <= stop.max_tokens);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  api::RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 128;
  limits.vocab_size = 1000;
  Check(api::ParseCompletionRequest(body, limits), limits);
  Check(api::ParseChatRequest(body, limits), limits);
  Check(api::ParseResponsesRequest(body, limits), limits);
  Check(api::ParseMessagesRequest(body, limits), limits);
  if (const auto tokenize = api::ParseTokenizeRequest(body, limits); !tokenize.ok()) CheckRefusal(tokenize.status());
  if (const auto detokenize = api::ParseDetokenizeRequest(body, limits); !detokenize.ok())
    CheckRefusal(detokenize.status());
  // Any bytes are written as valid JSON.
  std::string text;
  api::AppendJsonString(&text, body);
  Require(api::ParseJson(text).ok());
  return 0;
}
