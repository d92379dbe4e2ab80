// How a model's chats are written: the form of its reasoning and of its calls, which follow from its chat template or
// are named by the user. Immutable: any thread.
#pragma once

#include <string>
#include <string_view>

#include "api/chat/answer_text.h"
#include "api/chat/history.h"
#include "api/tools/tool_formats.h"
#include "tactus/engine.h"
#include "tactus/status.h"

namespace tactus::api {

struct ChatStyle {
  const ReasoningFormat* reasoning = nullptr;  // null: the model does not reason, or its reasoning is left in the text
  const ToolFormat* calls = nullptr;           // null: calls are not looked for
  bool template_knows_tools = true;            // else the request's tools go into a message
  bool template_knows_system = true;           // else that message is the user's
  HistoryForm tool_history;                    // what the template takes of the turns before, beside tools
  HistoryForm plain_history;                   // and without them
  bool specials = false;                       // markers are special tokens, which the text has to show

  bool harmony() const { return calls != nullptr && calls->body == ToolFormat::Body::kHarmony; }
};

// Names that --tool-call-parser and --reasoning-parser take, besides auto and none; for messages.
std::string ToolFormatNames();
std::string ReasoningFormatNames();
// kInvalidArgument: a name that is none, with those that are; the option as param.
Status CheckParserNames(std::string_view tool_parser, std::string_view reasoning_parser);

// `auto`: the row of the table that reads a call as the template writes it, and the reasoning whose markers the
// template has. Precondition: CheckParserNames.
ChatStyle ChatStyleOf(const Engine& engine, std::string_view tool_parser = "auto",
                      std::string_view reasoning_parser = "auto");

// How one answer is read that follows the rendered prompt.
AnswerReading ReadingOf(const ChatStyle& style, std::shared_ptr<const ToolSet> tools, std::string_view prompt);

}  // namespace tactus::api
