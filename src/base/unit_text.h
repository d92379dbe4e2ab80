// Durations and sizes as people type them.
#pragma once

#include <cstdint>
#include <string>

#include "tactus/option_fields.h"
#include "tactus/status.h"

namespace tactus {

// All of the text as a number: decimal, or inf. False: it is none, or has more behind it; hexadecimal ones, which only
// slips of the hand write, are none either.
bool ParsePlainNumber(const std::string& text, double* number);
// 50ms, 1.5s, 200us, 2m; 0 needs no unit, every other number does: 500 is milliseconds to one reader and seconds to
// another.
Result<DurationText> ParseDuration(const std::string& text);
// What to say of a duration that has a number and no unit: "has no unit: write 500ms or 500s". Empty: that is not what
// is wrong with it.
std::string MissingUnit(const std::string& text);
// 8GiB, 512MiB, 2GB; a bare number is bytes.
Result<BytesText> ParseBytes(const std::string& text);
// A form that the above read back.
std::string FormatDuration(int64_t ns);
std::string FormatBytes(int64_t bytes);

}  // namespace tactus
