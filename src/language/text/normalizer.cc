#include "language/text/normalizer.h"

#include <optional>

#include "language/text/byte_alphabet.h"
#include "language/text/precompiled_map.h"
#include "language/text/regex.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

using NormalizerKind = NormalizerStep::Kind;

// Calls put(c, character) for each character, and returns what put appended. A character for which nothing is appended
// is dropped; at the start of the text that clears *at_start.
template <class Put>
std::string MapCharacters(std::string_view text, bool* at_start, Put put) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    put(step.code_point, text.substr(at, step.size), &out);
    if (out.empty() && at == 0) *at_start = false;
    at += step.size;
  }
  return out;
}

std::string Nmt(std::string_view text, bool* at_start) {
  return MapCharacters(text, at_start, [](char32_t c, std::string_view character, std::string* out) {
    const bool dropped =
        (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    if (space) {
      *out += ' ';
    } else if (!dropped) {
      *out += character;
    }
  });
}

std::string Bert(const NormalizerStep& step, std::string text, bool* at_start) {
  if (step.clean_text) {
    text = MapCharacters(text, at_start, [](char32_t c, std::string_view character, std::string* out) {
      if (c == '\t' || c == '\n' || c == '\r') {
        *out += ' ';
      } else if (c != 0 && c != kReplacementCharacter && !IsControl(c)) {
        *out += IsWhiteSpace(c) ? " " : character;
      }
    });
  }
  if (step.chinese) {
    text = MapCharacters(text, at_start, [](char32_t c, std::string_view character, std::string* out) {
      const bool wide = IsIdeograph(c);
      if (wide) *out += ' ';
      *out += character;
      if (wide) *out += ' ';
    });
  }
  if (step.strip_accents) {
    text = MapCharacters(NormalizeUnicode(NormalForm::kNfd, text), at_start,
                         [](char32_t c, std::string_view character, std::string* out) {
                           if (!IsNonspacingMark(c)) *out += character;
                         });
  }
  if (!step.lower) return text;
  return MapCharacters(text, at_start, [](char32_t c, std::string_view, std::string* out) { AppendLowercase(c, out); });
}

std::string Strip(const NormalizerStep& step, std::string_view text, bool* at_start) {
  const size_t left = step.left ? LeadingWhiteSpace(text) : 0;
  if (left > 0) *at_start = false;
  text.remove_prefix(left);
  if (step.right) text.remove_suffix(TrailingWhiteSpace(text));
  return std::string(text);
}

// As tokenizers does: what replaces a short grapheme cluster, or else a character, is what replaces the shortest text
// of the map that it begins with; the rest of it is lost.
std::string MapClusters(const PrecompiledMap& map, std::string_view text) {
  constexpr size_t kShort = 6;
  std::string out;
  out.reserve(text.size());
  std::string_view replacement;
  size_t size = 0;
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, GraphemeSize(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() < kShort && map.Find(cluster, false, &replacement, &size)) {
      out += replacement;
      continue;
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, DecodeUtf8(cluster).size);
      out += map.Find(character, false, &replacement, &size) ? replacement : character;
      cluster.remove_prefix(character.size());
    }
  }
  return out;
}

std::string CollapseSpaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

struct Normalizer::Step {
  const NormalizerStep* spec;
  std::optional<Regex> regex;  // kReplace
  PrecompiledMap map;          // kPrecompiled, kLongestPrefix
  ByteTrie user_defined;       // kLongestPrefix: pieces that the map does not change

  std::string Apply(std::string text, bool* at_start) const;
  std::string Replace(std::string_view text, bool* at_start) const;
  std::string MapPrefixes(std::string_view text) const;
};

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

std::string Normalizer::Step::Replace(std::string_view text, bool* at_start) const {
  if (!regex) {
    if (spec->content.empty() && text.starts_with(spec->pattern.text)) *at_start = false;
    return ReplaceAll(text, spec->pattern.text, spec->content);
  }
  std::string out;
  size_t at = 0;
  ForEachMatch(*regex, text, [&](size_t begin, size_t end) {
    if (begin == 0 && end > 0 && spec->content.empty()) *at_start = false;
    out.append(text.substr(at, begin - at)).append(spec->content);
    at = end;
    return true;
  });
  return out.append(text.substr(at));
}

