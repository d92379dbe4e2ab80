// Tokenisers from hostile files, on hostile text. The first byte chooses the file's format; the rest is the file, then
// after two zero bytes the text. An accepted tokeniser must encode without a fault, return only ids of its vocabulary,
// and stream the same text as it decodes. Seeds: the files tokenizer.json below tests/language/text/data, each after a
// 'j', tokenizer.model after an 's', and tekken.json after a 't'.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "language/text/tokenizer.h"
#include "language/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  // A model file contains zero bytes itself, so the text is the file's own bytes.
  const size_t split = data[0] == 's' ? std::string_view::npos : input.find(std::string_view("\0\0", 2));
  const std::string_view file = input.substr(0, split);
  const std::string_view text = split == std::string_view::npos ? input.substr(0, 200) : input.substr(split + 2);
  Result<language::TokenizerSpec> spec = data[0] == 's'   ? language::ParseSentencePieceModel(file)
                                         : data[0] == 't' ? language::ParseTekkenJson(file)
                                                          : language::ParseTokenizerJson(file);
  if (!spec.ok()) return 0;
  // Skips large vocabularies, which a large legal id creates: they take too much time.
  if (spec->tokens.size() > 20'000) return 0;
  const Result<std::unique_ptr<language::Tokenizer>> made = language::MakeTokenizer(std::move(*spec));
  if (!made.ok()) return 0;
  const language::Tokenizer& tokenizer = **made;
  for (const bool special : {false, true}) {
    const std::vector<TokenId> ids = tokenizer.Encode(text, special, special);
    std::string streamed;
    language::Detokenizer detokenizer(&tokenizer, special);
    for (const TokenId id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
      streamed += detokenizer.Append(id);
      if (!IsValidUtf8(streamed)) std::abort();
    }
    if (streamed + detokenizer.Flush() != tokenizer.Decode(ids, special)) std::abort();
  }
  return 0;
}
