// Filters on one text or number.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/markup_text.h"
#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/string_methods.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {
namespace {

using Run = Interpreter;

template <std::string (*Map)(std::string_view)>
Value MappedFilter(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("filter", args, {});
  const Value text = run.ToString(input);
  return run.Text(Map(text.str()), text.s->markup);
}

// jinja2's rule: words begin after white space and -({[<, with no other capitals.
std::string TitleWords(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    NextCodePoint(word, &first);
    out += ToUpper(word.substr(0, first)) + ToLower(word.substr(first));
    word.clear();
  };
  for (size_t k = 0; k < text.size();) {
    const size_t start = k;
    const uint32_t c = NextCodePoint(text, &k);
    if (IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      out.append(text.substr(start, k - start));
    } else {
      word.append(text.substr(start, k - start));
    }
  }
  flush();
  return out;
}

Value Trim(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("trim", args, {"chars"});
  const Value text = run.ToString(input);
  run.ChargeText(text.s->size);
  if (!bound.has(0) || bound[0].is_none()) return run.Substring(text, Strip(text.str(), nullptr, true, true));
  if (!bound[0].is_string()) Throw("strip arg must be None or str");
  const std::string_view chars = bound[0].str();
  run.ChargeText(text.s->size * (chars.size() / 16));
  return run.Substring(text, Strip(text.str(), &chars, true, true));
}

Value ReplaceFilter(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_replace", args, {"old", "new", "count"}, 2);
  const int64_t count = bound.has(2) && bound[2].is_none() ? -1 : bound.Int(2, -1);
  return run.Text(ReplaceText(run, run.ToText(input), run.ToText(bound[0]), run.ToText(bound[1]), count));
}

Value ToStringFilter(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("string", args, {});
  return run.ToString(input);
}

Value Safe(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("safe", args, {});
  return Value::String(run.heap().View(run.ToString(input).str(), true));
}

Value Escape(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments none("escape", args, {});
  if (input.is_string() && input.s->markup) return input;
  return run.Text(EscapeMarkup(run.ToText(input)), true);
}

Value Indent(Run& run, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_indent", args, {"width", "first", "blank"});
  std::string indention;
  if (bound.has(0) && bound[0].is_string()) {
    indention = bound[0].str();
  } else {
    const int64_t width = bound.Int(0, 4);
    if (width > static_cast<int64_t>(run.limits().output_bytes / 4)) ThrowLimit("an indent beyond the output limit");
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const Value with_newline = run.Add(input, run.heap().NewView("\n"));  // as in jinja2, to raise the same errors
  if (!with_newline.is_string()) Throw("indent needs a text");
  const bool blank = bound.Flag(2, false);
  const std::vector<std::string_view> lines = SplitLines(with_newline.str(), false);
  run.Charge(lines.size());
  std::string out = bound.Flag(1, false) ? indention : "";
  for (size_t k = 0; k < lines.size(); ++k) {
    if (k > 0) {
      out.push_back('\n');
      if (blank || !lines[k].empty()) out.append(indention);
    }
    out.append(lines[k]);
    if (out.size() > run.limits().output_bytes) ThrowLimit("an indented text longer than the output limit");
  }
  return run.Text(out, with_newline.s->markup);
}

// int(text), without digits of other scripts.
bool ParsePythonInt(std::string_view text, int64_t* out, bool* overflow) {
  text = Strip(text, nullptr, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  bool digit_before = false;
  for (const char c : text) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    if (c < '0' || c > '9') return false;
    digit_before = true;
    *overflow = *overflow || __builtin_mul_overflow(value, int64_t{10}, &value) ||
                __builtin_add_overflow(value, int64_t{c - '0'}, &value);
  }
  *out = negative ? -value : value;
  return digit_before;
}

Value IntFromDouble(double value, const Value& otherwise) {
  if (std::isnan(value) || std::isinf(value)) return otherwise;
  if (value >= 9223372036854775808.0 || value < -9223372036854775808.0) Throw("integer overflow: int() beyond 64 bits");
  return Value::Int(static_cast<int64_t>(value));
}

Value ToInt(Run&, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_int", args, {"default", "base"});
  if (bound.has(1)) ThrowUnsupported("the filter 'int' with a base is not supported");
  const Value otherwise = bound.has(0) ? bound[0] : Value::Int(0);
  if (input.is_undefined()) ThrowUndefined(input);
  if (input.is_integral()) return Value::Int(input.integral());
  if (input.is_big()) return input;
  if (input.is_float()) return IntFromDouble(input.d, otherwise);
  if (!input.is_string()) return otherwise;
  int64_t value = 0;
  bool overflow = false;
  if (ParsePythonInt(input.str(), &value, &overflow)) {
    if (overflow) Throw("integer overflow: the text is a number beyond 64 bits");
    return Value::Int(value);
  }
  bool ok = false;
  const double number = ParsePythonFloat(input.str(), &ok);
  return ok ? IntFromDouble(number, otherwise) : otherwise;
}

Value ToFloat(Run&, const Value& input, const Arguments& args) {
  const BoundArguments bound("do_float", args, {"default"});
  const Value otherwise = bound.has(0) ? bound[0] : Value::Float(0);
  if (input.is_undefined()) ThrowUndefined(input);
  if (input.is_number()) return Value::Float(input.number());
  if (!input.is_string()) return otherwise;
  bool ok = false;
  const double number = ParsePythonFloat(input.str(), &ok);
  return ok ? Value::Float(number) : otherwise;
}

const FilterEntry kTextFilters[] = {
    {"capitalize", MappedFilter<Capitalize>},
    {"e", Escape},
    {"escape", Escape},
    {"float", ToFloat},
    {"indent", Indent},
    {"int", ToInt},
    {"lower", MappedFilter<ToLower>},
    {"replace", ReplaceFilter},
    {"safe", Safe},
    {"string", ToStringFilter},
    {"title", MappedFilter<TitleWords>},
    {"tojson", ToJson},
    {"trim", Trim},
    {"upper", MappedFilter<ToUpper>},
};

}  // namespace

std::span<const FilterEntry> TextFilters() {
  return kTextFilters;
}

double ParsePythonFloat(std::string_view text, bool* ok) {
  text = Strip(text, nullptr, true, true);
  std::string plain;
  for (size_t k = 0; k < text.size(); ++k) {  // single underscores between digits
    const auto digit = [&](size_t j) { return j < text.size() && text[j] >= '0' && text[j] <= '9'; };
    if (text[k] == '_' && k > 0 && digit(k - 1) && digit(k + 1)) continue;
    plain.push_back(text[k]);
  }
  std::string_view body = plain;
  if (body.starts_with("+")) body.remove_prefix(1);
  *ok = false;
  if (body.empty() || body.find_first_of("nN(") == 0 || (plain[0] == '+' && body.starts_with("-"))) {
    std::string low = ToLower(body);
    *ok = low == "nan";
    return *ok ? std::nan("") : 0;
  }
  double value = 0;
  const auto result = std::from_chars(body.data(), body.data() + body.size(), value);
  if (result.ptr != body.data() + body.size() || result.ec == std::errc::invalid_argument) return 0;
  if (body.find('(') != std::string_view::npos) return 0;
  *ok = true;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(std::string(body).c_str(), nullptr);
  return value;
}

}  // namespace tactus::language::jinja
