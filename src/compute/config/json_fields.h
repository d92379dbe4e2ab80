// Reads fields of a JSON object with the type that the reader expects. The first error (wrong type, out of range,
// missing key) is kept in status(); later reads return their defaults, so callers need not check each read. null counts
// as absent, as in transformers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tactus/status.h"

namespace tactus::compute {

// Parses `text` as an object; errors name `path`. Depth is limited to 64.
Result<std::shared_ptr<const SortedJson>> ParseJsonObject(std::string_view text, const std::string& path);

class JsonFields {
 public:
  // A key "a|b" is a, or b where a is absent. `object` must outlive this. `path` and `prefix` ("rope_scaling.") are for
  // messages.
  JsonFields(const SortedJson& object, std::string path, std::string prefix = {})
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  bool Has(const char* key) const;     // present and not null
  bool HasKey(const char* key) const;  // present, null or not
  bool IsFlag(const char* key) const;  // true or false
  bool IsList(const char* key) const;
  std::optional<int64_t> Int(const char* key);
  std::optional<double> Float(const char* key);
  std::optional<bool> Bool(const char* key);
  std::optional<std::string> String(const char* key);
  std::vector<double> Floats(const char* key);
  std::vector<int64_t> IntOrInts(const char* key);  // 2 or [2, 3]
  std::vector<std::string> Strings(const char* key);
  const SortedJson* Object(const char* key);  // null: absent
  int64_t RequiredInt(const char* key);

  const Status& status() const { return status_; }
  const std::string& path() const { return path_; }
  void Fail(const char* key, const std::string& what);

 private:
  const SortedJson* Find(const char* key) const;
  const SortedJson& object_;
  std::string path_, prefix_;
  Status status_;
};

}  // namespace tactus::compute
