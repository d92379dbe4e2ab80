// CUDA graphs of decode steps. A step's forward pass is hundreds of launches; as a graph it is one call. All steps
// whose launches have the same arguments share a graph: the arguments are functions of a key, and a step's data are in
// the same memory of the device as every step's.
//
// A key's first step is launched without a graph, which also loads its kernels, the second one is recorded. Where the
// device has no memory for a graph, the step runs without it. One thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "compute/cuda/runtime.h"

namespace tactus::compute::cuda {

class StepGraphs {
 public:
  using Key = std::vector<int64_t>;  // the sizes of the step's arrays

  // The number of rows that a step of `decodes` is padded to, at most `most`. 0: it gets no graph.
  static int64_t RowsFor(int64_t decodes, int64_t most);

  // Enqueues the work of `key`, which `launch` enqueues. Not ok: the device has failed.
  template <class Launch>
  Status Run(Stream& s, const Key& key, Launch launch) {
    Entry& entry = EntryOf(key);
    if (entry.graph == nullptr) {
      if (!entry.seen) {
        entry.seen = true;
        launch();
        return Status();
      }
      s.BeginCapture();
      try {
        launch();
      } catch (...) {
        s.EndCapture();
        throw;
      }
      entry.graph = s.EndCapture();
      if (entry.graph == nullptr) {
        TACTUS_RETURN_IF_ERROR(DeviceStatus());
        Clear();  // gives memory back
        launch();
        return Status();
      }
      ++recorded_;
    }
    s.Run(*entry.graph);
    ++runs_;
    return Status();
  }
  // Forgets all graphs: memory that they use has moved. One that still runs is freed when it ends.
  void Clear() { entries_.clear(); }

  int64_t recorded() const { return recorded_; }
  int64_t runs() const { return runs_; }

 private:
  struct Entry {
    bool seen = false;
    std::unique_ptr<Graph> graph;
  };
  Entry& EntryOf(const Key& key);

  std::map<Key, Entry> entries_;
  int64_t recorded_ = 0, runs_ = 0;
};

}  // namespace tactus::compute::cuda
