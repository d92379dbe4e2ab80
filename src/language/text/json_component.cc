#include "language/text/json_component.h"

#include <limits>
#include <utility>

namespace tactus::language {

JsonComponent::JsonComponent(const SortedJson& value, std::string name) : value_(&value), name_(std::move(name)) {}

std::string JsonComponent::Type() const {
  const SortedJson& type = (*this)["type"];
  return type.is_string() ? type.get<std::string>() : std::string();
}

const SortedJson& JsonComponent::operator[](const char* member) const {
  static const SortedJson kNull;
  if (!value_->is_object()) return kNull;
  const auto found = value_->find(member);
  return found == value_->end() ? kNull : *found;
}

Status JsonComponent::Bad(const std::string& what) const {
  return DataLoss("tokenizer.json: " + name_ + ": " + what);
}

Status JsonComponent::Unsupported(const std::string& what) const {
  return Unimplemented("tokenizer.json: " + name_ + ": " + what + " is not supported");
}

Status JsonComponent::WrongType(const char* member, const char* wanted) const {
  const SortedJson& value = (*this)[member];
  if (value.is_null()) return Bad(std::string(member) + " is missing");
  return Bad(std::string(member) + " is of type " + value.type_name() + ", not " + wanted);
}

Result<std::string> JsonComponent::String(const char* member) const {
  const SortedJson& value = (*this)[member];
  return value.is_string() ? Result<std::string>(value.get<std::string>()) : WrongType(member, "string");
}

Result<std::string> JsonComponent::String(const char* member, std::string absent) const {
  return Has(member) ? String(member) : Result<std::string>(std::move(absent));
}

Result<bool> JsonComponent::Bool(const char* member, bool absent) const {
  const SortedJson& value = (*this)[member];
  if (value.is_null()) return absent;
  return value.is_boolean() ? Result<bool>(value.get<bool>()) : WrongType(member, "boolean");
}

Result<int64_t> JsonComponent::Int(const char* member) const {
  const SortedJson& value = (*this)[member];
  if (!value.is_number_integer()) return WrongType(member, "integer");
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return Bad(std::string(member) + " is beyond 64 bits");
  }
  return value.get<int64_t>();
}

Result<int64_t> JsonComponent::Int(const char* member, int64_t absent) const {
  return Has(member) ? Int(member) : Result<int64_t>(absent);
}

Result<const SortedJson*> JsonComponent::List(const char* member) const {
  const SortedJson& value = (*this)[member];
  return value.is_array() ? Result<const SortedJson*>(&value) : WrongType(member, "array");
}

Result<const SortedJson*> JsonComponent::Object(const char* member) const {
  const SortedJson& value = (*this)[member];
  return value.is_object() ? Result<const SortedJson*>(&value) : WrongType(member, "object");
}

Result<TextPattern> JsonComponent::Pattern(const char* member) const {
  const JsonComponent pattern((*this)[member], name_);
  for (const char* kind : {"String", "Regex"}) {
    if (pattern[kind].is_string()) return TextPattern{pattern[kind].get<std::string>(), kind[0] == 'R'};
  }
  return Bad(std::string(member) + " is neither {\"String\": text} nor {\"Regex\": text}");
}

namespace {

Status AddSteps(const JsonComponent& component, const SortedJson& value, const char* part, const char* list, int depth,
                std::vector<JsonComponent>* steps) {
  constexpr int kMostDepth = 8;
  if (component.Type() != "Sequence") {
    if (component.Type().empty()) return component.Bad("type is missing");
    steps->emplace_back(value, component.name() + " (" + component.Type() + ")");
    return {};
  }
  if (depth == kMostDepth) return component.Bad("sequences are nested too deep");
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* inner, component.List(list));
  for (size_t i = 0; i < inner->size(); ++i) {
    const JsonComponent step((*inner)[i], component.name() + " " + std::to_string(i));
    TACTUS_RETURN_IF_ERROR(AddSteps(step, (*inner)[i], part, list, depth + 1, steps));
  }
  return {};
}

}  // namespace

Result<std::vector<JsonComponent>> StepsOf(const SortedJson& value, const char* part, const char* list) {
  std::vector<JsonComponent> steps;
  if (value.is_null()) return steps;
  TACTUS_RETURN_IF_ERROR(AddSteps(JsonComponent(value, part), value, part, list, 0, &steps));
  return steps;
}

}  // namespace tactus::language
