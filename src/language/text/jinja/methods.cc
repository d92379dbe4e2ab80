// Attribute and item access, slices, membership, and the methods of dicts. String methods are in string_methods.cc.
#include "language/text/jinja/methods.h"

#include <algorithm>

#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/search.h"
#include "language/text/jinja/string_methods.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {
namespace {

// Attributes of Python's types. "Mutating": hidden by the immutable sandbox.
constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values"};
constexpr std::string_view kDictMutating[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutating[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};
// Callable in Python but not here: no known chat template uses them.
constexpr std::string_view kStringUnsupported[] = {
    "casefold",  "center",       "encode",  "expandtabs", "format_map",  "index",    "isalnum",   "isalpha", "isascii",
    "isdecimal", "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",  "istitle",   "isupper", "ljust",
    "maketrans", "partition",    "rindex",  "rjust",      "rpartition",  "swapcase", "translate", "zfill"};
constexpr std::string_view kDictUnsupported[] = {"copy", "fromkeys", "isdisjoint"};
constexpr std::string_view kListUnsupported[] = {"copy", "count", "index"};
constexpr std::string_view kLoopUnsupported[] = {"cycle", "changed", "depth", "depth0"};
constexpr std::string_view kNumberUnsupported[] = {
    "real",      "imag",       "numerator", "denominator", "as_integer_ratio", "bit_count", "bit_length",
    "conjugate", "from_bytes", "fromhex",   "hex",         "is_integer",       "to_bytes"};
constexpr std::string_view kMacroUnsupported[] = {"name", "caller", "catch_kwargs", "catch_varargs", "arguments"};

[[noreturn]] void ThrowAttribute(const char* of, std::string_view name) {
  ThrowUnsupported("the attribute '" + std::string(name) + "' of " + of + " is not supported");
}

Value BoundMethod(Interpreter& run, const Value& self, const Value& name) {
  Method* method = run.heap().New<Method>();
  method->self = self;
  method->name = name.s;
  Value v;
  v.type = Type::kMethod;
  v.method = method;
  return v;
}

Value LoopAttribute(Interpreter& run, const Value& object, const Value& name, bool* found) {
  const LoopState& loop = *object.loop;
  const std::string_view n = name.str();
  const int64_t index0 = static_cast<int64_t>(loop.index0), size = static_cast<int64_t>(loop.size);
  *found = true;
  if (n == "index0") return Value::Int(index0);
  if (n == "index") return Value::Int(index0 + 1);
  if (n == "first") return Value::Bool(index0 == 0);
  if (n == "last") return Value::Bool(index0 + 1 == size);
  if (n == "length") return Value::Int(size);
  if (n == "revindex") return Value::Int(size - index0);
  if (n == "revindex0") return Value::Int(size - index0 - 1);
  if (n == "previtem") return index0 == 0 ? run.UndefinedHint("there is no previous item") : loop.items[index0 - 1];
  if (n == "nextitem") return index0 + 1 == size ? run.UndefinedHint("there is no next item") : loop.items[index0 + 1];
  if (Among(kLoopUnsupported, n)) ThrowAttribute("a loop", n);
  *found = false;
  return {};
}

// getattr(): methods and attributes of Python's own object. *found stays false where Python raises AttributeError.
Value PythonAttribute(Interpreter& run, const Value& object, const Value& name, bool* found) {
  const std::string_view n = name.str();
  *found = true;
  const auto unsafe = [&] {
    return run.UndefinedHint("access to attribute '" + std::string(n) + "' of '" + TypeName(object) +
                             "' object is unsafe.");
  };
  if (n.starts_with("__") && n.ends_with("__") && object.type != Type::kNamespace) {
    constexpr std::string_view kDunders[] = {"__class__",   "__init__",    "__dict__",        "__doc__",  "__module__",
                                             "__len__",     "__eq__",      "__str__",         "__repr__", "__hash__",
                                             "__new__",     "__reduce__",  "__iter__",        "__dir__",  "__call__",
                                             "__globals__", "__getitem__", "__subclasshook__"};
    if (Among(kDunders, n)) return unsafe();
  }
  switch (object.type) {
    case Type::kString:
      if (FindStringMethod(n) != nullptr || Among(kStringUnsupported, n)) return BoundMethod(run, object, name);
      break;
    case Type::kDict:
      if (Among(kDictMethods, n) || Among(kDictUnsupported, n)) return BoundMethod(run, object, name);
      if (Among(kDictMutating, n)) return unsafe();
      break;
    case Type::kSeq: {
      const Seq& seq = *object.seq;
      if (seq.kind == SeqKind::kRange && (n == "start" || n == "stop" || n == "step")) ThrowAttribute("a range", n);
      if (seq.kind <= SeqKind::kRange && Among(kListUnsupported, n)) return BoundMethod(run, object, name);
      if (seq.kind == SeqKind::kList && Among(kListMutating, n)) return unsafe();
      break;
    }
    case Type::kNamespace:
      run.Charge(object.ns->attributes->size() / 16);
      for (const auto& [attribute, value] : *object.ns->attributes) {
        if (attribute->view() == n) return value;
      }
      break;
    case Type::kLoop:
      return LoopAttribute(run, object, name, found);
    case Type::kMacro:
      if (Among(kMacroUnsupported, n)) ThrowAttribute("a macro", n);
      break;
    case Type::kInt:
    case Type::kBigInt:
    case Type::kBool:
    case Type::kFloat:
      if (Among(kNumberUnsupported, n)) ThrowAttribute("a number", n);
      break;
    default:
      break;
  }
  *found = false;
  return {};
}

// object[key]: *found stays false where Python raises TypeError or LookupError.
Value PythonItem(Interpreter& run, const Value& object, const Value& key, bool* found) {
  *found = true;
  if (object.is_dict()) {
    if (Hashable(run.meter(), key)) {
      if (const Value* value = FindItem(run.meter(), *object.dict, key)) return *value;
    }
  } else if (key.is_integral() && (object.is_string() || (object.is_seq() && object.seq->kind <= SeqKind::kRange))) {
    const int64_t size = static_cast<int64_t>(object.is_string() ? run.Length(object) : object.seq->size);
    int64_t k = key.integral();
    if (k < 0) k += size;
    if (k >= 0 && k < size) {
      if (object.is_seq()) return object.seq->items[k];
      const std::string_view text = object.str();
      const size_t start = ByteOffset(text, static_cast<size_t>(k));
      size_t end = start;
      NextCodePoint(text, &end);
      return run.Substring(object, text.substr(start, end - start));
    }
  }
  *found = false;
  return {};
}

}  // namespace

bool IsUnsupportedMethod(std::string_view name) {
  return Among(kStringUnsupported, name) || name == "fromkeys" || name == "isdisjoint";
}

Value GetAttribute(Interpreter& run, const Value& object, const Value& name) {
  if (object.is_undefined()) ThrowUndefined(object);
  bool found = false;
  Value v = PythonAttribute(run, object, name, &found);
  if (found) return v;
  v = PythonItem(run, object, name, &found);
  if (found) return v;
  return run.Undefined(UndefinedInfo::Kind::kAttribute, object, name);
}

Value GetItem(Interpreter& run, const Value& object, const Value& key) {
  if (object.is_undefined()) ThrowUndefined(object);
  bool found = false;
  Value v = PythonItem(run, object, key, &found);
  if (found) return v;
  if (key.is_string()) {
    v = PythonAttribute(run, object, key, &found);
    if (found) return v;
  }
  return run.Undefined(UndefinedInfo::Kind::kAttribute, object, key);
}

Value GetSlice(Interpreter& run, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) ThrowUndefined(object);
  if (object.is_dict()) Throw("unhashable type: 'slice'");
  const bool sequence = object.is_string() || (object.is_seq() && object.seq->kind <= SeqKind::kRange);
  if (!sequence) Throw("'" + TypeName(object) + "' object is not subscriptable");
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_big()) ThrowBig("a slice", *part);
    if (!part->is_none() && !part->is_integral()) {
      Throw("slice indices must be integers or None or have an __index__ method");
    }
  }
  const int64_t size = static_cast<int64_t>(object.is_string() ? run.Length(object) : object.seq->size);
  const int64_t by = step.is_none() ? 1 : step.integral();
  if (by == 0) Throw("slice step cannot be zero");
  const auto clamp = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    int64_t k = v.integral();
    if (k < 0) k = k < -size ? -1 : k + size;
    if (v.integral() < 0 && k < 0) return by < 0 ? int64_t{-1} : int64_t{0};
    return std::min(k, by < 0 ? size - 1 : size);
  };
  const int64_t from = clamp(start, by < 0 ? size - 1 : 0);
  const int64_t to = clamp(stop, by < 0 ? -1 : size);
  if (object.is_string() && by == 1) {
    const std::string_view text = object.str();
    if (from >= to) return run.Substring(object, text.substr(0, 0));
    const size_t begin = ByteOffset(text, static_cast<size_t>(from));
    const size_t length = ByteOffset(text.substr(begin), static_cast<size_t>(to - from));
    return run.Substring(object, text.substr(begin, length));
  }
  if (object.is_seq() && by == 1) {
    const size_t n = from < to ? static_cast<size_t>(to - from) : 0;
    return run.heap().NewSeqView(object.seq->kind, {object.seq->items + (n > 0 ? from : 0), n});
  }
  std::span<const Value> items = object.is_string() ? run.Iterate(object) : object.seq->span();
  std::vector<Value> picked;
  for (int64_t k = from; by > 0 ? k < to : k > to;) {
    picked.push_back(items[static_cast<size_t>(k)]);
    if (__builtin_add_overflow(k, by, &k)) break;
  }
  run.Charge(picked.size());
  if (object.is_string()) {
    std::string text;
    for (const Value& c : picked) text.append(c.str());
    return run.Text(text, object.s->markup);
  }
  return run.heap().NewSeq(object.seq->kind, picked);
}

