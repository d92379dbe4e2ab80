// Tokens to a syntax tree: jinja2's grammar, plus the checks that its compiler makes before anything runs. What jinja2 has
// and this interpreter lacks is refused here, by name and line.
#include <algorithm>
#include <initializer_list>

#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"
#include "text/jinja/methods.h"

namespace tactus::jinja {
namespace {

constexpr int kMaxExpressionDepth = 400;   // of the tree; a chain a + b + c + ... counts one per term
constexpr int kMaxStatementDepth = 60;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Tokenize(source)), program_(std::make_unique<Program>()) {}

  std::unique_ptr<Program> Run() {
    program_->body = SubParse({});
    for (const Pending& pending : pending_) {
      if (!pending.soft) Fail(pending.message, pending.line);
    }
    return std::move(program_);
  }

 private:
  using EndTags = std::initializer_list<std::string_view>;
  // A filter or test that jinja2 does not know either: inside an if it is an error only when it runs.
  struct Pending {
    std::string message;
    int line;
    bool soft;
  };
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
    explicit Nested(Parser* parser) : parser_(parser) {
      if (++parser_->nesting_ > kMaxExpressionDepth) {
        parser_->Fail("an expression is nested deeper than " + std::to_string(kMaxExpressionDepth), parser_->Current().line);
      }
    }
    ~Nested() { --parser_->nesting_; }
    Parser* parser_;
  };
  void NoteUse(const std::string& name) {
    for (Use* use : uses_) {
      if (name == "caller") use->caller = true;
      if (name == "varargs") use->varargs = true;
      if (name == "kwargs") use->kwargs = true;
    }
  }

  // --- statements
  Body SubParse(EndTags end_tags) {
    Body body;
    Stmt* output = nullptr;
    while (Current().type != TokenType::kEnd) {
      const Token& token = Current();
      if (token.type == TokenType::kData) {
        Stmt* data = NewStmt(StmtKind::kData, token.line);
        data->text = program_->literals.Copy(token.text);
        body.push_back(data);
        output = nullptr;
        Next();
      } else if (token.type == TokenType::kVariableBegin) {
        Next();
        if (output == nullptr) {
          output = NewStmt(StmtKind::kOutput, token.line);
          body.push_back(output);
        }
        output->exprs.push_back(ParseTuple(true, {}, false));
        Expect(TokenType::kVariableEnd);
      } else {
        output = nullptr;
        Expect(TokenType::kBlockBegin);
        for (const std::string_view tag : end_tags) {
          if (IsName(tag)) return body;
        }
        ParseStatement(&body);
        Expect(TokenType::kBlockEnd);
      }
    }
    if (end_tags.size() > 0) FailUnknownTag(nullptr);
    return body;
  }

  // Leaves the end tag's name as the current token.
  Body ParseStatements(EndTags end_tags) {
    SkipOp(":");
    Expect(TokenType::kBlockEnd);
    end_tag_stack_.emplace_back(end_tags.begin(), end_tags.end());
    if (end_tag_stack_.size() > kMaxStatementDepth) {
      Fail("blocks are nested deeper than " + std::to_string(kMaxStatementDepth), Current().line);
    }
    Body body = SubParse(end_tags);
    end_tag_stack_.pop_back();
    return body;
  }
  Body ParseStatementsAndDrop(EndTags end_tags) {
    Body body = ParseStatements(end_tags);
    Next();
    return body;
  }

  [[noreturn]] void FailUnknownTag(const Token* tag) const {
    std::string message = tag == nullptr ? "Unexpected end of template." : "Encountered unknown tag '" + tag->text + "'.";
    std::string looking;
    bool misnested = false;
    if (!end_tag_stack_.empty()) {
      for (const std::string_view name : end_tag_stack_.back()) {
        looking += (looking.empty() ? "'" : " or '") + std::string(name) + "'";
      }
      for (const auto& level : end_tag_stack_) {
        for (const std::string_view name : level) misnested = misnested || (tag != nullptr && tag->text == name);
      }
      message += misnested ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " +
                                 looking + "."
                           : " Jinja was looking for the following tags: " + looking + ".";
    }
    if (!tag_stack_.empty()) message += " The innermost block that needs to be closed is '" + tag_stack_.back() + "'.";
    Fail(std::move(message), tag == nullptr ? Current().line : tag->line);
  }

  void ParseStatement(Body* body) {
    const Token& tag = Current();
    if (tag.type != TokenType::kName) Fail("tag name expected", tag.line);
    using Parse = Stmt* (Parser::*)();
    static const std::pair<std::string_view, Parse> kTags[] = {
        {"if", &Parser::ParseIf},           {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},         {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},  {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},       {"print", &Parser::ParsePrint},
        {"generation", &Parser::ParseGeneration}, {"break", &Parser::ParseLoopControl},
        {"continue", &Parser::ParseLoopControl}};
    for (const auto& [name, parse] : kTags) {
      if (tag.text != name) continue;
      tag_stack_.push_back(tag.text);
      body->push_back((this->*parse)());
      tag_stack_.pop_back();
      return;
    }
    for (const std::string_view name : {"block", "extends", "include", "import", "from", "autoescape"}) {
      if (tag.text == name) Unsupported("the tag '" + tag.text + "' is not supported in chat templates", tag.line);
    }
    FailUnknownTag(&tag);
  }

  // Parses with `soft_` and the loop depth as the frame of the construct has them.
  template <class F>
  auto InFrame(bool soft, int loop_depth, F parse) {
    const bool soft_before = std::exchange(soft_, soft);
    const int loops_before = std::exchange(loop_depth_, loop_depth);
    auto result = parse();
    soft_ = soft_before;
    loop_depth_ = loops_before;
    return result;
  }

  Stmt* ParseIf() {
    Stmt* s = NewStmt(StmtKind::kIf, Next().line);
    while (true) {
      const bool last = InFrame(true, loop_depth_, [&] {
        const Expr* test = ParseTuple(false, {}, false);
        s->branches.emplace_back(test, ParseStatements({"elif", "else", "endif"}));
        if (SkipName("elif")) return false;
        if (SkipName("else")) {
          s->otherwise = ParseStatementsAndDrop({"endif"});
        } else {
          Next();
        }
        return true;
      });
      if (last) return s;
    }
  }

  Stmt* ParseFor() {
    Stmt* s = NewStmt(StmtKind::kFor, Next().line);
    s->target = ParseTarget(true, false, "in");
    CheckLoopTarget(s->target);
    if (!SkipName("in")) FailExpected("in");
    s->value = ParseTuple(false, "recursive", false);
    if (SkipName("if")) {
      s->test = InFrame(false, loop_depth_, [&] { return ParseExpression(true); });
    }
    s->recursive = SkipName("recursive");
    for_bodies_++;
    s->body = InFrame(false, loop_depth_ + 1, [&] { return ParseStatements({"endfor", "else"}); });
    for_bodies_--;
    if (SkipName("else")) {
      s->otherwise = InFrame(false, loop_depth_, [&] { return ParseStatementsAndDrop({"endfor"}); });
    } else {
      Next();
    }
    return s;
  }

  void CheckLoopTarget(const Target& target) const {
    for (const Target& item : target.items) CheckLoopTarget(item);
    if (target.kind == Target::Kind::kName && program_->names[static_cast<size_t>(target.name)] == "loop") {
      Fail("Can't assign to special loop variable in for-loop target", target.line);
    }
  }

  Stmt* ParseSet() {
    const int line = Next().line;
    Target target = ParseTarget(true, true, {});
    if (for_bodies_ > 0) CheckLoopTarget(target);
    Stmt* s = NewStmt(StmtKind::kSet, line);
    s->target = std::move(target);
    if (SkipOp("=")) {
      s->value = ParseTuple(true, {}, false);
      return s;
    }
    s->kind = StmtKind::kSetBlock;
    InFrame(false, loop_depth_, [&] {
      s->value = ParseFilters(nullptr, false);
      s->body = ParseStatementsAndDrop({"endset"});
      return 0;
    });
    return s;
  }

  void ParseSignature(Signature* signature) {
    ExpectOp("(");
    while (!IsOp(")")) {
      if (!signature->names.empty()) ExpectOp(",");
      const Token& token = ExpectName();
      CheckAssignable(token);
      const NameId id = program_->Intern(token.text);
      if (std::find(signature->names.begin(), signature->names.end(), id) != signature->names.end()) {
        Fail("duplicate argument '" + token.text + "' in a signature", token.line);
      }
      if (token.text == "caller") signature->caller_index = static_cast<int>(signature->names.size());
      if (SkipOp("=")) {
        signature->defaults.push_back(ParseExpression(true));
      } else if (!signature->defaults.empty()) {
        Fail("non-default argument follows default argument", token.line);
      }
      signature->names.push_back(id);
      signature->spellings.push_back(program_->literals.Copy(token.text));
    }
    ExpectOp(")");
  }

  void ParseCallable(Stmt* s, std::string_view end_tag) {
    Use use;
    uses_.push_back(&use);
    const int for_bodies = std::exchange(for_bodies_, 0);
    s->body = InFrame(false, 0, [&] { return ParseStatementsAndDrop({end_tag}); });
    for_bodies_ = for_bodies;
    uses_.pop_back();
    Signature& signature = s->signature;
    const auto declared = [&](std::string_view name) {
      return std::any_of(signature.spellings.begin(), signature.spellings.end(),
                         [&](const Str* spelling) { return spelling->view() == name; });
    };
    signature.uses_caller = use.caller;
    signature.uses_varargs = use.varargs && !declared("varargs");
    signature.uses_kwargs = use.kwargs && !declared("kwargs");
    const int required = static_cast<int>(signature.names.size() - signature.defaults.size());
    if (use.caller && signature.caller_index >= 0 && signature.caller_index < required) {
      Fail("When defining macros or call blocks the special \"caller\" argument must be omitted or be given a default.",
           s->line);
    }
  }

  Stmt* ParseMacro() {
    Stmt* s = NewStmt(StmtKind::kMacro, Next().line);
    const Token& name = ExpectName();
    CheckAssignable(name);
    s->name = program_->Intern(name.text);
    s->text = program_->literals.Copy(name.text);
    InFrame(false, 0, [&] { return (ParseSignature(&s->signature), 0); });
    ParseCallable(s, "endmacro");
    return s;
  }

  Stmt* ParseCallBlock() {
    Stmt* s = NewStmt(StmtKind::kCallBlock, Next().line);
    s->text = program_->literals.Copy("caller");
    if (IsOp("(")) InFrame(false, 0, [&] { return (ParseSignature(&s->signature), 0); });
    s->value = ParseExpression(true);
    if (s->value->kind != ExprKind::kCall) Fail("expected call", s->line);
    ParseCallable(s, "endcall");
    return s;
  }

  // The extension of transformers: marks what the assistant says, adds nothing to the text. jinja2 makes it a call block.
  Stmt* ParseGeneration() {
    Stmt* s = NewStmt(StmtKind::kScope, Next().line);
    ParseCallable(s, "endgeneration");
    return s;
  }

  Stmt* ParseFilterBlock() {
    Stmt* s = NewStmt(StmtKind::kFilterBlock, Next().line);
    InFrame(false, loop_depth_, [&] {
      s->value = ParseFilters(nullptr, true);
      s->body = ParseStatementsAndDrop({"endfilter"});
      return 0;
    });
    return s;
  }

  Stmt* ParseWith() {
    Stmt* s = NewStmt(StmtKind::kWith, Next().line);
    while (Current().type != TokenType::kBlockEnd) {
      if (!s->targets.empty()) ExpectOp(",");
      s->targets.push_back(ParseTarget(true, false, {}));
      ExpectOp("=");
      s->exprs.push_back(ParseExpression(true));
    }
    s->body = InFrame(false, loop_depth_, [&] { return ParseStatementsAndDrop({"endwith"}); });
    return s;
  }

  Stmt* ParsePrint() {
    Stmt* s = NewStmt(StmtKind::kOutput, Next().line);
    while (Current().type != TokenType::kBlockEnd) {
      if (!s->exprs.empty()) ExpectOp(",");
      s->exprs.push_back(ParseExpression(true));
    }
    return s;
  }

  Stmt* ParseLoopControl() {
    const Token& token = Next();
    if (loop_depth_ == 0) Fail("'" + token.text + "' outside loop", token.line);
    return NewStmt(token.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, token.line);
  }

  // --- targets
  void CheckAssignable(const Token& token) const {
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
      if (token.text == word) Fail("can't assign to 'const'", token.line);
    }
  }

  bool IsTupleEnd(std::string_view end_name) const {
    return Current().type == TokenType::kVariableEnd || Current().type == TokenType::kBlockEnd || IsOp(")") ||
           (!end_name.empty() && IsName(end_name));
  }

  Target ParseTargetItem(bool with_namespace) {
    const Nested nested(this);
    if (SkipOp("(")) {
      Target target = ParseTarget(true, false, {});
      ExpectOp(")");
      return target;
    }
    if (Current().type != TokenType::kName) {
      if (Current().type == TokenType::kOperator || Current().type == TokenType::kEnd) {
        Fail("unexpected '" + DescribeToken(Current()) + "'", Current().line);
      }
      Fail("can't assign to 'const'", Current().line);
    }
    const Token& token = Next();
    CheckAssignable(token);
    Target target;
    target.line = token.line;
    target.name = program_->Intern(token.text);
    if (with_namespace && SkipOp(".")) {
      target.kind = Target::Kind::kAttribute;
      target.attribute = program_->literals.Copy(ExpectName().text);
    }
    return target;
  }

  Target ParseTarget(bool with_tuple, bool with_namespace, std::string_view end_name) {
    const int line = Current().line;
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.line = line;
    bool is_tuple = false;
    while (true) {
      if (!tuple.items.empty()) ExpectOp(",");
      if (IsTupleEnd(end_name) || IsOp("=")) break;
      tuple.items.push_back(ParseTargetItem(with_namespace));
      if (!with_tuple || !IsOp(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (tuple.items.empty()) Fail("Expected an expression, got '" + DescribeToken(Current()) + "'", line);
      return std::move(tuple.items[0]);
    }
    return tuple;
  }

  // --- expressions
  const Expr* ParseTuple(bool with_condexpr, std::string_view end_name, bool parentheses) {
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

  const Expr* ParseExpression(bool with_condexpr) {
    const Nested nested(this);
    return with_condexpr ? ParseConditional() : ParseOr();
  }

  const Expr* ParseConditional() {
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

  const Expr* ParseOr() {
    const int line = Current().line;
    const Expr* left = ParseAnd();
    while (SkipName("or")) left = Binary(ExprKind::kOr, Operator::kAdd, left, ParseAnd(), line);
    return left;
  }

  const Expr* ParseAnd() {
    const int line = Current().line;
    const Expr* left = ParseNot();
    while (SkipName("and")) left = Binary(ExprKind::kAnd, Operator::kAdd, left, ParseNot(), line);
    return left;
  }

  const Expr* ParseNot() {
    const Nested nested(this);
    if (IsName("not")) {
      const int line = Next().line;
      return Binary(ExprKind::kNot, Operator::kAdd, ParseNot(), nullptr, line);
    }
    return ParseCompare();
  }

  const Expr* ParseCompare() {
    const int line = Current().line;
    const Expr* first = ParseSum();
    std::vector<std::pair<Operator, const Expr*>> compares;
    static const std::pair<std::string_view, Operator> kCompares[] = {
        {"==", Operator::kEq}, {"!=", Operator::kNe}, {"<", Operator::kLt},
        {"<=", Operator::kLe}, {">", Operator::kGt},  {">=", Operator::kGe}};
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

  const Expr* ParseSum() {
    const int line = Current().line;
    const Expr* left = ParseConcat();
    while (IsOp("+") || IsOp("-")) {
      const Operator op = Next().text == "+" ? Operator::kAdd : Operator::kSub;
      left = Binary(ExprKind::kBinary, op, left, ParseConcat(), line);
    }
    return left;
  }

  const Expr* ParseConcat() {
    const int line = Current().line;
    const Expr* first = ParseProduct();
    if (!IsOp("~")) return first;
    Expr* e = NewExpr(ExprKind::kConcat, line);
    e->list.push_back(first);
    while (SkipOp("~")) e->list.push_back(ParseProduct());
    return Finish(e);
  }

  const Expr* ParseProduct() {
    const int line = Current().line;
    const Expr* left = ParsePower();
    static const std::pair<std::string_view, Operator> kOps[] = {
        {"*", Operator::kMul}, {"/", Operator::kDiv}, {"//", Operator::kFloorDiv}, {"%", Operator::kMod}};
    while (true) {
      const auto* op = std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& entry) { return IsOp(entry.first); });
      if (op == std::end(kOps)) return left;
      Next();
      left = Binary(ExprKind::kBinary, op->second, left, ParsePower(), line);
    }
  }

  const Expr* ParsePower() {
    const int line = Current().line;
    const Expr* left = ParseUnary(true);
    while (SkipOp("**")) left = Binary(ExprKind::kBinary, Operator::kPow, left, ParseUnary(true), line);
    return left;
  }

  const Expr* ParseUnary(bool with_filter) {
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

  const Expr* ParsePrimary() {
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
      case TokenType::kInteger: Next(); return Constant(Value::Int(token.integer), token.line);
      case TokenType::kFloat: Next(); return Constant(Value::Float(token.number), token.line);
      default: break;
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

  const Expr* ParseList() {
    Expr* e = NewExpr(ExprKind::kList, Next().line);
    while (!IsOp("]")) {
      if (!e->list.empty()) ExpectOp(",");
      if (IsOp("]")) break;
      e->list.push_back(ParseExpression(true));
    }
    ExpectOp("]");
    return Finish(e);
  }

  const Expr* ParseDict() {
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

  const Expr* ParsePostfix(const Expr* e) {
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

  const Expr* ParseFilterExpression(const Expr* e) {
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

  const Expr* ParseSubscript(const Expr* object) {
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

  const Expr* ParseSubscribed() {
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

  CallArgs ParseCallArgs() {
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

  const Expr* ParseCall(const Expr* callee) {
    Expr* e = NewExpr(ExprKind::kCall, Current().line);
    e->a = callee;
    if (callee->kind == ExprKind::kGetAttr && IsUnsupportedMethod(callee->constant.str())) {
      Unsupported("the method '" + std::string(callee->constant.str()) + "' is not supported", e->line);
    }
    e->args = ParseCallArgs();
    return Finish(e);
  }

  std::string ParseDottedName() {
    std::string name = ExpectName().text;
    while (SkipOp(".")) name += "." + ExpectName().text;
    return name;
  }

  const FilterEntry* ResolveFilter(const std::string& name, int line) {
    const FilterEntry* entry = FindFilter(name);
    if (entry != nullptr) return entry;
    if (JinjaHasFilter(name)) Unsupported("the filter '" + name + "' is not supported", line);
    pending_.push_back({"No filter named '" + name + "'.", line, soft_});
    return nullptr;
  }

  const Expr* ParseFilters(const Expr* e, bool inline_start) {
    while (inline_start || IsOp("|")) {
      if (!inline_start) Next();
      inline_start = false;
      Expr* filter = NewExpr(ExprKind::kFilter, Current().line);
      const std::string name = ParseDottedName();
      filter->a = e;
      filter->constant = program_->literals.NewString(name);
      filter->filter = ResolveFilter(name, filter->line);
      if (IsOp("(")) filter->args = ParseCallArgs();
      // map('name') and select('name'): the name is as static as the filter's own.
      const auto constant_text = [&](size_t k) {
        const auto& list = filter->args.positional;
        return k < list.size() && list[k]->kind == ExprKind::kConst && list[k]->constant.is_string()
                   ? std::string(list[k]->constant.str()) : std::string();
      };
      const std::string mapped = name == "map" ? constant_text(0) : std::string();
      if (!mapped.empty() && FindFilter(mapped) == nullptr && JinjaHasFilter(mapped)) {
        Unsupported("the filter '" + mapped + "' is not supported", filter->line);
      }
      e = Finish(filter);
    }
    return e;
  }

  const Expr* ParseTest(const Expr* e) {
    Expr* test = NewExpr(ExprKind::kTest, Next().line);
    const bool negated = SkipName("not");
    const std::string name = ParseDottedName();
    test->a = e;
    test->constant = program_->literals.NewString(name);
    test->test = FindTest(name);
    if (test->test == nullptr) pending_.push_back({"No test named '" + name + "'.", test->line, soft_});
    const Token& next = Current();
    const bool starts_argument = next.type == TokenType::kName || next.type == TokenType::kString ||
                                 next.type == TokenType::kInteger || next.type == TokenType::kFloat || IsOp("[") || IsOp("{");
    if (IsOp("(")) {
      test->args = ParseCallArgs();
    } else if (starts_argument && !IsName("else") && !IsName("or") && !IsName("and")) {
      if (IsName("is")) Fail("You cannot chain multiple tests with is", next.line);
      test->args.positional.push_back(ParsePostfix(ParsePrimary()));
    }
    const Expr* result = Finish(test);
    return negated ? Binary(ExprKind::kNot, Operator::kAdd, result, nullptr, test->line) : result;
  }

  const std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int loop_depth_ = 0;          // loops that a break here could leave
  int for_bodies_ = 0;          // where `loop` may not be assigned
  bool soft_ = false;           // directly inside an if
  std::vector<Pending> pending_;
  std::vector<Use*> uses_;
  std::vector<std::string> tag_stack_;
  std::vector<std::vector<std::string_view>> end_tag_stack_;
  std::unique_ptr<Program> program_;
};

}  // namespace

NameId Program::Intern(const std::string& name) {
  const auto [it, inserted] = ids.try_emplace(name, static_cast<NameId>(names.size()));
  if (inserted) names.push_back(name);
  return it->second;
}

std::unique_ptr<Program> Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace tactus::jinja
