// The units of a step's attention plans among the data that go to the device (step_buffer.h).
#pragma once

#include <span>
#include <vector>

#include "compute/cuda/attention_plan.h"
#include "compute/cuda/decoder.h"
#include "compute/cuda/step_buffer.h"

namespace tactus::compute::cuda {

class PlacedUnits {
 public:
  void Place(StepBuffer& b, std::span<const AttentionPlan> plans) {
    places_.clear();
    for (const AttentionPlan& p : plans) {
      places_.push_back({.decodes = b.Place<AttentionUnit>(std::ssize(p.decodes)),
                         .chunks = b.Place<AttentionUnit>(std::ssize(p.chunks)),
                         .members = b.Place<AttentionMember>(std::ssize(p.members)),
                         .merges = b.Place<AttentionMerge>(std::ssize(p.merges))});
    }
  }
  void Fill(const StepBuffer& b, std::span<const AttentionPlan> plans) const {
    for (size_t i = 0; i < plans.size(); ++i) {
      b.Fill(places_[i].decodes, std::span<const AttentionUnit>(plans[i].decodes));
      b.Fill(places_[i].chunks, std::span<const AttentionUnit>(plans[i].chunks));
      b.Fill(places_[i].members, std::span<const AttentionMember>(plans[i].members));
      b.Fill(places_[i].merges, std::span<const AttentionMerge>(plans[i].merges));
    }
  }
  std::vector<DeviceUnits> Units(const StepBuffer& b, std::span<const AttentionPlan> plans) const {
    std::vector<DeviceUnits> units;
    for (size_t i = 0; i < plans.size(); ++i) {
      units.push_back({.decodes = b.Device<AttentionUnit>(places_[i].decodes),
                       .chunks = b.Device<AttentionUnit>(places_[i].chunks),
                       .members = b.Device<AttentionMember>(places_[i].members),
                       .merges = b.Device<AttentionMerge>(places_[i].merges),
                       .num_decodes = std::ssize(plans[i].decodes),
                       .num_chunks = std::ssize(plans[i].chunks),
                       .num_merges = std::ssize(plans[i].merges)});
    }
    return units;
  }

 private:
  struct Places {
    int64_t decodes, chunks, members, merges;
  };
  std::vector<Places> places_;  // by plan
};

}  // namespace tactus::compute::cuda
