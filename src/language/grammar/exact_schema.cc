#include "language/grammar/exact_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/decimal.h"
#include "base/json.h"
#include "language/grammar/lark_schema.h"
#include "language/grammar/schema_text.h"

namespace tactus::language {
namespace {

// Calls `change` on each schema, then on the schemas within it.
template <class Change>
void ForEach(Json* schema, const Change& change) {
  if (schema->is_array()) {
    for (Json& member : *schema) ForEach(&member, change);
  }
  if (!schema->is_object()) return;
  change(schema);
  for (auto& [key, member] : schema->items()) {
    if (HoldsValues(key)) continue;
    if (!HoldsSchemas(key) || !member.is_object())
      ForEach(&member, change);
    else
      for (Json& held : member) ForEach(&held, change);
  }
}

// Removes from the schema the bounds that are not kept.
void LeaveOut(Json* schema) {
  for (const char* keyword : kBounds) {
    const Json* bound = Member(*schema, keyword);
    if (bound != nullptr && bound->is_number() && !IsKept(*bound)) schema->erase(keyword);
  }
  for (const char* keyword : {"const", "enum"}) {
    const Json* value = Member(*schema, keyword);
    if (value != nullptr && FindLost(*value) != nullptr) schema->erase(keyword);
  }
}

// Writes its multiple in the form that the library reads.
void MakeMultipleReadable(Json* schema) {
  const auto multiple = schema->find("multipleOf");
  if (multiple == schema->end() || !multiple->is_number_float()) return;
  if (const auto readable = ReadableMultiple(multiple->get<double>())) *multiple = *readable;
}

// Nothing: no grammar needed; the schema itself may have been changed.
Result<std::optional<LarkSchema>> Write(Json* schema, const std::string& prefix, StopToken stop) {
  ForEach(schema, MakeMultipleReadable);
  auto lark = LarkOf(*schema, prefix, stop);
  if (lark.ok() || lark.status().code() == StatusCode::kCancelled) return lark;
  const Json* guidance = Member(*schema, "x-guidance");
  const Json* lenient = guidance == nullptr ? nullptr : Member(*guidance, "lenient");
  if (lenient != nullptr && *lenient == true) {
    ForEach(schema, LeaveOut);
    return std::optional<LarkSchema>();
  }
  if (lark.status().code() != StatusCode::kUnimplemented) return lark;
  const Json* lost = nullptr;
  std::string place = "#";
  ForEachSchema(*schema, [&](const Json& one, const std::string& path) {
    if (lost != nullptr) return;
    lost = OwnLost(one);
    if (lost != nullptr) place = path;
  });
  if (lost == nullptr) lost = FindLost(*schema);  // in a part that only a reference reaches
  const std::string& beside = lark.status().message();
  return InvalidArgument(
      fmt::format("the number {} is beyond 2^53 (9007199254740992), and beside '{}' it cannot be kept exactly; give a "
                  "smaller one, or leave '{}' out, at {}",
                  lost->dump(), beside, beside, place));
}

}  // namespace

std::optional<double> ReadableMultiple(double multiple) {
  constexpr int kMostSteps = 40, kNeighbours = 16;
  const auto wanted = DecimalOf(std::abs(multiple));
  if (!wanted || wanted->zero()) return std::nullopt;
  const auto reads = [&](double value) {
    int digits = 0;
    for (; value != std::floor(value) && digits < kMostSteps; ++digits) value *= 10;
    if (value != std::floor(value) || value > std::numeric_limits<uint32_t>::max()) return false;
    auto read = DecimalOf(value);
    if (!read) return false;
    read->exponent -= digits;
    return *read == *wanted;
  };
  double below = std::abs(multiple), above = below;
  for (int i = 0; i < kNeighbours; ++i) {
    for (const double candidate : {below, above}) {
      if (reads(candidate)) return candidate;
    }
    below = std::nextafter(below, 0.0);
    above = std::nextafter(above, std::numeric_limits<double>::infinity());
  }
  return std::nullopt;
}

Result<std::optional<std::string>> ExactGrammar(const Json& schema, StopToken stop) {
  Json changed = schema;
  TACTUS_ASSIGN_OR_RETURN(const std::optional<LarkSchema> written, Write(&changed, "x_", stop));
  if (written) return std::optional("start: " + written->start + "\n" + written->rules);
  if (changed != schema) return std::optional("start: %json " + changed.dump() + "\n");
  return std::optional<std::string>();
}

namespace {

// End of the JSON object that begins at `at`; npos: none, or it nests deeper than the parser's limit.
size_t EndOfObject(std::string_view text, size_t at) {
  const int most_depth = json_text::JsonLimits().max_depth;
  int depth = 0;
  bool in_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\')
        ++at;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      if (++depth > most_depth) return std::string_view::npos;
    } else if (c == '}' && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

Result<std::string> WithExactNumbers(std::string grammar, std::vector<Json>* schemas, StopToken stop) {
  constexpr std::string_view kJson = "%json";
  // Total bytes of unreadable objects: for each, the end of the text may be searched.
  constexpr size_t kMostLooks = size_t{16} << 20;
  constexpr size_t kMostBytes = size_t{8} << 20;
  std::string out;
  size_t done = 0, looks = 0;
  for (size_t at = grammar.find(kJson); at != std::string::npos; at = grammar.find(kJson, std::max(at + 1, done))) {
    const size_t begin = grammar.find_first_not_of(" \t\r\n", at + kJson.size());
    if (begin == std::string::npos || grammar[begin] != '{') continue;
    const size_t end = EndOfObject(grammar, begin);
    json_text::JsonLimits limits;
    limits.stop = stop;
    auto parsed = end == std::string::npos
                      ? Result<Json>(InvalidArgument("it does not end"))
                      : json_text::ParseJson(std::string_view(grammar).substr(begin, end - begin), limits);
    if (stop.stopped()) return Status(StatusCode::kCancelled, "stopped");
    if (!parsed.ok()) {  // not an object, or the library reports its error
      looks += std::min(end, grammar.size()) - begin;
      if (looks <= kMostLooks) continue;
      return InvalidArgument(
          fmt::format("'%json': the objects after it cannot be read, and their ends are not found within {} MiB "
                      "of text; write each as one JSON object",
                      kMostLooks >> 20));
    }
    Json changed = *parsed;
    MakeCountsReadable(&changed);
    TACTUS_ASSIGN_OR_RETURN(const std::optional<LarkSchema> written, Write(&changed, "x_", stop));
    const bool same = !written && changed == *parsed;
    if (schemas != nullptr) schemas->push_back(std::move(*parsed));
    if (same) continue;
    out += grammar.substr(done, at - done);
    out += written ? "%lark {\nstart: " + written->start + "\n" + written->rules + "}" : "%json " + changed.dump();
    done = end;
    if (out.size() > kMostBytes) {
      return InvalidArgument(
          fmt::format("'%json': written exactly, the numbers beyond 2^53 make a grammar of more than {} MiB, the "
                      "limit; give fewer such numbers, or smaller ones",
                      kMostBytes >> 20));
    }
  }
  if (done == 0) return grammar;
  return out + grammar.substr(done);
}

}  // namespace tactus::language
