// Expressions of the template language: a token cursor, node building and jinja2's expression grammar. parser.cc adds
// the statements. Unknown names of filters and tests become errors once the statement around them is known.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "language/text/jinja/ast.h"
#include "language/text/jinja/builtins.h"
#include "language/text/jinja/lexer.h"

namespace tactus::language::jinja {

inline constexpr int kMaxExpressionDepth = 400;  // of the tree; a chain a + b + c + ... counts one per term

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source)
      : tokens_(Tokenize(source)), program_(std::make_unique<Program>()) {}

  // A filter or test unknown to jinja2 as well: inside an if it is an error at run time only.
  struct Pending {
    std::string message;
    int line;
    bool soft;
  };
  // Special names used in the enclosing macro bodies.
  struct Use {
    bool caller = false, varargs = false, kwargs = false;
  };

  // --- tokens
  const Token& Current() const { return tokens_[pos_]; }
  const Token& Look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& Next() {
    const Token& token = tokens_[pos_];
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  [[noreturn]] void Fail(std::string message, int line) const {
    throw TemplateError{TemplateError::Kind::kSyntax, std::move(message), line};
  }
  [[noreturn]] void Unsupported(std::string message, int line) const {
    throw TemplateError{TemplateError::Kind::kUnsupported, std::move(message), line};
  }
  bool IsName(std::string_view name) const { return Current().type == TokenType::kName && Current().text == name; }
  bool IsOp(std::string_view op) const { return Current().type == TokenType::kOperator && Current().text == op; }
  bool SkipName(std::string_view name) { return IsName(name) && (Next(), true); }
  bool SkipOp(std::string_view op) { return IsOp(op) && (Next(), true); }
  [[noreturn]] void FailExpected(std::string_view what) const {
    if (Current().type == TokenType::kEnd) {
      Fail("unexpected end of template, expected '" + std::string(what) + "'.", Current().line);
    }
    Fail("expected token '" + std::string(what) + "', got '" + DescribeToken(Current()) + "'", Current().line);
  }
  void ExpectOp(std::string_view op) {
    if (!SkipOp(op)) FailExpected(op);
  }
  const Token& ExpectName() {
    if (Current().type != TokenType::kName) FailExpected("name");
    return Next();
  }
  void Expect(TokenType type) {
    if (Current().type != type) FailExpected(DescribeToken(Token{type, 0, {}, 0, 0}));
    Next();
  }

  // --- nodes
  Expr* NewExpr(ExprKind kind, int line) {
    program_->exprs.emplace_back();
    Expr* e = &program_->exprs.back();
    e->kind = kind;
    e->line = line;
    return e;
  }
  Stmt* NewStmt(StmtKind kind, int line) {
    program_->stmts.emplace_back();
    Stmt* s = &program_->stmts.back();
    s->kind = kind;
    s->line = line;
    return s;
  }
  void Deepen(Expr* e, const Expr* child) const {
    if (child == nullptr) return;
    e->depth = std::max(e->depth, child->depth + 1);
    if (e->depth > kMaxExpressionDepth) {
      Fail("an expression is nested deeper than " + std::to_string(kMaxExpressionDepth), e->line);
    }
  }
  Expr* Finish(Expr* e) const {
    for (const Expr* child : {e->a, e->b, e->c, e->args.star, e->args.double_star}) Deepen(e, child);
    for (const Expr* child : e->list) Deepen(e, child);
    for (const auto& [op, child] : e->compares) Deepen(e, child);
    for (const Expr* child : e->args.positional) Deepen(e, child);
    for (const auto& [name, child] : e->args.keywords) Deepen(e, child);
    return e;
  }
  Expr* Binary(ExprKind kind, Operator op, const Expr* a, const Expr* b, int line) {
    Expr* e = NewExpr(kind, line);
    e->op = op;
    e->a = a;
    e->b = b;
    return Finish(e);
  }
  Expr* Constant(Value value, int line) {
    Expr* e = NewExpr(ExprKind::kConst, line);
    e->constant = value;
    return e;
  }
  struct Nested {  // recursion of the parser itself
    explicit Nested(ExpressionParser* parser) : parser_(parser) {
      if (++parser_->nesting_ > kMaxExpressionDepth) {
        parser_->Fail("an expression is nested deeper than " + std::to_string(kMaxExpressionDepth),
                      parser_->Current().line);
      }
    }
    ~Nested() { --parser_->nesting_; }
    ExpressionParser* parser_;
  };
  void NoteUse(const std::string& name) {
    for (Use* use : uses_) {
      if (name == "caller") use->caller = true;
      if (name == "varargs") use->varargs = true;
      if (name == "kwargs") use->kwargs = true;
    }
  }
  bool IsTupleEnd(std::string_view end_name) const {
    return Current().type == TokenType::kVariableEnd || Current().type == TokenType::kBlockEnd || IsOp(")") ||
           (!end_name.empty() && IsName(end_name));
  }

  // --- expressions
  const Expr* ParseTuple(bool with_condexpr, std::string_view end_name, bool parentheses);
  const Expr* ParseExpression(bool with_condexpr);
  const Expr* ParseConditional();
  const Expr* ParseOr();
  const Expr* ParseAnd();
  const Expr* ParseNot();
  const Expr* ParseCompare();
  const Expr* ParseSum();
  const Expr* ParseConcat();
  const Expr* ParseProduct();
  const Expr* ParseUnary(bool with_filter);
  const Expr* ParsePrimary();
  const Expr* ParseList();
  const Expr* ParseDict();
  const Expr* ParsePostfix(const Expr* e);
  const Expr* ParseFilterExpression(const Expr* e);
  const Expr* ParseSubscript(const Expr* object);
  const Expr* ParseSubscribed();
  CallArgs ParseCallArgs();
  const Expr* ParseCall(const Expr* callee);
  std::string ParseDottedName();
  const FilterEntry* ResolveFilter(const std::string& name, int line);
  const Expr* ParseFilters(const Expr* e, bool inline_start);
  const Expr* ParseTest(const Expr* e);

  const std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
  bool soft_ = false;  // directly inside an if
  std::vector<Pending> pending_;
  std::vector<Use*> uses_;
  std::unique_ptr<Program> program_;
};

}  // namespace tactus::language::jinja
