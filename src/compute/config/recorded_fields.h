// A family's settings as it reads them, kept for conversions from one spelling to the other.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/config/family_fields.h"

namespace tactus::compute {

// The settings that files state and that have a key in both spellings.
struct RecordedField {
  std::string hf, gguf;
  std::variant<double, bool, std::string, std::vector<double>, std::vector<std::string>> value;
};
using FieldRecord = std::vector<RecordedField>;

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
    if (record_ != nullptr && key.hf != nullptr && key.gguf != nullptr) record_->push_back({key.hf, key.gguf, value});
  }

  FamilyFields& fields_;
  FieldRecord* const record_;
};

}  // namespace tactus::compute
