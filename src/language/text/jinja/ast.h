// The syntax tree of a template: plain nodes in one pool, so that freeing it does not recurse. Immutable after parsing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "language/text/jinja/value.h"

namespace tactus::language::jinja {

struct Expr;
struct Stmt;
struct FilterEntry;
struct TestEntry;

using NameId = int32_t;

struct CallArgs {
  std::vector<const Expr*> positional;
  std::vector<std::pair<const Str*, const Expr*>> keywords;
  const Expr* star = nullptr;         // *args
  const Expr* double_star = nullptr;  // **kwargs
};

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kUnary,
  kBinary,
  kConcat,
  kCompare,
  kAnd,
  kOr,
  kNot,
  kConditional,
  kGetAttr,
  kGetItem,
  kSlice,
  kCall,
  kFilter,
  kTest
};
enum class Operator : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPos,
  kNeg,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Operator op = Operator::kAdd;
  int line = 0;
  int depth = 1;            // of the tree below, for the nesting limit
  Value constant;           // kConst; kGetAttr: the attribute
  NameId name = -1;         // kName
  const Expr* a = nullptr;  // operands: left, condition, object, filtered or tested value (null in a filter block)
  const Expr* b = nullptr;  // right, then, index
  const Expr* c = nullptr;  // else
  std::vector<const Expr*> list;                           // tuple, list, concat; dict as key, value, key, value
  std::vector<std::pair<Operator, const Expr*>> compares;  // chained
  CallArgs args;
  const FilterEntry* filter = nullptr;  // null: a name unknown to jinja2 as well; an error at run time
  const TestEntry* test = nullptr;
};

// Target of an assignment: a name, a namespace's attribute, or a tuple of these.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple } kind = Kind::kName;
  int line = 0;
  NameId name = -1;
  const Str* attribute = nullptr;
  std::vector<Target> items;
};

using Body = std::vector<const Stmt*>;

// Parameters of a macro or a call block.
struct Signature {
  std::vector<NameId> names;
  std::vector<const Str*> spellings;
  std::vector<const Expr*> defaults;  // of the last parameters
  int caller_index = -1;              // an explicit `caller` parameter
  bool uses_caller = false;           // in the body
};

enum class StmtKind : uint8_t {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 0;
  const Str* text = nullptr;                           // kData; kMacro: its name
  std::vector<const Expr*> exprs;                      // kOutput; kWith: the values
  std::vector<std::pair<const Expr*, Body>> branches;  // kIf: if and every elif
  Target target;                                       // kFor, kSet, kSetBlock
  std::vector<Target> targets;                         // kWith
  const Expr* value = nullptr;                         // kFor: iterable; kSet; filters of kSetBlock, kFilterBlock; call
  const Expr* test = nullptr;                          // kFor ... if
  Body body;
  Body otherwise;  // else of kIf and kFor
  Signature signature;
  NameId name = -1;  // kMacro
};

struct Program {
  Heap literals{size_t{64} << 20};
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::vector<std::string> names;  // by NameId
  std::unordered_map<std::string, NameId> ids;
  Body body;
  NameId Intern(const std::string& name);
};

// Throws TemplateError (kSyntax or kUnsupported) with the line.
std::unique_ptr<Program> Parse(std::string_view source);

}  // namespace tactus::language::jinja
