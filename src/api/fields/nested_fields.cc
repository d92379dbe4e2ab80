#include "api/fields/nested_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_set>
#include <utility>

#include "base/json.h"

namespace tactus::api {
namespace {

// The field names that an object at `place` may have. A list counts as its items. `types`: the object types of the row,
// "" for objects without a type; "*": all. An object without a row is refused or reported as a whole by its parser.
// `names` includes names that are not read and change no answer: official SDKs and common clients send them back from
// earlier answers, or for other servers. A place without a row has free content: schemas, arguments, metadata.
struct PlaceRow {
  std::string_view place, types, names;
};

constexpr PlaceRow kChatPlaces[] = {
    {"messages", "*",
     "role content name tool_calls tool_call_id reasoning_content reasoning thinking refusal annotations audio "
     "function_call images prefix partial cache_control citations id index status phase type metadata created "
     "created_at "
     "timestamp model parsed reasoning_details reasoning_text reasoning_opaque reasoning_signature signature "
     "encrypted_content thinking_blocks provider_specific_fields extra_content provider_options providerOptions "
     "copilot_cache_control tool_plan tool_name tools documents weight recipient channel end_turn finish_reason "
     "stop_reason token_ids"},
    {"messages.content", "|text|refusal",
     "text refusal cache_control citations annotations id index status phase name parsed signature thought_signature "
     "extra_content provider_specific_fields provider_options providerOptions prompt_cache_breakpoint "
     "copilot_cache_control"},
    {"messages.content", "thinking", "thinking signature closed cache_control id index"},
    {"messages.content", "redacted_thinking", "data cache_control id index"},
    {"messages.content.thinking", "text", "text cache_control"},
    {"messages.tool_calls", "*",
     "id type index function custom status name cache_control thought_signature signature extra_content "
     "provider_specific_fields provider_options providerOptions"},
    {"messages.tool_calls.function", "*",
     "name arguments parsed_arguments description id index strict thought_signature provider_specific_fields"},
    {"tools", "*",
     "type function cache_control copilot_cache_control strict defer_loading eager_input_streaming input_examples "
     "allowed_callers id index metadata"},
    {"tools.function", "*",
     "name description parameters strict type title id cache_control annotations return returns response responses "
     "output_schema examples defer_loading metadata"},
    {"tool_choice", "*", "type function"},
    {"tool_choice.function", "*", "name"},
    {"thinking", "*", "type budget_tokens display"},
};

constexpr PlaceRow kResponsesPlaces[] = {
    {"input", "|message",
     "role content id status phase name annotations refusal reasoning_content reasoning cache_control metadata index "
     "created_by internal_chat_message_metadata_passthrough"},
    {"input", "function_call",
     "id call_id name arguments status parsed_arguments namespace caller created_by cache_control index metadata "
     "internal_chat_message_metadata_passthrough"},
    {"input", "function_call_output",
     "id call_id output status name caller created_by cache_control index is_error metadata "
     "internal_chat_message_metadata_passthrough"},
    {"input", "reasoning",
     "id summary content encrypted_content status format signature index cache_control metadata created_by "
     "internal_chat_message_metadata_passthrough"},
    {"input.content", "input_text|output_text|text|reasoning_text|summary_text|refusal",
     "text refusal annotations logprobs parsed cache_control citations id index status prompt_cache_breakpoint"},
    {"input.output", "input_text|output_text|text|refusal",
     "text refusal annotations logprobs cache_control citations id index status prompt_cache_breakpoint"},
    {"tools", "function",
     "name description parameters strict cache_control defer_loading output_schema allowed_callers metadata"},
    {"text.format", "*", "type name schema strict description"},
    {"tool_choice", "*", "type name"},
};

constexpr PlaceRow kMessagesPlaces[] = {
    {"system", "*", "text cache_control citations"},
    {"messages", "*",
     "role content id name type model status phase index cache_control stop_reason stop_sequence stop_details usage "
     "container context_management metadata diagnostics"},
    {"messages.content", "text", "text cache_control citations parsed_output id index"},
    {"messages.content", "tool_use", "id name input cache_control caller index status"},
    {"messages.content", "tool_result", "tool_use_id content is_error cache_control id index status name"},
    {"messages.content", "thinking", "thinking signature cache_control id index"},
    {"messages.content", "redacted_thinking", "data cache_control id index"},
    {"messages.content.content", "text", "text cache_control citations id index"},
    {"messages.content.content", "tool_reference", "tool_name cache_control"},
    {"messages.content.content", "search_result", "title source content citations cache_control"},
    {"messages.content.content.content", "text", "text cache_control citations"},
    {"tools", "|custom",
     "name description input_schema strict cache_control defer_loading eager_input_streaming input_examples "
     "allowed_callers metadata"},
    {"tool_choice", "*", "type name disable_parallel_tool_use"},
    {"thinking", "*", "type budget_tokens display"},
    {"output_config.format", "*", "type schema name description strict"},
    {"context_management.edits", "clear_thinking_20251015", "keep"},
    {"context_management.edits.keep", "*", "type value"},
};

// A place with its rows.
struct PlaceNode {
  struct Kind {
    std::vector<std::string_view> types;  // empty: all
    std::unordered_set<std::string_view> names;
  };
  std::vector<Kind> kinds;
  std::map<std::string_view, std::unique_ptr<PlaceNode>> inner;  // members whose fields are checked
};

std::vector<std::string_view> SplitNames(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

using PlaceTree = std::map<std::string_view, PlaceNode>;  // by field of the body

template <size_t kRows>
PlaceTree MakePlaces(const PlaceRow (&rows)[kRows]) {
  PlaceTree tree;
  for (const PlaceRow& row : rows) {
    // A field of the body may be a dotted name: "text.format".
    PlaceNode* node = nullptr;
    std::string_view rest;
    for (auto& [field, place] : tree) {
      if (!row.place.starts_with(field) || (row.place.size() > field.size() && row.place[field.size()] != '.'))
        continue;
      node = &place;
      rest = row.place.substr(field.size());
    }
    if (node == nullptr) node = &tree[row.place];
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const size_t end = std::min(rest.find('.'), rest.size());
      auto& inner = node->inner[rest.substr(0, end)];
      if (inner == nullptr) inner = std::make_unique<PlaceNode>();
      node = inner.get();
      rest.remove_prefix(end);
    }
    PlaceNode::Kind& kind = node->kinds.emplace_back();
    if (row.types != "*") kind.types = SplitNames(row.types, '|');
    const auto names = SplitNames(row.names, ' ');
    kind.names.insert(names.begin(), names.end());
  }
  return tree;
}

const PlaceNode* FindPlace(std::string_view path, std::string_view name) {
  static const PlaceTree chat = MakePlaces(kChatPlaces), responses = MakePlaces(kResponsesPlaces),
                         messages = MakePlaces(kMessagesPlaces);
  const PlaceTree* tree = nullptr;
  if (path == "/v1/chat/completions" || path == "/tokenize")
    tree = &chat;
  else if (path == "/v1/responses")
    tree = &responses;
  else if (path.starts_with("/v1/messages"))
    tree = &messages;
  if (tree == nullptr) return nullptr;
  const auto found = tree->find(name);
  return found == tree->end() ? nullptr : &found->second;
}

// The place of a value; formatted only for unknown fields.
struct ValuePlace {
  const ValuePlace* around;
  std::string_view name;  // empty: a list item
  size_t index;

