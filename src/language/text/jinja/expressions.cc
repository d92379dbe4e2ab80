// Expressions: names, operators, calls, filters and tests, with Python's semantics.
#include <algorithm>

#include "base/markup_text.h"
#include "language/text/jinja/interpreter.h"
#include "language/text/jinja/methods.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {

struct Interpreter::EvaluatedArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keywords;
  Arguments view() const { return {positional, keywords}; }
};

namespace {
const char* Spelling(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSub:
      return "-";
    case Operator::kMul:
      return "*";
    case Operator::kDiv:
      return "/";
    case Operator::kFloorDiv:
      return "//";
    case Operator::kMod:
      return "%";
    case Operator::kLt:
      return "<";
    case Operator::kLe:
      return "<=";
    case Operator::kGt:
      return ">";
    case Operator::kGe:
      return ">=";
    default:
      return "?";
  }
}

[[noreturn]] void ThrowOperands(Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) ThrowUndefined(a);
  if (b.is_undefined()) ThrowUndefined(b);
  Throw(std::string("unsupported operand type(s) for ") + Spelling(op) + ": '" + TypeName(a) + "' and '" + TypeName(b) +
        "'");
}

[[noreturn]] void ThrowUnknown(const char* what, const Expr& e) {
  std::string message = "No ";
  message.append(what).append(" named '").append(e.constant.str()).append("' found.");
  Throw(std::move(message));
}

[[noreturn]] void ThrowOverflow() {
  Throw("integer overflow: the result does not fit 64 bits");
}

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == -1) {
    int64_t out;
    if (__builtin_sub_overflow(int64_t{0}, a, &out)) ThrowOverflow();
    return out;
  }
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t FloorModulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Value ArithmeticOnNumbers(Operator op, const Value& a, const Value& b) {
  if (op == Operator::kDiv) {
    if (b.number() == 0) Throw("division by zero");
    return Value::Float(a.number() / b.number());
  }
  if (a.is_integral() && b.is_integral()) {
    const int64_t x = a.integral(), y = b.integral();
    int64_t out = 0;
    bool overflow = false;
    switch (op) {
      case Operator::kAdd:
        overflow = __builtin_add_overflow(x, y, &out);
        break;
      case Operator::kSub:
        overflow = __builtin_sub_overflow(x, y, &out);
        break;
      case Operator::kMul:
        overflow = __builtin_mul_overflow(x, y, &out);
        break;
      default:
        if (y == 0) Throw("integer division or modulo by zero");
        out = op == Operator::kMod ? FloorModulo(x, y) : FloorDivide(x, y);
    }
    if (overflow) ThrowOverflow();
    return Value::Int(out);
  }
  if (!a.is_float() && !b.is_float()) ThrowBig("arithmetic", a.is_big() ? a : b);
  const double x = a.number(), y = b.number();
  switch (op) {
    case Operator::kAdd:
      return Value::Float(x + y);
    case Operator::kSub:
      return Value::Float(x - y);
    case Operator::kMul:
      return Value::Float(x * y);
    default:
      ThrowUnsupported(std::string("the operator ") + Spelling(op) + " on floats is not supported");
  }
}
}  // namespace

Value Interpreter::Undefined(UndefinedInfo::Kind kind, Value object, Value key) {
  UndefinedInfo* info = heap_.New<UndefinedInfo>();
  info->kind = kind;
  info->object = object;
  info->key = key;
  Value v;
  v.undefined = info;
  return v;
}

Value Interpreter::UndefinedHint(std::string_view hint) {
  UndefinedInfo* info = heap_.New<UndefinedInfo>();
  info->kind = UndefinedInfo::Kind::kHint;
  info->hint = heap_.Copy(hint);
  Value v;
  v.undefined = info;
  return v;
}

std::string Interpreter::ToText(const Value& v) {
  std::string out;
  AppendStr(v, &out, limits_.output_bytes);
  ChargeText(out.size());
  return out;
}

Value Interpreter::ToString(const Value& v) {
  return v.is_string() ? v : Text(ToText(v));
}

