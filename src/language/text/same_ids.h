// Whether two tokenisers are one, for conversions between files. Any thread.
#pragma once

#include "language/text/tokenizer.h"
#include "tactus/status.h"

namespace tactus::language {

// Compares the ids of the texts of all tokens and of a page of odd strings, with special tokens written in them and
// around them. kUnimplemented: they differ, with the text.
Status CheckSameIds(const Tokenizer& from, const Tokenizer& to);

}  // namespace tactus::language
