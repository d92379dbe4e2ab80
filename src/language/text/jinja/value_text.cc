// str(), repr() and the messages of undefined values, as in Python and jinja2.
#include <charconv>
#include <cmath>

#include "language/text/jinja/unicode.h"
#include "language/text/jinja/value.h"

namespace tactus::language::jinja {

std::string TypeName(const Value& v) {
  switch (v.type) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
    case Type::kBigInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return v.s->markup ? "Markup" : "str";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "TemplateNamespace";
    case Type::kMacro:
      return "Macro";
    case Type::kFunction:
      return "function";
    case Type::kMethod:
      return "builtin_function_or_method";
    case Type::kLoop:
      return "LoopContext";
    case Type::kSeq:
      break;
  }
  switch (v.seq->kind) {
    case SeqKind::kList:
      return "list";
    case SeqKind::kTuple:
      return "tuple";
    case SeqKind::kRange:
      return "range";
    case SeqKind::kKeys:
      return "dict_keys";
    case SeqKind::kValues:
      return "dict_values";
    case SeqKind::kItems:
      return "dict_items";
    case SeqKind::kIterator:
      return v.seq->python_type;
  }
  return "object";
}

std::string UndefinedMessage(const Value& undefined) {
  const UndefinedInfo* info = undefined.undefined;
  if (info == nullptr) return "value is undefined";
  if (info->kind == UndefinedInfo::Kind::kHint) return std::string(info->hint->view());
  if (info->kind == UndefinedInfo::Kind::kName) return Repr(info->key) + " is undefined";
  if (info->object.is_none()) {
    return info->key.is_string() ? "'None' has no attribute " + Repr(info->key)
                                 : "None has no element " + Repr(info->key);
  }
  std::string type = TypeName(info->object);
  if (type == "Namespace" || type == "TemplateNamespace") type = "jinja2.utils.Namespace";
  type += " object";
  if (!info->key.is_string()) return type + " has no element " + Repr(info->key);
  return "'" + type + "' has no attribute " + Repr(info->key);
}

void ThrowUndefined(const Value& undefined) {
  Throw(UndefinedMessage(undefined));
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  // d.ddde[+-]xx, the shortest digits that read back as the same number; Python prints an exponent below -4 and from 16
  // on.
  std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  std::string mantissa = text.substr(0, e);
  std::string sign;
  if (mantissa[0] == '-') {
    sign = "-";
    mantissa.erase(0, 1);
  }
  std::string digits = mantissa.substr(0, 1) + (mantissa.size() > 2 ? mantissa.substr(2) : "");
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const int magnitude = exponent < 0 ? -exponent : exponent;
    return out + (exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {
void Hex(uint32_t c, int width, std::string* out) {
  static const char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (width - 1); shift >= 0; shift -= 4) out->push_back(kDigits[(c >> shift) & 15]);
}

void CheckLimit(const std::string& out, size_t limit_bytes) {
  if (out.size() > limit_bytes) ThrowLimit("a text of more than " + std::to_string(limit_bytes >> 10) + " KiB");
}
}  // namespace

void AppendStringRepr(std::string_view text, std::string* out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->push_back(quote);
  for (size_t k = 0; k < text.size();) {
    const size_t start = k;
    const uint32_t c = NextCodePoint(text, &k);
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (c == '\t') {
      *out += "\\t";
    } else if (IsPrintable(c)) {
      out->append(text.substr(start, k - start));
    } else if (c < 0x100) {
      *out += "\\x";
      Hex(c, 2, out);
    } else if (c < 0x10000) {
      *out += "\\u";
      Hex(c, 4, out);
    } else {
      *out += "\\U";
      Hex(c, 8, out);
    }
  }
  out->push_back(quote);
}

namespace {
void AppendItems(std::span<const Value> items, std::string* out, size_t limit_bytes, int depth) {
  for (size_t k = 0; k < items.size(); ++k) {
    if (k > 0) *out += ", ";
    AppendRepr(items[k], out, limit_bytes, depth + 1);
  }
}

void AppendSeqRepr(const Value& v, std::string* out, size_t limit_bytes, int depth) {
  const Seq& seq = *v.seq;
  const std::span<const Value> items(seq.items, seq.size);
  switch (seq.kind) {
    case SeqKind::kList:
      out->push_back('[');
      AppendItems(items, out, limit_bytes, depth);
      out->push_back(']');
      return;
    case SeqKind::kTuple:
      out->push_back('(');
      AppendItems(items, out, limit_bytes, depth);
      *out += items.size() == 1 ? ",)" : ")";
      return;
    case SeqKind::kRange:
      ThrowUnsupported("printing a range is not supported; add |list");
    case SeqKind::kIterator:
      // Python prints an address here, which differs between runs, so no output could match.
      Throw(std::string("printing a ") + seq.python_type + " object; add |list");
    default:
      *out += TypeName(v) + "([";
      AppendItems(items, out, limit_bytes, depth);
      *out += "])";
  }
}

void AppendDictRepr(std::span<const DictItem> items, std::string* out, size_t limit_bytes, int depth) {
  out->push_back('{');
  for (size_t k = 0; k < items.size(); ++k) {
    if (k > 0) *out += ", ";
    AppendRepr(items[k].key, out, limit_bytes, depth + 1);
    *out += ": ";
    AppendRepr(items[k].value, out, limit_bytes, depth + 1);
  }
  out->push_back('}');
}
}  // namespace

void AppendRepr(const Value& v, std::string* out, size_t limit_bytes, int depth) {
  if (depth > kMaxNesting) ThrowLimit("printing values nested deeper than " + std::to_string(kMaxNesting));
  CheckLimit(*out, limit_bytes);
  switch (v.type) {
    case Type::kUndefined:
      *out += "Undefined";
      return;
    case Type::kNone:
      *out += "None";
      return;
    case Type::kBool:
      *out += v.b ? "True" : "False";
      return;
    case Type::kInt:
      *out += std::to_string(v.i);
      return;
    case Type::kBigInt:
      *out += std::to_string(v.u);
      return;
    case Type::kFloat:
      *out += FloatRepr(v.d);
      return;
    case Type::kString:
      if (v.s->markup) *out += "Markup(";
      AppendStringRepr(v.str(), out);
      if (v.s->markup) *out += ")";
      return;
    case Type::kSeq:
      AppendSeqRepr(v, out, limit_bytes, depth);
      return;
    case Type::kDict:
      AppendDictRepr({v.dict->items, v.dict->size}, out, limit_bytes, depth);
      return;
    case Type::kNamespace: {
      std::vector<DictItem> items;
      for (const auto& [name, value] : *v.ns->attributes) items.push_back({Value::String(name), value});
      *out += "<Namespace ";
      AppendDictRepr(items, out, limit_bytes, depth);
      *out += ">";
      return;
    }
    default:
      Throw("printing a " + TypeName(v) + " object");
  }
}

void AppendStr(const Value& v, std::string* out, size_t limit_bytes) {
  switch (v.type) {
    case Type::kUndefined:
      return;
    case Type::kString:
      out->append(v.str());
      break;
    default:
      AppendRepr(v, out, limit_bytes, 0);
  }
  CheckLimit(*out, limit_bytes);
}

std::string Repr(const Value& v) {
  std::string out;
  try {
    AppendRepr(v, &out, 4096);
  } catch (const TemplateError&) {
    out = "a " + TypeName(v);
  }
  return out;
}

}  // namespace tactus::language::jinja
