#include "engine/class_objectives.h"

#include <algorithm>

namespace tactus::engine {

Status ClassObjectives::Set(const std::vector<std::string>& slo_class) {
  TACTUS_ASSIGN_OR_RETURN(std::vector<ServiceClass> given, ParseServiceClasses(slo_class));
  const auto same_but_objectives = [](const ServiceClass& a, const ServiceClass& b) {
    return a.name == b.name && a.weight == b.weight && a.share == b.share && a.gate == b.gate;
  };
  if (!std::equal(given.begin(), given.end(), started_.begin(), started_.end(), same_but_objectives)) {
    return InvalidArgument(
        "--slo-class: only objectives (ttft, tbt, jct) of the classes can change while the server runs; restart it to "
        "change names, weights, shares or gates",
        "slo-class");
  }
  auto classes = std::make_shared<const std::vector<ServiceClass>>(std::move(given));
  std::lock_guard lock(mutex_);
  classes_.swap(classes);
  return Status();
}

}  // namespace tactus::engine
