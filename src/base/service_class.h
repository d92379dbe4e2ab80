// Service classes declared by the operator: default objectives of their requests, and how classes share the machine.
// Immutable: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus {

struct ServiceClass {
  std::string name;
  Slo slo;            // for its requests that do not state this objective
  double weight = 1;  // share of a client of the class relative to weight 1, if clients share (order vtc)
  double share = 0;   // in [0, 1]: minimum share of the prompt tokens that start while one of its requests waits
  std::string gate;   // gate of its requests (sched/gate/); empty: the general gate
};

inline constexpr size_t kMostServiceClasses = 32;  // the limit of results
inline constexpr double kLeastClassWeight = 0.01, kMostClassWeight = 100;

// NAME:ttft=500ms,tbt=50ms,jct=10s,weight=4,share=20%,gate=shed, one text for each class; the fields in any order, each
// at most once; all shares together at most 100 %. kInvalidArgument (param "slo-class") names the error.
Result<std::vector<ServiceClass>> ParseServiceClasses(const std::vector<std::string>& texts);
// A text that ParseServiceClasses can read.
std::string TextOf(const ServiceClass& service_class);

// 1 + the index of the class of this name; 0: none.
uint8_t FindServiceClass(const std::vector<ServiceClass>& classes, std::string_view name);
// Sets the objectives of the request's class that it does not state itself. If classes are declared, an unknown name is
// an error (kInvalidArgument, param "slo.class"); otherwise the name is only a label of metrics.
Status ApplyServiceClass(const std::vector<ServiceClass>& classes, Request* request);

}  // namespace tactus
