// What a balancer goes by, read from the body of an OpenAI request: the model, about how many tokens its prompt has,
// and keys of its prompt's pieces, so that prompts that begin alike are seen to. Nobody tokenises here: four bytes of
// text count as a token. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace tactus::gateway {

inline constexpr int32_t kBytesPerToken = 4;
inline constexpr int32_t kPieceTokens = 64;  // of prompt text behind one key

struct RequestView {
  std::string model;          // empty: it names none
  int32_t prompt_tokens = 0;  // estimated
  std::vector<Hash128> keys;  // of the prompt's full pieces, each of all text up to its end
};

// `secret` keys the hash: nobody outside can make two prompts look alike. A body that is no JSON counts by its size and
// has no keys: the replica says what is wrong with it.
RequestView ViewRequest(std::string_view body, const Hash128& secret);
// Of a request whose body is not seen; negative: nothing is known of it.
RequestView ViewOfLength(int64_t body_bytes);

}  // namespace tactus::gateway
