// Settings with their values: those that a family reads, kept for conversions from one spelling to the other, and those
// that its files state beside what all families have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/config/family_fields.h"

namespace tactus::compute {

// A double is a number as a file has it, whole or not; null is for config.json alone.
using FieldValue =
    std::variant<std::nullptr_t, bool, int64_t, float, double, std::string, std::vector<bool>, std::vector<int64_t>,
                 std::vector<float>, std::vector<double>, std::vector<std::string>>;

struct RecordedField {
  RecordedField(FieldKey key, FieldValue is)
      : hf(key.hf != nullptr ? key.hf : ""), gguf(key.gguf != nullptr ? key.gguf : ""), value(std::move(is)) {}

  std::string hf, gguf;  // empty: not stated in this spelling
  FieldValue value;
};
using FieldRecord = std::vector<RecordedField>;

// One number where all are equal.
inline FieldValue ByLayer(const std::vector<int64_t>& numbers) {
  const bool same = std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) == numbers.end();
  return same ? FieldValue(numbers[0]) : FieldValue(numbers);
}

// `fields`, with what is read from it entered in `record` (null: nowhere).
class RecordedFields final : public FamilyFields {
 public:
  RecordedFields(FamilyFields& fields, FieldRecord* record) : fields_(fields), record_(record) {}

  bool gguf() const override { return fields_.gguf(); }
  std::optional<double> Number(FieldKey key) override { return Kept(key, fields_.Number(key)); }
  std::optional<bool> Flag(FieldKey key) override { return Kept(key, fields_.Flag(key)); }
  std::optional<std::string> Text(FieldKey key) override { return Kept(key, fields_.Text(key)); }
  std::optional<bool> FlagOrNumber(FieldKey key) override { return Kept(key, fields_.FlagOrNumber(key)); }
  Presence PresenceOf(FieldKey key) override { return fields_.PresenceOf(key); }
  std::vector<double> Numbers(FieldKey key) override { return KeptList(key, fields_.Numbers(key)); }
  std::vector<double> Reals(FieldKey key) override { return KeptList(key, fields_.Reals(key)); }
  std::vector<std::string> Texts(FieldKey key) override { return KeptList(key, fields_.Texts(key)); }
  bool HasTensor(Role role, int64_t layer) override { return fields_.HasTensor(role, layer); }
  void Refuse(FieldKey key, const std::string& what) override { fields_.Refuse(key, what); }
  const Status& status() const override { return fields_.status(); }

 private:
  template <class Value>
  std::optional<Value> Kept(FieldKey key, std::optional<Value> value) {
    if (value.has_value()) Keep(key, *value);
    return value;
  }
  template <class Value>
  Value KeptList(FieldKey key, Value value) {
    if (!value.empty()) Keep(key, value);
    return value;
  }
  template <class Value>
  void Keep(FieldKey key, const Value& value) {
    // Without a key in both spellings there is nothing to convert.
    if (record_ != nullptr && key.hf != nullptr && key.gguf != nullptr) record_->emplace_back(key, value);
  }

  FamilyFields& fields_;
  FieldRecord* const record_;
};

}  // namespace tactus::compute
