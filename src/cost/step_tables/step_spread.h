// Variation of single steps about a model's step times. A profile states medians, one per kind of step; a served step
// takes more or less time. The spread is the standard deviation of ln(single step / model), separately for steps with
// prompt tokens and steps of decodes alone: 0.1 is 10 %.
//
// A profile stores it in its remarks, one line per kind. Files without these remarks state no spread, and programs that
// do not know them still read the file. Thread rule: plain functions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/step_time_model.h"
#include "cost/step_tables/step_table.h"
#include "tactus/status.h"

namespace tactus::cost {

struct StepSpread {
  double with_prompts = 0, decodes_only = 0;
  bool any() const { return with_prompts > 0 || decodes_only > 0; }
  bool operator==(const StepSpread&) const = default;
};

// One step in six then takes at least 2.7 times the median: no basis for planning.
inline constexpr double kMostSpread = 1;

// The spread of steps that were measured singly. A kind without measurements gets the other's spread; at most
// kMostSpread. Nothing: there are no steps.
std::optional<StepSpread> SpreadAbout(const StepTimeModel& model, std::span<const StepSample> single_steps);

// Writes to and reads from a profile's remarks. Nothing: a kind is missing. kDataLoss names an invalid value.
void NoteSpread(const StepSpread& spread, std::map<std::string, std::string>* remarks);
Result<std::optional<StepSpread>> NotedSpread(const std::map<std::string, std::string>& remarks);

// "17.4 % with prompts, 11.8 % without".
std::string SpreadText(const StepSpread& spread);

}  // namespace tactus::cost
