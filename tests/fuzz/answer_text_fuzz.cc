// Answer texts in every format: all cuts of a text give the same parts, and the arguments of a call are the beginning
// of a JSON value.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "api/chat/answer_text.h"
#include "api/chat/answer_writer.h"
#include "api/tools/call_values.h"
#include "base/json.h"
#include "base/json_text.h"

namespace {

using namespace tactus;

void Require(bool holds) {
  if (!holds) std::abort();
}

std::shared_ptr<const api::ToolSet> Tools() {
  static const auto set = api::ReadTools(Json::parse(R"({"tools": [{"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"},
                                                    "o": {"type": ["object", "null"]}, "x": {}}}}}]})"));
  return *set;
}

std::vector<api::AnswerPart> Read(const api::AnswerReading& reading, const std::string& text, uint32_t cuts) {
  api::AnswerText reader(reading, "seed");
  std::vector<api::AnswerPart> all, told;
  const auto take = [&] {
    for (const api::AnswerPart& part : told) {
      Require(part.kind == api::AnswerPart::Kind::kCallBegin || !part.text.empty());
      Require(api::ReplaceInvalidUtf8(part.text) == part.text);
      api::AppendPart(part, &all);
    }
    told.clear();
  };
  size_t from = 0;
  for (size_t i = 1; i <= text.size(); ++i) {
    if (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0u) == 0x80u) continue;
    cuts = cuts * 1664525u + 1013904223u;
    if (i < text.size() && cuts >> 30 != 0) continue;
    reader.Append(std::string_view(text).substr(from, i - from), &told);
    take();
    from = i;
  }
  reader.Finish(&told);
  take();
  return all;
}

bool Same(const std::vector<api::AnswerPart>& a, const std::vector<api::AnswerPart>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind || a[i].text != b[i].text || a[i].name != b[i].name || a[i].id != b[i].id ||
        a[i].call != b[i].call)
      return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  api::AnswerReading reading;
  reading.calls = &api::ToolFormats()[data[0] % api::ToolFormats().size()];
  const size_t thoughts = data[1] % (2 * api::ReasoningFormats().size() + 1);
  if (thoughts > 0) reading.reasoning = &api::ReasoningFormats()[(thoughts - 1) / 2];
  reading.begins_in_reasoning = thoughts % 2 == 0 && thoughts > 0;
  if (data[1] < 0xC0) reading.tools = Tools();
  const std::string text = api::ReplaceInvalidUtf8(std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2));

  api::AnswerText reader(reading, "seed");
  std::vector<api::AnswerPart> told, whole;
  reader.Append(text, &told);
  reader.Finish(&told);
  for (const api::AnswerPart& part : told) api::AppendPart(part, &whole);
  for (const uint32_t cuts : {1u, 2u, 3u}) Require(Same(whole, Read(reading, text, cuts)));

  std::map<int32_t, std::string> arguments;
  for (const api::AnswerPart& part : whole) {
    if (part.kind == api::AnswerPart::Kind::kCallArguments) arguments[part.call] += part.text;
  }
  for (const auto& [call, json] : arguments) {
    api::JsonFollower follower;
    for (const char c : json) Require(follower.Next(c) != api::ValueStep::kBad);
  }
  return 0;
}
