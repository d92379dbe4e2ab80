// What the fields of request bodies mean, and the form of those that are no plain value. Names, types and ranges are
// not here: the parsers are asked for them (FieldRecording in api/fields/fields.h), and a test holds the two against
// each other.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/request_parser.h"
#include "api/fields/fields.h"
#include "api/json.h"

namespace tactus::api {

struct FieldRow {
  std::string_view name;    // with the prefix of a nested object: "slo.ttft_ms"
  std::string_view doc;     // one sentence
  std::string_view schema;  // of what is no number, integer, boolean or string: JSON; else empty
  std::string_view path;    // of the one route that it is for; empty: all that read a field of this name
};
std::span<const FieldRow> FieldTable();
// The row of a field of the body that goes to `path`. Null: there is none.
const FieldRow* FindField(std::string_view path, std::string_view name);

// The fields that the body of a route may have, as its parser asks for them. `path`: "/v1/chat/completions" and the
// like; empty for routes whose bodies are not read by parsers of api/.
std::vector<FieldRecording::Asked> AskedOf(std::string_view path, const RequestLimits& limits);

// Their names. `refused`: also those of fields that the route knows to refuse.
std::vector<std::string> NamesOf(std::string_view path, const RequestLimits& limits, bool refused);

// The schema of that body.
Json BodySchema(std::string_view path, const RequestLimits& limits);

}  // namespace tactus::api
