#include "language/text/same_ids.h"

#include "base/printable.h"

namespace tactus::language {
namespace {

constexpr const char* kOddTexts[] = {
    "",
    " ",
    "  ",
    "\n",
    " \n\n  x",
    "Hello world",
    " Hello  world ",
    "I'm sure they'll've gone, DON'T you?",
    "12345 1,234.5 3x7 0x1F 2026-05-01",
    "\tif (a[i] >= b->c) { return !x; }\r\n\t// caf\xC3\xA9",
    "na\xC3\xAFve re\xCC\x81sume\xCC\x81 \xC3\x85ngstr\xC3\xB6m",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82 "
    "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 "
    "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87",
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB\xE2\x96\x81x \xE2\x96\x81",
    "https://example.org/a_b?c=%20d&e=f#g",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa--------________........",
};

Status CompareIds(const Tokenizer& from, const Tokenizer& to, std::string_view text, bool special) {
  if (from.Encode(text, special, special) == to.Encode(text, special, special)) return Status();
  return Unimplemented("the tokeniser would give other ids in the new file, for example for the text '" +
                       Printable(text.substr(0, 60)) + "'");
}

}  // namespace

Status CheckSameIds(const Tokenizer& from, const Tokenizer& to) {
  for (const char* text : kOddTexts) {
    for (const bool special : {false, true}) TACTUS_RETURN_IF_ERROR(CompareIds(from, to, text, special));
  }
  for (TokenId id = 0; id < from.vocab_size(); ++id) {
    if (from.IsSpecial(id)) {
      const std::string within = "a" + std::string(from.TokenText(id)) + "b";
      TACTUS_RETURN_IF_ERROR(CompareIds(from, to, within, true));
      continue;
    }
    const std::string text = from.Decode(std::span(&id, 1), false);
    TACTUS_RETURN_IF_ERROR(CompareIds(from, to, text, false));
  }
  return Status();
}

}  // namespace tactus::language
