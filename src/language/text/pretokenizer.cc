#include "language/text/pretokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "language/text/byte_alphabet.h"
#include "language/text/normalizer.h"
#include "language/text/regex.h"
#include "language/text/unicode.h"

namespace tactus::language {

const char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

using PreTokenizerKind = PreTokenizerStep::Kind;
using Piece = Pretokenizer::Piece;

// Receives the parts of a piece in order, matches and what is between them, and joins neighbours as the behaviour says.
class Parts {
 public:
  Parts(const Piece& whole, const PreTokenizerStep& step, std::vector<Piece>* out)
      : whole_(whole), behavior_(step.behavior), invert_(step.invert), out_(out) {}

  void Match(size_t begin, size_t end) {
    if (begin > at_) Add(at_, begin, invert_);
    Add(begin, end, !invert_);
    at_ = end;
  }
  void End() {
    if (whole_.text.size() > at_) Add(at_, whole_.text.size(), invert_);
    Flush();
  }

 private:
  void Add(size_t begin, size_t end, bool match) {
    const bool was_match = std::exchange(was_match_, match);
    bool joins = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kRemoved:
        if (match) return Flush();
        break;
      case SplitBehavior::kContiguous:
        joins = match == was_match;
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins = match && !was_match;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = !match && was_match;
        break;
    }
    if (!joins || !open_) {
      Flush();
      begin_ = begin;
    }
    open_ = true;
    end_ = end;
  }
  void Flush() {
    if (open_ && end_ > begin_) {
      out_->push_back({whole_.text.substr(begin_, end_ - begin_), whole_.at_start && begin_ == 0});
    }
    open_ = false;
  }

  const Piece whole_;
  const SplitBehavior behavior_;
  const bool invert_;
  std::vector<Piece>* out_;
  size_t at_ = 0;               // earlier text has been added
  size_t begin_ = 0, end_ = 0;  // the part that the next one may join
  bool open_ = false, was_match_ = false;
};

template <class InClass>
void MatchClass(std::string_view text, InClass in_class, Parts* parts) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    if (in_class(step.code_point)) parts->Match(at, at + step.size);
    at += step.size;
  }
}

// As Rust's regexes count word characters: Join_Control belongs to them.
void MatchWords(std::string_view text, Parts* parts) {
  const auto class_of = [](char32_t c) { return IsWordCharacter(c) ? 2 : IsWhiteSpace(c) ? 0 : 1; };
  size_t begin = 0;
  int now = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    const int next = class_of(step.code_point);
    if (next != now) {
      if (now != 0) parts->Match(begin, at);
      begin = at, now = next;
    }
    at += step.size;
  }
  if (now != 0) parts->Match(begin, text.size());
}

void MatchText(std::string_view text, std::string_view wanted, StopToken stop, Parts* parts) {
  for (size_t at = text.find(wanted); at != std::string_view::npos && !stop.stopped(); at = text.find(wanted, at)) {
    parts->Match(at, at + wanted.size());
    at += wanted.size();
  }
}

// As the reference does: a new piece begins where the script changes, characters of no script belong to the piece
// before, and those at the start of the text are lost.
void SplitAtScripts(const Piece& piece, std::vector<Piece>* out) {
  constexpr int kNone = -2;
  const std::string_view text = piece.text;
  int last = kNone;
  size_t begin = std::string_view::npos;
  const auto put = [&](size_t end) {
    if (begin < end) out->push_back({text.substr(begin, end - begin), piece.at_start && begin == 0});
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    const int script = ScriptOf(step.code_point);
    if (script >= 0) {
      if (script != last) put(at);
      last = script;
    }
    at += step.size;
  }
  put(text.size());
}

void SplitAtLength(const Piece& piece, int64_t length, std::vector<Piece>* out) {
  size_t begin = 0;
  int64_t characters = 0;
  for (size_t at = 0; at < piece.text.size();) {
    at += DecodeUtf8(piece.text.substr(at)).size;
    if (++characters < length && at < piece.text.size()) continue;
    out->push_back({piece.text.substr(begin, at - begin), piece.at_start && begin == 0});
    begin = at, characters = 0;
  }
}

void SplitAtSpaceRuns(const Piece& piece, std::vector<Piece>* out) {
  std::string_view text = piece.text;
  while (!text.empty()) {
    size_t spaces = 0;
    while (text.substr(spaces).starts_with(kSpaceSymbol)) spaces += kSpaceSymbol.size();
    const size_t size = std::min(text.size(), text.find(kSpaceSymbol, spaces));
    out->push_back({text.substr(0, size), piece.at_start && text.size() == piece.text.size()});
    text.remove_prefix(size);
  }
}

