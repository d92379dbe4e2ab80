// A second, simple implementation of Vidur's rules, written from their description alone: lists and doubles, no engine.
// It computes the logs for any parameters, so that the engine is compared on far more cases than there are logs.
#pragma once

#include "vidur/vidur_case.h"
#include "vidur/vidur_tables.h"

namespace tactus::vidur {

// Stops before a step that leaves the rules' scope (Log::left_scope), and when nothing can run any more.
Log ReplayRules(const Rules& rules, const std::vector<TraceRequest>& requests, const Tables& tables);

}  // namespace tactus::vidur
