// The objectives of the service classes, which may change while the engine runs. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/service_class.h"

namespace tactus::engine {

class ClassObjectives {
 public:
  explicit ClassObjectives(const std::vector<ServiceClass>& started)
      : started_(started), classes_(std::make_shared<const std::vector<ServiceClass>>(started)) {}

  std::shared_ptr<const std::vector<ServiceClass>> Get() const {
    std::lock_guard lock(mutex_);
    return classes_;
  }
  // As Engine::SetServiceClasses: the scheduler has names, weights, shares and gates from the start.
  Status Set(const std::vector<std::string>& slo_class);

 private:
  const std::vector<ServiceClass> started_;
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<ServiceClass>> classes_;
};

}  // namespace tactus::engine
