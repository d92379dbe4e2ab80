// Maps the fields of a translated body to those of the client's body, so that errors name the client's field.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tactus/status.h"

namespace tactus::api {

class FieldNames {
 public:
  // `from` and all below it map to `to` and all below that: "messages[3]", "input[5]".
  void Add(std::string from, std::string to) { names_.emplace_back(std::move(from), std::move(to)); }
  // `path` with the longest matching name at its beginning replaced.
  std::string Original(std::string_view path) const;
  // The same error for the original field.
  Status Original(Status status) const;

 private:
  std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace tactus::api
