// The numbers between two bounds as a regular expression, digit by digit: the grammar library holds bounds as doubles.
// Pure functions: any thread.
#pragma once

#include <optional>
#include <string>

#include "base/decimal.h"

namespace tactus::language {

struct NumberBounds {
  std::optional<Decimal> least, most;
  bool above_least = false, below_most = false;  // the bound itself excluded
};

// Integers as in JSON, without a point or an exponent. Empty: none between the bounds.
std::string IntegerRegex(const NumberBounds& bounds);
// Numbers; with an exponent only where the bounds allow every number with a two-digit exponent. Nothing: a bound has a
// fraction. Empty: no such number.
std::optional<std::string> NumberRegex(const NumberBounds& bounds);

}  // namespace tactus::language
