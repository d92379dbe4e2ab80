#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/decimal.h"
#include "base/json.h"
#include "base/utf8.h"

namespace tactus::json_text {
namespace {

// Whether the double differs from the written number. A double represents any 15 digits.
bool IsRounded(double value, std::string_view text) {
  constexpr size_t kSureBytes = 16;
  if (text.size() <= kSureBytes && text.find_first_of("eE") == std::string_view::npos) return false;
  if (text == "18446744073709551616") return false;  // 2^64, the bound of many schemas, is a double
  const auto written = ReadDecimal(text);
  return !written || written != DecimalOf(value);
}

// The number at the end of `text`.
std::string_view NumberBefore(std::string_view text) {
  const size_t before = text.find_last_not_of("0123456789+-.eE");
  return before == std::string_view::npos ? text : text.substr(before + 1);
}

// Builds the document from parser events, so that limits hold while it grows.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return Add(Json(nullptr)); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (limits_.rounded != nullptr && limits_.rounded->size() < JsonLimits::kMostRounded && IsRounded(value, text))
      limits_.rounded->push_back({value, text});
    if (limits_.large != nullptr && limits_.large->size() < JsonLimits::kMostRounded &&
        text.find_first_of(".eE") == std::string::npos)
      limits_.large->push_back({values_, text});
    return Add(Json(value));
  }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override {
    if (static_cast<int64_t>(keys_.back().size()) >= limits_.max_keys) {
      return Fail(fmt::format("invalid JSON: an object of at least {} keys; the limit is {}", limits_.max_keys + 1,
                              limits_.max_keys));
    }
    if (!keys_.back().insert(value).second) {
      return Fail(fmt::format("invalid JSON: the key '{}' appears twice in one object", value.substr(0, 100)));
    }
    key_ = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string& /*last_token*/, const SortedJson::exception& error) override {
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const auto line = limits_.first_line + std::count(before.begin(), before.end(), '\n');
    const size_t newline = before.rfind('\n');
    const size_t column = newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
    // The library's reason, without its prefix and without the quoted input, which may be invalid UTF-8.
    std::string_view reason = error.what();
    if (const size_t dash = reason.find(" - "); dash != std::string_view::npos)
      reason.remove_prefix(dash + 3);
    else if (const size_t bracket = reason.find("] "); bracket != std::string_view::npos)
      reason.remove_prefix(bracket + 2);
    reason = reason.substr(0, reason.find("; last read"));
    std::string beyond;
    if (error.id == 406) reason = reason.substr(0, reason.find(" '"));  // the quoted text may be long
    if (error.id == 406 && limits_.rounded != nullptr) {
      constexpr size_t kShownBytes = 60;
      const std::string_view number = NumberBefore(text_.substr(0, position));
      beyond = fmt::format(": {}{} is beyond the numbers of 64 bits; give one up to 1.7976931348623157e308",
                           number.substr(0, kShownBytes), number.size() > kShownBytes ? "..." : "");
    }
    return Fail(fmt::format("invalid JSON at line {}, column {}: {}", line, column, ReplaceInvalidUtf8(reason)) +
                beyond);
  }

  Json root;
  Status status = InvalidArgument("invalid JSON");

 private:
  bool Fail(std::string message) {
    status = InvalidArgument(std::move(message));
    return false;
  }
  // Keys are known to be new, so they are appended without the linear search of ordered_json's operator[].
  Json* Place(Json&& value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& array = parent.get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    object.emplace_back(std::move(key_), std::move(value));
    return &object.back().second;
  }
  bool Count() {
    if (++values_ > limits_.max_values) {
      return Fail(fmt::format("invalid JSON: more than {} values, the limit", limits_.max_values));
    }
    if (values_ % kValuesBetweenLooks == 0 && limits_.stop.stopped()) {
      status = Status(StatusCode::kCancelled, "stopped");
      return false;
    }
    return true;
  }
  bool Add(Json&& value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }
  bool Open(Json&& value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Fail(fmt::format("invalid JSON: nested deeper than {} levels, the limit", limits_.max_depth));
    }
    if (!Count()) return false;
    // The pointer stays valid: a container grows only after its open child has been closed.
    open_.push_back(Place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  static constexpr int64_t kValuesBetweenLooks = 4096;

  const std::string_view text_;
  const JsonLimits limits_;
  std::vector<Json*> open_;
  std::vector<std::set<std::string>> keys_;
  std::string key_;
  int64_t values_ = 0;
};

// Moves the first character of `text` to `out`; an invalid byte becomes U+FFFD.
void AppendCharacter(std::string_view* text, std::string* out) {
  const Utf8Step step = DecodeUtf8(*text);
  const size_t size = step.state == Utf8Step::State::kValid ? step.size : 1;
  if (step.state == Utf8Step::State::kValid) {
    *out += text->substr(0, size);
  } else {
    AppendUtf8(kReplacementCharacter, out);
  }
  text->remove_prefix(size);
}

}  // namespace

namespace {

// Rejects NUL bytes: the library takes one for the end of the text.
Status CheckNul(std::string_view text, int64_t first_line) {
  const size_t at = text.find('\0');
  if (at == std::string_view::npos) return Status();
  const std::string_view before = text.substr(0, at);
  const size_t newline = before.rfind('\n');
  return InvalidArgument(fmt::format("invalid JSON at line {}, column {}: a NUL byte",
                                     first_line + std::count(before.begin(), before.end(), '\n'),
                                     at - (newline == std::string_view::npos ? -1 : newline)));
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  TACTUS_RETURN_IF_ERROR(CheckNul(text, limits.first_line));
  Builder builder(text, limits);
  if (!Json::sax_parse(text, &builder)) return builder.status;
  return std::move(builder.root);
}

namespace {

// Whether brackets outside of strings nest deeper than `most` levels. `text` need not be JSON.
bool NestsDeeper(std::string_view text, int most) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        break;
      case '[':
      case '{':
        if (++depth > most) return true;
        break;
      case ']':
      case '}':
        --depth;
        break;
      default:
        break;
    }
  }
  return false;
}

}  // namespace

Result<SortedJson> ParseSortedJson(std::string_view text) {
  if (NestsDeeper(text, JsonLimits().max_depth)) {
    return InvalidArgument(
        fmt::format("invalid JSON: nested deeper than {} levels, the limit", JsonLimits().max_depth));
  }
  TACTUS_RETURN_IF_ERROR(CheckNul(text, 1));
  SortedJson json = SortedJson::parse(text, nullptr, false);
  if (json.is_discarded()) return InvalidArgument("invalid JSON");
  return json;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) AppendCharacter(&text, &out);
  return out;
}

std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string JsonText(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void AppendJsonString(std::string* out, std::string_view text) {
  out->push_back('"');
  while (!text.empty()) {
    const char c = text.front();
    if (static_cast<unsigned char>(c) >= 0x80) {
      AppendCharacter(&text, out);
      continue;
    }
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\t') {
      *out += "\\t";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out->push_back(c);
    }
    text.remove_prefix(1);
  }
  out->push_back('"');
}

}  // namespace tactus::json_text
