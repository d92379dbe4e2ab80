#include "language/text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace tactus::language {
namespace {

// The last character of valid UTF-8 text (not empty).
std::string_view LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text.substr(at);
}

// Assigned in that version of Unicode or an earlier one.
bool IsOfUnicode(char32_t c, int version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && (age[0] < version || (age[0] == version && age[1] == 0));
}

uint32_t CategoryMask(char32_t c) {
  return U_GET_GC_MASK(static_cast<UChar32>(c));
}

// The reference's tables are those of Unicode 9: newer marks stay in place and compose with nothing.
struct Unicode9 {
  icu::UnicodeSet characters;
  const icu::Normalizer2* canonical = nullptr;
  std::unique_ptr<icu::FilteredNormalizer2> of_form[4];

  static const Unicode9& Get() {
    static const Unicode9 kInstance;
    return kInstance;
  }
  Unicode9() {
    UErrorCode error = U_ZERO_ERROR;
    const icu::Normalizer2* newest[] = {
        icu::Normalizer2::getNFCInstance(error), icu::Normalizer2::getNFDInstance(error),
        icu::Normalizer2::getNFKCInstance(error), icu::Normalizer2::getNFKDInstance(error)};
    canonical = newest[0];
    characters.applyPattern(UNICODE_STRING_SIMPLE("[:age=9.0:]"), error).freeze();
    for (size_t i = 0; i < std::size(newest) && U_SUCCESS(error); ++i) {
      of_form[i] = std::make_unique<icu::FilteredNormalizer2>(*newest[i], characters);
    }
  }

  // ICU sorts marks by insertion: a megabyte of marks in the wrong order would take hours. Long runs of marks are
  // decomposed and sorted here, which does not change their normal forms. Empty: nothing to do.
  std::string OrderLongMarkRuns(std::string_view text) const;

 private:
  struct Mark {
    uint8_t combining_class;
    UChar32 character;
  };
  // Appends the decomposition of `c`; false: not a mark, so neither it nor its decomposition is reordered.
  bool AppendMarks(UChar32 c, std::vector<Mark>* marks) const {
    if (c < 0x300 || !characters.contains(c)) return false;
    icu::UnicodeString parts;
    if (!canonical->getDecomposition(c, parts)) parts.setTo(c);
    if (canonical->getCombiningClass(parts.char32At(0)) == 0) return false;
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
      marks->push_back({canonical->getCombiningClass(parts.char32At(i)), parts.char32At(i)});
    }
    return true;
  }
};

std::string Unicode9::OrderLongMarkRuns(std::string_view text) const {
  constexpr size_t kLongRun = 64;
  std::string out;
  size_t copied = 0;     // earlier text is in out
  size_t run_begin = 0;  // start of the marks that end at `at`
  std::vector<Mark> marks;
  const auto end_run = [&](size_t at) {
    if (marks.size() > kLongRun) {
      std::stable_sort(marks.begin(), marks.end(),
                       [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
      out += text.substr(copied, run_begin - copied);
      for (const Mark& mark : marks) AppendUtf8(static_cast<char32_t>(mark.character), &out);
      copied = at;
    }
    marks.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    if (marks.empty()) run_begin = at;
    if (!AppendMarks(static_cast<UChar32>(step.code_point), &marks) && !marks.empty()) end_run(at);
    at += step.size;
  }
  end_run(text.size());
  return copied == 0 ? std::string() : out.append(text.substr(copied));
}

}  // namespace

bool IsWhiteSpace(char32_t c) {
  return u_isUWhiteSpace(static_cast<UChar32>(c));
}

bool IsWordCharacter(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_isUAlphabetic(point) || (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL);
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(DecodeUtf8(text).code_point);
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(DecodeUtf8(LastCharacter(text)).code_point);
}

size_t LeadingWhiteSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Step step = DecodeUtf8(text.substr(size));
    if (!IsWhiteSpace(step.code_point)) break;
    size += step.size;
  }
  return size;
}

size_t TrailingWhiteSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const std::string_view last = LastCharacter(text.substr(0, text.size() - size));
    if (!IsWhiteSpace(DecodeUtf8(last).code_point)) break;
    size += last.size();
  }
  return size;
}

bool IsNumeric(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : (CategoryMask(c) & U_GC_N_MASK) != 0;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  if (c == 0x166D || c == 0x111C9) return true;  // have since become a symbol and a mark
  return (CategoryMask(c) & U_GC_P_MASK) != 0 && IsOfUnicode(c, 8);
}

bool IsControl(char32_t c) {
  return (CategoryMask(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK)) != 0 && IsOfUnicode(c, 8);
}

bool IsNonspacingMark(char32_t c) {
  // Has since become a spacing mark; have since become nonspacing ones.
  if (c == 0x1734) return true;
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;
  return c >= 0x300 && (CategoryMask(c) & U_GC_MN_MASK) != 0 && IsOfUnicode(c, 8);
}

bool IsCombiningMark(char32_t c) {
  // Have since become letters; has since become a mark.
  if (c == 0x1CF2 || c == 0x1CF3) return true;
  if (c == 0x111C9) return false;
  return c >= 0x300 && (CategoryMask(c) & U_GC_M_MASK) != 0 && IsOfUnicode(c, 9);
}

bool IsIdeograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

int ScriptOf(char32_t c) {
  if (c == ' ' || !IsOfUnicode(c, 9)) return -1;
  if (c == 0x30FC) return USCRIPT_HAN;
  if (c == 0x0953 || c == 0x0954) return USCRIPT_DEVANAGARI;  // these four have since moved
  if (c == 0x0589 || c == 0x061C) return USCRIPT_COMMON;
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &error);
  if (script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA) return USCRIPT_HAN;
  return script == USCRIPT_UNKNOWN ? -1 : script;
}

void AppendLowercase(char32_t c, std::string* out) {
  AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
  if (c == 0x130) AppendUtf8(0x307, out);  // the only character with a longer lower case
}

std::string NormalizeUnicode(NormalForm form, std::string_view text) {
  const Unicode9& tables = Unicode9::Get();
  const auto& normalizer = tables.of_form[static_cast<size_t>(form)];
  if (!normalizer) return std::string(text);  // ICU without its data: Debian links the data in
  const std::string ordered = tables.OrderLongMarkRuns(text);
  if (!ordered.empty()) text = ordered;
  UErrorCode error = U_ZERO_ERROR;
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  return U_FAILURE(error) ? std::string(text) : out;
}

}  // namespace tactus::language
