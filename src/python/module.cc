// tactus._native: what python/tactus is written over. Texts, numbers and lists; the classes that people see are in
// Python. Every call that may take long gives up the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "obs/run_result.h"
#include "python/answers.h"
#include "python/engine_handle.h"
#include "python/plan_job.h"
#include "python/simulate.h"
#include "python/status_error.h"
#include "sim/sim_options.h"
#include "tactus/version.h"

namespace tactus::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;
using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;

nb::dict ModelOf(EngineHandle& handle) {
  const EngineHandle::Use engine(handle);
  const ModelInfo& m = engine->model();
  nb::dict d;
  d["name"] = m.name;
  d["path"] = nb::bytes(m.path.data(), m.path.size());
  d["architecture"] = m.architecture;
  d["max_model_len"] = m.max_model_len;
  d["vocab_size"] = m.vocab_size;
  d["num_parameters"] = m.num_parameters;
  d["weight_format"] = m.weight_format;
  d["kernels"] = m.kernels;
  d["kv_tokens"] = engine->Stats().kv_blocks_total * handle.block_size();
  return d;
}

void BindEngine(nb::module_& m) {
  nb::class_<ReadyRequest>(m, "ReadyRequest")
      .def_prop_ro("sequences", [](const ReadyRequest& r) { return r.request.n; })
      .def_prop_ro("prompt_token_ids", [](const ReadyRequest& r) { return *r.request.prompt; })
      .def("place",
           [](ReadyRequest& r, int32_t position, int32_t kv_tokens) { r.request.planned = {position, kv_tokens}; });
  nb::class_<EngineHandle>(m, "Engine")
      .def(nb::init<const OptionTexts&>(), "options"_a, ReleaseGil())
      .def_prop_ro("start_up_lines", &EngineHandle::start_up_lines)
      .def_prop_ro("closed", &EngineHandle::closed)
      .def_prop_ro("model", &ModelOf)
      .def("close", &EngineHandle::Close, ReleaseGil())
      .def("prepare", &EngineHandle::Prepare, "body"_a, "chat"_a, "context_long"_a, ReleaseGil())
      .def(
          "tokenize",
          [](EngineHandle& e, const std::string& text, bool add_special) {
            return EngineHandle::Use(e)->Tokenize(text, add_special);
          },
          "text"_a, "add_special"_a, ReleaseGil())
      .def(
          "detokenize", [](EngineHandle& e, const std::vector<TokenId>& ids) { return e.Detokenize(ids); }, "tokens"_a,
          ReleaseGil())
      .def(
          "token_string", [](EngineHandle& e, TokenId token) { return EngineHandle::Use(e)->TokenString(token); },
          "token"_a)
      .def(
          "outcome", [](EngineHandle& e) { return ToJson(EngineHandle::Use(e)->Outcome()); }, ReleaseGil())
      .def("metrics", [](EngineHandle& e) { return EngineHandle::Use(e)->MetricsText(); }, ReleaseGil());
  nb::class_<Answers>(m, "Answers")
      .def(nb::init<std::shared_ptr<EngineHandle>, bool>(), "engine"_a, "pieces"_a)
      .def("submit", &Answers::Submit, "index"_a, "request"_a, ReleaseGil())
      .def("wait_for_room", &Answers::WaitForRoom, "request"_a, "timeout_s"_a, ReleaseGil())
      .def("wait", &Answers::Wait, "timeout_s"_a, ReleaseGil())
      .def("take_ended", &Answers::EndedToPython)
      .def("take_pieces", &Answers::PiecesToPython)
      .def("cancel", &Answers::Cancel, ReleaseGil());
  m.def("check_body", &CheckBody, "body"_a, "chat"_a, ReleaseGil());
  m.def("engine_options", &OptionNames<EngineOptions>);
}

void BindSimulation(nb::module_& m) {
  m.def("simulation_options", &OptionNames<SimOptions>);
  m.def("stop_simulations", &StopSimulations);
  m.def(
      "simulate",
      [](const OptionTexts& options) {
        SimulationText text;
        {
          nb::gil_scoped_release released;
          text = Simulate(options);
        }
        return nb::make_tuple(text.result, text.notes);
      },
      "options"_a);
}

void BindPlanner(nb::module_& m) {
  nb::class_<batch::BatchCostModel>(m, "PlanCosts")
      .def(
          "__init__",
          [](batch::BatchCostModel* self, double flops_per_token, double attention_flops, double kv_bytes_per_token,
             double flops_per_s, double bytes_per_s) {
            new (self)
                batch::BatchCostModel{flops_per_token, attention_flops, kv_bytes_per_token, flops_per_s, bytes_per_s};
          },
          nb::kw_only(), "flops_per_token"_a, "attention_flops"_a, "kv_bytes_per_token"_a, "flops_per_s"_a,
          "bytes_per_s"_a)
      .def_ro("flops_per_token", &batch::BatchCostModel::flops_per_token)
      .def_ro("attention_flops", &batch::BatchCostModel::attention_flops)
      .def_ro("kv_bytes_per_token", &batch::BatchCostModel::kv_bytes_per_token)
      .def_ro("flops_per_s", &batch::BatchCostModel::flops_per_s)
      .def_ro("bytes_per_s", &batch::BatchCostModel::bytes_per_s)
      .def_static("of", &PlanCostsOf, "model"_a, "device"_a, "tensor_parallel_size"_a = 1);
  nb::class_<JobPlanOptions>(m, "PlanOptions")
      .def(nb::init<>())
      .def_rw("cost", &JobPlanOptions::cost)
      .def_rw("order", &JobPlanOptions::order)
      .def_rw("shards", &JobPlanOptions::shards)
      .def_rw("kv_tokens", &JobPlanOptions::kv_tokens)
      .def_rw("split_share", &JobPlanOptions::split_share)
      .def_rw("overlap_linear", &JobPlanOptions::overlap_linear)
      .def_rw("overlap_quadratic", &JobPlanOptions::overlap_quadratic)
      .def_rw("seed", &JobPlanOptions::seed);
  nb::class_<PlannedJob>(m, "PlannedJob")
      .def(nb::init<int64_t>(), "memory_limit_bytes"_a)
      .def("add", &PlannedJob::Add, "prompt"_a, "max_tokens"_a, "exactly"_a, "group"_a)
      .def("plan", &PlannedJob::Plan, "options"_a);
}

}  // namespace
}  // namespace tactus::python

NB_MODULE(_native, m) {
  namespace python = tactus::python;
  m.attr("version") = tactus::Version();
  nanobind::set_leak_warnings(false);  // a thread that the end of the interpreter cuts off keeps its objects
  python::RegisterStatusError();
  python::BindEngine(m);
  python::BindSimulation(m);
  python::BindPlanner(m);
}
