// The checked tools of a request. Immutable: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields/json.h"
#include "tactus/status.h"

namespace tactus::api {

// An API's limits: OpenAI's as defaults, kMessagesTools for Anthropic's clients, whose MCP servers add many tools.
struct ToolLimits {
  size_t tools = 128;
  size_t name_bytes = 64;  // letters, digits, _ and -
};
inline constexpr ToolLimits kMessagesTools = {1024, 128};

struct Tool {
  std::string name;
  bool strict = false;
  std::string parameters;  // JSON schema of an object

  // Facts from a parameter's schema, for formats that write its value as bare text.
  struct Parameter {
    std::string name;
    std::vector<std::string> types;  // "string", "integer", ...; empty: any
    bool required = false;
  };
  std::vector<Parameter> listed;  // in the schema's order

  const Parameter* Find(std::string_view parameter) const;  // null: not in the schema
};

struct ToolSet {
  // The client's tool_choice: "auto", "required" or one tool. "none" gives no ToolSet.
  enum class Choice : uint8_t { kAuto, kRequired, kNamed };

  std::vector<Tool> tools;
  Choice choice = Choice::kAuto;
  size_t named = 0;      // with kNamed: its index
  bool parallel = true;  // several calls in one answer
  bool strict() const;   // one of the tools is strict

  const Tool* Find(std::string_view name) const;  // null: none
};

// `tools`, `tool_choice` and `parallel_tool_calls` of a body. Null: no tools, or none may be called. An error names the
// place: "tools[1].function.name".
Result<std::shared_ptr<const ToolSet>> ReadTools(const Json& body, const ToolLimits& limits = {});

}  // namespace tactus::api
