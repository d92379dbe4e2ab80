// Python's two ways of formatting: "%s %d" % values and "{} {name}".format(...), for texts, integers and floats.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace tactus::jinja {
namespace {

constexpr int64_t kMaxWidth = 100'000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > = ^
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  char grouping = '\0';
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

int64_t ParseCount(std::string_view text, size_t* k) {
  int64_t value = 0;
  while (*k < text.size() && text[*k] >= '0' && text[*k] <= '9') {
    value = value * 10 + (text[(*k)++] - '0');
    if (value > kMaxWidth) ThrowLimit("a format width or precision of more than " + std::to_string(kMaxWidth));
  }
  return value;
}

std::string GroupThousands(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t k = 0; k < digits.size(); ++k) {
    if (k > 0 && (digits.size() - k) % every == 0) out.push_back(separator);
    out.push_back(digits[k]);
  }
  return out;
}

std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

// |value| in the given style, as C and Python print it.
std::string FloatDigits(double value, char type, int64_t precision, bool alternate) {
  if (std::isnan(value)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  if (std::isinf(value)) return type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf";
  if (precision > 1000) ThrowLimit("a float precision of more than 1000");
  const char format[] = {'%', '#', '.', '*', type, '\0'};
  const char plain[] = {'%', '.', '*', type, '\0'};
  std::string out(1500, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n =
      std::snprintf(out.data(), out.size(), alternate ? format : plain, static_cast<int>(precision), std::fabs(value));
#pragma GCC diagnostic pop
  out.resize(static_cast<size_t>(std::max(n, 0)));
  return out;
}

std::string IntegerDigits(uint64_t magnitude, int base) {
  char buffer[70];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr;
  return std::string(buffer, end);
}

uint64_t Magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

std::string SignOf(bool negative, char style) {
  return negative ? "-" : style == '+' ? "+" : style == ' ' ? " " : "";
}

std::string Align(const Spec& spec, const std::string& prefix, const std::string& body, char otherwise) {
  const int64_t length = static_cast<int64_t>(CodePointCount(prefix) + CodePointCount(body));
  const int64_t pad = std::max<int64_t>(0, spec.width - length);
  const char align = spec.align != '\0' ? spec.align : otherwise;
  const int64_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
  std::string before, after;
  for (int64_t k = 0; k < left; ++k) before += spec.fill;
  for (int64_t k = left; k < pad; ++k) after += spec.fill;
  return align == '=' ? prefix + before + body + after : before + prefix + body + after;
}

Spec ParseSpec(std::string_view text) {
  Spec spec;
  size_t k = 0;
  const auto is_align = [&](size_t at) {
    return at < text.size() && std::string_view("<>=^").find(text[at]) != std::string_view::npos;
  };
  if (!text.empty()) {
    size_t after_fill = 0;
    NextCodePoint(text, &after_fill);
    if (is_align(after_fill)) {
      spec.fill = text.substr(0, after_fill);
      spec.align = text[after_fill];
      k = after_fill + 1;
    } else if (is_align(0)) {
      spec.align = text[0];
      k = 1;
    }
  }
  const auto at = [&](char c) { return k < text.size() && text[k] == c; };
  if (at('+') || at('-') || at(' ')) spec.sign = text[k++];
  if (at('#')) spec.alternate = (++k, true);
  if (at('0')) {
    spec.zero = true;
    ++k;
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = ParseCount(text, &k);
  if (at(',') || at('_')) spec.grouping = text[k++];
  if (at('.')) {
    const size_t digits = ++k;
    spec.precision = ParseCount(text, &k);
    if (k == digits) Throw("Format specifier missing precision");
  }
  if (k < text.size()) spec.type = text[k++];
  if (k < text.size()) Throw("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

[[noreturn]] void ThrowCode(char type, const Value& v) {
  Throw(std::string("Unknown format code '") + type + "' for object of type '" + TypeName(v) + "'");
}

std::string WithGrouping(const Spec& spec, const std::string& sign, std::string whole, const std::string& rest,
                         size_t every) {
  if (spec.grouping != '\0') {
    if (spec.fill == "0" && spec.align == '=') {  // zeros take part in the grouping
      const size_t room =
          static_cast<size_t>(std::max<int64_t>(0, spec.width - static_cast<int64_t>(sign.size() + rest.size())));
      while (GroupThousands("0" + whole, spec.grouping, every).size() <= room) whole.insert(0, "0");
      whole = GroupThousands(whole, spec.grouping, every);
      if (whole.size() < room) whole.insert(0, "0");
    } else {
      whole = GroupThousands(whole, spec.grouping, every);
    }
  }
  return Align(spec, sign, whole + rest, '>');
}

std::string FormatFloat(const Spec& spec, double value, const Value& v) {
  char type = spec.type == '\0' ? 'r' : spec.type;
  std::string digits;
  if (type == 'r') {
    if (spec.precision < 0) {
      digits = FloatRepr(std::fabs(value));
    } else {
      digits = FloatDigits(value, 'g', std::max<int64_t>(spec.precision, 1), spec.alternate);
      const bool exponent = digits.find('e') != std::string::npos;
      if (!exponent && digits.find('.') == std::string::npos && std::isfinite(value)) {
        // str() style keeps one decimal; with no room for it Python turns to the exponent.
        digits = static_cast<int64_t>(digits.size()) < std::max<int64_t>(spec.precision, 1)
                     ? digits + ".0"
                     : FloatDigits(value, 'e', std::max<int64_t>(spec.precision, 1) - 1, false);
      }
    }
  } else if (type == '%') {
    digits = FloatDigits(value * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else if (std::string_view("eEfFgGn").find(type) != std::string_view::npos) {
    if (type == 'n') type = 'g';
    digits = FloatDigits(value, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  } else {
    ThrowCode(type, v);
  }
  size_t whole = 0;
  while (whole < digits.size() && digits[whole] >= '0' && digits[whole] <= '9') ++whole;
  return WithGrouping(spec, SignOf(std::signbit(value) && !std::isnan(value), spec.sign), digits.substr(0, whole),
                      digits.substr(whole), 3);
}

std::string FormatInteger(const Spec& spec, const Value& v) {
  const int64_t value = v.integral();
  switch (spec.type) {
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
      return FormatFloat(spec, static_cast<double>(value), v);
    default:
      break;
  }
  if (spec.precision >= 0) Throw("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) Throw("%c arg not in range(0x110000)");
    std::string character;
    AppendCodePoint(static_cast<uint32_t>(value), &character);
    return Align(spec, "", character, '<');
  }
  int base = 10;
  std::string prefix;
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      break;
    case 'x':
    case 'X':
      base = 16;
      prefix = spec.type == 'x' ? "0x" : "0X";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    default:
      ThrowCode(spec.type, v);
  }
  std::string digits = IntegerDigits(Magnitude(value), base);
  if (spec.type == 'X') digits = Upper(digits);
  if (spec.grouping == ',' && base != 10) Throw(std::string("Cannot specify ',' with '") + spec.type + "'.");
  const std::string sign = SignOf(value < 0, spec.sign) + (spec.alternate ? prefix : "");
  return WithGrouping(spec, sign, digits, "", base == 10 ? 3 : 4);
}

std::string FormatValue(Interpreter& run, const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return run.ToText(v);
  if (!v.is_string() && !v.is_number()) {
    Throw("unsupported format string passed to " + TypeName(v) + ".__format__");
  }
  const Spec spec = ParseSpec(spec_text);
  if (v.is_float()) return FormatFloat(spec, v.d, v);
  if (v.is_integral() && !(v.is_bool() && spec.type == '\0')) return FormatInteger(spec, v);
  if (v.is_bool()) return FormatInteger(spec, Value::Int(v.integral()));
  if (spec.type != '\0' && spec.type != 's') ThrowCode(spec.type, v);
  if (spec.sign != '-') Throw("Sign not allowed in string format specifier");
  if (spec.alternate) Throw("Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=' && !spec.zero) Throw("'=' alignment not allowed in string format specifier");
  if (spec.grouping != '\0') Throw(std::string("Cannot specify '") + spec.grouping + "' with 's'.");
  Spec text_spec = spec;
  if (text_spec.align == '=') text_spec.align = '<';
  std::string_view text = v.str();
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
  return Align(text_spec, "", std::string(text), '<');
}

// --- "{}".format

class BraceFormatter {
 public:
  BraceFormatter(Interpreter* run, const Arguments* args) : run_(run), args_(args) {}

  std::string Format(std::string_view text, int depth) {
    if (depth < 0) Throw("Max string recursion exceeded");
    std::string out;
    for (size_t k = 0; k < text.size();) {
      if (out.size() > run_->limits().output_bytes) ThrowLimit("a formatted text longer than the output limit");
      const char c = text[k];
      if (c == '}' || c == '{') {
        if (k + 1 < text.size() && text[k + 1] == c) {
          out.push_back(c);
          k += 2;
          continue;
        }
        if (c == '}') Throw("Single '}' encountered in format string");
        size_t end = k + 1;
        for (int open = 1; open > 0; ++end) {
          if (end >= text.size())
            Throw(end == k + 1 ? "Single '{' encountered in format string" : "expected '}' before end of string");
          open += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
        }
        out += Field(text.substr(k + 1, end - k - 2), depth);
        k = end;
      } else {
        out.push_back(c);
        ++k;
      }
    }
    return out;
  }

 private:
  std::string Field(std::string_view field, int depth) {
    size_t name_end = 0;
    bool bracket = false;
    while (name_end < field.size() && (bracket || (field[name_end] != '!' && field[name_end] != ':'))) {
      if (field[name_end] == '[') bracket = true;
      if (field[name_end] == ']') bracket = false;
      ++name_end;
    }
    Value v = Resolve(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with("!")) {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (rest.size() > 2 && rest[2] != ':') Throw("expected ':' after conversion specifier");
      if (conversion == 'r') {
        std::string text;
        AppendRepr(v, &text, run_->limits().output_bytes);
        v = run_->Text(text);
      } else if (conversion == 's') {
        v = run_->ToString(v);
      } else {
        Throw(std::string("Unknown conversion specifier '") + conversion + "'");
      }
      rest.remove_prefix(2);
    }
    if (rest.starts_with(":")) rest.remove_prefix(1);
    return FormatValue(*run_, v, Format(rest, depth - 1));
  }

  Value Resolve(std::string_view name) {
    run_->Charge(args_->keywords.size() / 4);  // looked through for the name
    const size_t first_end = std::min(name.find('.'), name.find('['));
    const std::string_view first = name.substr(0, first_end);
    Value v;
    const bool digits =
        !first.empty() && std::all_of(first.begin(), first.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (first.empty() || digits) {
      if (first.empty() ? manual_ : next_ > 0)
        Throw("cannot switch between manual field specification and automatic field numbering");
      size_t k = 0;
      const int64_t position = digits ? ParseCount(first, &k) : static_cast<int64_t>(next_++);
      manual_ = manual_ || digits;
      if (position >= static_cast<int64_t>(args_->positional.size())) {
        Throw("Replacement index " + std::to_string(position) + " out of range for positional args tuple");
      }
      v = args_->positional[static_cast<size_t>(position)];
    } else {
      const auto it = std::find_if(args_->keywords.begin(), args_->keywords.end(),
                                   [&](const auto& kw) { return kw.first == first; });
      if (it == args_->keywords.end()) Throw("KeyError: '" + std::string(first) + "'");
      v = it->second;
    }
    std::string_view rest = first_end == std::string_view::npos ? std::string_view() : name.substr(first_end);
    while (!rest.empty()) {
      run_->Charge(1);
      if (rest[0] == '.') {
        const size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) Throw("Empty attribute in format string");
        v = GetAttribute(*run_, v, run_->heap().NewString(rest.substr(1, end - 1)));
        rest.remove_prefix(end);
      } else if (rest[0] == '[') {
        const size_t close = rest.find(']');
        if (close == std::string_view::npos) Throw("expected '}' before end of string");
        const std::string_view key = rest.substr(1, close - 1);
        if (key.empty()) Throw("Empty attribute in format string");
        size_t k = 0;
        const bool number = std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
        v = GetItem(*run_, v, number ? Value::Int(ParseCount(key, &k)) : run_->heap().NewString(key));
        rest.remove_prefix(close + 1);
      } else {
        Throw("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

  Interpreter* run_;
  const Arguments* args_;
  size_t next_ = 0;
  bool manual_ = false;
};

// --- "%" formatting

class PercentFormatter {
 public:
  PercentFormatter(Interpreter* run, const Value& format, const Value& values)
      : run_(run), text_(format.str()), markup_(format.s->markup), values_(values) {
    is_tuple_ = values.is_seq() && values.seq->kind == SeqKind::kTuple;
    is_mapping_ = !is_tuple_ && !values.is_string() && (values.is_dict() || values.is_seq() || values.is_undefined());
  }

  std::string Run() {
    std::string out;
    for (size_t k = 0; k < text_.size();) {
      if (out.size() > run_->limits().output_bytes) ThrowLimit("a formatted text longer than the output limit");
      if (text_[k] != '%') {
        out.push_back(text_[k++]);
      } else {
        ++k;
        out += Conversion(&k);
      }
    }
    if (!used_mapping_ && used_ < Count() && !(is_mapping_ && !is_tuple_)) {
      Throw("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  size_t Count() const { return is_tuple_ ? values_.seq->size : 1; }
  Value NextValue() {
    if (used_ >= Count()) Throw("not enough arguments for format string");
    return is_tuple_ ? values_.seq->items[used_++] : (++used_, values_);
  }

  std::string Conversion(size_t* k) {
    const auto at_end = [&] {
      if (*k >= text_.size()) Throw("incomplete format");
    };
    Value v;
    bool have_value = false;
    at_end();
    if (text_[*k] == '(') {
      size_t end = *k + 1;
      for (int open = 1; open > 0; ++end) {
        if (end >= text_.size()) Throw("incomplete format key");
        open += text_[end] == '(' ? 1 : text_[end] == ')' ? -1 : 0;
      }
      const std::string_view key = text_.substr(*k + 1, end - *k - 2);
      if (!values_.is_dict()) Throw("format requires a mapping");
      const Value* item = FindItem(*values_.dict, key);
      if (item == nullptr) Throw("KeyError: '" + std::string(key) + "'");
      v = *item;
      have_value = used_mapping_ = true;
      *k = end;
    }
    Spec spec;
    bool left = false;
    for (at_end(); std::string_view("-+ #0").find(text_[*k]) != std::string_view::npos; at_end()) {
      const char flag = text_[(*k)++];
      if (flag == '-') left = true;
      if (flag == '+') spec.sign = '+';
      if (flag == ' ' && spec.sign != '+') spec.sign = ' ';
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.zero = true;
    }
    spec.width = Star(k, &left);
    at_end();
    if (text_[*k] == '.') {
      ++*k;
      bool ignored = false;
      at_end();
      spec.precision = Star(k, &ignored);
    }
    at_end();
    while (text_[*k] == 'l' || text_[*k] == 'h' || text_[*k] == 'L') {
      ++*k;
      at_end();
    }
    spec.type = text_[(*k)++];
    if (spec.type == '%') return "%";
    if (!have_value) v = NextValue();
    spec.align = left ? '<' : '>';
    return One(spec, v);
  }

  int64_t Star(size_t* k, bool* left) {
    if (*k < text_.size() && text_[*k] == '*') {
      ++*k;
      const Value v = NextValue();
      if (!v.is_integral()) Throw("* wants int");
      if (v.integral() > kMaxWidth || v.integral() < -kMaxWidth)
        ThrowLimit("a format width of more than " + std::to_string(kMaxWidth));
      if (v.integral() < 0) *left = true;
      return v.integral() < 0 ? -v.integral() : v.integral();
    }
    return ParseCount(text_, k);
  }

  std::string Escaped(std::string text, const Value& v) const {
    return markup_ && !(v.is_string() && v.s->markup) ? EscapeHtml(text) : text;
  }

  std::string One(Spec spec, const Value& v) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        if (spec.type == 'a') Throw("the format %a is not supported");
        std::string text;
        if (spec.type == 's') {
          text = run_->ToText(v);
        } else {
          AppendRepr(v, &text, run_->limits().output_bytes);
        }
        text = Escaped(std::move(text), v);
        if (spec.precision >= 0) text.resize(ByteOffset(text, static_cast<size_t>(spec.precision)));
        return Align(spec, "", text, '>');
      }
      case 'c': {
        if (v.is_string()) {
          if (CodePointCount(v.str()) != 1) Throw("%c requires int or char");
          return Align(spec, "", Escaped(std::string(v.str()), v), '>');
        }
        if (!v.is_integral()) Throw("%c requires int or char");
        return FormatInteger(spec, v);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return Integer(spec, v);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (v.is_undefined()) ThrowUndefined(v);
        if (!v.is_number()) Throw("must be real number, not " + TypeName(v));
        std::string digits =
            FloatDigits(v.number(), spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
        return Padded(spec, SignOf(std::signbit(v.number()) && !std::isnan(v.number()), spec.sign), std::move(digits));
      }
      default:
        Throw(std::string("unsupported format character '") + spec.type + "'");
    }
  }

  std::string Integer(const Spec& spec, const Value& v) {
    if (v.is_undefined()) ThrowUndefined(v);
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    int64_t value;
    if (v.is_integral()) {
      value = v.integral();
    } else if (v.is_float() && decimal) {
      if (!(std::fabs(v.d) < 9.2e18)) Throw("cannot convert float to a 64-bit integer");
      value = static_cast<int64_t>(v.d);
    } else {
      Throw(std::string("%") + spec.type +
            (decimal ? " format: a real number is required, not " : " format: an integer is required, not ") +
            TypeName(v));
    }
    std::string digits = IntegerDigits(Magnitude(value), decimal ? 10 : spec.type == 'o' ? 8 : 16);
    if (spec.type == 'X') digits = Upper(digits);
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    std::string prefix = SignOf(value < 0, spec.sign);
    if (spec.alternate && !decimal) prefix += std::string("0") + spec.type;
    return Padded(spec, prefix, std::move(digits));
  }

  static std::string Padded(Spec spec, const std::string& prefix, std::string digits) {
    if (spec.zero && spec.align != '<') {
      spec.fill = "0";
      spec.align = '=';
    }
    return Align(spec, prefix, digits, '>');
  }

  Interpreter* run_;
  const std::string_view text_;
  const bool markup_;
  const Value values_;
  bool is_tuple_ = false, is_mapping_ = false, used_mapping_ = false;
  size_t used_ = 0;
};

}  // namespace

Value BraceFormat(Interpreter& run, const Value& format, const Arguments& args) {
  if (format.s->markup) Throw("format on a text marked safe is not supported");
  return run.Text(BraceFormatter(&run, &args).Format(format.str(), 2));
}

Value PercentFormat(Interpreter& run, const Value& format, const Value& values) {
  run.ChargeText(format.s->size);
  return run.Text(PercentFormatter(&run, format, values).Run(), format.s->markup);
}

}  // namespace tactus::jinja
