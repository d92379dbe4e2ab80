#include "language/text/jinja/string_methods.h"

#include <algorithm>
#include <charconv>

#include "base/markup_text.h"
#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/search.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {
namespace {

using Run = Interpreter;

void NoKeywords(std::string_view name, const Arguments& args) {
  if (!args.keywords.empty()) Throw("str." + std::string(name) + "() takes no keyword arguments");
}

// Python's optional [start, end) of find, count, startswith and endswith.
void NoWindow(std::string_view name, const Arguments& args) {
  if (args.positional.size() > 1) ThrowUnsupported("str." + std::string(name) + "() with a start is not supported");
}

Value StripWith(Run& run, const Value& self, const Arguments& args, std::string_view name, bool left, bool right) {
  NoKeywords(name, args);
  const BoundArguments bound(name, args, {"chars"});
  if (!bound.has(0) || bound[0].is_none()) return run.Substring(self, Strip(self.str(), nullptr, left, right));
  if (!bound[0].is_string()) Throw(std::string(name) + " arg must be None or str");
  const std::string_view chars = bound[0].str();
  run.ChargeText(self.s->size * (chars.size() / 16));
  return run.Substring(self, Strip(self.str(), &chars, left, right));
}

Value ListOf(Run& run, const Value& self, const std::vector<std::string_view>& parts) {
  run.Charge(parts.size());
  Value* items = run.heap().NewArray<Value>(parts.size());
  for (size_t k = 0; k < parts.size(); ++k) items[k] = run.Substring(self, parts[k]);
  return run.heap().NewSeqView(SeqKind::kList, {items, parts.size()});
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  while (true) {
    text = Strip(text, nullptr, true, false);
    if (text.empty()) return parts;
    if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
      parts.push_back(text);  // including its trailing white space
      return parts;
    }
    size_t end = 0;
    for (size_t k = 0; k < text.size(); end = k) {
      if (IsSpace(NextCodePoint(text, &k))) break;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::vector<std::string_view> RightSplitAtSpace(std::string_view text, int64_t most) {
  std::vector<std::string_view> words = SplitAtSpace(text, -1);
  if (most < 0 || static_cast<int64_t>(words.size()) <= most) return words;
  const size_t cut = words.size() - static_cast<size_t>(most);  // words that stay unsplit
  std::vector<std::string_view> parts;
  const char* end = words[cut - 1].data() + words[cut - 1].size();
  parts.push_back(text.substr(0, static_cast<size_t>(end - text.data())));
  parts.insert(parts.end(), words.begin() + static_cast<ptrdiff_t>(cut), words.end());
  return parts;
}

std::vector<std::string_view> SplitAt(Run& run, std::string_view text, std::string_view separator, int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = FindText(run.meter(), text, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> RightSplitAt(Run& run, std::string_view text, std::string_view separator, int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = RightFindText(run.meter(), text, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text.remove_suffix(text.size() - at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value Split(Run& run, const Value& self, const Arguments& args, bool right) {
  const BoundArguments bound(right ? "rsplit" : "split", args, {"sep", "maxsplit"});
  const int64_t most = bound.Int(1, -1);
  if (!bound.has(0) || bound[0].is_none()) {
    return ListOf(run, self, right ? RightSplitAtSpace(self.str(), most) : SplitAtSpace(self.str(), most));
  }
  if (!bound[0].is_string()) Throw("must be str or None, not " + TypeName(bound[0]));
  if (bound[0].s->size == 0) Throw("empty separator");
  return ListOf(
      run, self,
      right ? RightSplitAt(run, self.str(), bound[0].str(), most) : SplitAt(run, self.str(), bound[0].str(), most));
}

Value Affix(Run& run, const Value& self, const Arguments& args, bool end) {
  const std::string_view name = end ? "endswith" : "startswith";
  NoKeywords(name, args);
  NoWindow(name, args);
  const BoundArguments bound(name, args, {"affix"}, 1);
  const std::string_view text = self.str();
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      Throw("tuple for " + std::string(name) + " must only contain str, not " + TypeName(affix));
    }
    run.ChargeText(std::min(text.size(), affix.s->size));
    return end ? text.ends_with(affix.str()) : text.starts_with(affix.str());
  };
  if (bound[0].is_seq() && bound[0].seq->kind == SeqKind::kTuple) {
    const std::span<const Value> affixes = bound[0].seq->span();
    return Value::Bool(std::any_of(affixes.begin(), affixes.end(), matches));
  }
  if (!bound[0].is_string()) {
    Throw(std::string(name) + " first arg must be str or a tuple of str, not " + TypeName(bound[0]));
  }
  return Value::Bool(matches(bound[0]));
}

Value Find(Run& run, const Value& self, const Arguments& args, bool right) {
  const std::string_view name = right ? "rfind" : "find";
  NoKeywords(name, args);
  NoWindow(name, args);
  const BoundArguments bound(name, args, {"sub"}, 1);
  const std::string_view text = self.str(), sub = bound.Text(0, "");
  const size_t at = right ? RightFindText(run.meter(), text, sub) : FindText(run.meter(), text, sub);
  if (at == std::string_view::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(CodePointCount(text.substr(0, at))));
}

Value Count(Run& run, const Value& self, const Arguments& args) {
  NoKeywords("count", args);
  NoWindow("count", args);
  const BoundArguments bound("count", args, {"sub"}, 1);
  const std::string_view text = self.str(), sub = bound.Text(0, "");
  if (sub.empty()) return Value::Int(static_cast<int64_t>(CodePointCount(text)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = FindText(run.meter(), text, sub, at)) != std::string_view::npos; at += sub.size()) ++count;
  return Value::Int(count);
}

Value Replace(Run& run, const Value& self, const Arguments& args) {
  NoKeywords("replace", args);
  const BoundArguments bound("replace", args, {"old", "new", "count"}, 2);
  const std::string_view from = bound.Text(0, ""), to = bound.Text(1, "");
  const std::string escaped = self.s->markup && !bound[1].s->markup ? EscapeMarkup(to) : std::string(to);
  return run.Text(ReplaceText(run, self.str(), from, escaped, bound.Int(2, -1)), self.s->markup);
}

Value Join(Run& run, const Value& self, const Arguments& args) {
  NoKeywords("join", args);
  const BoundArguments bound("join", args, {"iterable"}, 1);
  if (!run.IsIterable(bound[0])) Throw("can only join an iterable");
  std::string out;
  const std::span<const Value> items = run.Iterate(bound[0]);
  for (size_t k = 0; k < items.size(); ++k) {
    if (k > 0) out.append(self.str());
    if (!items[k].is_string()) {
      Throw("sequence item " + std::to_string(k) + ": expected str instance, " + TypeName(items[k]) + " found");
    }
    out.append(self.s->markup && !items[k].s->markup ? EscapeMarkup(items[k].str()) : std::string(items[k].str()));
    if (out.size() > run.limits().output_bytes) ThrowLimit("a joined text of more than the output limit");
  }
  return run.Text(out, self.s->markup);
}

template <std::string (*Map)(std::string_view)>
Value Mapped(Run& run, const Value& self, const Arguments& args) {
  const BoundArguments none("str method", args, {});
  return run.Text(Map(self.str()), self.s->markup);
}

template <bool (*Predicate)(uint32_t)>
Value All(Run&, const Value& self, const Arguments& args) {
  const BoundArguments none("str method", args, {});
  const std::string_view text = self.str();
  for (size_t k = 0; k < text.size();) {
    if (!Predicate(NextCodePoint(text, &k))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Value IsDigits(Run& run, const Value& self, const Arguments& args) {
  const BoundArguments none("isdigit", args, {});
  const std::string_view text = self.str();
  run.ChargeText(text.size());
  for (size_t k = 0; k < text.size();) {
    if (!IsDigit(NextCodePoint(text, &k))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

// '{} {0} {name}'.format(...), without attributes, conversions and format specifications.
Value Format(Run& run, const Value& self, const Arguments& args) {
  if (self.s->markup) ThrowUnsupported("format on a text marked safe is not supported");
  const std::string_view text = self.str();
  std::string out;
  size_t next = 0;  // for fields without a number
  bool numbered = false;
  const auto field = [&](std::string_view name) -> const Value& {
    if (name.find_first_of(".[!:{") != std::string_view::npos) {
      ThrowUnsupported("the format field '{" + std::string(name) + "}' is not supported; {}, {0} and {name} are");
    }
    if (name.empty() || name.find_first_not_of("0123456789") == std::string_view::npos) {
      if (name.empty() ? numbered : next > 0) {
        Throw("cannot switch between manual field specification and automatic field numbering");
      }
      numbered = !name.empty();
      size_t position = next;
      if (numbered) {
        std::from_chars(name.data(), name.data() + std::min<size_t>(name.size(), 9), position);
      } else {
        ++next;
      }
      if (position < args.positional.size()) return args.positional[position];
      Throw("Replacement index " + std::to_string(position) + " out of range for positional args tuple");
    }
    run.Charge(args.keywords.size() / 4);  // linear search for the name
    const auto it =
        std::find_if(args.keywords.begin(), args.keywords.end(), [&](const auto& kw) { return kw.first == name; });
    if (it == args.keywords.end()) Throw("KeyError: '" + std::string(name) + "'");
    return it->second;
  };
  for (size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    if (c != '{' && c != '}') {
      out.push_back(c);
    } else if (k + 1 < text.size() && text[k + 1] == c) {
      out.push_back(text[k++]);
    } else {
      const size_t close = text.find('}', k);
      if (c == '}') Throw("Single '}' encountered in format string");
      if (close == std::string_view::npos) Throw("expected '}' before end of string");
      AppendStr(field(text.substr(k + 1, close - k - 1)), &out, run.limits().output_bytes);
      k = close;
    }
  }
  return run.Text(out);
}

Value RemoveAffix(Run& run, const Value& self, const Arguments& args, bool end) {
  const std::string_view name = end ? "removesuffix" : "removeprefix";
  NoKeywords(name, args);
  const BoundArguments bound(name, args, {"affix"}, 1);
  std::string_view text = self.str();
  const std::string_view affix = bound.Text(0, "");
  if (end ? text.ends_with(affix) : text.starts_with(affix)) {
    end ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return run.Substring(self, text);
}

const StringMethod kMethods[] = {
    {"capitalize", Mapped<Capitalize>},
    {"count", Count},
    {"endswith", [](Run& r, const Value& s, const Arguments& a) { return Affix(r, s, a, true); }},
    {"find", [](Run& r, const Value& s, const Arguments& a) { return Find(r, s, a, false); }},
    {"format", Format},
    {"isdigit", IsDigits},
    {"join", Join},
    {"lower", Mapped<ToLower>},
    {"lstrip", [](Run& r, const Value& s, const Arguments& a) { return StripWith(r, s, a, "lstrip", true, false); }},
    {"removeprefix", [](Run& r, const Value& s, const Arguments& a) { return RemoveAffix(r, s, a, false); }},
    {"removesuffix", [](Run& r, const Value& s, const Arguments& a) { return RemoveAffix(r, s, a, true); }},
    {"replace", Replace},
    {"rfind", [](Run& r, const Value& s, const Arguments& a) { return Find(r, s, a, true); }},
    {"rsplit", [](Run& r, const Value& s, const Arguments& a) { return Split(r, s, a, true); }},
    {"rstrip", [](Run& r, const Value& s, const Arguments& a) { return StripWith(r, s, a, "rstrip", false, true); }},
    {"split", [](Run& r, const Value& s, const Arguments& a) { return Split(r, s, a, false); }},
    {"splitlines",
     [](Run& r, const Value& s, const Arguments& a) {
       const BoundArguments bound("splitlines", a, {"keepends"});
       return ListOf(r, s, SplitLines(s.str(), bound.Flag(0, false)));
     }},
    {"startswith", [](Run& r, const Value& s, const Arguments& a) { return Affix(r, s, a, false); }},
    {"strip", [](Run& r, const Value& s, const Arguments& a) { return StripWith(r, s, a, "strip", true, true); }},
    {"title", Mapped<Title>},
    {"upper", Mapped<ToUpper>},
};

}  // namespace

const StringMethod* FindStringMethod(std::string_view name) {
  const auto* it = std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                                    [](const StringMethod& entry, std::string_view n) { return entry.name < n; });
  return it != std::end(kMethods) && it->name == name ? it : nullptr;
}

std::string ReplaceText(Interpreter& run, std::string_view text, std::string_view from, std::string_view to,
                        int64_t count) {
  run.ChargeText(text.size());
  std::string out;
  const auto check = [&] {
    if (out.size() > run.limits().output_bytes) ThrowLimit("a replaced text is longer than the output limit");
  };
  if (from.empty()) {  // between all characters, and at both ends
    size_t k = 0;
    while (count != 0) {
      out.append(to);
      check();
      --count;
      if (k >= text.size()) return out;
      const size_t start = k;
      NextCodePoint(text, &k);
      out.append(text.substr(start, k - start));
    }
    return out.append(text.substr(k));
  }
  while (count != 0) {
    const size_t at = FindText(run.meter(), text, from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at));
    out.append(to);
    check();
    text.remove_prefix(at + from.size());
    --count;
  }
  return out.append(text);
}

}  // namespace tactus::language::jinja
