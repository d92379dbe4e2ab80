// How much single steps vary about the step times of a model. A profile states medians, one for each kind of step; a
// step that is served takes longer or shorter. The spread is the standard deviation of ln(single step / model), by
// itself for steps with prompt tokens and for steps of decodes alone: 0.1 is 10 %.
//
// A profile keeps it among its remarks, one line for each kind. Files without them say nothing of it, and programs that
// do not know them read the file all the same. Thread rule: plain functions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/step_time_model.h"
#include "cost/step_table.h"
#include "tactus/status.h"

namespace tactus::cost {

struct StepSpread {
  double with_prompts = 0, decodes_only = 0;
  bool any() const { return with_prompts > 0 || decodes_only > 0; }
  bool operator==(const StepSpread&) const = default;
};

// One step in six then takes 2.7 times the median or longer, which is no machine to plan for.
inline constexpr double kMostSpread = 1;

// Of steps that were measured one by one. A kind that was not measured is taken to vary as the other does; at most
// kMostSpread. Nothing: there is no step.
std::optional<StepSpread> SpreadAbout(const StepTimeModel& model, std::span<const StepSample> single_steps);

// In and out of a profile's remarks. Nothing: they do not state both kinds. kDataLoss names a value that is no spread.
void NoteSpread(const StepSpread& spread, std::map<std::string, std::string>* remarks);
Result<std::optional<StepSpread>> NotedSpread(const std::map<std::string, std::string>& remarks);

// "17.4 % with prompts, 11.8 % without".
std::string SpreadText(const StepSpread& spread);

}  // namespace tactus::cost
