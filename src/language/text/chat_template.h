// The model's Jinja chat template, run by a small sandboxed interpreter (text/jinja/). Compiled at start-up: an
// unsupported construct is an error there, never a guess later. Immutable after Compile: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

class ChatTemplate {
 public:
  // `fixed_now_s`: the time for strftime_now, in seconds since the epoch (tests); below 0: the wall clock.
  static Result<std::unique_ptr<ChatTemplate>> Compile(std::string_view source, int64_t fixed_now_s = -1);
  // Chooses between two like transformers: `tool_use` where the variables have tools, else `plain`. Null: absent; such
  // a chat is then kInvalidArgument.
  static std::unique_ptr<ChatTemplate> Choosing(std::unique_ptr<ChatTemplate> plain,
                                                std::unique_ptr<ChatTemplate> tool_use);
  virtual ~ChatTemplate() = default;

  // `variables`: an object with messages, tools, documents, add_generation_prompt, bos_token, eos_token and the
  // request's chat_template_kwargs. Unknown names are undefined, as in transformers.apply_chat_template. Limits on
  // output size, steps and recursion make hostile templates end with an error. raise_exception gives kInvalidArgument
  // with its text. kCancelled soon after `stop` is set.
  virtual Result<std::string> Render(const Json& variables, StopToken stop = {}) const = 0;

 protected:
  ChatTemplate() = default;
};

}  // namespace tactus::language
