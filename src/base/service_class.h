// Classes of service, as an operator declares them: what a request of the class is promised unless it says otherwise,
// and how classes share the machine. Immutable once made: any thread.
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
  Slo slo;            // of its requests that state none of the kind
  double weight = 1;  // what a client of the class gets beside a client of weight 1, where clients share (order vtc)
  double share = 0;   // in [0, 1]: of the prompt tokens that start while one of its requests waits, at least so many
  std::string gate;   // of its requests (sched/gate/); empty: that of all
};

inline constexpr size_t kMostServiceClasses = 32;  // as many as a result tells apart
inline constexpr double kLeastClassWeight = 0.01, kMostClassWeight = 100;

// NAME:ttft=500ms,tbt=50ms,jct=10s,weight=4,share=20%,gate=shed, one text for each class; the fields in any order, each
// at most once; all shares together at most 100 %. kInvalidArgument (param "slo-class") names what is wrong.
Result<std::vector<ServiceClass>> ParseServiceClasses(const std::vector<std::string>& texts);
// What ParseServiceClasses reads back.
std::string TextOf(const ServiceClass& service_class);

// 1 + the index of the class of this name; 0: there is none.
uint8_t FindServiceClass(const std::vector<ServiceClass>& classes, std::string_view name);
// The request gets the objectives of its class that it does not state itself. Where classes are declared an unknown
// name is refused (kInvalidArgument, param "slo.class"); where none are, a name is a label of metrics.
Status ApplyServiceClass(const std::vector<ServiceClass>& classes, Request* request);

}  // namespace tactus
