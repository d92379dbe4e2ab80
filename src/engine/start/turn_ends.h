// The tokens that end an answer: those named by the model's files, control tokens that are known ends, and the token
// that the chat template writes after an assistant's turn. Files are often wrong about it: an answer without its end
// token continues into turns that the model invents.
#pragma once

#include <string>
#include <vector>

#include "compute/model/end_token.h"
#include "compute/weights/model_description.h"
#include "engine/start/model_text.h"

namespace tactus::engine {

struct TurnEnds {
  std::vector<compute::EndToken> tokens;  // without duplicates, those of the files first
  std::vector<std::string> warnings;      // if the files and the template differ, or name no end
  std::vector<TokenId> ids() const;
};

// Pure function.
TurnEnds FindTurnEnds(const compute::ModelDescription& description, const ModelText& text);

}  // namespace tactus::engine