bool Interpreter::IsIterable(const Value& v) const {
  return v.is_undefined() || v.is_string() || v.is_seq() || v.is_dict() || v.type == Type::kLoop;
}

std::span<const Value> Interpreter::Iterate(const Value& v) {
  switch (v.type) {
    case Type::kUndefined:
      return {};
    case Type::kString: {
      const std::string_view text = v.str();
      const size_t n = CodePointCount(text);
      Charge(n);
      Value* items = heap_.NewArray<Value>(n);
      size_t k = 0;
      for (size_t at = 0; at < text.size();) {
        const size_t start = at;
        NextCodePoint(text, &at);
        items[k++] = heap_.NewView(text.substr(start, at - start));
      }
      return {items, k};
    }
    case Type::kDict: {
      Charge(v.dict->size);
      Value* items = heap_.NewArray<Value>(v.dict->size);
      for (size_t k = 0; k < v.dict->size; ++k) items[k] = v.dict->items[k].key;
      return {items, v.dict->size};
    }
    case Type::kSeq: {
      const std::span<const Value> items = v.seq->span();
      Charge(items.size());
      if (v.seq->kind != SeqKind::kIterator) return items;
      v.seq->position = v.seq->size;
      if (v.seq->error != nullptr) Throw(*v.seq->error);
      return items;
    }
    default:
      Throw("'" + TypeName(v) + "' object is not iterable");
  }
}

size_t Interpreter::Length(const Value& v) {
  switch (v.type) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      ChargeText(v.s->size);
      return CodePointCount(v.str());
    case Type::kDict:
      return v.dict->size;
    case Type::kLoop:
      return v.loop->size;
    case Type::kSeq:
      if (v.seq->kind != SeqKind::kIterator) return v.seq->size;
      [[fallthrough]];
    default:
      Throw("object of type '" + TypeName(v) + "' has no len()");
  }
}

Value Interpreter::Eval(const Expr& e, Scope* scope) {
  if (++depth_ > limits_.recursion) {
    --depth_;
    ThrowLimit("the template recurses deeper than " + std::to_string(limits_.recursion) + " levels");
  }
  Charge(1);
  try {
    const Value result = EvalNode(e, scope);
    --depth_;
    return result;
  } catch (TemplateError& error) {
    --depth_;
    if (error.line == 0) error.line = e.line;
    throw;
  }
}

