// Filters on sequences and mappings. Generators of jinja2 are one-shot iterators here.
#include <algorithm>

#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/methods.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {
namespace {

using Run = Interpreter;

Value ListOf(Run& run, const std::vector<Value>& items) {
  run.Charge(items.size());
  return run.heap().NewSeq(SeqKind::kList, items);
}

// A generator raises when it is consumed: an error while the items are made is stored until then.
template <class Make>
Value Generator(Run& run, Make make) {
  std::vector<Value> items;
  const std::string* error = nullptr;
  try {
    make(&items);
  } catch (const TemplateError& e) {
    if (e.kind != TemplateError::Kind::kRuntime) throw;
    error = run.heap().KeepString(e.message);
  }
  run.Charge(items.size());
  Value v = run.heap().NewIterator(items, "generator");
  v.seq->error = error;
  return v;
}

// jinja2's make_attrgetter: "a.b.0" follows items; digits are indices.
std::vector<Value> AttributePath(Run& run, const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> parts;
  std::string_view text = attribute.str();
  while (true) {
    const size_t dot = text.find('.');
    const std::string_view part = text.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 18 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    parts.push_back(digits ? Value::Int(std::stoll(std::string(part))) : run.heap().NewView(part));
    if (dot == std::string_view::npos) return parts;
    text.remove_prefix(dot + 1);
  }
}

Value Walk(Run& run, Value item, const std::vector<Value>& path, const Value* otherwise = nullptr) {
  for (const Value& part : path) {
    run.Charge(1);
    item = GetItem(run, item, part);
    if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value IgnoreCase(Run& run, const Value& v) {
  return v.is_string() ? run.Text(ToLower(v.str())) : v;
}

void StableSort(Run& run, std::vector<std::pair<Value, Value>>* keyed, bool reverse) {
  size_t n = keyed->size(), log = 1;
  while (n >>= 1) ++log;
  run.Charge(keyed->size() * log);
  // Python sorts with < alone; reverse keeps the order of equal items.
  std::stable_sort(keyed->begin(), keyed->end(), [&](const auto& a, const auto& b) {
    return reverse ? Compare(run.meter(), b.first, a.first, "<") == -1
                   : Compare(run.meter(), a.first, b.first, "<") == -1;
  });
}

Value Default(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_default", args, {"default_value", "boolean"});
  if (input.is_undefined() || (bound.Flag(1, false) && !Truthy(input))) {
    return bound.has(0) ? bound[0] : run.heap().NewView("");
  }
  return input;
}

Value LengthFilter(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("len", args, {});
  return Value::Int(static_cast<int64_t>(run.Length(input)));
}

Value First(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("first", args, {});
  if (input.is_seq() && input.seq->kind == SeqKind::kIterator && input.seq->position < input.seq->size) {
    return input.seq->items[input.seq->position++];
  }
  const std::span<const Value> items = run.Iterate(input);
  return items.empty() ? run.UndefinedHint("No first item, sequence was empty.") : items.front();
}

Value Last(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("last", args, {});
  if (input.is_seq() && input.seq->kind == SeqKind::kIterator) Throw("'generator' object is not reversible");
  const std::span<const Value> items = run.Iterate(input);
  return items.empty() ? run.UndefinedHint("No last item, sequence was empty.") : items.back();
}

Value JoinFilter(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_join", args, {"d", "attribute"});
  const std::string separator = bound.has(0) ? run.ToText(bound[0]) : std::string();
  const bool has_path = bound.has(1) && !bound[1].is_none();
  const std::vector<Value> path = has_path ? AttributePath(run, bound[1]) : std::vector<Value>();
  std::string out;
  bool first = true;
  for (const Value& item : run.Iterate(input)) {
    if (!first) out += separator;
    first = false;
    AppendStr(has_path ? Walk(run, item, path) : item, &out, run.limits().output_bytes);
  }
  return run.Text(out);
}

Value Items(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("do_items", args, {});
  return Generator(run, [&](std::vector<Value>* items) {
    if (input.is_undefined()) return;
    if (!input.is_dict()) Throw("Can only get item pairs from a mapping.");
    for (size_t k = 0; k < input.dict->size; ++k) {
      const Value pair[] = {input.dict->items[k].key, input.dict->items[k].value};
      items->push_back(run.heap().NewSeq(SeqKind::kTuple, pair));
    }
  });
}

Value ToList(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("do_list", args, {});
  return run.heap().NewSeqView(SeqKind::kList, run.Iterate(input));
}

Value DictSort(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = bound.Text(1, "key");
  if (by != "key" && by != "value") Throw("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) ThrowUndefined(input);
  if (!input.is_dict()) Throw("'" + TypeName(input) + "' object has no attribute 'items'");
  std::vector<std::pair<Value, Value>> keyed;
  for (size_t k = 0; k < input.dict->size; ++k) {
    const DictItem& item = input.dict->items[k];
    const Value pair[] = {item.key, item.value};
    const Value& key = by == "key" ? item.key : item.value;
    keyed.emplace_back(bound.Flag(0, false) ? key : IgnoreCase(run, key), run.heap().NewSeq(SeqKind::kTuple, pair));
  }
  StableSort(run, &keyed, bound.Flag(2, false));
  std::vector<Value> out;
  for (const auto& [key, value] : keyed) out.push_back(value);
  return ListOf(run, out);
}

Value Sort(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.Flag(1, false);
  std::vector<std::vector<Value>> paths;  // "a,b": several keys
  if (bound.has(2) && bound[2].is_string()) {
    std::string_view text = bound[2].str();
    for (size_t comma = 0; comma != std::string_view::npos;
         text.remove_prefix(comma == std::string_view::npos ? 0 : comma + 1)) {
      comma = text.find(',');
      paths.push_back(AttributePath(run, run.heap().NewView(text.substr(0, comma))));
    }
  } else {
    paths.push_back(AttributePath(run, bound.has(2) ? bound[2] : Value::None()));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : run.Iterate(input)) {
    std::vector<Value> keys;
    for (const std::vector<Value>& path : paths) {
      const Value key = Walk(run, item, path);
      keys.push_back(case_sensitive ? key : IgnoreCase(run, key));
    }
    keyed.emplace_back(run.heap().NewSeq(SeqKind::kList, keys), item);
  }
  StableSort(run, &keyed, bound.Flag(0, false));
  std::vector<Value> out;
  for (const auto& [key, value] : keyed) out.push_back(value);
  return ListOf(run, out);
}

Value Unique(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_unique", args, {"case_sensitive", "attribute"});
  const std::vector<Value> path = AttributePath(run, bound.has(1) ? bound[1] : Value::None());
  return Generator(run, [&](std::vector<Value>* items) {
    std::vector<Value> seen;
    for (const Value& item : run.Iterate(input)) {
      const Value raw = Walk(run, item, path);
      const Value key = bound.Flag(0, false) ? raw : IgnoreCase(run, raw);
      if (!Hashable(run.meter(), key)) Throw("unhashable type: '" + TypeName(key) + "'");
      if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return Equal(run.meter(), other, key); }))
        continue;
      seen.push_back(key);
      items->push_back(item);
    }
  });
}

Value Extreme(Run& run, const Value& input, const Arguments& args, bool largest) {
  const BoundArguments bound(largest ? "do_max" : "do_min", args, {"case_sensitive", "attribute"});
  const std::vector<Value> path = AttributePath(run, bound.has(1) ? bound[1] : Value::None());
  const std::span<const Value> items = run.Iterate(input);
  if (items.empty()) return run.UndefinedHint("No aggregated item, sequence was empty.");
  Value best = items[0], best_key;
  for (size_t k = 0; k < items.size(); ++k) {
    Value key = Walk(run, items[k], path);
    if (!bound.Flag(0, false)) key = IgnoreCase(run, key);
    const bool better = k > 0 && (largest ? Compare(run.meter(), key, best_key, ">") == 1
                                          : Compare(run.meter(), key, best_key, "<") == -1);
    if (k == 0 || better) {
      best = items[k];
      best_key = key;
    }
  }
  return best;
}

Value Reverse(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("do_reverse", args, {});
  if (input.is_string()) return GetSlice(run, input, Value::None(), Value::None(), Value::Int(-1));
  if (!run.IsIterable(input)) Throw("argument must be iterable");
  const std::span<const Value> items = run.Iterate(input);
  const std::vector<Value> reversed(items.rbegin(), items.rend());
  if (input.is_seq() && input.seq->kind == SeqKind::kIterator) return ListOf(run, reversed);
  return run.heap().NewIterator(reversed, input.is_dict() ? "dict_reversekeyiterator" : "list_reverseiterator");
}

Value Map(Run& run, const Value& input, const Arguments& args) {
  return Generator(run, [&](std::vector<Value>* items) {
    if (!Truthy(input)) return;
    if (args.positional.empty() && !args.keywords.empty()) {
      const BoundArguments bound("map", args, {"attribute", "default"});
      if (!bound.has(0)) Throw("map requires a filter argument");
      const std::vector<Value> path = AttributePath(run, bound[0]);
      const bool has_default = bound.has(1) && !bound[1].is_none();
      for (const Value& item : run.Iterate(input)) {
        items->push_back(Walk(run, item, path, has_default ? &bound[1] : nullptr));
      }
      return;
    }
    if (args.positional.empty()) Throw("map requires a filter argument");
    if (!args.positional[0].is_string()) Throw("No filter named " + Repr(args.positional[0]) + ".");
    const Arguments rest{args.positional.subspan(1), args.keywords};
    for (const Value& item : run.Iterate(input)) {
      items->push_back(run.ApplyFilter(args.positional[0].str(), item, rest));
    }
  });
}

template <bool kReject, bool kAttribute>
Value Select(Run& run, const Value& input, const Arguments& args) {
  return Generator(run, [&](std::vector<Value>* items) {
    if (!Truthy(input)) return;
    std::vector<Value> path;
    std::span<const Value> positional = args.positional;
    if (kAttribute) {
      if (positional.empty()) Throw("Missing parameter for attribute name");
      path = AttributePath(run, positional[0]);
      positional = positional.subspan(1);
    }
    for (const Value& item : run.Iterate(input)) {
      const Value v = Walk(run, item, path);
      bool keep;
      if (positional.empty()) {
        keep = Truthy(v);
      } else {
        if (!positional[0].is_string()) Throw("No test named " + Repr(positional[0]) + ".");
        keep = run.ApplyTest(positional[0].str(), v, {positional.subspan(1), args.keywords});
      }
      if (keep != kReject) items->push_back(item);
    }
  });
}

const FilterEntry kSequenceFilters[] = {
    {"count", LengthFilter},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"items", Items},
    {"join", JoinFilter},
    {"last", Last},
    {"length", LengthFilter},
    {"list", ToList},
    {"map", Map},
    {"max", [](Run& r, const Value& v, const Arguments& a) { return Extreme(r, v, a, true); }},
    {"min", [](Run& r, const Value& v, const Arguments& a) { return Extreme(r, v, a, false); }},
    {"reject", Select<true, false>},
    {"rejectattr", Select<true, true>},
    {"reverse", Reverse},
    {"select", Select<false, false>},
    {"selectattr", Select<false, true>},
    {"sort", Sort},
    {"unique", Unique},
};

}  // namespace

std::span<const FilterEntry> SequenceFilters() {
  return kSequenceFilters;
}

}  // namespace tactus::language::jinja
