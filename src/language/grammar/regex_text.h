// A client's regular expression as passed to llguidance. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tactus::language {

// Replaces \d, \w and \s, and \D and \W outside of brackets, by sets of ASCII characters. ECMA 262, on which JSON
// Schema relies, defines digits and words so, and clients expect them; the library's are Unicode's, where \d is 760
// digits. ECMA's white space is nearly Unicode's; \s becomes its ASCII part, so that answers contain no other. \S, and
// \s in a complement, stay the library's, so that no white space matches there. A '-' after a class is a member of its
// set ([\d-.]), and a class that would end a range ([a-\d]) stays, for the library to refuse.
//
// Maxima of counts ({1,4294967296}) beyond kMostCount are removed.
std::string AsciiClasses(std::string_view expression);

// No larger count is passed to the library, which reads some as 32 bits. No answer has more characters or items, so a
// larger maximum equals none, and a larger minimum is an error in the rule.
inline constexpr int64_t kMostCount = 2'147'483'647;

bool IsBeyondMost(std::string_view digits);  // empty: false
// The first count of an expression whose minimum (or maximum, with `maximums`) is beyond kMostCount, as written:
// "{4294967296,}". Empty: none.
std::string CountBeyond(std::string_view expression, bool maximums = false);
// "is beyond 2147483647, the limit of a minimum; give a smaller one".
std::string BeyondMost();

}  // namespace tactus::language