Value Interpreter::EvalNode(const Expr& e, Scope* scope) {
  switch (e.kind) {
    case ExprKind::kConst:
      return e.constant;
    case ExprKind::kName:
      return Lookup(e.name, scope);
    case ExprKind::kTuple:
    case ExprKind::kList: {
      Value* items = heap_.NewArray<Value>(e.list.size());
      for (size_t k = 0; k < e.list.size(); ++k) items[k] = Eval(*e.list[k], scope);
      return heap_.NewSeqView(e.kind == ExprKind::kTuple ? SeqKind::kTuple : SeqKind::kList, {items, e.list.size()});
    }
    case ExprKind::kDict:
      return EvalDict(e, scope);
    case ExprKind::kUnary: {
      const Value v = Eval(*e.a, scope);
      if (v.is_undefined()) ThrowUndefined(v);
      if (!v.is_number()) {
        Throw((e.op == Operator::kNeg ? "bad operand type for unary -: '" : "bad operand type for unary +: '") +
              TypeName(v) + "'");
      }
      if (e.op == Operator::kNeg) return Negate(v);
      return v.is_bool() ? Value::Int(v.integral()) : v;
    }
    case ExprKind::kBinary: {
      const Value a = Eval(*e.a, scope);
      return Arithmetic(e.op, a, Eval(*e.b, scope));
    }
    case ExprKind::kConcat:
      return EvalConcat(e, scope);
    case ExprKind::kCompare:
      return EvalCompare(e, scope);
    case ExprKind::kAnd: {
      const Value a = Eval(*e.a, scope);
      return Truthy(a) ? Eval(*e.b, scope) : a;
    }
    case ExprKind::kOr: {
      const Value a = Eval(*e.a, scope);
      return Truthy(a) ? a : Eval(*e.b, scope);
    }
    case ExprKind::kNot:
      return Value::Bool(!Truthy(Eval(*e.a, scope)));
    case ExprKind::kConditional:
      if (Truthy(Eval(*e.a, scope))) return Eval(*e.b, scope);
      if (e.c != nullptr) return Eval(*e.c, scope);
      return UndefinedHint("the inline if-expression on line " + std::to_string(e.line) +
                           " evaluated to false and no else section was defined.");
    case ExprKind::kGetAttr:
      return GetAttribute(*this, Eval(*e.a, scope), e.constant);
    case ExprKind::kGetItem: {
      const Value object = Eval(*e.a, scope);
      if (e.b->kind != ExprKind::kSlice) return GetItem(*this, object, Eval(*e.b, scope));
      Value parts[3] = {Value::None(), Value::None(), Value::None()};
      if (e.b->a != nullptr) parts[0] = Eval(*e.b->a, scope);
      if (e.b->b != nullptr) parts[1] = Eval(*e.b->b, scope);
      if (e.b->c != nullptr) parts[2] = Eval(*e.b->c, scope);
      return GetSlice(*this, object, parts[0], parts[1], parts[2]);
    }
    case ExprKind::kSlice:
      Throw("a slice outside a subscript");
    case ExprKind::kCall:
      return EvalCall(e, scope, nullptr);
    case ExprKind::kFilter: {
      if (e.filter == nullptr) {  // jinja2 also evaluates the operand first
        ThrowUnknown("filter", e);
      }
      return EvalFilter(e, Eval(*e.a, scope), scope);
    }
    case ExprKind::kTest:
      return Value::Bool(EvalTest(e, scope));
  }
  return {};
}

Value Interpreter::EvalDict(const Expr& e, Scope* scope) {
  std::vector<DictItem> items;
  for (size_t k = 0; k + 1 < e.list.size(); k += 2) {
    const Value key = Eval(*e.list[k], scope);
    const Value value = Eval(*e.list[k + 1], scope);
    if (!Hashable(meter_, key)) Throw("unhashable type: '" + TypeName(key) + "'");
    items.push_back({key, value});
  }
  return heap_.NewDict(std::move(items));
}

Value Interpreter::Negate(const Value& v) {
  if (v.is_float()) return Value::Float(-v.d);
  if (v.is_big()) {
    if (v.u == uint64_t{1} << 63) return Value::Int(INT64_MIN);
    ThrowBig("arithmetic", v);
  }
  int64_t out;
  if (__builtin_sub_overflow(int64_t{0}, v.integral(), &out)) ThrowOverflow();
  return Value::Int(out);
}

Value Interpreter::EvalConcat(const Expr& e, Scope* scope) {
  std::string out;
  for (const Expr* part : e.list) AppendStr(Eval(*part, scope), &out, limits_.output_bytes);
  return Text(out);
}

