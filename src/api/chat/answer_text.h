// Splits the text of one choice, as it arrives, into content, reasoning and tool calls. A transducer over bytes: its
// output depends on the text alone, not on the cuts between deltas (tests/api/chat/answer_text_test.cc tries every
// cut).
//
// It withholds text that may become a marker, white space that may be next to one, and the head of a call until its
// name is known. Text that turns out not to be a call is output as text. A call that breaks off or is malformed is
// output up to that point, and the rest as text. Arguments are JSON: joined, they are valid if the model finished the
// call. One thread at a time. Memory: a few of the longest markers and heads, and one value whose type is not known
// yet.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_parts.h"
#include "api/tools/answer_reading.h"

namespace tactus::api {

class AnswerText {
 public:
  // `id_seed`: source of the calls' ids; equal seeds give equal ids.
  AnswerText(AnswerReading reading, std::string id_seed);
  ~AnswerText();

  // `text`: whole UTF-8 characters. Appends to *parts; adjacent text of one kind is one part.
  void Append(std::string_view text, std::vector<AnswerPart>* parts);
  // The text has ended: appends the withheld rest. No call of Append may follow.
  void Finish(std::vector<AnswerPart>* parts);
  bool called() const;  // a call has begun
  bool broken() const;  // and the last call's arguments are incomplete
  // Alternating begin and end offsets of reasoning in the text, without its markers, in bytes from the start. An odd
  // number of offsets: the reasoning has not ended.
  const std::vector<size_t>& reasoning_turns() const;
  size_t bytes() const;  // of the text so far

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::api
