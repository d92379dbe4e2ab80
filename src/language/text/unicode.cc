#include "language/text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

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

// The reference's tables are those of Unicode 9: newer marks stay in place and compose with nothing.
struct Unicode9Nfc {
  icu::UnicodeSet characters;
  const icu::Normalizer2* newest = nullptr;
  std::unique_ptr<icu::FilteredNormalizer2> normalizer;

  static const Unicode9Nfc& Get() {
    static const Unicode9Nfc kInstance;
    return kInstance;
  }
  Unicode9Nfc() {
    UErrorCode error = U_ZERO_ERROR;
    newest = icu::Normalizer2::getNFCInstance(error);
    characters.applyPattern(UNICODE_STRING_SIMPLE("[:age=9.0:]"), error).freeze();
    if (U_SUCCESS(error)) normalizer = std::make_unique<icu::FilteredNormalizer2>(*newest, characters);
  }

  // ICU sorts marks by insertion: a megabyte of marks in the wrong order would take hours. Long runs of marks are
  // decomposed and sorted here, which does not change their NFC. Empty: nothing to do.
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
    if (!newest->getDecomposition(c, parts)) parts.setTo(c);
    if (newest->getCombiningClass(parts.char32At(0)) == 0) return false;
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
      marks->push_back({newest->getCombiningClass(parts.char32At(i)), parts.char32At(i)});
    }
    return true;
  }
};

std::string Unicode9Nfc::OrderLongMarkRuns(std::string_view text) const {
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

std::string NormalizeNfc(std::string_view text) {
  const Unicode9Nfc& nfc = Unicode9Nfc::Get();
  if (!nfc.normalizer) return std::string(text);  // ICU without its data: Debian links the data in
  const std::string ordered = nfc.OrderLongMarkRuns(text);
  if (!ordered.empty()) text = ordered;
  UErrorCode error = U_ZERO_ERROR;
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  nfc.normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr,
                                error);
  return U_FAILURE(error) ? std::string(text) : out;
}

}  // namespace tactus::language