std::string Normalizer::Step::MapPrefixes(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  std::string_view replacement;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    size = 0;
    int32_t node = ByteTrie::kRoot;
    for (size_t i = at; i < text.size(); ++i) {
      node = user_defined.Next(node, text[i]);
      if (node == ByteTrie::kNone) break;
      if (user_defined.Value(node) >= 0) size = i + 1 - at;
    }
    const std::string_view rest = text.substr(at);
    if (size == 0 && map.Find(rest, true, &replacement, &size)) {
      out += replacement;
      continue;
    }
    if (size == 0) size = DecodeUtf8(rest).size;
    out += rest.substr(0, size);
  }
  return out;
}

std::string Normalizer::Step::Apply(std::string text, bool* at_start) const {
  switch (spec->kind) {
    case NormalizerKind::kNfc:
      return NormalizeUnicode(NormalForm::kNfc, text);
    case NormalizerKind::kNfd:
      return NormalizeUnicode(NormalForm::kNfd, text);
    case NormalizerKind::kNfkc:
      return NormalizeUnicode(NormalForm::kNfkc, text);
    case NormalizerKind::kNfkd:
      return NormalizeUnicode(NormalForm::kNfkd, text);
    case NormalizerKind::kNmt:
      return Nmt(text, at_start);
    case NormalizerKind::kLowercase:
      return MapCharacters(text, at_start,
                           [](char32_t c, std::string_view, std::string* out) { AppendLowercase(c, out); });
    case NormalizerKind::kStrip:
      return Strip(*spec, text, at_start);
    case NormalizerKind::kStripAccents:
      return MapCharacters(text, at_start, [](char32_t c, std::string_view character, std::string* out) {
        if (!IsCombiningMark(c)) *out += character;
      });
    case NormalizerKind::kReplace:
      return Replace(text, at_start);
    case NormalizerKind::kPrepend:
      return text.empty() ? text : spec->content + text;
    case NormalizerKind::kPrecompiled:
      return MapClusters(map, text);
    case NormalizerKind::kBert:
      return Bert(*spec, std::move(text), at_start);
    case NormalizerKind::kByteLevel:
      return SpellBytes(text);
    case NormalizerKind::kLongestPrefix:
      return MapPrefixes(text);
    case NormalizerKind::kCollapseSpaces:
      return CollapseSpaces(text);
  }
  return text;
}

Normalizer::Normalizer() = default;
Normalizer::~Normalizer() = default;

Result<std::unique_ptr<Normalizer>> Normalizer::Compile(const TokenizerSpec& spec) {
  // U+1FBE U+0308 U+0301, 7 bytes, compose to the 2 of U+0390: no sequence shrinks more.
  constexpr size_t kNfcShrinksTo = 4;
  std::unique_ptr<Normalizer> result(new Normalizer);
  for (const NormalizerStep& step : spec.normalizers) {
    Step compiled{&step, {}, {}, {}};
    size_t shrinks_to = 0;
    if (step.kind == NormalizerKind::kReplace) {
      if (step.pattern.is_regex || step.pattern.text.empty()) {
        TACTUS_ASSIGN_OR_RETURN(compiled.regex, Regex::Compile(step.pattern.text));
      } else if (step.pattern.text == " " && step.content == kSpaceSymbol) {
        shrinks_to = 1;
      }
    } else if (step.kind == NormalizerKind::kPrecompiled || step.kind == NormalizerKind::kLongestPrefix) {
      TACTUS_ASSIGN_OR_RETURN(compiled.map, PrecompiledMap::Read(step.content));
      std::vector<std::pair<std::string_view, int32_t>> pieces;
      for (size_t i = 0; i < spec.kinds.size() && step.kind == NormalizerKind::kLongestPrefix; ++i) {
        if (spec.kinds[i] == TokenKind::kUserDefined) pieces.emplace_back(spec.tokens[i], 0);
      }
      compiled.user_defined = ByteTrie(std::move(pieces));
    } else if (step.kind == NormalizerKind::kNfc) {
      shrinks_to = kNfcShrinksTo;
    } else if (step.kind == NormalizerKind::kPrepend || step.kind == NormalizerKind::kCollapseSpaces) {
      shrinks_to = 1;
      result->collapses_spaces_ |= step.kind == NormalizerKind::kCollapseSpaces;
    }
    result->shrinks_to_ *= shrinks_to;
    result->steps_.push_back(std::move(compiled));
  }
  return result;
}

std::string Normalizer::Apply(std::string_view text, bool* at_start) const {
  std::string out(text);
  for (const Step& step : steps_) out = step.Apply(std::move(out), at_start);
  return out;
}

}  // namespace tactus::language
