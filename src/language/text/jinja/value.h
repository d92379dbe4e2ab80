// Values of the template language and the arena that owns them. A Value is 16 bytes and trivially copyable; its target
// is in one Heap per render (or per compiled template, for literals) and freed with it, so that cycles through
// namespaces cannot leak and no destructor recurses. Everything is immutable except namespaces, loops and iterators.
//
// Thread rule: a Heap and its values belong to one thread; the literals of a compiled template are shared read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "language/text/jinja/meter.h"

namespace tactus::language::jinja {

// Private to this folder: the public functions catch it and return a Status.
struct TemplateError {
  enum class Kind : uint8_t { kSyntax, kUnsupported, kRuntime, kRaised, kLimit, kStopped } kind = Kind::kRuntime;
  std::string message;
  int line = 0;  // 0: unknown; the evaluator sets the line of the innermost node
};
[[noreturn]] void Throw(std::string message);
[[noreturn]] void ThrowLimit(std::string message);
[[noreturn]] void ThrowUnsupported(std::string message);

enum class Type : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // from 2^63 to 2^64 - 1: printed and compared only
  kFloat,
  kString,
  kSeq,
  kDict,
  kNamespace,
  kMacro,
  kFunction,
  kMethod,
  kLoop
};

struct Str {
  const char* data = nullptr;
  size_t size = 0;
  bool markup = false;  // Python's Markup, from |safe and |escape: `+` escapes the other operand
  std::string_view view() const { return {data, size}; }
};

struct Seq;
struct Dict;
struct Namespace;
struct Macro;
struct Method;
struct LoopState;
struct UndefinedInfo;
enum class Function : uint8_t;

struct Value {
  Type type = Type::kUndefined;
  union {
    bool b;
    int64_t i;
    uint64_t u;
    double d;
    const Str* s;
    Seq* seq;
    Dict* dict;
    Namespace* ns;
    Macro* macro;
    Function function;
    Method* method;
    LoopState* loop;
    const UndefinedInfo* undefined = nullptr;
  };

  static Value None() {
    Value v;
    v.type = Type::kNone;
    v.i = 0;
    return v;
  }
  static Value Bool(bool x) {
    Value v;
    v.type = Type::kBool;
    v.i = 0;
    v.b = x;
    return v;
  }
  static Value Int(int64_t x) {
    Value v;
    v.type = Type::kInt;
    v.i = x;
    return v;
  }
  static Value Unsigned(uint64_t x) {
    if (x <= static_cast<uint64_t>(INT64_MAX)) return Int(static_cast<int64_t>(x));
    Value v;
    v.type = Type::kBigInt;
    v.u = x;
    return v;
  }
  static Value Float(double x) {
    Value v;
    v.type = Type::kFloat;
    v.d = x;
    return v;
  }
  static Value String(const Str* x) {
    Value v;
    v.type = Type::kString;
    v.s = x;
    return v;
  }
  static Value OfSeq(Seq* x) {
    Value v;
    v.type = Type::kSeq;
    v.seq = x;
    return v;
  }
  static Value OfDict(Dict* x) {
    Value v;
    v.type = Type::kDict;
    v.dict = x;
    return v;
  }

  bool is_undefined() const { return type == Type::kUndefined; }
  bool is_none() const { return type == Type::kNone; }
  bool is_bool() const { return type == Type::kBool; }
  bool is_int() const { return type == Type::kInt; }
  bool is_float() const { return type == Type::kFloat; }
  bool is_string() const { return type == Type::kString; }
  bool is_seq() const { return type == Type::kSeq; }
  bool is_dict() const { return type == Type::kDict; }
  bool is_big() const { return type == Type::kBigInt; }
  bool is_number() const { return is_integral() || is_big() || is_float(); }
  bool is_integral() const { return is_bool() || is_int(); }  // has a value in `integral`
  int64_t integral() const { return is_bool() ? (b ? 1 : 0) : i; }
  double number() const { return is_float() ? d : is_big() ? static_cast<double>(u) : static_cast<double>(integral()); }
  std::string_view str() const { return s->view(); }
};

enum class SeqKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kIterator };

