#include "cost/json_record.h"

#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_text.h"

namespace tactus::cost {
namespace {

constexpr double kMostKnot = 1e15, kLeastValue = 1e-9, kMostValue = 1e12;

}  // namespace

Status JsonRecord::Read(std::string_view text, const std::string& name, const std::function<void(JsonRecord&)>& read) {
  const Result<Json> json = json_text::ParseJson(text);
  if (!json.ok()) return DataLoss(name + ": " + json.status().message());
  if (!json->is_object()) return DataLoss(name + ": not a JSON object");
  Status fault;
  JsonRecord record(&json.value(), name, &fault);
  read(record);
  record.RefuseOthers();
  return fault;
}

bool JsonRecord::Has(const char* key) {
  return Find(key) != nullptr;
}

std::string JsonRecord::Text(const char* key) {
  const Json* json = Need(key, "a text", &Json::is_string);
  return json == nullptr ? std::string() : json->get<std::string>();
}

double JsonRecord::Number(const char* key, double least, double most) {
  const Json* json = Need(key, "a number", &Json::is_number);
  return json == nullptr ? least : Bounded(*json, fmt::format("{}: {}", where_, key), least, most);
}

int64_t JsonRecord::Integer(const char* key, int64_t least, int64_t most) {
  const double value = Number(key, static_cast<double>(least), static_cast<double>(most));
  if (value != std::floor(value))
    Fail(fmt::format("{}: {}", where_, key), fmt::format("{} is not a whole number", value));
  return static_cast<int64_t>(value);
}

bool JsonRecord::Flag(const char* key, bool otherwise) {
  if (!Has(key)) return otherwise;
  const Json* json = Need(key, "true or false", &Json::is_boolean);
  return json == nullptr ? otherwise : json->get<bool>();
}

Knots JsonRecord::Pairs(const char* key) {
  Knots knots;
  const Json* json = Need(key, "a list of pairs", &Json::is_array);
  if (json == nullptr) return knots;
  for (const Json& pair : *json) {
    const std::string place = fmt::format("{}: {}[{}]", where_, key, knots.size());
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number()) {
      Fail(place, "not a pair [x, y]");
      return knots;
    }
    const double x = Bounded(pair[0], place, 0, kMostKnot), y = Bounded(pair[1], place, kLeastValue, kMostValue);
    if (!knots.empty() && x <= knots.back().first) {
      Fail(place, fmt::format("knot {} does not rise above {}", x, knots.back().first));
    }
    knots.emplace_back(x, y);
  }
  if (knots.empty()) Fail(fmt::format("{}: {}", where_, key), "a curve without knots");
  return knots;
}

std::vector<std::string> JsonRecord::Texts(const char* key) {
  std::vector<std::string> texts;
  const Json* json = Need(key, "a list of texts", &Json::is_array);
  if (json == nullptr) return texts;
  for (const Json& text : *json) {
    if (!text.is_string()) Fail(fmt::format("{}: {}[{}]", where_, key, texts.size()), "not a text");
    texts.push_back(text.is_string() ? text.get<std::string>() : std::string());
  }
  return texts;
}

std::string JsonRecord::Object(const char* key) {
  const Json* json = Need(key, "a record {...}", &Json::is_object);
  return json == nullptr ? "{}" : json->dump();
}

void JsonRecord::Each(const char* key, const std::function<void(JsonRecord&)>& read) {
  if (!Has(key)) return;
  const Json* json = Need(key, "a list of records", &Json::is_array);
  if (json == nullptr) return;
  for (size_t k = 0; k < json->size() && fault_->ok(); ++k) {
    const std::string place = fmt::format("{}: {}[{}]", where_, key, k);
    if (!(*json)[k].is_object()) return Fail(place, "not a record {...}");
    JsonRecord record(&(*json)[k], place, fault_);
    read(record);
    record.RefuseOthers();
  }
}

const Json* JsonRecord::Find(const char* key) {
  asked_.emplace(key);
  const auto found = json_->find(key);
  return found == json_->end() ? nullptr : &*found;
}

const Json* JsonRecord::Need(const char* key, const char* what, bool (Json::*is)() const noexcept) {
  const Json* json = Find(key);
  if (json == nullptr) {
    Fail(where_, fmt::format("'{}' is missing", key));
    return nullptr;
  }
  if ((json->*is)()) return json;
  Fail(fmt::format("{}: {}", where_, key), fmt::format("not {}", what));
  return nullptr;
}

double JsonRecord::Bounded(const Json& json, const std::string& place, double least, double most) {
  const double value = json.get<double>();
  if (value >= least && value <= most) return value;
  Fail(place, fmt::format("{} is not a number between {} and {}", value, least, most));
  return least;
}

void JsonRecord::Fail(const std::string& place, const std::string& why) {
  if (fault_->ok()) *fault_ = DataLoss(place + ": " + why);
}

void JsonRecord::RefuseOthers() {
  for (const auto& [key, value] : json_->items()) {
    if (key != "optional" && !asked_.contains(key)) Fail(where_, fmt::format("'{}' is not known", key.substr(0, 40)));
  }
}

}  // namespace tactus::cost
