// json.dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False), transformers' tojson filter.
#include <algorithm>
#include <cmath>

#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {
namespace {

class Writer {
 public:
  Writer(Interpreter* run, const BoundArguments& options)
      : run_(run), ascii_(options.Flag(0, false)), sort_(options.Flag(3, false)) {
    if (options.has(1) && !options[1].is_none()) {
      pretty_ = true;
      if (options[1].is_string()) {
        indent_ = options[1].str();
      } else {
        const int64_t width = options.Int(1, 0);
        if (width > 1000) ThrowLimit("tojson with an indent of more than 1000");
        indent_.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
      }
      item_separator_ = ",";
    }
    if (options.has(2) && !options[2].is_none()) {
      const std::span<const Value> pair = run->Iterate(options[2]);
      if (pair.size() != 2) Throw("tojson: separators must be a pair");
      if (!pair[0].is_string() || !pair[1].is_string()) Throw("tojson: separators must be texts");
      item_separator_ = pair[0].str();
      key_separator_ = pair[1].str();
    }
  }

  void Write(const Value& v, int depth) {
    if (depth > kMaxNesting) ThrowLimit("tojson of values nested deeper than " + std::to_string(kMaxNesting));
    if (out_.size() > run_->limits().output_bytes) ThrowLimit("tojson makes more than the output limit");
    run_->Charge(1);
    switch (v.type) {
      case Type::kNone:
        out_ += "null";
        return;
      case Type::kBool:
        out_ += v.b ? "true" : "false";
        return;
      case Type::kInt:
        out_ += std::to_string(v.i);
        return;
      case Type::kBigInt:
        out_ += std::to_string(v.u);
        return;
      case Type::kFloat:
        out_ += Number(v.d);
        return;
      case Type::kString:
        WriteString(v.str());
        return;
      case Type::kDict:
        WriteDict(*v.dict, depth);
        return;
      case Type::kSeq:
        if (v.seq->kind == SeqKind::kList || v.seq->kind == SeqKind::kTuple) {
          WriteList(v.seq->span(), depth);
          return;
        }
        [[fallthrough]];
      default:
        Throw("Object of type " + TypeName(v) + " is not JSON serializable");
    }
  }

  std::string& text() { return out_; }

 private:
  static std::string Number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(d);
  }

  void NewLine(int depth) {
    if (!pretty_) return;
    out_.push_back('\n');
    for (int k = 0; k < depth; ++k) out_ += indent_;
  }

  void Hex(uint32_t unit) {
    static const char kHex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_.push_back(kHex[(unit >> shift) & 15]);
  }

  void WriteString(std::string_view text) {
    run_->ChargeText(text.size());
    out_.push_back('"');
    for (size_t k = 0; k < text.size();) {
      const size_t start = k;
      const uint32_t c = NextCodePoint(text, &k);
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          if (c < 0x20 || (ascii_ && c >= 0x7F && c < 0x10000)) {
            Hex(c);
          } else if (ascii_ && c >= 0x10000) {
            Hex(0xD800 + ((c - 0x10000) >> 10));
            Hex(0xDC00 + ((c - 0x10000) & 0x3FF));
          } else {
            out_.append(text.substr(start, k - start));
          }
      }
    }
    out_.push_back('"');
  }

  std::string KeyText(const Value& key) const {
    switch (key.type) {
      case Type::kString:
        return std::string(key.str());
      case Type::kNone:
        return "null";
      case Type::kBool:
        return key.b ? "true" : "false";
      case Type::kInt:
        return std::to_string(key.i);
      case Type::kBigInt:
        return std::to_string(key.u);
      case Type::kFloat:
        return Number(key.d);
      default:
        Throw("keys must be str, int, float, bool or None, not " + TypeName(key));
    }
  }

  void WriteDict(const Dict& dict, int depth) {
    std::vector<DictItem> items(dict.items, dict.items + dict.size);
    if (sort_) {
      std::stable_sort(items.begin(), items.end(), [&](const DictItem& a, const DictItem& b) {
        return Compare(run_->meter(), a.key, b.key, "<") == -1;
      });
    }
    out_.push_back('{');
    for (size_t k = 0; k < items.size(); ++k) {
      if (k > 0) out_ += item_separator_;
      NewLine(depth + 1);
      WriteString(KeyText(items[k].key));
      out_ += key_separator_;
      Write(items[k].value, depth + 1);
    }
    if (!items.empty()) NewLine(depth);
    out_.push_back('}');
  }

  void WriteList(std::span<const Value> items, int depth) {
    out_.push_back('[');
    for (size_t k = 0; k < items.size(); ++k) {
      if (k > 0) out_ += item_separator_;
      NewLine(depth + 1);
      Write(items[k], depth + 1);
    }
    if (!items.empty()) NewLine(depth);
    out_.push_back(']');
  }

  Interpreter* run_;
  const bool ascii_;
  const bool sort_;
  bool pretty_ = false;
  std::string indent_;
  std::string item_separator_ = ", ";
  std::string key_separator_ = ": ";
  std::string out_;
};

}  // namespace

Value ToJson(Interpreter& run, const Value& input, const Arguments& args) {
  const BoundArguments options("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Writer writer(&run, options);
  writer.Write(input, 0);
  return run.Text(writer.text());
}

}  // namespace tactus::language::jinja
