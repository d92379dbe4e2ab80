// How models write calls of tools and reasoning: a table, a row for each form. Markers are texts; where a tokeniser has
// a token for one it is usually a special token. White space beside markers belongs to the form and is no text.
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

  std::string_view name;        // of --tool-call-parser; vLLM's where it has one
  std::string_view names = {};  // further ones, with a space between
  Body body = Body::kJson;
  // Calls stand at the start of the answer with no marker before them (which may be there all the same). Then only a
  // name that the request knows makes a call.
  bool bare = false;
  bool either = false;  // kJson or kNamedJson, as the first character behind `call_begin` says

  std::string_view told_by = {};  // a template that has this has the form, although it shows no call

  // Around all calls and around each; empty: none.
  std::string_view section_begin = {}, section_end = {};
  std::string_view call_begin = {}, call_end = {};

  // kNamedJson, kParameters: the head of a call goes to `head_end`, or to the character before `head_stop` (0: none).
  // The name is what stands in it after the last `name_after` and before the first `name_before`.
  std::string_view head_end = {};
  char head_stop = 0;
  std::string_view name_after = {}, name_before = {};

  // kParameters: around the key and around the value; `value_begin` may be empty.
  std::string_view key_begin = {}, key_end = {}, value_begin = {}, value_end = {};
  bool typed_keys = false;          // behind the key: string="true", or "false" for JSON
  bool value_on_own_lines = false;  // a newline after value_begin and before value_end belongs to the form
  bool one_a_section = false;       // each call has its own section

  // kJson: the keys, as written. Others are understood too.
  std::string_view name_key = "name", arguments_key = "arguments";
  bool name_is_key = false;  // {name: arguments}
  bool listed = false;       // written as one list

  // How it is written, where a grammar writes it: in `call_begin` and the like a model has its own white space.
  std::string_view after_begin = {}, before_end = {};  // between the markers of a call and what they hold
  std::string_view line = {};                          // kParameters: behind the head and behind each parameter
  std::string_view between = {};                       // two calls
  std::string_view head_before = {}, head_after = {};  // what goes before and after the name in its head

  bool short_ids = false;  // ids of nine characters (Mistral)
};

struct ReasoningFormat {
  std::string_view name;        // of --reasoning-parser; vLLM's where it has one
  std::string_view names = {};  // further ones, with a space between
  std::string_view begin, end;
  std::string_view told_by = {};                        // only a template that has this has the form
  std::string_view answer_begin = {}, answer_end = {};  // around the content; empty: none
};

std::span<const ToolFormat> ToolFormats();
std::span<const ReasoningFormat> ReasoningFormats();
// Null: there is none of that name.
const ToolFormat* FindToolFormat(std::string_view name);
const ReasoningFormat* FindReasoningFormat(std::string_view name);

}  // namespace tactus::api
