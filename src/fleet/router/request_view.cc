#include "fleet/router/request_view.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/json_text.h"

namespace tactus::fleet {
namespace {

constexpr int64_t kMostChoices = 1 << 20;

// Whether every element is a token id, as in a prompt of tokens.
bool AllNumbers(const Json& array) {
  return !array.empty() && std::all_of(array.begin(), array.end(), [](const Json& v) { return v.is_number_integer(); });
}

void AddKeys(std::string_view text, const Hash128& secret, std::vector<Hash128>* keys) {
  Hash128 before = keys->empty() ? Hash128{} : keys->back();
  std::string chained;
  for (size_t at = 0; at + kChunkBytes <= text.size(); at += kChunkBytes) {
    chained.assign(reinterpret_cast<const char*>(&before), sizeof before);
    chained += text.substr(at, kChunkBytes);
    before = SipHash128(secret, chained.data(), chained.size());
    keys->push_back(before);
  }
}

// The prompt as one text; prompts with a common beginning give texts with a common beginning. Order as in templates:
// tools, fields beside the messages, messages.
std::string PromptText(const Json& body) {
  const auto dump = [](const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  auto messages = body.find("messages");
  if (messages == body.end()) messages = body.find("input");
  std::string text;
  if (const auto salt = body.find("cache_salt"); salt != body.end() && salt->is_string()) text = dump(*salt);
  if (messages == body.end()) {
    const auto prompt = body.find("prompt");
    if (prompt == body.end()) return {};
    return text + (prompt->is_string() ? prompt->get<std::string>() : dump(*prompt));
  }
  if (const auto tools = body.find("tools"); tools != body.end()) text += dump(*tools);
  for (const char* name : {"system", "instructions"}) {
    if (const auto before = body.find(name); before != body.end()) text += dump(*before);
  }
  text += dump(*messages);
  text.pop_back();  // the bracket: the next turn's prompt has a comma here
  return text;
}

}  // namespace

RouteRequest RequestView::Route(double bytes_per_token) const {
  const double tokens =
      prompt_tokens > 0 ? prompt_tokens : std::ceil(static_cast<double>(prompt_bytes) / bytes_per_token);
  return {.prompt_tokens = static_cast<int32_t>(std::clamp(tokens, 1.0, 1e9)),
          .keys = keys,
          .block_size = std::max(1, static_cast<int32_t>(kChunkBytes / bytes_per_token))};
}

RequestView ViewRequest(std::string_view text, const Hash128& secret) {
  RequestView view;
  const auto parsed = json_text::ParseJson(text);
  if (!parsed.ok() || !parsed->is_object()) return view;
  const Json& body = *parsed;
  if (const auto model = body.find("model"); model != body.end() && model->is_string())
    view.model = model->get<std::string>();
  if (const auto stream = body.find("stream"); stream != body.end() && stream->is_boolean())
    view.stream = stream->get<bool>();
  if (const auto n = body.find("n"); n != body.end() && n->is_number_integer())
    view.choices = std::clamp<int64_t>(n->get<int64_t>(), 1, kMostChoices);
  if (const auto prompts = body.find("prompt"); prompts != body.end() && prompts->is_array() && !AllNumbers(*prompts))
    view.choices *= std::max<int64_t>(1, static_cast<int64_t>(prompts->size()));
  const std::string prompt = PromptText(body);
  view.prompt_bytes = static_cast<int64_t>(prompt.size());
  if (const auto ids = body.find("prompt"); ids != body.end() && ids->is_array() && AllNumbers(*ids))
    view.prompt_tokens = static_cast<int32_t>(std::min<size_t>(ids->size(), 1 << 30));
  AddKeys(prompt, secret, &view.keys);
  return view;
}

}  // namespace tactus::fleet
