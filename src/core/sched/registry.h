// What the scheduler takes from the tables of choices.def and policies.def.
#pragma once

#include <string>

#include "core/sched/scheduler.h"

namespace tactus::core {

// kInvalidArgument lists the known ones.
Result<const PresetInfo*> FindPreset(const std::string& name);

// kInvalidArgument: a knob is set that none of the chosen declares and that must not be set in vain
// (KnobDeclaration::elsewhere).
Status CheckKnobsFit(const SchedulerConfig& config);

// Makes every choice that is not there yet by its name in `config`, lays out what they note, and asks all of them what
// they are like.
Result<ChoiceTraits> MakeChoices(const SchedulerConfig& config, InjectedChoices* choices);

}  // namespace tactus::core
