#include "api/fields/field_names.h"

namespace tactus::api {
namespace {

bool Begins(std::string_view path, std::string_view name) {
  return path.starts_with(name) && (path.size() == name.size() || path[name.size()] == '.' || path[name.size()] == '[');
}

}  // namespace

std::string FieldNames::Original(std::string_view path) const {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& name : names_) {
    if (Begins(path, name.first) && (best == nullptr || name.first.size() > best->first.size())) best = &name;
  }
  if (best == nullptr) return std::string(path);
  return best->second + std::string(path.substr(best->first.size()));
}

Status FieldNames::Original(Status status) const {
  if (status.ok() || status.param().empty()) return status;
  const std::string param = Original(status.param());
  if (param == status.param()) return status;
  std::string message = status.message();
  if (message.starts_with(status.param())) message = param + message.substr(status.param().size());
  Status renamed(status.code(), std::move(message), param);
  renamed.set_retry_after_ns(status.retry_after_ns());
  return renamed;
}

}  // namespace tactus::api
