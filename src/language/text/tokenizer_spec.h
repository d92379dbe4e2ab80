// All data of a tokeniser, as any file states it (tokenizer.json, tekken.json, tokenizer.model, GGUF metadata). Text
// passes through the normalizers, the added tokens are cut out of it, the pre-tokenizers split the rest into pieces,
// and the model turns each piece into ids. The decoders spell a token's text. Steps have the names and the meaning that
// Hugging Face's tokenizers gives them, and run in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tactus/request.h"

namespace tactus::language {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581, which spells a space in many vocabularies

// kAdded: an added token that the model's vocabulary lacks, so that no piece of text becomes it.
enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kByte, kUnused, kAdded };

// A literal text, or a regex in the syntax of Oniguruma.
struct TextPattern {
  std::string text;
  bool is_regex = false;

  bool operator==(const TextPattern&) const = default;
};

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kNmt,
    kLowercase,
    kStrip,
    kStripAccents,
    kReplace,
    kPrepend,
    kPrecompiled,  // `content`: a map of sentencepiece, applied to grapheme clusters and characters, as tokenizers does
    kBert,
    kByteLevel,
    kLongestPrefix,   // the same map applied to the longest prefix, as sentencepiece does
    kCollapseSpaces,  // sentencepiece's remove_extra_whitespaces
  } kind;
  TextPattern pattern = {};                                                    // kReplace
  std::string content;                                                         // kReplace, kPrepend and the maps
  bool left = true, right = true;                                              // kStrip
  bool clean_text = true, chinese = true, strip_accents = true, lower = true;  // kBert

  bool operator==(const NormalizerStep&) const = default;
};

// Treatment of a pattern's matches in a split.
enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kSplit,   // at `pattern`
    kDigits,  // the others up to kWhiteSpace: at characters of a class
    kPunctuation,
    kWhiteSpace,
    kWords,        // keeps runs of word characters and runs of others that are not white space
    kPrefixSpace,  // a space before a piece that does not begin with one
    kBytes,        // every byte becomes a character of GPT-2's alphabet
    kMetaspace,    // spaces become `pattern`, which may also be put before the piece
    kUnicodeScripts,
    kFixedLength,
    kSpaceRuns,  // before every run of U+2581 that follows another character
  } kind;
  TextPattern pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and what is between them change roles
  enum class Prepend : uint8_t { kAlways, kFirst, kNever } prepend = Prepend::kNever;  // kMetaspace
  int64_t length = 0;                                                                  // kFixedLength, in characters

  bool operator==(const PreTokenizerStep&) const = default;
};

struct DecoderStep {
  enum class Kind : uint8_t {
    kByteLevel,
    kByteFallback,
    kFuse,
    kReplace,
    kStrip,
    kMetaspace,
    kWordPiece,
    kBpe,
    kSpaces,  // a space before every token but the first: what a file without decoder means
  } kind;
  TextPattern pattern = {};     // kReplace; the symbol of kMetaspace
  std::string content;          // kReplace, kStrip (one character); the prefix of kWordPiece, the suffix of kBpe
  int64_t start = 0, stop = 0;  // kStrip, in characters
  bool flag = true;             // kWordPiece: cleans up; kMetaspace: a symbol was put before the text

  bool operator==(const DecoderStep&) const = default;
};

struct TokenizerSpec {
  enum class Model : uint8_t { kBpe, kSentencePieceBpe, kUnigram, kWordPiece, kWordLevel } model = Model::kBpe;
  std::vector<std::string> tokens;  // as spelled in the file (byte-level alphabet or U+2581 for space)
  std::vector<TokenKind> kinds;     // same length as tokens; empty: all normal
  std::vector<double> scores;       // kSentencePieceBpe and kUnigram; empty otherwise
  // sentencepiece adds up scores in single precision and prefers user-defined pieces; tokenizers does neither.
  bool sentencepiece_scores = false;
  std::vector<std::pair<std::string, std::string>> merges;  // kBpe, in rank order
  bool merges_by_id = false;   // kBpe over bytes: two tokens merge if their joint text is a token, by its id (tiktoken)
  bool ignore_merges = false;  // a whole piece in the vocabulary stays whole
  bool byte_fallback = false;  // unknown characters become the tokens <0x00> to <0xFF> of their bytes, if there are any
  bool fuse_unknown = false;   // one unknown token for a run of unknown characters
  std::string continuing_prefix, word_suffix;  // spelling of tokens within (kBpe, kWordPiece) and at the end of a word
  int64_t max_word_characters = 100;           // kWordPiece: a longer word is unknown

  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<DecoderStep> decoders;
  struct Added {
    std::string content;
    TokenId id;
    bool special;
    bool lstrip;
    bool rstrip;
    bool single_word;
    bool normalized;

    bool operator==(const Added&) const = default;
  };
  std::vector<Added> added;
  TokenId bos_id = -1, eos_id = -1, unk_id = -1;
  std::vector<TokenId> prefix, suffix;  // what add_special_tokens puts around a text
  std::vector<std::string> warnings;    // what the reader had to guess
};

// Adds the last step of a byte-level pre-tokenizer, and its decoder.
void AddByteLevel(TokenizerSpec* spec);
// Adds the normalizers and decoders of a sentencepiece model: its precompiled map (empty: none), its flags
// remove_extra_whitespaces and add_dummy_prefix, and U+2581 for a space.
void AddSentencePieceSteps(std::string map, bool collapses_spaces, bool dummy_prefix, TokenizerSpec* spec);

}  // namespace tactus::language
