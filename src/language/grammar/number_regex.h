// The numbers between two bounds as a regular expression, digit by digit: the grammar library holds bounds as doubles.
// Pure functions: any thread.
#pragma once

#include <optional>
#include <string>

#include "base/decimal.h"

namespace tactus::language {

struct NumberBounds {
  std::optional<Decimal> least, most;
  bool above_least = false, below_most = false;  // without the bound itself
};

// Integers as JSON writes them, without a point or an exponent. Empty: there is none between the bounds.
std::string IntegerRegex(const NumberBounds& bounds);
// Numbers; with an exponent only where the bounds leave room for all that has one of two digits. Nothing: a bound has a
// fraction. Empty: there is none.
std::optional<std::string> NumberRegex(const NumberBounds& bounds);

}  // namespace tactus::language
