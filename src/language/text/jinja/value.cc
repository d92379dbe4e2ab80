// The arena, truth, equality and order. Text forms of values are in value_text.cc.
#include "language/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace tactus::language::jinja {

void Throw(std::string message) {
  throw TemplateError{TemplateError::Kind::kRuntime, std::move(message), 0};
}
void ThrowLimit(std::string message) {
  throw TemplateError{TemplateError::Kind::kLimit, std::move(message), 0};
}

void Meter::Look() {
  if (steps_ > limit_) ThrowLimit("the template takes more than " + std::to_string(limit_) + " steps");
  if (stop_.stopped()) throw TemplateError{TemplateError::Kind::kStopped, "stopped", 0};
  next_look_ = std::min(limit_, steps_ + kStepsBetweenLooks);
}

void ThrowUnsupported(std::string message) {
  throw TemplateError{TemplateError::Kind::kUnsupported, std::move(message), 0};
}

void ThrowBig(const char* what, const Value& big) {
  ThrowUnsupported(std::string(what) + " on the integer " + std::to_string(big.u) +
                   " is not supported: it is beyond 9223372036854775807");
}

Heap::~Heap() = default;

void Heap::Overflow() const {
  ThrowLimit("the template needs more than " + std::to_string(limit_bytes_ >> 20) + " MiB of memory");
}

void* Heap::Allocate(size_t bytes) {
  constexpr size_t kBlockBytes = 64 * 1024;
  if (bytes > limit_bytes_) Overflow();
  bytes = (bytes + 15) & ~size_t{15};
  if (bytes > limit_bytes_ - used_bytes_) Overflow();
  used_bytes_ += bytes;
  if (bytes > kBlockBytes / 4) {  // a separate block; the current one stays open
    blocks_.push_back(std::unique_ptr<char[]>(new char[bytes]));
    return blocks_.back().get();
  }
  if (bytes > left_) {
    blocks_.push_back(std::unique_ptr<char[]>(new char[kBlockBytes]));
    cursor_ = blocks_.back().get();
    left_ = kBlockBytes;
  }
  void* result = cursor_;
  cursor_ += bytes;
  left_ -= bytes;
  return result;
}

const Str* Heap::Copy(std::string_view text, bool markup) {
  char* data = static_cast<char*>(Allocate(text.size() + 1));
  if (!text.empty()) std::memcpy(data, text.data(), text.size());
  return View({data, text.size()}, markup);
}

const Str* Heap::View(std::string_view text, bool markup) {
  Str* s = New<Str>();
  s->data = text.data();
  s->size = text.size();
  s->markup = markup;
  return s;
}

Value Heap::NewSeq(SeqKind kind, std::span<const Value> items) {
  Value* copy = NewArray<Value>(items.size());
  std::copy(items.begin(), items.end(), copy);
  return NewSeqView(kind, {copy, items.size()});
}

Value Heap::NewSeqView(SeqKind kind, std::span<const Value> items) {
  Seq* seq = New<Seq>();
  seq->kind = kind;
  seq->items = items.data();
  seq->size = items.size();
  return Value::OfSeq(seq);
}

Value Heap::NewIterator(std::span<const Value> items, const char* python_type) {
  Value v = NewSeq(SeqKind::kIterator, items);
  v.seq->python_type = python_type;
  return v;
}

namespace {
int CompareNumbers(const Value& a, const Value& b) {  // NaN: 2, unordered
  if (a.is_integral() && b.is_integral()) {
    return a.integral() < b.integral() ? -1 : a.integral() > b.integral() ? 1 : 0;
  }
  if (a.is_big() && b.is_big()) return a.u < b.u ? -1 : a.u > b.u ? 1 : 0;
  if (a.is_big() && b.is_integral()) return 1;
  if (a.is_integral() && b.is_big()) return -1;
  const double x = a.number(), y = b.number();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

struct KeyLess {
  Meter* meter;
  bool operator()(const Value& a, const Value& b) const {
    if (meter != nullptr) meter->ChargeText(a.is_string() && b.is_string() ? std::min(a.s->size, b.s->size) : 0);
    const bool a_string = a.is_string(), b_string = b.is_string();
    if (a_string != b_string) return a_string;
    if (a_string) return a.str() < b.str();
    if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == -1;
    if (a.type != b.type) {
      const auto rank = [](const Value& v) { return v.is_number() ? 0 : 1 + static_cast<int>(v.type); };
      return rank(a) < rank(b);
    }
    if (a.is_seq()) {
      return std::lexicographical_compare(a.seq->items, a.seq->items + a.seq->size, b.seq->items,
                                          b.seq->items + b.seq->size, *this);
    }
    return a.i < b.i;  // none, and identities of functions, macros and similar
  }
};
constexpr size_t kLinearSearch = 12;
}  // namespace

Value Heap::NewDict(std::vector<DictItem> items) {
  if (items.size() > 1) {
    std::map<Value, size_t, KeyLess> seen(KeyLess{meter_});
    size_t kept = 0;
    for (size_t k = 0; k < items.size(); ++k) {
      const auto [it, inserted] = seen.try_emplace(items[k].key, kept);
      if (inserted) {
        items[kept++] = items[k];
      } else {
        items[it->second].value = items[k].value;
      }
    }
    items.resize(kept);
  }
  Dict* dict = New<Dict>();
  DictItem* copy = NewArray<DictItem>(items.size());
  std::copy(items.begin(), items.end(), copy);
  dict->items = copy;
  dict->size = items.size();
  if (items.size() > kLinearSearch) {
    std::vector<uint32_t> order;
    for (size_t k = 0; k < items.size(); ++k) {
      if (items[k].key.is_string()) order.push_back(static_cast<uint32_t>(k));
    }
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return items[a].key.str() < items[b].key.str(); });
    uint32_t* index = NewArray<uint32_t>(order.size());
    std::copy(order.begin(), order.end(), index);
    dict->index = index;
    dict->index_size = order.size();
  }
  return Value::OfDict(dict);
}

