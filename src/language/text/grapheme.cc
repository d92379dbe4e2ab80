// Extended grapheme clusters by the rules of UAX 29, whose numbers the comments give.
#include <unicode/uchar.h>

#include "language/text/unicode.h"

namespace tactus::language {
namespace {

struct GraphemeCharacter {
  int32_t kind;  // UGraphemeClusterBreak
  bool pictograph;
  size_t size;
};

GraphemeCharacter GraphemeCharacterAt(std::string_view text) {
  const Utf8Step step = DecodeUtf8(text);
  const auto c = static_cast<UChar32>(step.code_point);
  return {u_getIntPropertyValue(c, UCHAR_GRAPHEME_CLUSTER_BREAK),
          u_hasBinaryProperty(c, UCHAR_EXTENDED_PICTOGRAPHIC) != 0, step.size};
}

bool JoinsHangul(int32_t left, int32_t right) {  // GB6 to GB8
  switch (left) {
    case U_GCB_L:
      return right == U_GCB_L || right == U_GCB_V || right == U_GCB_LV || right == U_GCB_LVT;
    case U_GCB_LV:
    case U_GCB_V:
      return right == U_GCB_V || right == U_GCB_T;
    case U_GCB_LVT:
    case U_GCB_T:
      return right == U_GCB_T;
    default:
      return false;
  }
}

bool IsBreak(int32_t kind) {
  return kind == U_GCB_CONTROL || kind == U_GCB_CR || kind == U_GCB_LF;
}

}  // namespace

size_t GraphemeSize(std::string_view text) {
  const auto ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  if (ascii(0) && text[0] != '\r' && (text.size() == 1 || ascii(1))) return 1;
  GraphemeCharacter left = GraphemeCharacterAt(text);
  size_t size = left.size;
  bool pictograph = left.pictograph;  // the cluster is a pictograph and extending characters
  size_t flags = left.kind == U_GCB_REGIONAL_INDICATOR;
  while (size < text.size()) {
    const GraphemeCharacter right = GraphemeCharacterAt(text.substr(size));
    bool joins = false;
    if (IsBreak(left.kind) || IsBreak(right.kind)) {
      joins = left.kind == U_GCB_CR && right.kind == U_GCB_LF;  // GB3 to GB5
    } else if (right.kind == U_GCB_EXTEND || right.kind == U_GCB_ZWJ || right.kind == U_GCB_SPACING_MARK ||
               left.kind == U_GCB_PREPEND) {
      joins = true;  // GB9, GB9a, GB9b
    } else if (left.kind == U_GCB_ZWJ && right.pictograph) {
      joins = pictograph;  // GB11
    } else if (right.kind == U_GCB_REGIONAL_INDICATOR && left.kind == U_GCB_REGIONAL_INDICATOR) {
      joins = flags % 2 == 1;  // GB12, GB13
    } else {
      joins = JoinsHangul(left.kind, right.kind);
    }
    if (!joins) return size;
    pictograph = right.pictograph || (pictograph && (right.kind == U_GCB_EXTEND || right.kind == U_GCB_ZWJ));
    flags += right.kind == U_GCB_REGIONAL_INDICATOR;
    size += right.size;
    left = right;
  }
  return size;
}

}  // namespace tactus::language
