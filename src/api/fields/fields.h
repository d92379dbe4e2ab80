// Reads the fields of one JSON object with types and ranges. The first fault is kept and names field, value and limit;
// readers after it return what they find, so that a parser reads straight through and asks once. A null field counts as
// absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/json.h"

namespace tactus::api {

// What parsers ask of bodies on this thread while it lives. They make their Fields where they need them, so the record
// is the thread's. /openapi.json is made of it: names, types and ranges that it tells are those that are read.
class FieldRecording {
 public:
  enum class Kind : uint8_t { kAny, kNumber, kInteger, kBoolean, kString, kRefused };
  struct Asked {
    std::string name;  // with the prefix of a nested object: "slo.ttft_ms"
    Kind kind = Kind::kAny;
    double min = 0, max = 0;  // of kNumber; above_min: without min itself
    bool above_min = false;
    int64_t least = 0, most = 0;  // of kInteger
    size_t max_bytes = 0;         // of kString
  };

  FieldRecording();
  ~FieldRecording();
  FieldRecording(const FieldRecording&) = delete;
  FieldRecording& operator=(const FieldRecording&) = delete;
  static bool active();  // on this thread: a parser runs to be asked what it reads
  // In the order of the first question; what is asked in several ways has its most telling one.
  const std::vector<Asked>& asked() const { return asked_; }

 private:
  friend class Fields;
  void Add(Asked asked);

  std::vector<Asked> asked_;
  FieldRecording* const before_;
};

class Fields {
 public:
  // `prefix` goes before names in messages: "slo." for a nested object. `object` must be an object and outlive this.
  explicit Fields(const Json& object, std::string prefix = {});

  const Json* Find(std::string_view name) const;  // null: absent
  // Of what belongs elsewhere, to say so: no field of this body.
  bool Has(std::string_view name) const { return Look(name) != nullptr; }
  std::optional<double> Number(std::string_view name, double min, double max, bool above_min = false);
  std::optional<int64_t> Integer(std::string_view name, int64_t min, int64_t max);
  std::optional<bool> Boolean(std::string_view name);
  std::optional<std::string> String(std::string_view name, size_t max_bytes);
  // Known, not built: any value but null, false or an empty one is refused.
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
// Integral numbers, also those written as 5.0. Nothing: no integer of 64 bits.
std::optional<int64_t> AsInteger(const Json& value);
// A value for a message: at most 60 characters.
std::string Shown(const Json& value);
// An empty text, list or object: it asks for nothing.
bool IsEmpty(const Json& value);

}  // namespace tactus::api