Value Interpreter::EvalCompare(const Expr& e, Scope* scope) {
  Value left = Eval(*e.a, scope);
  bool result = true;
  for (const auto& [op, right_expr] : e.compares) {
    const Value right = Eval(*right_expr, scope);
    switch (op) {
      case Operator::kEq:
        result = Equal(meter_, left, right);
        break;
      case Operator::kNe:
        result = !Equal(meter_, left, right);
        break;
      case Operator::kIn:
        result = Contains(*this, right, left);
        break;
      case Operator::kNotIn:
        result = !Contains(*this, right, left);
        break;
      default: {
        const int order = Compare(meter_, left, right, Spelling(op));  // 2: unordered
        result = op == Operator::kLt   ? order == -1
                 : op == Operator::kLe ? order == -1 || order == 0
                 : op == Operator::kGt ? order == 1
                                       : order == 1 || order == 0;
      }
    }
    if (!result) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(result);
}

Value Interpreter::Repeat(const Value& v, int64_t count) {
  const size_t n = count < 0 ? 0 : static_cast<size_t>(count);
  if (v.is_string()) {
    if (v.s->size != 0 && n > limits_.output_bytes / v.s->size) {
      ThrowLimit("a text repeated " + std::to_string(count) + " times is longer than " +
                 std::to_string(limits_.output_bytes >> 20) + " MiB");
    }
    std::string out;
    out.reserve(n * v.s->size);
    if (v.s->size != 0) {
      for (size_t k = 0; k < n; ++k) out.append(v.str());
    }
    return Text(out, v.s->markup);
  }
  const Seq& seq = *v.seq;
  const size_t most = static_cast<size_t>(limits_.range_items) * 10;
  if (seq.size != 0 && n > most / seq.size) ThrowLimit("a list of more than " + std::to_string(most) + " items");
  const size_t total = seq.size == 0 ? 0 : n * seq.size;
  Charge(total);
  Value* items = heap_.NewArray<Value>(total);
  for (size_t k = 0; k < total; ++k) items[k] = seq.items[k % seq.size];
  return heap_.NewSeqView(seq.kind, {items, total});
}

Value Interpreter::Add(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return ArithmeticOnNumbers(Operator::kAdd, a, b);
  if (a.is_string() && b.is_string()) {
    if (a.s->size + b.s->size > limits_.output_bytes) {
      ThrowLimit("a text of more than " + std::to_string(limits_.output_bytes >> 20) + " MiB");
    }
    const bool markup = a.s->markup || b.s->markup;
    std::string out = markup && !a.s->markup ? EscapeMarkup(a.str()) : std::string(a.str());
    out += markup && !b.s->markup ? EscapeMarkup(b.str()) : std::string(b.str());
    return Text(out, markup);
  }
  const auto plain = [](const Value& v) {
    return v.is_seq() && (v.seq->kind == SeqKind::kList || v.seq->kind == SeqKind::kTuple);
  };
  if (plain(a) && plain(b) && a.seq->kind == b.seq->kind) {
    const size_t n = a.seq->size + b.seq->size;
    Charge(n);
    Value* items = heap_.NewArray<Value>(n);
    std::copy(a.seq->items, a.seq->items + a.seq->size, items);
    std::copy(b.seq->items, b.seq->items + b.seq->size, items + a.seq->size);
    return heap_.NewSeqView(a.seq->kind, {items, n});
  }
  if (a.is_undefined()) ThrowUndefined(a);
  if (b.is_undefined()) ThrowUndefined(b);
  if (a.is_string()) Throw("can only concatenate str (not \"" + TypeName(b) + "\") to str");
  if (plain(a)) {
    const std::string type = TypeName(a);
    Throw("can only concatenate " + type + " (not \"" + TypeName(b) + "\") to " + type);
  }
  ThrowOperands(Operator::kAdd, a, b);
}

Value Interpreter::Arithmetic(Operator op, const Value& a, const Value& b) {
  if (op == Operator::kAdd) return Add(a, b);
  if (a.is_undefined()) ThrowUndefined(a);
  if (op == Operator::kMod && a.is_string()) ThrowUnsupported("the operator % on a text is not supported");
  if (a.is_number() && b.is_number()) return ArithmeticOnNumbers(op, a, b);
  if (op == Operator::kMul) {
    const auto repeats = [](const Value& v) {
      return v.is_string() || (v.is_seq() && (v.seq->kind == SeqKind::kList || v.seq->kind == SeqKind::kTuple));
    };
    for (const Value* v : {&a, &b}) {
      if (v->is_big()) ThrowBig("arithmetic", *v);
    }
    if (repeats(a) && b.is_integral()) return Repeat(a, b.integral());
    if (repeats(b) && a.is_integral()) return Repeat(b, a.integral());
    if (!b.is_undefined() && (repeats(a) || repeats(b))) {
      Throw("can't multiply sequence by non-int of type '" + TypeName(repeats(a) ? b : a) + "'");
    }
  }
  ThrowOperands(op, a, b);
}

void Interpreter::EvalArgs(const CallArgs& args, Scope* scope, EvaluatedArgs* out) {
  for (const Expr* e : args.positional) out->positional.push_back(Eval(*e, scope));
  if (args.star != nullptr) {
    const std::span<const Value> items = Iterate(Eval(*args.star, scope));
    out->positional.insert(out->positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, e] : args.keywords) out->keywords.emplace_back(name->view(), Eval(*e, scope));
  if (args.double_star == nullptr) return;
  const Value more = Eval(*args.double_star, scope);
  if (!more.is_dict()) Throw("argument after ** must be a mapping, not " + TypeName(more));
  const std::span<const std::pair<const Str*, const Expr*>> named = args.keywords;  // a dict's own keys are distinct
  for (size_t k = 0; k < more.dict->size; ++k) {
    Charge(named.size() + 1);
    const DictItem& item = more.dict->items[k];
    if (!item.key.is_string()) Throw("keywords must be strings");
    for (const auto& [spelling, e] : named) {
      const std::string_view name = spelling->view();
      if (name == item.key.str()) Throw("got multiple values for keyword argument '" + std::string(name) + "'");
    }
    out->keywords.emplace_back(item.key.str(), item.value);
  }
}

Value Interpreter::EvalCall(const Expr& e, Scope* scope, const Value* caller) {
  const Value callee = Eval(*e.a, scope);
  EvaluatedArgs args;
  EvalArgs(e.args, scope, &args);
  if (caller != nullptr) args.keywords.emplace_back("caller", *caller);
  return Call(callee, args.view());
}

Value Interpreter::Call(const Value& callee, const Arguments& args) {
  switch (callee.type) {
    case Type::kUndefined:
      if (callee.undefined != nullptr && callee.undefined->kind == UndefinedInfo::Kind::kName &&
          IsUnsupportedFunction(callee.undefined->key.str())) {
        ThrowUnsupported("the function '" + std::string(callee.undefined->key.str()) + "' is not supported");
      }
      ThrowUndefined(callee);
    case Type::kMacro:
      return CallMacro(*callee.macro, args);
    case Type::kFunction:
      return CallFunction(*this, callee.function, args);
    case Type::kMethod:
      return CallMethod(*this, *callee.method, args);
    default:
      Throw("'" + TypeName(callee) + "' object is not callable");
  }
}

Value Interpreter::EvalFilter(const Expr& e, const Value& input, Scope* scope) {
  EvaluatedArgs args;
  EvalArgs(e.args, scope, &args);
  return e.filter->apply(*this, input, args.view());
}

// Filters of a block: the innermost has no operand and receives the block's text.
Value Interpreter::EvalFilterChain(const Expr& e, const Value& text, Scope* scope) {
  const Value input = e.a == nullptr ? text : EvalFilterChain(*e.a, text, scope);
  if (e.filter == nullptr) ThrowUnknown("filter", e);
  return EvalFilter(e, input, scope);
}

bool Interpreter::EvalTest(const Expr& e, Scope* scope) {
  if (e.test == nullptr) ThrowUnknown("test", e);
  const Value input = Eval(*e.a, scope);
  EvaluatedArgs args;
  EvalArgs(e.args, scope, &args);
  return e.test->apply(*this, input, args.view());
}

Value Interpreter::ApplyFilter(std::string_view name, const Value& input, const Arguments& args) {
  const FilterEntry* entry = FindFilter(name);
  if (entry == nullptr && IsUnsupportedFilter(name)) {
    ThrowUnsupported("the filter '" + std::string(name) + "' is not supported");
  }
  if (entry == nullptr) Throw("No filter named '" + std::string(name) + "'.");
  return entry->apply(*this, input, args);
}

bool Interpreter::ApplyTest(std::string_view name, const Value& input, const Arguments& args) {
  const TestEntry* entry = FindTest(name);
  if (entry == nullptr && IsUnsupportedTest(name)) {
    ThrowUnsupported("the test '" + std::string(name) + "' is not supported");
  }
  if (entry == nullptr) Throw("No test named '" + std::string(name) + "'.");
  return entry->apply(*this, input, args);
}

}  // namespace tactus::language::jinja
