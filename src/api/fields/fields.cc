#include "api/fields/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/json.h"

namespace tactus::api {

const char* TypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

std::optional<int64_t> AsInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) <= 9007199254740992.0) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

std::string Shown(const Json& value) {
  if (value.is_structured()) return TypeName(value);
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = ReplaceInvalidUtf8(text.substr(0, 57)) + "...";
  return text;
}

bool IsEmpty(const Json& value) {
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.is_structured() && value.empty();
}

Fields::Fields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

namespace {

thread_local FieldRecording* recording = nullptr;

}  // namespace

FieldRecording::FieldRecording() : before_(recording) {
  recording = this;
}

FieldRecording::~FieldRecording() {
  recording = before_;
}

bool FieldRecording::active() {
  return recording != nullptr;
}

void FieldRecording::Add(Asked asked) {
  for (Asked& known : asked_) {
    if (known.name != asked.name) continue;
    if (known.kind == Kind::kAny || asked.kind == Kind::kRefused) known = std::move(asked);
    return;
  }
  asked_.push_back(std::move(asked));
}

void Fields::Record(FieldRecording::Asked asked, std::string_view name) const {
  if (recording == nullptr) return;
  asked.name = Name(name);
  recording->Add(std::move(asked));
}

const Json* Fields::Find(std::string_view name) const {
  Record({}, name);
  return Look(name);
}

const Json* Fields::Look(std::string_view name) const {
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

void Fields::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void Fields::FailType(std::string_view name, const char* expected, const Json& value) {
  Fail(InvalidArgument(fmt::format("{}: expected {}, got {} ({})", Name(name), expected, TypeName(value), Shown(value)),
                       Name(name)));
}

std::optional<double> Fields::Number(std::string_view name, double min, double max, bool above_min) {
  Record({.kind = FieldRecording::Kind::kNumber, .min = min, .max = max, .above_min = above_min}, name);
  const Json* value = Look(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    FailType(name, "a number", *value);
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (!(number >= min && number <= max) || (above_min && number == min)) {
    Fail(InvalidArgument(fmt::format("{}: {} is out of range; give a number {} {} {} {}", Name(name), Shown(*value),
                                     above_min ? "above" : "from", min, above_min ? "and up to" : "to", max),
                         Name(name)));
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> Fields::Integer(std::string_view name, int64_t min, int64_t max) {
  Record({.kind = FieldRecording::Kind::kInteger, .least = min, .most = max}, name);
  const Json* value = Look(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    FailType(name, "a whole number", *value);
    return std::nullopt;
  }
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number && value->is_number_float() && std::abs(value->get<double>()) < 9e15) {
    FailType(name, "a whole number", *value);
    return std::nullopt;
  }
  if (!number || *number < min || *number > max) {
    Fail(InvalidArgument(
        fmt::format("{}: {} is out of range; give a whole number from {} to {}", Name(name), Shown(*value), min, max),
        Name(name)));
    return std::nullopt;
  }
  return number;
}

std::optional<bool> Fields::Boolean(std::string_view name) {
  Record({.kind = FieldRecording::Kind::kBoolean}, name);
  const Json* value = Look(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    FailType(name, "true or false", *value);
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> Fields::String(std::string_view name, size_t max_bytes) {
  Record({.kind = FieldRecording::Kind::kString, .max_bytes = max_bytes}, name);
  const Json* value = Look(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    FailType(name, "a string", *value);
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    Fail(InvalidArgument(fmt::format("{}: {} bytes are more than {}, the limit", Name(name), text.size(), max_bytes),
                         Name(name)));
    return std::nullopt;
  }
  return text;
}

void Fields::Refuse(std::string_view name, std::string_view why) {
  Record({.kind = FieldRecording::Kind::kRefused}, name);
  const Json* value = Look(name);
  if (value == nullptr || IsEmpty(*value)) return;
  Fail(Unimplemented(fmt::format("{}: not supported yet{}{}; leave it out", Name(name), why.empty() ? "" : ", ", why),
                     Name(name)));
}

void Fields::RefuseTrue(std::string_view name, std::string_view why) {
  Record({.kind = FieldRecording::Kind::kRefused}, name);
  if (Boolean(name).value_or(false)) Refuse(name, why);
}

}  // namespace tactus::api
