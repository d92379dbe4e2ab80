// Statements, scopes and macros. Expressions are in expressions.cc.
#include "language/text/jinja/interpreter.h"

#include <algorithm>

#include "language/text/jinja/methods.h"
#include "language/text/jinja/unicode.h"

namespace tactus::language::jinja {

struct Interpreter::Depth {
  explicit Depth(Interpreter* run) : run_(run) {
    if (++run_->depth_ > run_->limits_.recursion) {
      --run_->depth_;
      ThrowLimit("the template recurses deeper than " + std::to_string(run_->limits_.recursion) + " levels");
    }
  }
  ~Depth() { --run_->depth_; }
  Interpreter* run_;
};

// During its lifetime, output goes to a separate text.
struct Interpreter::Capture {
  explicit Capture(Interpreter* run) : run_(run), before_(std::exchange(run->out_, &text)) {}
  ~Capture() { run_->out_ = before_; }
  std::string text;
  Interpreter* run_;
  std::string* before_;
};

Interpreter::Interpreter(const Program& program, const Limits& limits, int64_t now_s, StopToken stop)
    : program_(program),
      limits_(limits),
      now_s_(now_s),
      meter_(limits.steps, stop),
      heap_(limits.memory_bytes, &meter_),
      globals_(program.names.size()),
      has_global_(program.names.size(), false) {
  for (const auto& [name, function] : GlobalFunctions()) {
    Value v;
    v.type = Type::kFunction;
    v.i = 0;
    v.function = function;
    SetVariable(name, v);
  }
}

void Interpreter::SetVariable(std::string_view name, Value value) {
  const auto it = program_.ids.find(std::string(name));
  if (it == program_.ids.end()) return;  // the template does not use it
  globals_[static_cast<size_t>(it->second)] = value;
  has_global_[static_cast<size_t>(it->second)] = true;
}

std::string Interpreter::Run() {
  Capture capture(this);
  ExecBody(program_.body, NewScope(nullptr));
  return std::move(capture.text);
}

Scope* Interpreter::NewScope(Scope* parent) {
  Scope* scope;
  if (free_scopes_.empty()) {
    heap_.Allocate(sizeof(Scope));  // scopes captured by macros stay: they count as memory
    scopes_.emplace_back();
    scope = &scopes_.back();
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Interpreter::FreeScope(Scope* scope) {
  if (scope->captured) return;
  scope->bindings.clear();
  free_scopes_.push_back(scope);
}

Value Interpreter::Lookup(NameId name, Scope* scope) {
  for (const Scope* s = scope; s != nullptr; s = s->parent) {
    for (const auto& [bound, value] : s->bindings) {
      if (bound == name) return value;
    }
  }
  const size_t k = static_cast<size_t>(name);
  if (has_global_[k]) return globals_[k];
  return Undefined(UndefinedInfo::Kind::kName, Value::None(), heap_.NewView(program_.names[k]));
}

void Interpreter::Bind(Scope* scope, NameId name, const Value& value) {
  for (auto& [bound, slot] : scope->bindings) {
    if (bound == name) {
      slot = value;
      return;
    }
  }
  scope->bindings.emplace_back(name, value);
}

void Interpreter::Append(std::string_view text) {
  ChargeText(text.size());
  if (text.size() > limits_.output_bytes - std::min(limits_.output_bytes, out_->size())) {
    ThrowLimit("the output is longer than " + std::to_string(limits_.output_bytes >> 20) + " MiB");
  }
  out_->append(text);
}

Interpreter::Flow Interpreter::ExecBody(const Body& body, Scope* scope) {
  for (const Stmt* s : body) {
    const Flow flow = Exec(*s, scope);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::Exec(const Stmt& s, Scope* scope) {
  const Depth depth(this);
  Charge(1);
  try {
    switch (s.kind) {
      case StmtKind::kData:
        Append(s.text->view());
        return Flow::kNormal;
      case StmtKind::kOutput:
        for (const Expr* e : s.exprs) {
          const Value v = Eval(*e, scope);
          if (v.is_string()) {
            Append(v.str());
          } else if (!v.is_undefined()) {
            Append(ToText(v));
          }
        }
        return Flow::kNormal;
      case StmtKind::kIf:
        for (const auto& [test, body] : s.branches) {
          if (Truthy(Eval(*test, scope))) return ExecBody(body, scope);
        }
        return ExecBody(s.otherwise, scope);
      case StmtKind::kFor:
        return ExecFor(s, scope);
      case StmtKind::kSet:
        CheckNamespaces(s.target, scope);
        Assign(s.target, Eval(*s.value, scope), scope);
        return Flow::kNormal;
      case StmtKind::kSetBlock:
        return ExecSetBlock(s, scope);
      case StmtKind::kMacro:
        Bind(scope, s.name, MakeMacro(s, scope));
        return Flow::kNormal;
      case StmtKind::kCallBlock:
        ExecCallBlock(s, scope);
        return Flow::kNormal;
      case StmtKind::kFilterBlock:
        return ExecFilterBlock(s, scope);
      case StmtKind::kWith:
        return ExecWith(s, scope);
      case StmtKind::kScope: {
        Scope* inner = NewScope(scope);
        ExecBody(s.body, inner);
        FreeScope(inner);
        return Flow::kNormal;
      }
      case StmtKind::kBreak:
        return Flow::kBreak;
      case StmtKind::kContinue:
        return Flow::kContinue;
    }
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = s.line;
    throw;
  }
  return Flow::kNormal;
}

// jinja2 records that an iteration ran only at the end of the body: after break or continue the else branch runs.
Interpreter::Flow Interpreter::ExecFor(const Stmt& s, Scope* scope) {
  std::span<const Value> items = Iterate(Eval(*s.value, scope));
  if (s.test != nullptr) {
    Value* kept = heap_.NewArray<Value>(items.size());
    size_t n = 0;
    Scope* inner = NewScope(scope);
    for (const Value& item : items) {
      Charge(1);
      Assign(s.target, item, inner);
      if (Truthy(Eval(*s.test, inner))) kept[n++] = item;
    }
    FreeScope(inner);
    items = {kept, n};
  }
  LoopState* loop = heap_.New<LoopState>();
  loop->items = items.data();
  loop->size = items.size();
  Value loop_value;
  loop_value.type = Type::kLoop;
  loop_value.loop = loop;
  const auto loop_name = program_.ids.find("loop");
  bool completed = false;
  for (size_t k = 0; k < items.size(); ++k) {
    Charge(1);
    loop->index0 = k;
    Scope* inner = NewScope(scope);
    Assign(s.target, items[k], inner);
    if (loop_name != program_.ids.end()) Bind(inner, loop_name->second, loop_value);
    const Flow flow = ExecBody(s.body, inner);
    FreeScope(inner);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) completed = true;
  }
  if (completed || s.otherwise.empty()) return Flow::kNormal;
  Scope* inner = NewScope(scope);
  const Flow flow = ExecBody(s.otherwise, inner);
  FreeScope(inner);
  return flow;
}

Interpreter::Flow Interpreter::ExecSetBlock(const Stmt& s, Scope* scope) {
  CheckNamespaces(s.target, scope);
  Scope* inner = NewScope(scope);
  Value text;
  {
    Capture capture(this);
    const Flow flow = ExecBody(s.body, inner);
    if (flow != Flow::kNormal) return flow;
    text = Text(capture.text);
  }
  if (s.value != nullptr) text = EvalFilterChain(*s.value, text, inner);
  Assign(s.target, text, scope);
  FreeScope(inner);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecFilterBlock(const Stmt& s, Scope* scope) {
  Scope* inner = NewScope(scope);
  Value text;
  {
    Capture capture(this);
    const Flow flow = ExecBody(s.body, inner);
    if (flow != Flow::kNormal) return flow;
    text = Text(capture.text);
  }
  Append(ToText(EvalFilterChain(*s.value, text, inner)));
  FreeScope(inner);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecWith(const Stmt& s, Scope* scope) {
  Scope* inner = NewScope(scope);
  for (size_t k = 0; k < s.targets.size(); ++k) Assign(s.targets[k], Eval(*s.exprs[k], scope), inner);
  const Flow flow = ExecBody(s.body, inner);
  FreeScope(inner);
  return flow;
}

Value Interpreter::MakeMacro(const Stmt& s, Scope* scope) {
  Macro* macro = heap_.New<Macro>();
  macro->definition = &s;
  macro->scope = scope;
  for (Scope* up = scope; up != nullptr; up = up->parent) up->captured = true;
  Value v;
  v.type = Type::kMacro;
  v.macro = macro;
  return v;
}

void Interpreter::ExecCallBlock(const Stmt& s, Scope* scope) {
  const Value caller = MakeMacro(s, scope);
  Append(ToText(EvalCall(*s.value, scope, &caller)));
}

void Interpreter::CheckNamespaces(const Target& target, Scope* scope) {
  for (const Target& item : target.items) CheckNamespaces(item, scope);
  if (target.kind != Target::Kind::kAttribute) return;
  if (Lookup(target.name, scope).type != Type::kNamespace) Throw("cannot assign attribute on non-namespace object");
}

void Interpreter::Assign(const Target& target, const Value& value, Scope* scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      Bind(scope, target.name, value);
      return;
    case Target::Kind::kAttribute: {
      const std::string_view name = target.attribute->view();
      if (name.starts_with("_")) {
        Throw("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
              std::string(name) + "'.");
      }
      const Value ns = Lookup(target.name, scope);
      if (ns.type != Type::kNamespace) Throw("cannot assign attribute on non-namespace object");
      Charge(ns.ns->attributes->size() / 16);
      for (auto& [bound, slot] : *ns.ns->attributes) {
        if (bound->view() == name) {
          slot = value;
          return;
        }
      }
      ns.ns->attributes->emplace_back(target.attribute, value);
      return;
    }
    case Target::Kind::kTuple: {
      if (!IsIterable(value)) Throw("cannot unpack non-iterable " + TypeName(value) + " object");
      const std::span<const Value> items = Iterate(value);
      if (items.size() > target.items.size()) {
        Throw("too many values to unpack (expected " + std::to_string(target.items.size()) + ")");
      }
      if (items.size() < target.items.size()) {
        Throw("not enough values to unpack (expected " + std::to_string(target.items.size()) + ", got " +
              std::to_string(items.size()) + ")");
      }
      for (size_t k = 0; k < items.size(); ++k) Assign(target.items[k], items[k], scope);
    }
  }
}

// jinja2's Macro.__call__: positional, then keywords, then defaults; `caller` if the body uses it.
Value Interpreter::CallMacro(const Macro& macro, const Arguments& args) {
  const Depth depth(this);
  const Stmt& s = *macro.definition;
  const Signature& signature = s.signature;
  const std::string name = s.kind == StmtKind::kMacro ? "'" + std::string(s.text->view()) + "'" : "'caller'";
  Scope* scope = NewScope(macro.scope);
  Charge(args.keywords.size() * (signature.names.size() + 1) / 16);  // each name is searched among them
  std::vector<std::pair<std::string_view, Value>> rest(args.keywords.begin(), args.keywords.end());
  const auto take = [&](std::string_view keyword, Value* out) {
    const auto it = std::find_if(rest.begin(), rest.end(), [&](const auto& entry) { return entry.first == keyword; });
    if (it == rest.end()) return false;
    *out = it->second;
    rest.erase(it);
    return true;
  };
  const size_t count = signature.names.size();
  std::vector<Value> values(count);
  std::vector<bool> given(count, false);
  for (size_t k = 0; k < count; ++k) {
    if (k < args.positional.size()) {
      values[k] = args.positional[k];
      given[k] = true;
    } else {
      given[k] = take(signature.spellings[k]->view(), &values[k]);
    }
  }
  if (signature.uses_caller && signature.caller_index < 0) {
    Value caller;
    if (!take("caller", &caller) || caller.is_none()) caller = UndefinedHint("No caller defined");
    Bind(scope, program_.ids.find("caller")->second, caller);
  }
  if (!rest.empty()) {
    for (const auto& [key, value] : rest) {
      if (key == "caller") {
        Throw("macro " + name +
              " was invoked with two values for the special caller argument. This is most likely a bug.");
      }
    }
    Throw("macro " + name + " takes no keyword argument '" + std::string(rest[0].first) + "'");
  }
  if (args.positional.size() > count) {
    Throw("macro " + name + " takes not more than " + std::to_string(count) + " argument(s)");
  }
  for (size_t k = 0; k < count; ++k) {  // passed parameters are visible to every default, defaults to later ones
    if (given[k]) Bind(scope, signature.names[k], values[k]);
  }
  const size_t required = count - signature.defaults.size();
  for (size_t k = 0; k < count; ++k) {
    if (given[k]) continue;
    if (k < required) {
      Bind(scope, signature.names[k],
           UndefinedHint("parameter '" + std::string(signature.spellings[k]->view()) + "' was not provided"));
    } else {
      Bind(scope, signature.names[k], Eval(*signature.defaults[k - required], scope));
    }
  }
  Capture capture(this);
  ExecBody(s.body, scope);
  FreeScope(scope);
  return Text(capture.text);
}

}  // namespace tactus::language::jinja
