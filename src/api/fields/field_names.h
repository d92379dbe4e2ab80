// What the fields of a translated body are called in the body that it was made of, so that whatever refuses the former
// names the latter.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tactus/status.h"

namespace tactus::api {

class FieldNames {
 public:
  // `from` and all below it are `to` and what is below that: "messages[3]", "input[5]".
  void Add(std::string from, std::string to) { names_.emplace_back(std::move(from), std::move(to)); }
  // The longest name that `path` begins with is replaced.
  std::string Original(std::string_view path) const;
  // The same failure, of the original field.
  Status Original(Status status) const;

 private:
  std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace tactus::api
