// Durations and sizes as people type them.
#pragma once

#include <cstdint>
#include <string>

#include "tactus/option_fields.h"
#include "tactus/status.h"

namespace tactus {

// Parses the whole text as a number: decimal, or inf. False: not a number, or text follows it; hexadecimal numbers,
// which are only typing errors, are rejected too.
bool ParsePlainNumber(const std::string& text, double* number);
// 50ms, 1.5s, 200us, 2m. Every number but 0 needs a unit: 500 is milliseconds to one reader and seconds to another.
Result<DurationText> ParseDuration(const std::string& text);
// The error text for a duration without unit: "has no unit: write 500ms or 500s". Empty: another error.
std::string MissingUnit(const std::string& text);
// 8GiB, 512MiB, 2GB; a bare number is bytes.
Result<BytesText> ParseBytes(const std::string& text);
// Text that the parsers above can read.
std::string FormatDuration(int64_t ns);
std::string FormatBytes(int64_t bytes);

}  // namespace tactus
