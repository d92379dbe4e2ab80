// The messages between replicas when a sequence moves: a line of JSON followed by bytes (docs/concepts/migration.md
// lists them). Input is not trusted: lengths, types and ranges are checked. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_text.h"
#include "tactus/migration.h"

namespace tactus::serve {

inline constexpr int64_t kMigrationVersion = 2;

// A message: its JSON in one line, then arbitrary bytes.
std::string MessageOf(const Json& head, std::string_view bytes = {});
struct Message {
  Json head;
  std::string_view bytes;  // view into the text that was read
};
Result<Message> ReadMessage(std::string_view text);

// Members of an object. kInvalidArgument names a member that is missing, of another type or out of range.
Result<std::string> TextMember(const Json& object, const char* name);
Result<int64_t> NumberMember(const Json& object, const char* name, int64_t low, int64_t high);

Json JsonOf(const MigrationFormat& format);
Result<MigrationFormat> FormatOf(const Json& json);
Json JsonOf(const MovingSequence& sequence);
Result<MovingSequence> SequenceOf(const Json& json);

}  // namespace tactus::serve
