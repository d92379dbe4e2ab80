// JSON values whose destructor allocates nothing.
//
// nlohmann-json flattens a value into a vector before it frees it, so that deep values need no deep stack. Without
// memory for that vector the exception leaves a destructor, and the process ends. Here a value frees its children
// recursively. That costs some 200 bytes of stack per level, so texts must be parsed by base/json_text.h or with
// another depth limit.
#pragma once

#include <memory>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "base/json_fwd.h"

static_assert(NLOHMANN_JSON_VERSION_MAJOR == 3, "base/json.h replaces json_value::destroy() of version 3");

namespace tactus {

template <class T, class Enabled>
struct JsonSerializer : nlohmann::adl_serializer<T, Enabled> {};

namespace json_detail {

// The inverse of the library's create(). Null: the value's constructor failed.
template <class T>
void Release(T* value) {
  if (value == nullptr) return;
  std::allocator<T> allocator;
  std::allocator_traits<std::allocator<T>>::destroy(allocator, value);
  std::allocator_traits<std::allocator<T>>::deallocate(allocator, value, 1);
}

template <class Value, class Type>
void Destroy(Value& value, Type type) {
  switch (type) {
    case Type::object:
      return Release(value.object);
    case Type::array:
      return Release(value.array);
    case Type::string:
      return Release(value.string);
    case Type::binary:
      return Release(value.binary);
    default:
      return;  // stored in the value itself
  }
}

}  // namespace json_detail
}  // namespace tactus

template <>
inline void tactus::Json::json_value::destroy(value_t type) {
  tactus::json_detail::Destroy(*this, type);
}

template <>
inline void tactus::SortedJson::json_value::destroy(value_t type) {
  tactus::json_detail::Destroy(*this, type);
}
