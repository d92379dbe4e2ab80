// What the scheduler uses of the tables in choices.def and presets.def.
#pragma once

#include <string>

#include "core/sched/scheduler.h"

namespace tactus::core {

// kInvalidArgument lists the known names.
Result<const PresetInfo*> FindPreset(const std::string& name);

// kInvalidArgument: a knob is set that none of the choices declares and that must not be ignored
// (KnobDeclaration::elsewhere).
Status CheckKnobsFit(const SchedulerConfig& config);

// Makes every missing choice by its name in `config`, lays out the notes, and collects the traits of all choices.
Result<ChoiceTraits> MakeChoices(const SchedulerConfig& config, InjectedChoices* choices);

}  // namespace tactus::core