Namespace* Heap::NewNamespace() {
  Namespace* ns = New<Namespace>();
  namespaces_.push_back(std::make_unique<std::vector<std::pair<const Str*, Value>>>());
  ns->attributes = namespaces_.back().get();
  Allocate(64);  // count the vector's memory
  return ns;
}

const std::string* Heap::KeepString(std::string text) {
  Allocate(text.size() + sizeof(std::string));
  strings_.push_back(std::make_unique<std::string>(std::move(text)));
  return strings_.back().get();
}

const Value* FindItem(const Dict& dict, std::string_view key) {
  if (dict.index == nullptr) {
    for (size_t k = 0; k < dict.size; ++k) {
      if (dict.items[k].key.is_string() && dict.items[k].key.str() == key) return &dict.items[k].value;
    }
    return nullptr;
  }
  const uint32_t* end = dict.index + dict.index_size;
  const uint32_t* it = std::lower_bound(
      dict.index, end, key, [&](uint32_t k, std::string_view text) { return dict.items[k].key.str() < text; });
  return it != end && dict.items[*it].key.str() == key ? &dict.items[*it].value : nullptr;
}

const Value* FindItem(Meter& meter, const Dict& dict, const Value& key) {
  if (key.is_string()) return FindItem(dict, key.str());
  for (size_t k = 0; k < dict.size; ++k) {
    if (Equal(meter, dict.items[k].key, key)) return &dict.items[k].value;
  }
  return nullptr;
}

bool Hashable(Meter& meter, const Value& v, int depth) {
  meter.Charge(1);
  if (depth > kMaxNesting) ThrowLimit("values are nested deeper than " + std::to_string(kMaxNesting));
  if (v.is_dict()) return false;
  if (!v.is_seq()) return true;
  if (v.seq->kind == SeqKind::kTuple) {
    return std::all_of(v.seq->items, v.seq->items + v.seq->size,
                       [&](const Value& item) { return Hashable(meter, item, depth + 1); });
  }
  return v.seq->kind == SeqKind::kRange;
}

bool Truthy(const Value& v) {
  switch (v.type) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
      return v.b;
    case Type::kInt:
      return v.i != 0;
    case Type::kFloat:
      return v.d != 0;
    case Type::kString:
      return v.s->size != 0;
    case Type::kSeq:
      return v.seq->kind == SeqKind::kIterator || v.seq->size != 0;
    case Type::kDict:
      return v.dict->size != 0;
    default:
      return true;
  }
}

namespace {
void CheckNesting(int depth) {
  if (depth > kMaxNesting) ThrowLimit("values are nested deeper than " + std::to_string(kMaxNesting));
}
}  // namespace

bool Equal(Meter& meter, const Value& a, const Value& b, int depth) {
  CheckNesting(depth);
  meter.ChargeText(a.is_string() && b.is_string() && a.s->size == b.s->size ? a.s->size : 0);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      return a.str() == b.str();
    case Type::kSeq: {
      if (a.seq == b.seq) return true;
      if (a.seq->kind != b.seq->kind || a.seq->kind == SeqKind::kIterator || a.seq->kind == SeqKind::kValues)
        return false;
      if (a.seq->size != b.seq->size) return false;
      for (size_t k = 0; k < a.seq->size; ++k) {
        if (!Equal(meter, a.seq->items[k], b.seq->items[k], depth + 1)) return false;
      }
      return true;
    }
    case Type::kDict: {
      if (a.dict == b.dict) return true;
      if (a.dict->size != b.dict->size) return false;
      for (size_t k = 0; k < a.dict->size; ++k) {
        const Value* other = FindItem(meter, *b.dict, a.dict->items[k].key);
        if (other == nullptr || !Equal(meter, a.dict->items[k].value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Type::kFunction:
      return a.function == b.function;
    case Type::kMethod:
      return a.method == b.method;
    default:
      return a.ns == b.ns;  // identity
  }
}

int Compare(Meter& meter, const Value& a, const Value& b, const char* op, int depth) {
  CheckNesting(depth);
  meter.ChargeText(a.is_string() && b.is_string() ? std::min(a.s->size, b.s->size) : 0);
  if (a.is_undefined()) ThrowUndefined(a);
  if (b.is_undefined()) ThrowUndefined(b);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (a.is_string() && b.is_string()) {
    const int order = a.str().compare(b.str());  // UTF-8 bytes have the order of their code points
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_seq() && b.is_seq() && a.seq->kind == b.seq->kind &&
      (a.seq->kind == SeqKind::kList || a.seq->kind == SeqKind::kTuple)) {
    const size_t n = std::min(a.seq->size, b.seq->size);
    for (size_t k = 0; k < n; ++k) {
      if (!Equal(meter, a.seq->items[k], b.seq->items[k], depth + 1)) {
        return Compare(meter, a.seq->items[k], b.seq->items[k], op, depth + 1);
      }
    }
    return a.seq->size < b.seq->size ? -1 : a.seq->size > b.seq->size ? 1 : 0;
  }
  Throw("'" + std::string(op) + "' not supported between instances of '" + TypeName(a) + "' and '" + TypeName(b) + "'");
}

}  // namespace tactus::language::jinja
