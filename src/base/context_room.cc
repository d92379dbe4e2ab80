#include "base/context_room.h"

#include <fmt/format.h>

#include <charconv>

namespace tactus {
namespace {

constexpr std::string_view kPrompt = "prompt of ", kAtLeast = "at least ", kMaxTokens = " tokens + max_tokens of ",
                           kContext = " exceed the context of ";

bool Take(std::string_view* text, std::string_view words) {
  if (!text->starts_with(words)) return false;
  text->remove_prefix(words.size());
  return true;
}

bool TakeNumber(std::string_view* text, int64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

}  // namespace

Status OverflowStatus(const ContextOverflow& o, const char* prompt_param) {
  const bool shorten = o.room() < 1;
  return InvalidArgument(
      fmt::format("{}{}{}{}{}{}{} tokens; {}", kPrompt, o.at_least ? kAtLeast : "", o.prompt_tokens, kMaxTokens,
                  o.max_tokens, kContext, o.context,
                  shorten ? "shorten the prompt" : fmt::format("give max_tokens up to {}", o.room())),
      shorten ? prompt_param : "max_tokens");
}

Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context, const char* prompt_param) {
  if (max_tokens <= context - prompt_tokens) return Status();
  return OverflowStatus({.prompt_tokens = prompt_tokens, .max_tokens = max_tokens, .context = context}, prompt_param);
}

std::optional<ContextOverflow> OverflowIn(std::string_view message) {
  const size_t begin = message.find(kPrompt);
  if (begin == std::string_view::npos) return std::nullopt;
  message.remove_prefix(begin + kPrompt.size());
  ContextOverflow o;
  o.at_least = Take(&message, kAtLeast);
  const bool read = TakeNumber(&message, &o.prompt_tokens) && Take(&message, kMaxTokens) &&
                    TakeNumber(&message, &o.max_tokens) && Take(&message, kContext) && TakeNumber(&message, &o.context);
  if (!read) return std::nullopt;
  return o;
}

}  // namespace tactus
