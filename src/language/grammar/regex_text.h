// A client's regular expression as it is handed to llguidance. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::language {

// With \d, \w and \s, and \D and \W outside of brackets, as sets of ASCII characters. ECMA 262, which JSON Schema goes
// by, has digits and words so, and clients expect them; the library's own are Unicode's, where \d is 760 digits. Of
// ECMA's white space, which is nearly Unicode's, \s is the part in ASCII, so that answers have no other; \S, and \s in
// a complement, stay the library's, so that none of it passes there. A '-' after a class is a member of its set
// ([\d-.]), and a class that would end a range ([a-\d]) stays, for the library to refuse.
//
// A maximum of a count ({1,4294967296}) beyond kMostCount is left out.
std::string AsciiClasses(std::string_view expression);

// Beyond it no count is handed to the library, which reads some as 32 bits. No answer has more characters or items,
// so a maximum beyond it means the same as none, and a minimum is a fault of the rule.
inline constexpr int64_t kMostCount = 2'147'483'647;

bool IsBeyondMost(std::string_view digits);  // none: they are not
// The first count of an expression whose minimum (or maximum, with `maximums`) is beyond kMostCount, as it is written:
// "{4294967296,}". Empty: there is none.
std::string CountBeyond(std::string_view expression, bool maximums = false);
// "is beyond 2147483647, the limit of a minimum; give a smaller one".
std::string BeyondMost();

}  // namespace tactus::language
