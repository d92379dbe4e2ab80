#include "language/text/jinja/expression_parser.h"

#include "language/text/jinja/methods.h"

namespace tactus::language::jinja {

const Expr* ExpressionParser::ParseTuple(bool with_condexpr, std::string_view end_name, bool parentheses) {
  const int line = Current().line;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOp(",");
    if (IsTupleEnd(end_name)) break;
    items.push_back(ParseExpression(with_condexpr));
    if (!IsOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!parentheses) Fail("Expected an expression, got '" + DescribeToken(Current()) + "'", line);
  }
  Expr* e = NewExpr(ExprKind::kTuple, line);
  e->list = std::move(items);
  return Finish(e);
}

const Expr* ExpressionParser::ParseExpression(bool with_condexpr) {
  const Nested nested(this);
  return with_condexpr ? ParseConditional() : ParseOr();
}

const Expr* ExpressionParser::ParseConditional() {
  const Nested nested(this);
  const size_t pending_before = pending_.size();
  int line = Current().line;
  const Expr* result = ParseOr();
  while (SkipName("if")) {
    Expr* e = NewExpr(ExprKind::kConditional, line);
    e->b = result;
    e->a = ParseOr();
    if (SkipName("else")) e->c = ParseConditional();
    result = Finish(e);
    line = Current().line;
    for (size_t k = pending_before; k < pending_.size(); ++k) pending_[k].soft = true;
  }
  return result;
}

const Expr* ExpressionParser::ParseOr() {
  const int line = Current().line;
  const Expr* left = ParseAnd();
  while (SkipName("or")) left = Binary(ExprKind::kOr, Operator::kAdd, left, ParseAnd(), line);
  return left;
}

const Expr* ExpressionParser::ParseAnd() {
  const int line = Current().line;
  const Expr* left = ParseNot();
  while (SkipName("and")) left = Binary(ExprKind::kAnd, Operator::kAdd, left, ParseNot(), line);
  return left;
}

const Expr* ExpressionParser::ParseNot() {
  const Nested nested(this);
  if (IsName("not")) {
    const int line = Next().line;
    return Binary(ExprKind::kNot, Operator::kAdd, ParseNot(), nullptr, line);
  }
  return ParseCompare();
}

const Expr* ExpressionParser::ParseCompare() {
  const int line = Current().line;
  const Expr* first = ParseSum();
  std::vector<std::pair<Operator, const Expr*>> compares;
  static const std::pair<std::string_view, Operator> kCompares[] = {{"==", Operator::kEq}, {"!=", Operator::kNe},
                                                                    {"<", Operator::kLt},  {"<=", Operator::kLe},
                                                                    {">", Operator::kGt},  {">=", Operator::kGe}};
  while (true) {
    const size_t before = compares.size();
    for (const auto& [spelling, op] : kCompares) {
      if (SkipOp(spelling)) {
        compares.emplace_back(op, ParseSum());
        break;
      }
    }
    if (compares.size() > before) continue;
    if (SkipName("in")) {
      compares.emplace_back(Operator::kIn, ParseSum());
    } else if (IsName("not") && Look().type == TokenType::kName && Look().text == "in") {
      Next();
      Next();
      compares.emplace_back(Operator::kNotIn, ParseSum());
    } else {
      break;
    }
  }
  if (compares.empty()) return first;
  Expr* e = NewExpr(ExprKind::kCompare, line);
  e->a = first;
  e->compares = std::move(compares);
  return Finish(e);
}

const Expr* ExpressionParser::ParseSum() {
  const int line = Current().line;
  const Expr* left = ParseConcat();
  while (IsOp("+") || IsOp("-")) {
    const Operator op = Next().text == "+" ? Operator::kAdd : Operator::kSub;
    left = Binary(ExprKind::kBinary, op, left, ParseConcat(), line);
  }
  return left;
}

const Expr* ExpressionParser::ParseConcat() {
  const int line = Current().line;
  const Expr* first = ParseProduct();
  if (!IsOp("~")) return first;
  Expr* e = NewExpr(ExprKind::kConcat, line);
  e->list.push_back(first);
  while (SkipOp("~")) e->list.push_back(ParseProduct());
  return Finish(e);
}

const Expr* ExpressionParser::ParseProduct() {
  const int line = Current().line;
  const Expr* left = ParseUnary(true);
  static const std::pair<std::string_view, Operator> kOps[] = {
      {"*", Operator::kMul}, {"/", Operator::kDiv}, {"//", Operator::kFloorDiv}, {"%", Operator::kMod}};
  while (true) {
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& entry) { return IsOp(entry.first); });
    if (op == std::end(kOps)) {
      if (IsOp("**")) Unsupported("the operator ** is not supported", Current().line);
      return left;
    }
    Next();
    left = Binary(ExprKind::kBinary, op->second, left, ParseUnary(true), line);
  }
}