bool Contains(Interpreter& run, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) Throw("'in <string>' requires string as left operand, not " + TypeName(item));
    return FindText(run.meter(), container.str(), item.str()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    if (!Hashable(run.meter(), item)) Throw("unhashable type: '" + TypeName(item) + "'");
    return FindItem(run.meter(), *container.dict, item) != nullptr;
  }
  if (!run.IsIterable(container)) Throw("argument of type '" + TypeName(container) + "' is not iterable");
  if (container.is_seq() && container.seq->kind == SeqKind::kIterator) {  // stops after the first match
    Seq& seq = *container.seq;
    while (seq.position < seq.size) {
      run.Charge(1);
      if (Equal(run.meter(), seq.items[seq.position++], item)) return true;
    }
    if (seq.error != nullptr) Throw(*seq.error);
    return false;
  }
  const std::span<const Value> items = run.Iterate(container);
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return Equal(run.meter(), other, item); });
}

namespace {
Value DictMethod(Interpreter& run, const Value& self, std::string_view name, const Arguments& args) {
  const Dict& dict = *self.dict;
  if (name == "get") {
    if (!args.keywords.empty()) Throw("dict.get() takes no keyword arguments");
    const BoundArguments bound("get", args, {"key", "default"}, 1);
    if (!Hashable(run.meter(), bound[0])) Throw("unhashable type: '" + TypeName(bound[0]) + "'");
    if (const Value* value = FindItem(run.meter(), dict, bound[0])) return *value;
    return bound.has(1) ? bound[1] : Value::None();
  }
  const BoundArguments none(name, args, {});
  run.Charge(dict.size);
  Heap& heap = run.heap();
  Value* items = heap.NewArray<Value>(dict.size);
  for (size_t k = 0; k < dict.size; ++k) {
    const Value pair[] = {dict.items[k].key, dict.items[k].value};
    items[k] = name == "keys" ? pair[0] : name == "values" ? pair[1] : heap.NewSeq(SeqKind::kTuple, pair);
  }
  const SeqKind kind = name == "keys" ? SeqKind::kKeys : name == "values" ? SeqKind::kValues : SeqKind::kItems;
  return heap.NewSeqView(kind, {items, dict.size});
}

}  // namespace

Value CallMethod(Interpreter& run, const Method& method, const Arguments& args) {
  const std::string_view name = method.name->view();
  const Value& self = method.self;
  switch (self.type) {
    case Type::kString: {
      const StringMethod* string_method = FindStringMethod(name);
      if (string_method == nullptr) break;
      run.ChargeText(self.s->size);
      return string_method->apply(run, self, args);
    }
    case Type::kDict:
      if (Among(kDictUnsupported, name)) break;
      return DictMethod(run, self, name, args);
    default:
      break;
  }
  ThrowUnsupported("the method '" + std::string(name) + "' of '" + TypeName(self) + "' is not supported");
}

}  // namespace tactus::language::jinja
