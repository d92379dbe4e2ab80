// The formats in which models write tool calls and reasoning: a table with a row for each. Markers are texts; many are
// special tokens of a tokeniser. White space next to markers belongs to the format and not to the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tactus::api {

struct ToolFormat {
  enum class Body : uint8_t {
    kJson,        // objects with a name and arguments: one, several, or a list of them
    kNamedJson,   // a head with the name, then the arguments as JSON
    kParameters,  // a head with the name, then each parameter as text between markers
    kPythonic,    // [name(key=value, ...), ...]
    kHarmony,     // messages of channels, each with a head
  };

  std::string_view name;        // for --tool-call-parser; vLLM's name if it has one
  std::string_view names = {};  // further ones, with a space between
  Body body = Body::kJson;
  // Calls are at the start of the answer; their marker is optional. Only a name of one of the request's tools makes a
  // call.
  bool bare = false;
  bool either = false;  // kJson or kNamedJson, decided by the first character after `call_begin`

  std::string_view told_by = {};  // identifies the format in a template that shows no call

  // Markers around all calls and around each call; empty: none.
  std::string_view section_begin = {}, section_end = {};
  std::string_view call_begin = {}, call_end = {};

  // kNamedJson, kParameters: the head of a call ends with `head_end`, or before the character `head_stop` (0: none).
  // The name is the part of the head after the last `name_after` and before the first `name_before`.
  std::string_view head_end = {};
  char head_stop = 0;
  std::string_view name_after = {}, name_before = {};

  // kParameters: markers around the key and around the value; `value_begin` may be empty.
  std::string_view key_begin = {}, key_end = {}, value_begin = {}, value_end = {};
  bool typed_keys = false;          // after the key: string="true", or "false" for JSON
  bool value_on_own_lines = false;  // a newline after value_begin and before value_end belongs to the format
  bool one_a_section = false;       // each call has its own section

  // kJson: the keys, as written. Other keys are accepted too.
  std::string_view name_key = "name", arguments_key = "arguments";
  bool name_is_key = false;  // {name: arguments}
  bool listed = false;       // written as one list

  // White space for a grammar, which the markers above may leave out.
  std::string_view after_begin = {}, before_end = {};  // inside the markers of a call
  std::string_view line = {};                          // kParameters: after the head and after each parameter
  std::string_view between = {};                       // between two calls
  std::string_view head_before = {}, head_after = {};  // before and after the name in its head

  bool short_ids = false;  // ids of nine characters (Mistral)
};

struct ReasoningFormat {
  std::string_view name;        // for --reasoning-parser; vLLM's name if it has one
  std::string_view names = {};  // further ones, with a space between
  std::string_view begin, end;
  std::string_view told_by = {};                        // required in a template of this format
  std::string_view answer_begin = {}, answer_end = {};  // around the content; empty: none
};

std::span<const ToolFormat> ToolFormats();
std::span<const ReasoningFormat> ReasoningFormats();
// Null: no format has that name.
const ToolFormat* FindToolFormat(std::string_view name);
const ReasoningFormat* FindReasoningFormat(std::string_view name);

}  // namespace tactus::api
