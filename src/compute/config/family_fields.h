// A family's settings under both spellings: config.json of Hugging Face and the metadata of a GGUF file. One interface
// over the two readers, so that a family states each setting once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/config/blocks.h"
#include "tactus/status.h"

namespace tactus::compute {

// The names of a setting; null: not stated in this spelling.
struct FieldKey {
  const char* hf = nullptr;    // "a.b" is key b of object a
  const char* gguf = nullptr;  // without the architecture's prefix
};

// Whether a file has a setting: for those of which null, or an empty list, means something else than absence.
enum class Presence : uint8_t { kAbsent, kNull, kStated };

class FamilyFields {
 public:
  virtual ~FamilyFields() = default;
  virtual bool gguf() const = 0;
  // nullopt: absent. The first wrong type is kept in status(); later reads return what they find.
  virtual std::optional<double> Number(FieldKey key) = 0;
  virtual std::optional<bool> Flag(FieldKey key) = 0;
  virtual std::optional<std::string> Text(FieldKey key) = 0;
  virtual std::optional<bool> FlagOrNumber(FieldKey key) = 0;  // a number other than 0 is true
  virtual Presence PresenceOf(FieldKey key) = 0;
  // Lists; empty: absent, null or empty. A single number is a list of one.
  virtual std::vector<double> Numbers(FieldKey key) = 0;
  virtual std::vector<double> Reals(FieldKey key) = 0;  // config.json refuses fractions in Numbers
  virtual std::vector<std::string> Texts(FieldKey key) = 0;
  // Whether the file has the tensor. config.json does not say: true.
  virtual bool HasTensor(Role role, int64_t layer) = 0;
  // Keeps an error that names the key: "'KEY' WHAT".
  virtual void Refuse(FieldKey key, const std::string& what) = 0;
  virtual const Status& status() const = 0;

  float NumberOr(FieldKey key, double fallback) { return static_cast<float>(Number(key).value_or(fallback)); }
  bool FlagOr(FieldKey key, bool fallback) { return Flag(key).value_or(fallback); }
  // 0 where config.json states null: families of which transformers reads that as "off".
  float NumberOrOff(FieldKey key, double fallback) {
    return PresenceOf(key) == Presence::kNull ? 0.0f : NumberOr(key, fallback);
  }
};

}  // namespace tactus::compute