  std::string Text() const {
    if (around == nullptr) return std::string(name);
    if (name.empty()) return fmt::format("{}[{}]", around->Text(), index);
    return fmt::format("{}.{}", around->Text(), name);
  }
};

class NestedReader {
 public:
  void Read(const Json& value, const PlaceNode& node, const ValuePlace& place) {
    if (value.is_object()) return ReadObject(value, node, place);
    if (!value.is_array()) return;
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_object()) ReadObject(value[i], node, {&place, {}, i});
    }
  }

  void AppendTo(std::vector<std::string>* ignored) const {
    for (const Found& found : found_)
      ignored->push_back(found.places == 1 ? found.first : fmt::format("{} ({} places)", found.first, found.places));
  }

 private:
  struct Found {
    std::string first;
    size_t places;
  };

  static const PlaceNode::Kind* KindOf(const Json& object, const PlaceNode& node) {
    std::string_view type;
    if (const auto given = object.find("type"); given != object.end() && given->is_string())
      type = given->get_ref<const std::string&>();
    for (const PlaceNode::Kind& kind : node.kinds) {
      if (kind.types.empty() || std::find(kind.types.begin(), kind.types.end(), type) != kind.types.end()) return &kind;
    }
    return nullptr;
  }

  void ReadObject(const Json& object, const PlaceNode& node, const ValuePlace& place) {
    const PlaceNode::Kind* kind = KindOf(object, node);
    if (kind == nullptr) return;
    for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
      if (value.is_null() || key == "type") continue;
      if (!kind->names.contains(key)) {
        Add(node, key, place);
      } else if (value.is_structured()) {
        if (const auto inner = node.inner.find(key); inner != node.inner.end())
          Read(value, *inner->second, {&place, key, 0});
      }
    }
  }

  void Add(const PlaceNode& node, std::string_view key, const ValuePlace& place) {
    if (const auto known = index_.find({&node, key}); known != index_.end()) {
      ++found_[known->second].places;
    } else if (found_.size() < kMostNestedNames) {
      index_[{&node, key}] = found_.size();
      found_.push_back({ValuePlace{&place, key, 0}.Text(), 1});
    }
  }

  std::vector<Found> found_;
  std::map<std::pair<const PlaceNode*, std::string_view>, size_t> index_;
};

}  // namespace

bool HasNestedFields(std::string_view path, std::string_view name) {
  return FindPlace(path, name) != nullptr;
}

void ReadNestedFields(std::string_view path, std::string_view name, const Json& value,
                      std::vector<std::string>* ignored) {
  const PlaceNode* node = FindPlace(path, name);
  if (node == nullptr) return;
  NestedReader reader;
  reader.Read(value, *node, {nullptr, name, 0});
  reader.AppendTo(ignored);
}

}  // namespace tactus::api
