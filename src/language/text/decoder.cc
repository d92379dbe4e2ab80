#include "language/text/decoder.h"

#include <utility>

#include "language/text/byte_alphabet.h"
#include "language/text/normalizer.h"
#include "language/text/unicode.h"

namespace tactus::language {
namespace {

using DecoderKind = DecoderStep::Kind;

Status Refused(const char* name, const char* why) {
  return Unimplemented(std::string("tokenizer decoder ") + name + " " + why + " cannot be streamed");
}

// Joins what English writes together, as the reference does.
std::string CleanUp(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = ReplaceAll(text, from, to);
  return text;
}

std::string StripEnds(const DecoderStep& step, std::string_view text) {
  for (int64_t i = 0; i < step.start && text.starts_with(step.content); ++i) text.remove_prefix(step.content.size());
  for (int64_t i = 0; i < step.stop && text.ends_with(step.content); ++i) text.remove_suffix(step.content.size());
  return std::string(text);
}

std::string ReplaceMatches(const Regex& regex, std::string_view text, std::string_view content) {
  std::string out;
  size_t at = 0;
  ForEachMatch(regex, text, [&](size_t begin, size_t end) {
    out.append(text.substr(at, begin - at)).append(content);
    at = end;
    return true;
  });
  return out.append(text.substr(at));
}

}  // namespace

Result<TokenDecoder> TokenDecoder::Compile(const std::vector<DecoderStep>& steps) {
  TokenDecoder decoder;
  bool fused = false, bytes = false;  // the step before joins tokens, or the bytes of a character
  for (const DecoderStep& spec : steps) {
    Step step{spec, {}};
    switch (spec.kind) {
      case DecoderKind::kFuse:
        fused = true;
        continue;
      case DecoderKind::kByteLevel:
        if (fused || bytes) return Refused("ByteLevel", "after a decoder that joins tokens");
        fused = true;
        break;
      case DecoderKind::kByteFallback:
        if (fused) return Refused("ByteFallback", "after a decoder that joins tokens");
        bytes = true;
        break;
      case DecoderKind::kStrip:
        if (!fused) {
          if (bytes) return Refused("Strip", "between ByteFallback and Fuse");
          decoder.keeps_length_ &= spec.start + spec.stop == 0;
          break;
        }
        if (spec.stop != 0 || spec.start > 1 || spec.content != " ") {
          return Refused("Strip", "of more than one space at the start, after a decoder that joins tokens,");
        }
        decoder.strips_first_space_ |= spec.start == 1;
        continue;
      case DecoderKind::kReplace:
        if (fused || bytes) return Refused("Replace", "after a decoder that joins tokens");
        decoder.keeps_length_ &= spec.pattern.text == kSpaceSymbol && !spec.content.empty();
        if (spec.pattern.is_regex || spec.pattern.text.empty()) {
          TACTUS_ASSIGN_OR_RETURN(step.regex, Regex::Compile(spec.pattern.text));
        }
        break;
      case DecoderKind::kMetaspace:
        if (fused || bytes) return Refused("Metaspace", "after a decoder that joins tokens");
        break;
      case DecoderKind::kWordPiece:
      case DecoderKind::kBpe:
      case DecoderKind::kSpaces:
        if (fused || bytes) return Refused("of words", "after a decoder that joins tokens");
        decoder.keeps_length_ = false;
        break;
    }
    decoder.steps_.push_back(std::move(step));
  }
  return decoder;
}

std::string TokenDecoder::Apply(const Step& step, std::string token, bool first) const {
  const DecoderStep& spec = step.spec;
  switch (spec.kind) {
    case DecoderKind::kByteLevel: {
      std::string bytes;
      return BytesOfSpelling(token, &bytes) ? bytes : token;
    }
    case DecoderKind::kByteFallback: {
      const int byte = ByteOfFallbackToken(token);
      return byte < 0 ? token : std::string(1, static_cast<char>(byte));
    }
    case DecoderKind::kFuse:
      return token;
    case DecoderKind::kReplace:
      return step.regex ? ReplaceMatches(*step.regex, token, spec.content)
                        : ReplaceAll(token, spec.pattern.text, spec.content);
    case DecoderKind::kStrip:
      return StripEnds(spec, token);
    case DecoderKind::kMetaspace:
      return ReplaceAll(token, spec.pattern.text, first && spec.flag ? "" : " ");
    case DecoderKind::kWordPiece:
      if (!first) token = token.starts_with(spec.content) ? token.substr(spec.content.size()) : " " + token;
      return spec.flag ? CleanUp(std::move(token)) : token;
    case DecoderKind::kBpe:
      return ReplaceAll(token, spec.content, " ");
    case DecoderKind::kSpaces:
      return first ? token : " " + token;
  }
  return token;
}

std::string TokenDecoder::Bytes(std::string_view token, bool first) const {
  std::string bytes(token);
  for (const Step& step : steps_) bytes = Apply(step, std::move(bytes), first);
  if (first && strips_first_space_ && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

size_t TokenDecoder::DroppedAtEnd(std::string_view token) const {
  // The suffix of a word's last token is a space, except at the end of the text.
  const bool drops = !steps_.empty() && steps_.back().spec.kind == DecoderKind::kBpe;
  return drops && !token.empty() && token.ends_with(steps_.back().spec.content) ? 1 : 0;
}

}  // namespace tactus::language
