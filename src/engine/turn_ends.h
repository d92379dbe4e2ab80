// Which tokens end an answer: those that the model's files name, control tokens that are known to be ends, and what the
// chat template puts behind an assistant's turn. Files are wrong about it often enough: an answer without its end runs
// on into turns that the model invents.
#pragma once

#include <string>
#include <vector>

#include "compute/model/end_token.h"
#include "compute/model/loader.h"
#include "engine/model_text.h"

namespace tactus::engine {

struct TurnEnds {
  std::vector<compute::EndToken> tokens;  // each once, those of the files first
  std::vector<std::string> warnings;      // where the files and the template differ, or name no end
  std::vector<TokenId> ids() const;
};

// Pure function of both.
TurnEnds FindTurnEnds(const compute::ModelDescription& description, const ModelText& text);

}  // namespace tactus::engine
