// A client's regular expression as it is handed to llguidance. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tactus::grammar {

// With \d, \w and \s, and \D and \W outside of brackets, as sets of ASCII characters. ECMA 262, which JSON Schema goes
// by, has digits and words so, and clients expect them; the library's own are Unicode's, where \d is 760 digits. Of
// ECMA's white space, which is nearly Unicode's, \s is the part in ASCII, so that answers have no other; \S, and \s in
// a complement, stay the library's, so that none of it passes there. A '-' after a class is a member of its set
// ([\d-.]), and a class that would end a range ([a-\d]) stays, for the library to refuse.
std::string AsciiClasses(std::string_view expression);

}  // namespace tactus::grammar
