// Tests, global functions, and look-up of builtins by name.
#include "language/text/jinja/builtins.h"

#include <algorithm>
#include <ctime>

#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/methods.h"

namespace tactus::language::jinja {
namespace {

using Run = Interpreter;

// Filters of jinja2 that no known chat template uses: refused by name.
constexpr std::string_view kUnsupportedFilters[] = {"abs",         "attr",   "batch",     "center",   "filesizeformat",
                                                    "forceescape", "format", "groupby",   "pprint",   "random",
                                                    "round",       "slice",  "striptags", "sum",      "truncate",
                                                    "urlencode",   "urlize", "wordcount", "wordwrap", "xmlattr"};
constexpr std::string_view kUnsupportedTests[] = {"callable", "escaped", "filter", "lower", "test", "upper"};
constexpr std::string_view kUnsupportedFunctions[] = {"cycler", "joiner", "lipsum"};

int64_t Modulo(const Value& v, int64_t by) {  // by > 0
  if (v.is_undefined()) ThrowUndefined(v);
  if (v.is_big()) return static_cast<int64_t>(v.u % static_cast<uint64_t>(by));
  if (!v.is_integral()) Throw("unsupported operand type(s) for %: '" + TypeName(v) + "' and 'int'");
  return ((v.integral() % by) + by) % by;
}

template <int kOrder, bool kOrEqual>
bool Ordered(Run& run, const Value& v, const Arguments& args) {
  const BoundArguments bound("comparison", args, {"other"}, 1);
  const int order = Compare(run.meter(), v, bound[0], kOrder < 0 ? (kOrEqual ? "<=" : "<") : (kOrEqual ? ">=" : ">"));
  return order == kOrder || (kOrEqual && order == 0);
}

template <bool kEqual>
bool EqualTest(Run& run, const Value& v, const Arguments& args) {
  const BoundArguments bound("comparison", args, {"other"}, 1);
  return Equal(run.meter(), v, bound[0]) == kEqual;
}

bool SameAs(Run&, const Value& v, const Arguments& args) {
  const BoundArguments bound("test_sameas", args, {"other"}, 1);
  const Value& other = bound[0];
  if (v.type != other.type) return false;
  switch (v.type) {
    case Type::kNone:
      return true;
    case Type::kBool:
      return v.b == other.b;
    case Type::kInt:
      return v.i == other.i && v.i >= -5 && v.i <= 256;  // CPython has one object for each of these
    case Type::kBigInt:
      return false;
    case Type::kString:
      return v.s == other.s || (v.s->size <= 1 && v.str() == other.str());
    default:
      return v.i == other.i;  // identity
  }
}

bool Sequence(Run&, const Value& v, const Arguments&) {
  if (v.is_seq()) return v.seq->kind <= SeqKind::kRange;
  return v.is_undefined() || v.is_string() || v.is_dict();
}

const TestEntry kTests[] = {
    {"!=", EqualTest<false>},
    {"<", Ordered<-1, false>},
    {"<=", Ordered<-1, true>},
    {"==", EqualTest<true>},
    {">", Ordered<1, false>},
    {">=", Ordered<1, true>},
    {"boolean", [](Run&, const Value& v, const Arguments&) { return v.is_bool(); }},
    {"defined", [](Run&, const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"divisibleby",
     [](Run&, const Value& v, const Arguments& a) {
       const BoundArguments bound("test_divisibleby", a, {"num"}, 1);
       const int64_t by = bound.Int(0, 1);
       if (by == 0) Throw("integer modulo by zero");
       return by == -1 || Modulo(v, by < 0 ? (by == INT64_MIN ? INT64_MAX : -by) : by) == 0;
     }},
    {"eq", EqualTest<true>},
    {"equalto", EqualTest<true>},
    {"even", [](Run&, const Value& v, const Arguments&) { return Modulo(v, 2) == 0; }},
    {"false", [](Run&, const Value& v, const Arguments&) { return v.is_bool() && !v.b; }},
    {"float", [](Run&, const Value& v, const Arguments&) { return v.is_float(); }},
    {"ge", Ordered<1, true>},
    {"greaterthan", Ordered<1, false>},
    {"gt", Ordered<1, false>},
    {"in",
     [](Run& run, const Value& v, const Arguments& a) {
       const BoundArguments bound("test_in", a, {"seq"}, 1);
       return Contains(run, bound[0], v);
     }},
    {"integer", [](Run&, const Value& v, const Arguments&) { return v.is_int() || v.is_big(); }},
    {"iterable", [](Run& run, const Value& v, const Arguments&) { return run.IsIterable(v); }},
    {"le", Ordered<-1, true>},
    {"lessthan", Ordered<-1, false>},
    {"lt", Ordered<-1, false>},
    {"mapping", [](Run&, const Value& v, const Arguments&) { return v.is_dict(); }},
    {"ne", EqualTest<false>},
    {"none", [](Run&, const Value& v, const Arguments&) { return v.is_none(); }},
    {"number", [](Run&, const Value& v, const Arguments&) { return v.is_number(); }},
    {"odd", [](Run&, const Value& v, const Arguments&) { return Modulo(v, 2) == 1; }},
    {"sameas", SameAs},
    {"sequence", Sequence},
    {"string", [](Run&, const Value& v, const Arguments&) { return v.is_string(); }},
    {"true", [](Run&, const Value& v, const Arguments&) { return v.is_bool() && v.b; }},
    {"undefined", [](Run&, const Value& v, const Arguments&) { return v.is_undefined(); }},
};

constexpr std::pair<std::string_view, Function> kFunctions[] = {{"range", Function::kRange},
                                                                {"dict", Function::kDict},
                                                                {"namespace", Function::kNamespace},
                                                                {"raise_exception", Function::kRaiseException},
                                                                {"strftime_now", Function::kStrftimeNow}};

Value Range(Run& run, const Arguments& args) {
  if (!args.keywords.empty()) Throw("range() takes no keyword arguments");
  const BoundArguments bound("range", args, {"start", "stop", "step"}, 1);
  const int64_t start = bound.has(1) ? bound.Int(0, 0) : 0, stop = bound.has(1) ? bound.Int(1, 0) : bound.Int(0, 0);
  const int64_t step = bound.Int(2, 1);
  if (step == 0) Throw("range() arg 3 must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Unsigned differences of two int64 are exact.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(run.limits().range_items)) {
    Throw("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
          std::to_string(run.limits().range_items) + ").");
  }
  const size_t n = static_cast<size_t>(count);
  run.Charge(n);
  Value* items = run.heap().NewArray<Value>(n);
  for (size_t k = 0; k < n; ++k) items[k] = Value::Int(start + static_cast<int64_t>(k) * step);
  return run.heap().NewSeqView(SeqKind::kRange, {items, n});
}

// dict(mapping or pairs, **more), also the arguments of namespace().
std::vector<DictItem> DictItems(Run& run, const char* callee, const Arguments& args) {
  std::vector<DictItem> items;
  if (args.positional.size() > 1) {
    Throw(std::string(callee) + " expected at most 1 argument, got " + std::to_string(args.positional.size()));
  }
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_dict()) {
      items.assign(from.dict->items, from.dict->items + from.dict->size);
    } else {
      for (const Value& pair : run.Iterate(from)) {
        const std::span<const Value> parts = run.Iterate(pair);
        if (parts.size() != 2) {
          Throw("dictionary update sequence element #" + std::to_string(items.size()) + " has length " +
                std::to_string(parts.size()) + "; 2 is required");
        }
        if (!Hashable(run.meter(), parts[0])) Throw("unhashable type: '" + TypeName(parts[0]) + "'");
        items.push_back({parts[0], parts[1]});
      }
    }
  }
  for (const auto& [key, value] : args.keywords) items.push_back({run.heap().NewString(key), value});
  run.Charge(items.size());
  return items;
}

Value NewNamespace(Run& run, const Arguments& args) {
  const Value attributes = run.heap().NewDict(DictItems(run, "dict", args));
  Value v;
  v.type = Type::kNamespace;
  v.ns = run.heap().NewNamespace();
  for (size_t k = 0; k < attributes.dict->size; ++k) {
    const DictItem& item = attributes.dict->items[k];
    if (!item.key.is_string()) continue;  // unreachable by name, as in Python
    if (item.key.str().starts_with("_")) {
      Throw("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " + Repr(item.key) +
            ".");
    }
    v.ns->attributes->emplace_back(item.key.s, item.value);
  }
  return v;
}

// datetime.now().strftime(format), in local time.
Value StrftimeNow(Run& run, const Arguments& args) {
  const BoundArguments bound("strftime_now", args, {"format"}, 1);
  const std::string_view format = bound.Text(0, "");
  if (format.size() > 4096) ThrowLimit("a strftime format longer than 4096 bytes");
  std::string plain;
  for (size_t k = 0; k < format.size(); ++k) {  // Python replaces these itself: microseconds, and an empty zone
    if (format[k] == '%' && k + 1 < format.size()) {
      const char c = format[++k];
      if (c == 'f') {
        plain += "000000";
      } else if (c != 'z' && c != 'Z') {
        plain += {'%', c};
      }
    } else {
      plain.push_back(format[k]);
    }
  }
  if (plain.empty()) return run.heap().NewView("");
  const std::time_t now = static_cast<std::time_t>(run.now_s());
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(plain.size() * 4 + 256, '\0');
  plain.push_back('|');  // with it, a result of 0 from strftime always means "does not fit"
  const size_t written = std::strftime(out.data(), out.size(), plain.c_str(), &local);
  if (written == 0) ThrowLimit("a date longer than " + std::to_string(out.size()) + " bytes");
  out.resize(written - 1);
  return run.Text(out);
}

}  // namespace

