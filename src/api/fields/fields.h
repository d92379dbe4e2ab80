// Reads the fields of one JSON object with types and ranges. The first error is kept and names field, value and limit;
// later reads still return values, so that a parser checks the status once, at the end. A null field counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields/json.h"

namespace tactus::api {

// Records the fields that parsers read on this thread during its lifetime. Parsers create their Fields where they need
// them, so the record belongs to the thread. /openapi.json is built from it, so its names, types and ranges are those
// of the parsers.
class FieldRecording {
 public:
  enum class Kind : uint8_t { kAny, kNumber, kInteger, kBoolean, kString, kRefused };
  struct Asked {
    std::string name;  // with the prefix of a nested object: "slo.ttft_ms"
    Kind kind = Kind::kAny;
    double min = 0, max = 0;  // of kNumber; above_min: excludes min
    bool above_min = false;
    int64_t least = 0, most = 0;  // of kInteger
    size_t max_bytes = 0;         // of kString
  };

  FieldRecording();
  ~FieldRecording();
  FieldRecording(const FieldRecording&) = delete;
  FieldRecording& operator=(const FieldRecording&) = delete;
  static bool active();  // whether a recording runs on this thread
  // In the order of the first read; a field read in several ways has its most specific entry.
  const std::vector<Asked>& asked() const { return asked_; }

 private:
  friend class Fields;
  void Add(Asked asked);

  std::vector<Asked> asked_;
  FieldRecording* const before_;
};

class Fields {
 public:
  // `prefix` precedes names in messages: "slo." for a nested object. `object` must be an object and outlive this.
  explicit Fields(const Json& object, std::string prefix = {});

  const Json* Find(std::string_view name) const;  // null: absent
  // For a field of another route, to report it as such; it is not recorded as a field of this body.
  bool Has(std::string_view name) const { return Look(name) != nullptr; }
  std::optional<double> Number(std::string_view name, double min, double max, bool above_min = false);
  std::optional<int64_t> Integer(std::string_view name, int64_t min, int64_t max);
  std::optional<bool> Boolean(std::string_view name);
  std::optional<std::string> String(std::string_view name, size_t max_bytes);
  // A known field that is not implemented: rejects any value but null, false or an empty one.
  void Refuse(std::string_view name, std::string_view why = {});
  void RefuseTrue(std::string_view name, std::string_view why = {});

  void Fail(Status status);
  void FailType(std::string_view name, const char* expected, const Json& value);
  std::string Name(std::string_view name) const { return prefix_ + std::string(name); }
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const Json* Look(std::string_view name) const;
  void Record(FieldRecording::Asked asked, std::string_view name) const;

  const Json& object_;
  const std::string prefix_;
  Status status_;
};

// "a string", "an object", ... for messages.
const char* TypeName(const Json& value);
// The integer value, also of a number written as 5.0. Nothing: not an integer of 64 bits.
std::optional<int64_t> AsInteger(const Json& value);
// A value as text for a message: at most 60 characters.
std::string Shown(const Json& value);
// Whether the value is an empty text, list or object, which requests nothing.
bool IsEmpty(const Json& value);

}  // namespace tactus::api