const Expr* ExpressionParser::ParseUnary(bool with_filter) {
  const Nested nested(this);
  const int line = Current().line;
  const Expr* e;
  if (SkipOp("-")) {
    e = Binary(ExprKind::kUnary, Operator::kNeg, ParseUnary(false), nullptr, line);
  } else if (SkipOp("+")) {
    e = Binary(ExprKind::kUnary, Operator::kPos, ParseUnary(false), nullptr, line);
  } else {
    e = ParsePrimary();
  }
  e = ParsePostfix(e);
  return with_filter ? ParseFilterExpression(e) : e;
}

const Expr* ExpressionParser::ParsePrimary() {
  const Token& token = Current();
  Heap& heap = program_->literals;
  switch (token.type) {
    case TokenType::kName: {
      Next();
      if (token.text == "true" || token.text == "True") return Constant(Value::Bool(true), token.line);
      if (token.text == "false" || token.text == "False") return Constant(Value::Bool(false), token.line);
      if (token.text == "none" || token.text == "None") return Constant(Value::None(), token.line);
      NoteUse(token.text);
      Expr* e = NewExpr(ExprKind::kName, token.line);
      e->name = program_->Intern(token.text);
      return e;
    }
    case TokenType::kString: {
      std::string text;
      while (Current().type == TokenType::kString) text += Next().text;
      return Constant(heap.NewString(text), token.line);
    }
    case TokenType::kInteger:
      Next();
      return Constant(Value::Int(token.integer), token.line);
    case TokenType::kFloat:
      Next();
      return Constant(Value::Float(token.number), token.line);
    default:
      break;
  }
  if (SkipOp("(")) {
    const Expr* e = ParseTuple(true, {}, true);
    ExpectOp(")");
    return e;
  }
  if (IsOp("[")) return ParseList();
  if (IsOp("{")) return ParseDict();
  Fail("unexpected '" + DescribeToken(token) + "'", token.line);
}

const Expr* ExpressionParser::ParseList() {
  Expr* e = NewExpr(ExprKind::kList, Next().line);
  while (!IsOp("]")) {
    if (!e->list.empty()) ExpectOp(",");
    if (IsOp("]")) break;
    e->list.push_back(ParseExpression(true));
  }
  ExpectOp("]");
  return Finish(e);
}

const Expr* ExpressionParser::ParseDict() {
  Expr* e = NewExpr(ExprKind::kDict, Next().line);
  while (!IsOp("}")) {
    if (!e->list.empty()) ExpectOp(",");
    if (IsOp("}")) break;
    e->list.push_back(ParseExpression(true));
    ExpectOp(":");
    e->list.push_back(ParseExpression(true));
  }
  ExpectOp("}");
  return Finish(e);
}

const Expr* ExpressionParser::ParsePostfix(const Expr* e) {
  while (true) {
    if (IsOp(".") || IsOp("[")) {
      e = ParseSubscript(e);
    } else if (IsOp("(")) {
      e = ParseCall(e);
    } else {
      return e;
    }
  }
}

const Expr* ExpressionParser::ParseFilterExpression(const Expr* e) {
  while (true) {
    if (IsOp("|")) {
      e = ParseFilters(e, false);
    } else if (IsName("is")) {
      e = ParseTest(e);
    } else if (IsOp("(")) {
      e = ParseCall(e);
    } else {
      return e;
    }
  }
}

const Expr* ExpressionParser::ParseSubscript(const Expr* object) {
  const Token& token = Next();
  Expr* e = NewExpr(ExprKind::kGetItem, token.line);
  e->a = object;
  if (token.text == ".") {
    const Token& attribute = Next();
    if (attribute.type == TokenType::kName) {
      e->kind = ExprKind::kGetAttr;
      e->constant = program_->literals.NewString(attribute.text);
    } else if (attribute.type == TokenType::kInteger) {
      e->b = Constant(Value::Int(attribute.integer), attribute.line);
    } else {
      Fail("expected name or number", attribute.line);
    }
    return Finish(e);
  }
  std::vector<const Expr*> items;
  while (!IsOp("]")) {
    if (!items.empty()) ExpectOp(",");
    items.push_back(ParseSubscribed());
  }
  ExpectOp("]");
  if (items.size() == 1) {
    e->b = items[0];
  } else {
    Expr* tuple = NewExpr(ExprKind::kTuple, token.line);
    tuple->list = std::move(items);
    for (const Expr* item : tuple->list) {
      if (item->kind == ExprKind::kSlice) Fail("a slice inside a tuple subscript", token.line);
    }
    e->b = Finish(tuple);
  }
  return Finish(e);
}