std::span<const std::pair<std::string_view, Function>> GlobalFunctions() {
  return kFunctions;
}

Value CallFunction(Interpreter& run, Function function, const Arguments& args) {
  switch (function) {
    case Function::kRange:
      return Range(run, args);
    case Function::kDict:
      return run.heap().NewDict(DictItems(run, "dict", args));
    case Function::kNamespace:
      return NewNamespace(run, args);
    case Function::kRaiseException: {
      const BoundArguments bound("raise_exception", args, {"message"}, 1);
      throw TemplateError{TemplateError::Kind::kRaised, run.ToText(bound[0]), 0};
    }
    case Function::kStrftimeNow:
      return StrftimeNow(run, args);
  }
  return {};
}

const TestEntry* FindTest(std::string_view name) {
  const auto* it = std::lower_bound(std::begin(kTests), std::end(kTests), name,
                                    [](const TestEntry& entry, std::string_view n) { return entry.name < n; });
  return it != std::end(kTests) && it->name == name ? it : nullptr;
}

const FilterEntry* FindFilter(std::string_view name) {
  for (const std::span<const FilterEntry> filters : {TextFilters(), SequenceFilters()}) {
    for (const FilterEntry& entry : filters) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

bool IsUnsupportedFilter(std::string_view name) {
  return Among(kUnsupportedFilters, name);
}
bool IsUnsupportedTest(std::string_view name) {
  return Among(kUnsupportedTests, name);
}
bool IsUnsupportedFunction(std::string_view name) {
  return Among(kUnsupportedFunctions, name);
}

BoundArguments::BoundArguments(std::string_view callee, const Arguments& args,
                               std::initializer_list<std::string_view> names, size_t required)
    : callee_(callee) {
  std::copy(names.begin(), names.end(), names_);
  if (args.positional.size() > names.size()) {
    Throw(std::string(callee) + "() takes at most " + std::to_string(names.size()) + " argument(s) (" +
          std::to_string(args.positional.size()) + " given)");
  }
  for (size_t k = 0; k < args.positional.size(); ++k) {
    values_[k] = args.positional[k];
    present_[k] = true;
  }
  for (const auto& [name, value] : args.keywords) {
    const size_t k = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (k == names.size())
      Throw(std::string(callee) + "() got an unexpected keyword argument '" + std::string(name) + "'");
    if (present_[k]) Throw(std::string(callee) + "() got multiple values for argument '" + std::string(name) + "'");
    values_[k] = value;
    present_[k] = true;
  }
  for (size_t k = 0; k < required; ++k) {
    if (!present_[k]) Throw(std::string(callee) + "() missing required argument: '" + std::string(names_[k]) + "'");
  }
}

int64_t BoundArguments::Int(size_t k, int64_t otherwise) const {
  if (!has(k)) return otherwise;
  if (values_[k].is_big()) ThrowBig("a call", values_[k]);
  if (!values_[k].is_integral()) Throw("'" + TypeName(values_[k]) + "' object cannot be interpreted as an integer");
  return values_[k].integral();
}

std::string_view BoundArguments::Text(size_t k, std::string_view otherwise) const {
  if (!has(k)) return otherwise;
  if (!values_[k].is_string()) {
    Throw(std::string(callee_) + "() argument '" + std::string(names_[k]) + "' must be str, not " +
          TypeName(values_[k]));
  }
  return values_[k].str();
}

}  // namespace tactus::language::jinja
