// A component of a tokenizer file and its members. Errors name the component and the member: "tokenizer.json:
// normalizer 2 (Replace): content is missing". Private to text/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"

namespace tactus::language {

constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;  // see kMaxVocabulary in tokenizer.cc

class JsonComponent {
 public:
  // `value` must outlive it. A value that is no object has no members.
  JsonComponent(const SortedJson& value, std::string name);

  const std::string& name() const { return name_; }
  std::string Type() const;  // the member "type"; empty: none
  // Null where it is absent.
  const SortedJson& operator[](const char* member) const;
  bool Has(const char* member) const { return !(*this)[member].is_null(); }

  // kDataLoss: of another type. Absent or null: the second value, and without one kDataLoss.
  Result<std::string> String(const char* member) const;
  Result<std::string> String(const char* member, std::string absent) const;
  Result<bool> Bool(const char* member, bool absent) const;
  Result<int64_t> Int(const char* member) const;
  Result<int64_t> Int(const char* member, int64_t absent) const;
  Result<const SortedJson*> List(const char* member) const;
  Result<const SortedJson*> Object(const char* member) const;
  // {"String": text} or {"Regex": text}.
  Result<TextPattern> Pattern(const char* member) const;

  Status Bad(const std::string& what) const;          // kDataLoss
  Status Unsupported(const std::string& what) const;  // kUnimplemented: "... is not supported"

 private:
  Status WrongType(const char* member, const char* wanted) const;
  const SortedJson* value_;
  std::string name_;
};

// The steps of a normalizer, pre-tokenizer, ...: those of a Sequence, whose member `list` has them, in order; none for
// null. Their names are `part`, numbered in a Sequence, with their types.
Result<std::vector<JsonComponent>> StepsOf(const SortedJson& value, const char* part, const char* list);

// Adds what the four parts of a tokenizer.json say to the specification. kUnimplemented: a step that would not run
// exactly as in the reference.
Status ReadNormalizers(const SortedJson& part, TokenizerSpec* spec);
Status ReadPreTokenizers(const SortedJson& part, TokenizerSpec* spec);
Status ReadDecoders(const SortedJson& part, TokenizerSpec* spec);
Status ReadPostProcessors(const SortedJson& part, TokenizerSpec* spec);
// The model: vocabulary, merges, scores.
Status ReadJsonModel(const SortedJson& part, TokenizerSpec* spec);
// A token and its id, also of an added token. kDataLoss: an id out of range, or with two texts.
Status PutToken(const std::string& text, int64_t id, TokenKind kind, TokenizerSpec* spec);

}  // namespace tactus::language