// Lists, tuples, ranges, dict views and one-shot iterators (Python's generators).
struct Seq {
  SeqKind kind = SeqKind::kList;
  const Value* items = nullptr;
  size_t size = 0;
  size_t position = 0;                 // kIterator: consumed so far
  const std::string* error = nullptr;  // kIterator: raised after its last item
  const char* python_type = nullptr;   // kIterator: "generator", "list_reverseiterator", ...
  std::span<const Value> span() const { return {items + position, size - position}; }
};

struct DictItem {
  Value key, value;
};

// Insertion-ordered. Small dicts are searched linearly, larger ones through `index` (string keys in byte order).
struct Dict {
  const DictItem* items = nullptr;
  size_t size = 0;
  const uint32_t* index = nullptr;
  size_t index_size = 0;
};

struct Namespace {
  std::vector<std::pair<const Str*, Value>>* attributes = nullptr;
};

struct Method {
  Value self;
  const Str* name = nullptr;
};

struct UndefinedInfo {
  enum class Kind : uint8_t { kName, kAttribute, kHint } kind = Kind::kName;
  Value object;  // kAttribute
  Value key;     // name or element
  const Str* hint = nullptr;
};

// Bump allocation with a limit: a hostile template exhausts its budget, not the machine's memory.
class Heap {
 public:
  // `meter`: charged for comparing a dict's keys; may be null.
  explicit Heap(size_t limit_bytes, Meter* meter = nullptr) : limit_bytes_(limit_bytes), meter_(meter) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  void* Allocate(size_t bytes);
  template <class T>
  T* New() {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (Allocate(sizeof(T))) T();
  }
  template <class T>
  T* NewArray(size_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (n > limit_bytes_ / sizeof(T)) Overflow();
    T* array = static_cast<T*>(Allocate(n * sizeof(T)));
    for (size_t k = 0; k < n; ++k) new (array + k) T();
    return array;
  }
  const Str* Copy(std::string_view text, bool markup = false);  // owns a copy
  const Str* View(std::string_view text, bool markup = false);  // `text` must outlive the heap's values
  Value NewString(std::string_view text, bool markup = false) { return Value::String(Copy(text, markup)); }
  Value NewView(std::string_view text, bool markup = false) { return Value::String(View(text, markup)); }
  Value NewSeq(SeqKind kind, std::span<const Value> items);      // copies the items
  Value NewSeqView(SeqKind kind, std::span<const Value> items);  // shares them
  Value NewIterator(std::span<const Value> items, const char* python_type);
  Value NewDict(std::vector<DictItem> items);  // later duplicates win, the first position stays
  Namespace* NewNamespace();
  const std::string* KeepString(std::string text);

 private:
  [[noreturn]] void Overflow() const;

  const size_t limit_bytes_;
  Meter* const meter_;
  size_t used_bytes_ = 0;
  char* cursor_ = nullptr;
  size_t left_ = 0;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<std::unique_ptr<std::vector<std::pair<const Str*, Value>>>> namespaces_;
  std::vector<std::unique_ptr<std::string>> strings_;
};

// Python's semantics.
bool Truthy(const Value& v);
bool Equal(Meter& meter, const Value& a, const Value& b, int depth = 0);
// Three-way order for < <= > >= and sort; if there is none, throws Python's TypeError text with `op`.
int Compare(Meter& meter, const Value& a, const Value& b, const char* op, int depth = 0);
bool Hashable(Meter& meter, const Value& v, int depth = 0);
const Value* FindItem(Meter& meter, const Dict& dict, const Value& key);
const Value* FindItem(const Dict& dict, std::string_view key);
std::string TypeName(const Value& v);  // "str", "list", "jinja2.utils.Namespace", ...
std::string UndefinedMessage(const Value& undefined);
[[noreturn]] void ThrowUndefined(const Value& undefined);
// Throws that `what` is not supported on a big integer.
[[noreturn]] void ThrowBig(const char* what, const Value& big);
std::string FloatRepr(double value);
// str() and repr(); `limit_bytes` bounds the appended text.
void AppendStr(const Value& v, std::string* out, size_t limit_bytes);
void AppendRepr(const Value& v, std::string* out, size_t limit_bytes, int depth = 0);
std::string Repr(const Value& v);  // for messages: truncated
void AppendStringRepr(std::string_view text, std::string* out);

inline constexpr int kMaxNesting = 200;  // of data: repr, comparison, JSON

}  // namespace tactus::language::jinja