const Expr* ExpressionParser::ParseSubscribed() {
  const int line = Current().line;
  const Expr* first = nullptr;
  if (!IsOp(":")) {
    first = ParseExpression(true);
    if (!IsOp(":")) return first;
  }
  ExpectOp(":");
  const auto at_end = [&] { return IsOp(":") || IsOp("]") || IsOp(","); };
  Expr* e = NewExpr(ExprKind::kSlice, line);
  e->a = first;
  if (!at_end()) e->b = ParseExpression(true);
  if (SkipOp(":") && !at_end()) e->c = ParseExpression(true);
  return Finish(e);
}

CallArgs ExpressionParser::ParseCallArgs() {
  const int line = Current().line;
  ExpectOp("(");
  CallArgs args;
  bool comma = false;
  const auto ensure = [&](bool legal) {
    if (!legal) Fail("invalid syntax for function call expression", line);
  };
  while (!IsOp(")")) {
    if (comma) {
      ExpectOp(",");
      if (IsOp(")")) break;
    }
    if (SkipOp("*")) {
      ensure(args.star == nullptr && args.double_star == nullptr);
      args.star = ParseExpression(true);
    } else if (SkipOp("**")) {
      ensure(args.double_star == nullptr);
      args.double_star = ParseExpression(true);
    } else if (Current().type == TokenType::kName && Look().type == TokenType::kOperator && Look().text == "=") {
      ensure(args.double_star == nullptr);
      const Token& name = Next();
      Next();
      for (const auto& [other, value] : args.keywords) {
        if (other->view() == name.text) Fail("keyword argument repeated: " + name.text, name.line);
      }
      args.keywords.emplace_back(program_->literals.Copy(name.text), ParseExpression(true));
    } else {
      ensure(args.star == nullptr && args.double_star == nullptr && args.keywords.empty());
      args.positional.push_back(ParseExpression(true));
    }
    comma = true;
  }
  ExpectOp(")");
  return args;
}

const Expr* ExpressionParser::ParseCall(const Expr* callee) {
  Expr* e = NewExpr(ExprKind::kCall, Current().line);
  e->a = callee;
  if (callee->kind == ExprKind::kGetAttr && IsUnsupportedMethod(callee->constant.str())) {
    Unsupported("the method '" + std::string(callee->constant.str()) + "' is not supported", e->line);
  }
  e->args = ParseCallArgs();
  return Finish(e);
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = ExpectName().text;
  while (SkipOp(".")) name += "." + ExpectName().text;
  return name;
}

const FilterEntry* ExpressionParser::ResolveFilter(const std::string& name, int line) {
  const FilterEntry* entry = FindFilter(name);
  if (entry != nullptr) return entry;
  if (IsUnsupportedFilter(name)) Unsupported("the filter '" + name + "' is not supported", line);
  pending_.push_back({"No filter named '" + name + "'.", line, soft_});
  return nullptr;
}

const Expr* ExpressionParser::ParseFilters(const Expr* e, bool inline_start) {
  while (inline_start || IsOp("|")) {
    if (!inline_start) Next();
    inline_start = false;
    Expr* filter = NewExpr(ExprKind::kFilter, Current().line);
    const std::string name = ParseDottedName();
    filter->a = e;
    filter->constant = program_->literals.NewString(name);
    filter->filter = ResolveFilter(name, filter->line);
    if (IsOp("(")) filter->args = ParseCallArgs();
    // map('name') and select('name'): the name is as static as the filter's own name.
    const auto constant_text = [&](size_t k) {
      const auto& list = filter->args.positional;
      return k < list.size() && list[k]->kind == ExprKind::kConst && list[k]->constant.is_string()
                 ? std::string(list[k]->constant.str())
                 : std::string();
    };
    const std::string mapped = name == "map" ? constant_text(0) : std::string();
    if (IsUnsupportedFilter(mapped)) {
      Unsupported("the filter '" + mapped + "' is not supported", filter->line);
    }
    e = Finish(filter);
  }
  return e;
}

const Expr* ExpressionParser::ParseTest(const Expr* e) {
  Expr* test = NewExpr(ExprKind::kTest, Next().line);
  const bool negated = SkipName("not");
  const std::string name = ParseDottedName();
  test->a = e;
  test->constant = program_->literals.NewString(name);
  test->test = FindTest(name);
  if (IsUnsupportedTest(name)) Unsupported("the test '" + name + "' is not supported", test->line);
  if (test->test == nullptr) pending_.push_back({"No test named '" + name + "'.", test->line, soft_});
  const Token& next = Current();
  const bool starts_argument = next.type == TokenType::kName || next.type == TokenType::kString ||
                               next.type == TokenType::kInteger || next.type == TokenType::kFloat || IsOp("[") ||
                               IsOp("{");
  if (IsOp("(")) {
    test->args = ParseCallArgs();
  } else if (starts_argument && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) Fail("You cannot chain multiple tests with is", next.line);
    test->args.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  const Expr* result = Finish(test);
  return negated ? Binary(ExprKind::kNot, Operator::kAdd, result, nullptr, test->line) : result;
}

}  // namespace tactus::language::jinja
