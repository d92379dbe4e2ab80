// The formats of a model's reasoning and tool calls, derived from its chat template or named by the user. Immutable:
// any thread.
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
  const ReasoningFormat* reasoning = nullptr;  // null: no reasoning, or it is left in the text
  const ToolFormat* calls = nullptr;           // null: calls are not parsed
  bool template_knows_tools = true;            // else the request's tools are written into a message
  bool template_knows_system = true;           // else that message has the role user
  HistoryForm tool_history;                    // what the template accepts as history with tools
  HistoryForm plain_history;                   // and without tools
  bool specials = false;                       // markers are special tokens, so the text must include those

  bool harmony() const { return calls != nullptr && calls->body == ToolFormat::Body::kHarmony; }
};

// Names that --tool-call-parser and --reasoning-parser take; for messages.
std::string ToolFormatNames();
std::string ReasoningFormatNames();
// kInvalidArgument: unknown name; the message lists the known ones, and param is the option.
Status CheckParserNames(std::string_view tool_parser, std::string_view reasoning_parser);

// `auto`: the row of the table that parses a call as the template writes it, and the reasoning format whose markers are
// in the template. Precondition: CheckParserNames.
ChatStyle ChatStyleOf(const Engine& engine, std::string_view tool_parser = "auto",
                      std::string_view reasoning_parser = "auto");

// How the answer to the rendered prompt is parsed.
AnswerReading ReadingOf(const ChatStyle& style, std::shared_ptr<const ToolSet> tools, std::string_view prompt);

}  // namespace tactus::api
