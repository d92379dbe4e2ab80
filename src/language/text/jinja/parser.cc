// Statements, and the checks of jinja2's compiler. jinja2's features that this interpreter lacks are refused here, by
// name and line.
#include <algorithm>
#include <initializer_list>

#include "language/text/jinja/expression_parser.h"

namespace tactus::language::jinja {
namespace {

constexpr int kMaxStatementDepth = 60;

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  std::unique_ptr<Program> Run() {
    program_->body = SubParse({});
    for (const Pending& pending : pending_) {
      if (!pending.soft) Fail(pending.message, pending.line);
    }
    return std::move(program_);
  }

 private:
  using EndTags = std::initializer_list<std::string_view>;

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

  // The end tag's name stays the current token.
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
    std::string message =
        tag == nullptr ? "Unexpected end of template." : "Encountered unknown tag '" + tag->text + "'.";
    std::string looking;
    bool misnested = false;
    if (!end_tag_stack_.empty()) {
      for (const std::string_view name : end_tag_stack_.back()) {
        looking += (looking.empty() ? "'" : " or '") + std::string(name) + "'";
      }
      for (const auto& level : end_tag_stack_) {
        for (const std::string_view name : level) misnested = misnested || (tag != nullptr && tag->text == name);
      }
      message += misnested
                     ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " +
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
    static const std::pair<std::string_view, Parse> kTags[] = {{"if", &Parser::ParseIf},
                                                               {"for", &Parser::ParseFor},
                                                               {"set", &Parser::ParseSet},
                                                               {"macro", &Parser::ParseMacro},
                                                               {"call", &Parser::ParseCallBlock},
                                                               {"filter", &Parser::ParseFilterBlock},
                                                               {"with", &Parser::ParseWith},
                                                               {"generation", &Parser::ParseGeneration},
                                                               {"break", &Parser::ParseLoopControl},
                                                               {"continue", &Parser::ParseLoopControl}};
    for (const auto& [name, parse] : kTags) {
      if (tag.text != name) continue;
      tag_stack_.push_back(tag.text);
      body->push_back((this->*parse)());
      tag_stack_.pop_back();
      return;
    }
    for (const std::string_view name : {"block", "extends", "include", "import", "from", "autoescape", "print"}) {
      if (tag.text == name) Unsupported("the tag '" + tag.text + "' is not supported in chat templates", tag.line);
    }
    FailUnknownTag(&tag);
  }

  // Parses with the construct's `soft_` and loop depth.
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
    if (IsName("recursive")) Unsupported("a recursive loop is not supported", Current().line);
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
    for (const auto& [name, used] : {std::pair("varargs", use.varargs), std::pair("kwargs", use.kwargs)}) {
      if (used && !declared(name)) Unsupported("'" + std::string(name) + "' in a macro is not supported", s->line);
    }
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
    if (IsOp("(")) InFrame(false, 0, [&] { return (ParseSignature(&s->signature), 0); });
    s->value = ParseExpression(true);
    if (s->value->kind != ExprKind::kCall) Fail("expected call", s->line);
    ParseCallable(s, "endcall");
    return s;
  }

  // An extension of transformers: marks the assistant's text and changes nothing. jinja2 makes it a call block.
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

  int loop_depth_ = 0;  // enclosing loops that a break here could leave
  int for_bodies_ = 0;  // enclosing bodies in which `loop` may not be assigned
  std::vector<std::string> tag_stack_;
  std::vector<std::vector<std::string_view>> end_tag_stack_;
};

}  // namespace

NameId Program::Intern(const std::string& name) {
  const auto [it, inserted] = ids.try_emplace(name, static_cast<NameId>(names.size()));
  if (inserted) names.push_back(name);
  return it->second;
}

std::unique_ptr<Program> Parse(std::string_view source) {
  return Parser(source).Run();
}

}  // namespace tactus::language::jinja
