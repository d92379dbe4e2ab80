// The turns of a conversation as its chat template takes them. Published templates disagree: one needs a text where
// another needs none, one takes a call's arguments as an object alone, one a single call in a turn. The template is
// asked when the server starts, and the messages of every request are made to fit, so that what the server has said is
// valid history. Immutable: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/json.h"
#include "api/tools/tool_formats.h"
#include "tactus/engine.h"

namespace tactus::api {

// The member under which a text stands that should have been an object of arguments.
inline constexpr const char* kIncompleteKey = "_incomplete";

// What a template takes. The defaults are those of a template that takes everything.
struct HistoryForm {
  // Content of an assistant's turn that has calls and no text.
  enum class Silence : uint8_t { kEmptyText, kNull, kAbsent };
  // Where the text of a turn goes that has calls as well.
  enum class Words : uint8_t {
    kBesideCalls,
    kInReasoning,  // where there is reasoning too, behind it
    kBeforeCalls,  // in a turn of its own
  };

  Silence silence = Silence::kEmptyText;
  Words words = Words::kBesideCalls;
  bool shows_calls = true;         // else a turn's content has them, as the model has written them
  bool shows_results = true;       // else, without calls, the user tells the results
  bool arguments_as_text = false;  // a string, not an object
  bool broken_arguments = true;    // arguments that are no object may stand as text; else under kIncompleteKey
  bool one_call_a_turn = false;    // each call has a turn of its own, with its result behind it
  bool short_ids = false;          // of nine letters and digits
  bool named_results = false;      // results have the name of the function
  bool takes_reasoning = true;     // else it is left out
  bool roles_alternate = false;    // of turns without calls: neighbours of one role are one turn
  bool results_answered = false;   // the assistant speaks between a result and the user's next words
  std::string nothing;             // content of an assistant's turn that has neither text nor calls
};

// Renders small conversations with the engine's template, `with_tools` or without: a model may have one for each.
HistoryForm AskTemplate(const Engine& engine, bool with_tools);

// Makes messages fit, whose content is a string or absent and whose calls have arguments that are an object or a
// string. Without `knows_tools` calls and results are written as words. Precondition: a list of objects with roles.
void FitHistory(const HistoryForm& form, const ToolFormat* calls, bool knows_tools, Json* messages);
// The last of it, behind what else was written into the messages.
void AlternateRoles(const HistoryForm& form, Json* messages);

// A turn's calls as the model writes them: as `format` has it, or for a form whose calls need their schema, or null, as
// lines of JSON.
std::string WrittenCalls(const ToolFormat* format, const Json& calls);

}  // namespace tactus::api
