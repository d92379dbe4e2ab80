// The lists of a step's FlashInfer plans among the data that go to the device (step_buffer.h), as step_units.h has
// those of our own.
#pragma once

#include <span>
#include <vector>

#include "compute/cuda/flashinfer_plan.h"
#include "compute/cuda/step_buffer.h"

namespace tactus::compute::cuda {

class PlacedFlashInfer {
 public:
  void Place(StepBuffer& b, std::span<const FlashInferPlan> plans) {
    places_.clear();
    ForLists(plans, [&](const auto& list) {
      using Value = typename std::decay_t<decltype(list)>::value_type;
      places_.push_back(b.Place<Value>(std::ssize(list)));
    });
  }
  void Fill(const StepBuffer& b, std::span<const FlashInferPlan> plans) const {
    size_t n = 0;
    ForLists(plans, [&](const auto& list) { b.Fill(places_[n++], std::span(list)); });
  }
  // Calls with the lists on the device, and all else empty.
  std::vector<FlashInferCall> Calls(const StepBuffer& b, std::span<const FlashInferPlan> plans) const {
    std::vector<FlashInferCall> calls;
    size_t n = 0;
    const auto next = [&] { return b.Device<int32_t>(places_[n++]); };
    for (const FlashInferPlan& plan : plans) {
      FlashInferCall& call = calls.emplace_back();
      call.items = std::ssize(plan.last_page_tokens);
      call.first_token = next();
      call.first_page = next();
      call.pages = next();
      call.last_page_tokens = next();
      call.kv_chunk = next();
      call.first_partial = next();
      call.first_of_token = next();
      const auto units = [&](const FlashInferPlan::Units& from) {
        FlashInferUnits to;
        to.items = next();
        to.q_tiles = next();
        to.kv_tiles = next();
        to.valid = b.Device<bool>(places_[n++]);
        to.count = std::ssize(from.items);
        to.tile_rows = from.tile_rows;
        to.split = from.split;
        return to;
      };
      call.decodes = units(plan.decodes);
      call.chunks = units(plan.chunks);
    }
    return calls;
  }
  // The lengths on which launches depend.
  static void AddLengths(std::span<const FlashInferPlan> plans, std::vector<int64_t>* lengths) {
    ForLists(plans, [&](const auto& list) { lengths->push_back(std::ssize(list)); });
  }

 private:
  // f(list) for each list of each plan, in the order of Calls.
  template <class F>
  static void ForLists(std::span<const FlashInferPlan> plans, F f) {
    for (const FlashInferPlan& p : plans) {
      for (const auto* list : {&p.first_token, &p.first_page, &p.pages, &p.last_page_tokens, &p.kv_chunk,
                               &p.first_partial, &p.first_of_token}) {
        f(*list);
      }
      for (const FlashInferPlan::Units* units : {&p.decodes, &p.chunks}) {
        for (const auto* list : {&units->items, &units->q_tiles, &units->kv_tiles}) f(*list);
        f(units->valid);
      }
    }
  }

  std::vector<int64_t> places_;  // by plan and list
};

}  // namespace tactus::compute::cuda
