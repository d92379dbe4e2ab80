// Walks a template's tree: scopes, output, control flow, calls. One Interpreter per render; not thread-safe.
//
// Invariants: every node evaluated and every byte made is charged, so that a hostile template ends in bounded time and
// memory; recursion is counted, so that it ends before the stack does. Errors are TemplateError, caught in template.cc.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "language/text/jinja/ast.h"
#include "language/text/jinja/builtins.h"
#include "language/text/jinja/value.h"

namespace tactus::language::jinja {

struct Limits {
  size_t output_bytes = size_t{32} << 20;   // of the result and of any one text
  size_t memory_bytes = size_t{512} << 20;  // of everything the template makes
  int64_t steps = 50'000'000;               // nodes evaluated, items visited, 64-byte units of text handled
  int recursion = 900;                      // nodes in evaluation at once
  int64_t range_items = 100'000;            // as jinja2's sandbox
};

// Variables of one block. A child sees its parents' as they are now (closures bind late, as Python's do).
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // by a macro: must outlive its block
  std::vector<std::pair<NameId, Value>> bindings;
};

struct Macro {
  const Stmt* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

struct LoopState {
  const Value* items = nullptr;
  size_t size = 0;
  size_t index0 = 0;
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Limits& limits, int64_t now_s, StopToken stop);

  // Binds a variable of the render call; shadows a global function of that name.
  void SetVariable(std::string_view name, Value value);
  std::string Run();

  // For builtins.
  Heap& heap() { return heap_; }
  const Limits& limits() const { return limits_; }
  int64_t now_s() const { return now_s_; }
  Meter& meter() { return meter_; }
  void Charge(size_t units) { meter_.Charge(units); }
  void ChargeText(size_t bytes) { meter_.ChargeText(bytes); }
  Value Text(std::string_view text, bool markup = false) {  // a new string, charged
    ChargeText(text.size());
    return heap_.NewString(text, markup);
  }
  Value Substring(const Value& whole, std::string_view part) { return heap_.NewView(part, whole.s->markup); }
  std::string ToText(const Value& v);  // str(v)
  Value ToString(const Value& v);      // a string stays what it is
  // All items of an iterable, in order; an iterator is consumed. Throws for what cannot be iterated.
  std::span<const Value> Iterate(const Value& v);
  bool IsIterable(const Value& v) const;
  size_t Length(const Value& v);  // len(); throws
  Value Undefined(UndefinedInfo::Kind kind, Value object, Value key);
  Value UndefinedHint(std::string_view hint);
  Value Add(const Value& a, const Value& b);
  Value Arithmetic(Operator op, const Value& a, const Value& b);
  Value Call(const Value& callee, const Arguments& args);
  Value ApplyFilter(std::string_view name, const Value& input, const Arguments& args);
  bool ApplyTest(std::string_view name, const Value& input, const Arguments& args);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  struct Depth;
  struct Capture;

  Scope* NewScope(Scope* parent);
  void FreeScope(Scope* scope);
  Value Lookup(NameId name, Scope* scope);
  void Bind(Scope* scope, NameId name, const Value& value);
  void Append(std::string_view text);

  Flow ExecBody(const Body& body, Scope* scope);
  Flow Exec(const Stmt& s, Scope* scope);
  Flow ExecFor(const Stmt& s, Scope* scope);
  Flow ExecSetBlock(const Stmt& s, Scope* scope);
  Flow ExecFilterBlock(const Stmt& s, Scope* scope);
  Flow ExecWith(const Stmt& s, Scope* scope);
  void ExecCallBlock(const Stmt& s, Scope* scope);
  Value MakeMacro(const Stmt& s, Scope* scope);  // a closure: the scopes around it outlive their blocks
  void Assign(const Target& target, const Value& value, Scope* scope);
  void CheckNamespaces(const Target& target, Scope* scope);

  Value Eval(const Expr& e, Scope* scope);
  Value EvalNode(const Expr& e, Scope* scope);
  Value EvalCompare(const Expr& e, Scope* scope);
  Value EvalConcat(const Expr& e, Scope* scope);
  Value EvalDict(const Expr& e, Scope* scope);
  Value EvalCall(const Expr& e, Scope* scope, const Value* caller);
  Value EvalFilter(const Expr& e, const Value& input, Scope* scope);
  Value EvalFilterChain(const Expr& e, const Value& text, Scope* scope);
  bool EvalTest(const Expr& e, Scope* scope);
  Value Negate(const Value& v);
  Value Repeat(const Value& v, int64_t count);
  Value CallMacro(const Macro& macro, const Arguments& args);
  struct EvaluatedArgs;
  void EvalArgs(const CallArgs& args, Scope* scope, EvaluatedArgs* out);

  const Program& program_;
  const Limits limits_;
  const int64_t now_s_;
  Meter meter_;
  Heap heap_;
  int depth_ = 0;
  std::string* out_ = nullptr;
  std::vector<Value> globals_;  // by NameId: variables and functions
  std::vector<bool> has_global_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
};

}  // namespace tactus::language::jinja
