#include "text/jinja/string_methods.h"

#include <algorithm>
#include <functional>

#include "text/jinja/interpreter.h"
#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace tactus::jinja {
namespace {

using Run = Interpreter;

void NoKeywords(std::string_view name, const Arguments& args) {
  if (!args.keywords.empty()) Throw("str." + std::string(name) + "() takes no keyword arguments");
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
      parts.push_back(text);  // with its white space at the end
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
  const size_t cut = words.size() - static_cast<size_t>(most);  // words that stay together
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

Value Partition(Run& run, const Value& self, const Arguments& args, bool right) {
  const std::string_view name = right ? "rpartition" : "partition";
  NoKeywords(name, args);
  const BoundArguments bound(name, args, {"sep"}, 1);
  const std::string_view text = self.str(), separator = bound.Text(0, "");
  if (separator.empty()) Throw("empty separator");
  const size_t at = right ? RightFindText(run.meter(), text, separator) : FindText(run.meter(), text, separator);
  const std::string_view nothing;
  Value parts[3];
  if (at == std::string_view::npos) {
    parts[0] = run.Substring(self, right ? nothing : text);
    parts[1] = run.Substring(self, nothing);
    parts[2] = run.Substring(self, right ? text : nothing);
  } else {
    parts[0] = run.Substring(self, text.substr(0, at));
    parts[1] = run.Substring(self, separator);
    parts[2] = run.Substring(self, text.substr(at + separator.size()));
  }
  return run.heap().NewSeq(SeqKind::kTuple, parts);
}

// The part [start, end) in code points that find, count and startswith look at; empty optional: start is behind the
// end.
struct Window {
  std::string_view text;
  size_t offset = 0;  // code points before it
  bool valid = true;
};
Window MakeWindow(const Value& self, const BoundArguments& bound, std::string_view name) {
  Window window{self.str(), 0, true};
  const bool has_start = bound.has(1) && !bound[1].is_none(), has_end = bound.has(2) && !bound[2].is_none();
  if (!has_start && !has_end) return window;
  for (const size_t k : {size_t{1}, size_t{2}}) {
    if (bound.has(k) && !bound[k].is_none() && !bound[k].is_integral()) {
      Throw(std::string(name) + "(): slice indices must be integers or None or have an __index__ method");
    }
  }
  const int64_t size = static_cast<int64_t>(CodePointCount(self.str()));
  int64_t start = has_start ? bound[1].integral() : 0, end = has_end ? bound[2].integral() : size;
  if (end > size) end = size;
  if (end < 0) end = std::max<int64_t>(0, end < -size ? 0 : end + size);
  if (start < 0) start = std::max<int64_t>(0, start < -size ? 0 : start + size);
  if (start > end) {
    window.valid = false;
    window.text = {};
    return window;
  }
  const size_t begin = ByteOffset(self.str(), static_cast<size_t>(start));
  window.text = self.str().substr(begin);
  window.text = window.text.substr(0, ByteOffset(window.text, static_cast<size_t>(end - start)));
  window.offset = static_cast<size_t>(start);
  return window;
}

Value Affix(Run& run, const Value& self, const Arguments& args, bool end) {
  const std::string_view name = end ? "endswith" : "startswith";
  NoKeywords(name, args);
  const BoundArguments bound(name, args, {"affix", "start", "end"}, 1);
  const Window window = MakeWindow(self, bound, name);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      Throw("tuple for " + std::string(name) + " must only contain str, not " + TypeName(affix));
    }
    run.ChargeText(std::min(window.text.size(), affix.s->size));
    return window.valid && (end ? window.text.ends_with(affix.str()) : window.text.starts_with(affix.str()));
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

Value Find(Run& run, const Value& self, const Arguments& args, std::string_view name, bool right, bool must) {
  NoKeywords(name, args);
  const BoundArguments bound(name, args, {"sub", "start", "end"}, 1);
  const std::string_view sub = bound.Text(0, "");
  const Window window = MakeWindow(self, bound, name);
  const size_t at = !window.valid ? std::string_view::npos
                    : right       ? RightFindText(run.meter(), window.text, sub)
                                  : FindText(run.meter(), window.text, sub);
  if (at == std::string_view::npos) {
    if (must) Throw("substring not found");
    return Value::Int(-1);
  }
  return Value::Int(static_cast<int64_t>(window.offset + CodePointCount(window.text.substr(0, at))));
}

Value Count(Run& run, const Value& self, const Arguments& args) {
  NoKeywords("count", args);
  const BoundArguments bound("count", args, {"sub", "start", "end"}, 1);
  const std::string_view sub = bound.Text(0, "");
  const Window window = MakeWindow(self, bound, "count");
  if (!window.valid) return Value::Int(0);
  if (sub.empty()) return Value::Int(static_cast<int64_t>(CodePointCount(window.text)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = FindText(run.meter(), window.text, sub, at)) != std::string_view::npos; at += sub.size())
    ++count;
  return Value::Int(count);
}

Value Replace(Run& run, const Value& self, const Arguments& args) {
  NoKeywords("replace", args);
  const BoundArguments bound("replace", args, {"old", "new", "count"}, 2);
  const std::string_view from = bound.Text(0, ""), to = bound.Text(1, "");
  const std::string escaped = self.s->markup && !bound[1].s->markup ? EscapeHtml(to) : std::string(to);
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
    out.append(self.s->markup && !items[k].s->markup ? EscapeHtml(items[k].str()) : std::string(items[k].str()));
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

bool IsAlphanumeric(uint32_t c) {
  return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c);
}

template <bool kUpper>
Value IsCase(Run&, const Value& self, const Arguments& args) {
  const BoundArguments none("str method", args, {});
  bool cased = false;
  const std::string_view text = self.str();
  for (size_t k = 0; k < text.size();) {
    const uint32_t c = NextCodePoint(text, &k);
    if (IsTitle(c) || (kUpper ? IsLower(c) : IsUpper(c))) return Value::Bool(false);
    cased = cased || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return Value::Bool(cased);
}

Value IsTitleText(Run&, const Value& self, const Arguments& args) {
  const BoundArguments none("istitle", args, {});
  bool cased = false, previous = false;
  const std::string_view text = self.str();
  for (size_t k = 0; k < text.size();) {
    const uint32_t c = NextCodePoint(text, &k);
    const bool upper = IsUpper(c) || IsTitle(c), lower = IsLower(c);
    if ((upper && previous) || (lower && !previous)) return Value::Bool(false);
    previous = upper || lower;
    cased = cased || previous;
  }
  return Value::Bool(cased);
}

Value Pad(Run& run, const Value& self, const Arguments& args, std::string_view name, int side) {
  NoKeywords(name, args);
  const BoundArguments bound(name, args, {"width", "fillchar"}, 1);
  const std::string_view fill = bound.Text(1, " ");
  if (CodePointCount(fill) != 1) Throw("The fill character must be exactly one character long");
  const int64_t length = static_cast<int64_t>(CodePointCount(self.str())), width = bound.Int(0, 0);
  if (width <= length) return self;
  if (static_cast<size_t>(width) > run.limits().output_bytes / 4) ThrowLimit("a text padded beyond the output limit");
  const int64_t pad = width - length;
  const int64_t left = side < 0 ? 0 : side > 0 ? pad : pad / 2 + (pad & width & 1);  // str.center puts the odd one so
  std::string out;
  for (int64_t k = 0; k < left; ++k) out.append(fill);
  out.append(self.str());
  for (int64_t k = left; k < pad; ++k) out.append(fill);
  return run.Text(out, self.s->markup);
}

Value ZeroFill(Run& run, const Value& self, const Arguments& args) {
  NoKeywords("zfill", args);
  const BoundArguments bound("zfill", args, {"width"}, 1);
  const int64_t pad = bound.Int(0, 0) - static_cast<int64_t>(CodePointCount(self.str()));
  if (pad <= 0) return self;
  if (static_cast<size_t>(pad) > run.limits().output_bytes / 4) ThrowLimit("a text padded beyond the output limit");
  const std::string_view text = self.str();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return run.Text(
      std::string(text.substr(0, sign)) + std::string(static_cast<size_t>(pad), '0') + std::string(text.substr(sign)),
      self.s->markup);
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
    {"casefold", Mapped<CaseFold>},
    {"center", [](Run& r, const Value& s, const Arguments& a) { return Pad(r, s, a, "center", 0); }},
    {"count", Count},
    {"endswith", [](Run& r, const Value& s, const Arguments& a) { return Affix(r, s, a, true); }},
    {"find", [](Run& r, const Value& s, const Arguments& a) { return Find(r, s, a, "find", false, false); }},
    {"format", BraceFormat},
    {"index", [](Run& r, const Value& s, const Arguments& a) { return Find(r, s, a, "index", false, true); }},
    {"isalnum", All<IsAlphanumeric>},
    {"isalpha", All<IsAlpha>},
    {"isascii", [](Run&, const Value& s, const Arguments&) { return Value::Bool(IsAscii(s.str())); }},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"islower", IsCase<false>},
    {"isnumeric", All<IsNumeric>},
    {"isspace", All<IsSpace>},
    {"istitle", IsTitleText},
    {"isupper", IsCase<true>},
    {"join", Join},
    {"ljust", [](Run& r, const Value& s, const Arguments& a) { return Pad(r, s, a, "ljust", -1); }},
    {"lower", Mapped<ToLower>},
    {"lstrip", [](Run& r, const Value& s, const Arguments& a) { return StripWith(r, s, a, "lstrip", true, false); }},
    {"partition", [](Run& r, const Value& s, const Arguments& a) { return Partition(r, s, a, false); }},
    {"removeprefix", [](Run& r, const Value& s, const Arguments& a) { return RemoveAffix(r, s, a, false); }},
    {"removesuffix", [](Run& r, const Value& s, const Arguments& a) { return RemoveAffix(r, s, a, true); }},
    {"replace", Replace},
    {"rfind", [](Run& r, const Value& s, const Arguments& a) { return Find(r, s, a, "rfind", true, false); }},
    {"rindex", [](Run& r, const Value& s, const Arguments& a) { return Find(r, s, a, "rindex", true, true); }},
    {"rjust", [](Run& r, const Value& s, const Arguments& a) { return Pad(r, s, a, "rjust", 1); }},
    {"rpartition", [](Run& r, const Value& s, const Arguments& a) { return Partition(r, s, a, true); }},
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
    {"swapcase", Mapped<SwapCase>},
    {"title", Mapped<Title>},
    {"upper", Mapped<ToUpper>},
    {"zfill", ZeroFill},
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

}  // namespace tactus::jinja
