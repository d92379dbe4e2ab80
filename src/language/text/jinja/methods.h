// Methods of strings, lists and dicts, with Python's names and semantics, and attribute and item access.
#pragma once

#include <string_view>

#include "language/text/jinja/builtins.h"
#include "language/text/jinja/value.h"

namespace tactus::language::jinja {

// True: Python has a method of this name that templates might call, but this interpreter does not.
bool IsUnsupportedMethod(std::string_view name);

// `object.name`: attribute first, then item. `object[key]`: item first, then attribute. Undefined if there is neither.
Value GetAttribute(Interpreter& run, const Value& object, const Value& name);
Value GetItem(Interpreter& run, const Value& object, const Value& key);
// object[a:b:c]; a missing part is None.
Value GetSlice(Interpreter& run, const Value& object, const Value& start, const Value& stop, const Value& step);
Value CallMethod(Interpreter& run, const Method& method, const Arguments& args);
// `a in b`.
bool Contains(Interpreter& run, const Value& container, const Value& item);

}  // namespace tactus::language::jinja
