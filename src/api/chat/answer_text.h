// Reads the text of one choice as it comes: content, reasoning, calls of tools. A transducer over bytes: what it tells
// follows from the text alone, however it was cut into deltas (tests/api/answer_text_test.cc tries every cut).
//
// It withholds what may become a marker, white space that may stand beside one, and the head of a call until its name
// is known. What turns out to be no call is told as text; a call that breaks off or is malformed is told as far as it
// went, and what follows as text. Arguments are JSON: joined, they are valid where the model finished the call. One
// thread at a time. Memory: a few of the longest markers and heads, and a value whose type is not known yet.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer_parts.h"
#include "api/tools/tool_formats.h"
#include "api/tools/tools.h"

namespace tactus::api {

// How the text of an answer is read. Formats are rows of the tables.
struct AnswerReading {
  const ReasoningFormat* reasoning = nullptr;  // null: none
  const ToolFormat* calls = nullptr;           // null: none
  std::shared_ptr<const ToolSet> tools;        // null: no calls are looked for (a kHarmony is read all the same)
  bool begins_in_reasoning = false;            // the prompt has opened it
  bool reasoning_is_over = false;              // the prompt has closed it: a grammar allows none
};

class AnswerText {
 public:
  // `id_seed`: what the calls' ids are made of; equal seeds give equal ids.
  AnswerText(AnswerReading reading, std::string id_seed);
  ~AnswerText();

  // `text`: whole UTF-8 characters. Appends to *parts; neighbours of one kind are one part.
  void Append(std::string_view text, std::vector<AnswerPart>* parts);
  // The text has ended: what was withheld. Nothing may follow.
  void Finish(std::vector<AnswerPart>* parts);
  bool called() const;  // a call has begun
  bool broken() const;  // and the arguments of the last one are not whole
  // Where in the text reasoning began and ended, by turns, without its markers: bytes from the start. An odd number of
  // them: it has not ended.
  const std::vector<size_t>& reasoning_turns() const;
  size_t bytes() const;  // of the text so far

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::api
