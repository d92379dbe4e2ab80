// Documentation of the fields of request bodies, and schemas of those that are not a plain value. Names, types and
// ranges are not here: they are recorded from the parsers (FieldRecording in api/fields/fields.h), and a test compares
// the two.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/parsed_request.h"
#include "api/fields/fields.h"
#include "api/fields/json.h"

namespace tactus::api {

struct FieldRow {
  std::string_view name;    // with the prefix of a nested object: "slo.ttft_ms"
  std::string_view doc;     // one sentence
  std::string_view schema;  // JSON schema, if not a number, integer, boolean or string; else empty
  std::string_view path;    // the route that it is for; empty: all that have a field of this name
};
std::span<const FieldRow> FieldTable();
// The row of a field of the body that goes to `path`. Null: there is none.
const FieldRow* FindField(std::string_view path, std::string_view name);

// The fields that the parser of a route's body reads. `path`: for example "/v1/chat/completions". Empty result for
// routes whose bodies are not parsed by api/.
std::vector<FieldRecording::Asked> AskedOf(std::string_view path, const RequestLimits& limits);

// Their names. `refused`: also fields that the route knows only to refuse.
std::vector<std::string> NamesOf(std::string_view path, const RequestLimits& limits, bool refused);

// The schema of that body.
Json BodySchema(std::string_view path, const RequestLimits& limits);

}  // namespace tactus::api
