#include "compute/config/json_fields.h"

#include <cmath>

#include "base/json.h"

namespace tactus::compute {
namespace {

constexpr int kMaxDepth = 64;

std::optional<int64_t> AsInt(const SortedJson& v) {
  if (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  if (v.is_number_integer()) return v.get<int64_t>();
  if (v.is_number_float()) {  // some exporters write 4096.0
    const double d = v.get<double>();
    if (std::isfinite(d) && std::floor(d) == d && std::abs(d) < 9e15) return static_cast<int64_t>(d);
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const SortedJson>> ParseJsonObject(std::string_view text, const std::string& path) {
  bool too_deep = false;
  const auto limit_depth = [&](int depth, SortedJson::parse_event_t, SortedJson&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  try {
    auto json = std::make_shared<SortedJson>(SortedJson::parse(text, limit_depth));
    if (too_deep) return DataLoss(path + ": JSON nests deeper than " + std::to_string(kMaxDepth));
    if (!json->is_object()) return DataLoss(path + ": not a JSON object");
    return std::shared_ptr<const SortedJson>(std::move(json));
  } catch (const SortedJson::exception& e) {
    if (too_deep) return DataLoss(path + ": JSON nests deeper than " + std::to_string(kMaxDepth));
    std::string reason = e.what();  // "[json.exception.parse_error.101] parse error at line ..."
    const size_t bracket = reason.find("] ");
    if (bracket != std::string::npos) reason = reason.substr(bracket + 2);
    return DataLoss(path + ": not valid JSON: " + reason.substr(0, 300));
  }
}

const SortedJson* JsonFields::Find(const char* key) const {
  for (std::string_view rest = key; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    const auto it = object_.find(std::string(rest.substr(0, end)));
    if (it != object_.end() && !it->is_null()) return &*it;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return nullptr;
}

bool JsonFields::Has(const char* key) const {
  return Find(key) != nullptr;
}

bool JsonFields::HasKey(const char* key) const {
  return object_.contains(key);
}

bool JsonFields::IsFlag(const char* key) const {
  const SortedJson* v = Find(key);
  return v != nullptr && v->is_boolean();
}

bool JsonFields::IsList(const char* key) const {
  const SortedJson* v = Find(key);
  return v != nullptr && v->is_array();
}

void JsonFields::Fail(const char* key, const std::string& what) {
  if (status_.ok()) status_ = DataLoss(path_ + ": '" + prefix_ + key + "' " + what);
}

std::optional<int64_t> JsonFields::Int(const char* key) {
  const SortedJson* v = Find(key);
  if (v == nullptr) return std::nullopt;
  const std::optional<int64_t> n = AsInt(*v);
  if (!n) Fail(key, "is not an integer (or beyond 64 bits)");
  return n;
}

std::optional<double> JsonFields::Float(const char* key) {
  const SortedJson* v = Find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number() || !std::isfinite(v->get<double>())) {
    Fail(key, "is not a finite number");
    return std::nullopt;
  }
  return v->get<double>();
}

std::optional<bool> JsonFields::Bool(const char* key) {
  const SortedJson* v = Find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_boolean()) {
    Fail(key, "is not true or false");
    return std::nullopt;
  }
  return v->get<bool>();
}

std::optional<std::string> JsonFields::String(const char* key) {
  const SortedJson* v = Find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) {
    Fail(key, "is not a string");
    return std::nullopt;
  }
  return v->get<std::string>();
}

std::vector<int64_t> JsonFields::IntOrInts(const char* key) {
  std::vector<int64_t> out;
  const SortedJson* v = Find(key);
  if (v == nullptr) return out;
  if (!v->is_array()) {
    if (const auto n = Int(key)) out.push_back(*n);
    return out;
  }
  for (const SortedJson& element : *v) {
    const std::optional<int64_t> n = AsInt(element);
    if (!n) {
      Fail(key, "holds something that is not an integer");
      return {};
    }
    out.push_back(*n);
  }
  return out;
}

std::vector<double> JsonFields::Floats(const char* key) {
  std::vector<double> out;
  const SortedJson* v = Find(key);
  if (v == nullptr) return out;
  if (!v->is_array()) {
    Fail(key, "is not a list");
    return out;
  }
  for (const SortedJson& element : *v) {
    if (!element.is_number() || !std::isfinite(element.get<double>())) {
      Fail(key, "holds something that is not a finite number");
      return {};
    }
    out.push_back(element.get<double>());
  }
  return out;
}

std::vector<std::string> JsonFields::Strings(const char* key) {
  std::vector<std::string> out;
  const SortedJson* v = Find(key);
  if (v == nullptr) return out;
  if (!v->is_array()) {
    Fail(key, "is not a list");
    return out;
  }
  for (const SortedJson& element : *v) {
    if (!element.is_string()) {
      Fail(key, "holds something that is not a string");
      return {};
    }
    out.push_back(element.get<std::string>());
  }
  return out;
}

const SortedJson* JsonFields::Object(const char* key) {
  const SortedJson* v = Find(key);
  if (v != nullptr && !v->is_object()) {
    Fail(key, "is not an object");
    return nullptr;
  }
  return v;
}

int64_t JsonFields::RequiredInt(const char* key) {
  if (!Has(key)) Fail(key, "is missing");
  return Int(key).value_or(0);
}

}  // namespace tactus::compute