std::string Metaspace(const PreTokenizerStep& step, const Piece& piece) {
  const std::string& symbol = step.pattern.text;
  std::string text = ReplaceAll(piece.text, " ", symbol);
  const bool prepends = step.prepend == PreTokenizerStep::Prepend::kAlways ||
                        (step.prepend == PreTokenizerStep::Prepend::kFirst && piece.at_start);
  if (prepends && !text.starts_with(symbol)) text.insert(0, symbol);
  return text;
}

}  // namespace

struct Pretokenizer::Step {
  PreTokenizerStep spec;
  std::optional<Regex> regex;  // kSplit; else the pattern is a text

  void Apply(const Piece& piece, StopToken stop, std::vector<Piece>* out, std::deque<std::string>* storage) const;
};

void Pretokenizer::Step::Apply(const Piece& piece, StopToken stop, std::vector<Piece>* out,
                               std::deque<std::string>* storage) const {
  const std::string_view text = piece.text;
  Parts parts(piece, spec, out);
  const auto store = [&](std::string changed) {
    storage->push_back(std::move(changed));
    out->push_back({storage->back(), piece.at_start});
  };
  switch (spec.kind) {
    case PreTokenizerKind::kSplit:
      if (regex) {
        ForEachMatch(*regex, text, [&](size_t begin, size_t end) {
          parts.Match(begin, end);
          return end < text.size() && !stop.stopped();
        });
      } else {
        MatchText(text, spec.pattern.text, stop, &parts);
      }
      return parts.End();
    case PreTokenizerKind::kDigits:
      MatchClass(text, IsNumeric, &parts);
      return parts.End();
    case PreTokenizerKind::kPunctuation:
      MatchClass(text, IsPunctuation, &parts);
      return parts.End();
    case PreTokenizerKind::kWhiteSpace:
      MatchClass(text, IsWhiteSpace, &parts);
      return parts.End();
    case PreTokenizerKind::kWords:
      MatchWords(text, &parts);
      return parts.End();
    case PreTokenizerKind::kPrefixSpace:
      if (text.starts_with(' ')) {
        out->push_back(piece);
      } else {
        store(" " + std::string(text));
      }
      return;
    case PreTokenizerKind::kBytes:
      return store(SpellBytes(text));
    case PreTokenizerKind::kMetaspace:
      return store(Metaspace(spec, piece));
    case PreTokenizerKind::kUnicodeScripts:
      return SplitAtScripts(piece, out);
    case PreTokenizerKind::kFixedLength:
      return SplitAtLength(piece, spec.length, out);
    case PreTokenizerKind::kSpaceRuns:
      return SplitAtSpaceRuns(piece, out);
  }
}

Pretokenizer::Pretokenizer() = default;
Pretokenizer::~Pretokenizer() = default;

Result<std::unique_ptr<Pretokenizer>> Pretokenizer::Compile(std::vector<PreTokenizerStep> steps) {
  std::unique_ptr<Pretokenizer> result(new Pretokenizer);
  if (!steps.empty() && steps.back().kind == PreTokenizerKind::kBytes) {
    result->bytes_ = true;
    steps.pop_back();
  }
  for (PreTokenizerStep& spec : steps) {
    const bool matches = spec.kind <= PreTokenizerKind::kWords;
    result->drops_text_ |=
        (matches && spec.behavior == SplitBehavior::kRemoved) || spec.kind == PreTokenizerKind::kUnicodeScripts;
    Step step{std::move(spec), {}};
    if (step.spec.kind == PreTokenizerKind::kSplit && (step.spec.pattern.is_regex || step.spec.pattern.text.empty())) {
      TACTUS_ASSIGN_OR_RETURN(step.regex, Regex::Compile(step.spec.pattern.text));
    }
    result->steps_.push_back(std::move(step));
  }
  return result;
}

void Pretokenizer::Split(Piece text, std::vector<Piece>* pieces, std::deque<std::string>* storage,
                         StopToken stop) const {
  if (text.text.empty()) return;
  if (steps_.empty()) {
    pieces->push_back(text);
    return;
  }
  std::vector<Piece> now{text}, next;
  for (size_t i = 0; i < steps_.size(); ++i) {
    std::vector<Piece>* out = i + 1 == steps_.size() ? pieces : &next;
    next.clear();
    for (const Piece& piece : now) steps_[i].Apply(piece, stop, out, storage);
    now.swap(next);
  }
}

}  // namespace tactus::language
