#include "language/text/normalizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "language/text/byte_alphabet.h"
#include "language/text/precompiled_map.h"
#include "language/text/regex.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

using NormalizerKind = NormalizerStep::Kind;

// Every step knows how many of a text's first bytes stem from the first character of the original text (`origin`), and
// updates that number: a Metaspace that is put before the first piece alone looks at it. As in the reference, what
// replaces a character stems from it.

// Calls put(c, character) for each character, and returns what put appended.
template <class Put>
std::string MapCharacters(std::string_view text, size_t* origin, Put put) {
  std::string out;
  out.reserve(text.size());
  const size_t origin_end = std::exchange(*origin, 0);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    put(step.code_point, text.substr(at, step.size), &out);
    if (at < origin_end) *origin = out.size();
    at += step.size;
  }
  return out;
}

std::string ToForm(NormalForm form, std::string_view text, size_t* origin) {
  std::string out = NormalizeUnicode(form, text);
  if (*origin == 0 || out.empty()) return out;
  const std::string alone = NormalizeUnicode(form, text.substr(0, *origin));
  *origin = out.starts_with(alone) ? alone.size() : DecodeUtf8(out).size;  // else it is composed with what follows
  return out;
}

std::string Nmt(std::string_view text, size_t* origin) {
  return MapCharacters(text, origin, [](char32_t c, std::string_view character, std::string* out) {
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

std::string Bert(const NormalizerStep& step, std::string text, size_t* origin) {
  if (step.clean_text) {
    text = MapCharacters(text, origin, [](char32_t c, std::string_view character, std::string* out) {
      if (c == '\t' || c == '\n' || c == '\r') {
        *out += ' ';
      } else if (c != 0 && c != kReplacementCharacter && !IsControl(c)) {
        *out += IsWhiteSpace(c) ? " " : character;
      }
    });
  }
  if (step.chinese) {
    text = MapCharacters(text, origin, [](char32_t c, std::string_view character, std::string* out) {
      const bool wide = IsIdeograph(c);
      if (wide) *out += ' ';
      *out += character;
      if (wide) *out += ' ';
    });
  }
  if (step.strip_accents) {
    text = MapCharacters(ToForm(NormalForm::kNfd, text, origin), origin,
                         [](char32_t c, std::string_view character, std::string* out) {
                           if (!IsNonspacingMark(c)) *out += character;
                         });
  }
  if (!step.lower) return text;
  return MapCharacters(text, origin, [](char32_t c, std::string_view, std::string* out) { AppendLowercase(c, out); });
}

std::string Strip(const NormalizerStep& step, std::string_view text, size_t* origin) {
  const size_t left = step.left ? LeadingWhiteSpace(text) : 0;
  *origin -= std::min(*origin, left);
  text.remove_prefix(left);
  if (step.right) text.remove_suffix(TrailingWhiteSpace(text));
  return std::string(text);
}

// As tokenizers does: what replaces a short grapheme cluster, or else a character, is what replaces the shortest text
// of the map that it begins with; the rest of it is lost.
std::string MapClusters(const PrecompiledMap& map, std::string_view text, size_t* origin) {
  constexpr size_t kShort = 6;
  std::string out;
  out.reserve(text.size());
  std::string_view replacement;
  size_t size = 0, at = 0;
  const size_t origin_end = std::exchange(*origin, 0);
  // Characters replace each other one by one. A replacement of nothing at the start leaves the next to replace it.
  const auto put = [&](std::string_view from, std::string_view to) {
    out += to;
    const bool whole = DecodeUtf8(from).size == from.size();
    if (at < origin_end || (*origin == 0 && origin_end > 0 && out.size() == to.size())) {
      *origin = whole || to.empty() ? out.size() : out.size() - to.size() + DecodeUtf8(to).size;
    }
    at += from.size();
  };
  while (at < text.size()) {
    std::string_view cluster = text.substr(at, GraphemeSize(text.substr(at)));
    if (cluster.size() < kShort && map.Find(cluster, false, &replacement, &size)) {
      put(cluster, replacement);
      continue;
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, DecodeUtf8(cluster).size);
      put(character, map.Find(character, false, &replacement, &size) ? replacement : character);
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
  // At the end sentencepiece looks at the text in which U+2581 spells spaces.
  for (const size_t symbol = kSpaceSymbol.size(); out.ends_with(' ') || out.ends_with(kSpaceSymbol);) {
    out.resize(out.size() - (out.back() == ' ' ? 1 : symbol));
  }
  return out;
}

}  // namespace

struct Normalizer::Step {
  const NormalizerStep* spec;
  std::optional<Regex> regex;  // kReplace
  PrecompiledMap map;          // kPrecompiled, kLongestPrefix
  ByteTrie user_defined;       // kLongestPrefix: pieces that the map does not change

  std::string Apply(std::string text, size_t* origin) const;
  std::string Replace(std::string_view text, size_t* origin) const;
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

std::string Normalizer::Step::Replace(std::string_view text, size_t* origin) const {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  const size_t origin_end = std::exchange(*origin, 0);
  // What replaces several characters stems from the last one.
  const auto put = [&](size_t begin, size_t end) {
    out += text.substr(at, begin - at);
    if (at < origin_end) *origin = out.size() - (begin - std::min(begin, origin_end));
    out += spec->content;
    if (end <= origin_end) *origin = out.size();
    at = end;
    return true;
  };
  if (regex) {
    ForEachMatch(*regex, text, put);
  } else {
    const std::string& wanted = spec->pattern.text;
    for (size_t found = 0; (found = text.find(wanted, at)) != std::string_view::npos;)
      put(found, found + wanted.size());
  }
  if (at < origin_end) *origin = out.size() + origin_end - at;
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

std::string Normalizer::Step::Apply(std::string text, size_t* origin) const {
  switch (spec->kind) {
    case NormalizerKind::kNfc:
      return ToForm(NormalForm::kNfc, text, origin);
    case NormalizerKind::kNfd:
      return ToForm(NormalForm::kNfd, text, origin);
    case NormalizerKind::kNfkc:
      return ToForm(NormalForm::kNfkc, text, origin);
    case NormalizerKind::kNfkd:
      return ToForm(NormalForm::kNfkd, text, origin);
    case NormalizerKind::kNmt:
      return Nmt(text, origin);
    case NormalizerKind::kLowercase:
      return MapCharacters(text, origin,
                           [](char32_t c, std::string_view, std::string* out) { AppendLowercase(c, out); });
    case NormalizerKind::kStrip:
      return Strip(*spec, text, origin);
    case NormalizerKind::kStripAccents:
      return MapCharacters(text, origin, [](char32_t c, std::string_view character, std::string* out) {
        if (!IsCombiningMark(c)) *out += character;
      });
    case NormalizerKind::kReplace:
      return Replace(text, origin);
    case NormalizerKind::kPrepend:
      if (text.empty()) return text;
      if (*origin > 0) *origin += spec->content.size();
      return spec->content + text;
    case NormalizerKind::kPrecompiled:
      return MapClusters(map, text, origin);
    case NormalizerKind::kBert:
      return Bert(*spec, std::move(text), origin);
    case NormalizerKind::kByteLevel:
      *origin = SpellBytes(text.substr(0, *origin)).size();
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
  size_t origin = *at_start && !text.empty() ? DecodeUtf8(text).size : 0;
  for (const Step& step : steps_) out = step.Apply(std::move(out), &origin);
  *at_start = origin > 0;
  return out;
}

}  // namespace tactus::language
