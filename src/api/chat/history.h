// Fits the turns of a conversation to its chat template. Published templates disagree: one needs a text where another
// needs none, one accepts a call's arguments only as an object, one only a single call in a turn. The template is
// probed when the server starts, and the messages of every request are fitted to it, so that every answer of the server
// is valid history. Immutable: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/fields/json.h"
#include "api/tools/tool_formats.h"
#include "tactus/engine.h"

namespace tactus::api {

// The member that stores arguments which are text instead of a JSON object.
inline constexpr const char* kIncompleteKey = "_incomplete";

// What a template accepts. The defaults are for a template that accepts everything.
struct HistoryForm {
  // Content of an assistant turn with calls and no text.
  enum class Silence : uint8_t { kEmptyText, kNull, kAbsent };
  // Where the text of a turn with calls is placed.
  enum class Words : uint8_t {
    kBesideCalls,
    kInReasoning,  // after the reasoning, if the turn has any
    kBeforeCalls,  // in a separate turn
  };

  Silence silence = Silence::kEmptyText;
  Words words = Words::kBesideCalls;
  bool shows_calls = true;         // else calls are written into the content, as the model wrote them
  bool shows_results = true;       // else, without calls, results are user messages
  bool arguments_as_text = false;  // a string, not an object
  bool broken_arguments = true;    // arguments may be text; else text goes under kIncompleteKey
  bool one_call_a_turn = false;    // each call has a separate turn, followed by its result
  bool short_ids = false;          // ids have nine letters and digits
  bool named_results = false;      // results contain the function's name
  bool takes_reasoning = true;     // else reasoning is left out
  bool roles_alternate = false;    // adjacent turns of one role, without calls, are merged
  bool results_answered = false;   // an assistant turn is required between a result and the next user message
  std::string nothing;             // content of an assistant turn without text and calls
};

// Probes the engine's template by rendering small conversations, `with_tools` or without: a model may have one template
// for each.
HistoryForm AskTemplate(const Engine& engine, bool with_tools);

// Fits messages to the form. Without `knows_tools` calls and results become text. Precondition: a list of objects with
// roles; content is a string or absent; arguments of calls are an object or a string.
void FitHistory(const HistoryForm& form, const ToolFormat* calls, bool knows_tools, Json* messages);
// The last step of fitting, after all other changes of the messages: merges adjacent turns and adds missing ones.
void AlternateRoles(const HistoryForm& form, Json* messages);

}  // namespace tactus::api
