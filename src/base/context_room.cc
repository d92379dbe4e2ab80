#include "base/context_room.h"

#include <fmt/format.h>

#include <charconv>

namespace tactus {
namespace {

constexpr std::string_view kPrompt = "prompt of ", kAtLeast = "at least ", kTokens = " tokens + ", kOf = " of ",
                           kContext = " exceed the context of ";
// The APIs' names for the token limit of an answer.
constexpr std::string_view kFields[] = {"max_tokens", "max_completion_tokens", "max_output_tokens",
                                        ContextOverflow::kAnswer};

bool Take(std::string_view* text, std::string_view words) {
  if (!text->starts_with(words)) return false;
  text->remove_prefix(words.size());
  return true;
}

bool TakeField(std::string_view* text, std::string_view* field) {
  for (const std::string_view name : kFields) {
    if (!Take(text, name)) continue;
    *field = name;
    return true;
  }
  return false;
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
      fmt::format("{}{}{}{}{}{}{}{}{} tokens; {}", kPrompt, o.at_least ? kAtLeast : "", o.prompt_tokens, kTokens,
                  o.field, kOf, o.max_tokens, kContext, o.context,
                  shorten ? "shorten the prompt" : fmt::format("give {} up to {}", o.field, o.room())),
      shorten ? prompt_param : std::string(o.field));
}

Status CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context, const char* prompt_param,
                    std::string_view field) {
  if (max_tokens <= context - prompt_tokens) return Status();
  return OverflowStatus({.prompt_tokens = prompt_tokens, .max_tokens = max_tokens, .context = context, .field = field},
                        prompt_param);
}

std::optional<ContextOverflow> OverflowIn(std::string_view message) {
  const size_t begin = message.find(kPrompt);
  if (begin == std::string_view::npos) return std::nullopt;
  message.remove_prefix(begin + kPrompt.size());
  ContextOverflow o;
  o.at_least = Take(&message, kAtLeast);
  const bool read = TakeNumber(&message, &o.prompt_tokens) && Take(&message, kTokens) &&
                    TakeField(&message, &o.field) && Take(&message, kOf) && TakeNumber(&message, &o.max_tokens) &&
                    Take(&message, kContext) && TakeNumber(&message, &o.context);
  if (!read) return std::nullopt;
  return o;
}

}  // namespace tactus
