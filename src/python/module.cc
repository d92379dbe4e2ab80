// tactus._native: the native part of python/tactus. It exchanges texts, numbers and lists; the public classes are in
// Python. Every call is Counted (python/calls.h) and releases the GIL if it may wait or take long.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "python/answers.h"
#include "python/calls.h"
#include "python/engine_handle.h"
#include "python/plan_job.h"
#include "python/simulate.h"
#include "python/status_error.h"
#include "sim/sim_options.h"
#include "tactus/version.h"

namespace tactus::python {

namespace nb = nanobind;

namespace {

using nb::literals::operator""_a;
using GivenOptions = std::vector<std::pair<std::string, nb::bytes>>;  // a path may be invalid UTF-8

constexpr size_t kLongBytes = 32 << 10;  // text size above which tokenising must be interruptible by Ctrl-C

std::string BytesOf(const nb::bytes& bytes) {
  return {bytes.c_str(), bytes.size()};
}

OptionTexts TextsOf(const GivenOptions& options) {
  OptionTexts texts;
  for (const auto& [name, text] : options) texts.emplace_back(name, BytesOf(text));
  return texts;
}

// Text that may be invalid UTF-8, such as paths.
nb::object Decoded(const std::string& text, const char* errors = "replace") {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), errors));
}

nb::object TextListOf(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(Decoded(text));
  return list;
}

nb::object KindsOf(const OptionTexts& options) {
  nb::dict kinds;
  for (const auto& [name, kind] : options) kinds[Decoded(name)] = Decoded(kind);
  return kinds;
}

// Short work runs on the calling thread without a check for Ctrl-C. `work(StopToken)`, without the GIL.
template <class Work>
auto WatchedIf(bool may_be_long, Work work) {
  return may_be_long ? Watched(work) : Away([&] { return work(StopToken(&CallsEnd())); });
}

nb::object ModelOf(EngineHandle& handle) {
  const auto [m, kv_tokens] = Away([&] { return handle.model(); });
  nb::dict d;
  d["name"] = Decoded(m.name);
  d["path"] = Decoded(m.path, "surrogateescape");
  d["architecture"] = Decoded(m.architecture);
  d["max_model_len"] = m.max_model_len;
  d["vocab_size"] = m.vocab_size;
  d["num_parameters"] = m.num_parameters;
  d["weight_format"] = Decoded(m.weight_format);
  d["kernels"] = Decoded(m.kernels);
  d["kv_tokens"] = kv_tokens;
  return d;
}

// `prompt`: None (a chat), bytes (text) or a list of token ids.
AskedRequest AskedOf(const nb::bytes& body, const nb::object& prompt, bool context_long) {
  AskedRequest asked{.body = BytesOf(body), .context_long = context_long};
  if (nb::isinstance<nb::bytes>(prompt))
    asked.prompt = BytesOf(nb::borrow<nb::bytes>(prompt));
  else if (!prompt.is_none())
    asked.prompt = nb::cast<std::vector<TokenId>>(prompt);
  return asked;
}

void BindEngine(nb::module_& m) {
  nb::class_<ReadyRequest>(m, "ReadyRequest")
      .def_prop_ro("sequences", [](const ReadyRequest& r) { return Counted([&] { return nb::cast(r.request.n); }); })
      .def_prop_ro("prompt_token_ids",
                   [](const ReadyRequest& r) { return Counted([&] { return nb::cast(*r.request.prompt); }); })
      .def("place", [](ReadyRequest& r, int32_t position, int32_t kv_tokens) {
        Counted([&] { r.request.planned = {position, kv_tokens}; });
      });
  nb::class_<EngineHandle>(m, "Engine")
      .def(
          "__init__",
          [](EngineHandle* self, const GivenOptions& options) {
            Counted([&] {
              const OptionTexts texts = TextsOf(options);
              Away([&] { new (self) EngineHandle(texts); });
            });
          },
          "options"_a)
      .def_prop_ro("start_up_lines",
                   [](const EngineHandle& e) { return Counted([&] { return TextListOf(e.start_up_lines()); }); })
      .def_prop_ro("closed",
                   [](EngineHandle& e) { return Counted([&] { return nb::cast(Away([&] { return e.closed(); })); }); })
      .def_prop_ro("model", [](EngineHandle& e) { return Counted([&] { return ModelOf(e); }); })
      .def("close", [](EngineHandle& e) { Counted([&] { Away([&] { e.Close(); }); }); })
      .def(
          "prepare",
          [](EngineHandle& e, const nb::bytes& body, const nb::object& prompt, bool context_long, bool has_rule) {
            return Counted([&] {
              AskedRequest asked = AskedOf(body, prompt, context_long);
              const bool may_be_long = has_rule || asked.bytes() > kLongBytes;
              return nb::cast(
                  WatchedIf(may_be_long, [&](StopToken stop) { return e.Prepare(std::move(asked), stop); }));
            });
          },
          "body"_a, "prompt"_a.none(), "context_long"_a, "has_rule"_a)
      .def(
          "tokenize",
          [](EngineHandle& e, const nb::bytes& given, bool add_special) {
            return Counted([&] {
              const std::string text = BytesOf(given);
              return nb::cast(WatchedIf(text.size() > kLongBytes,
                                        [&](StopToken stop) { return e.Tokenize(text, add_special, stop); }));
            });
          },
          "text"_a, "add_special"_a)
      .def(
          "detokenize",
          [](EngineHandle& e, const std::vector<TokenId>& ids) {
            return Counted([&] { return Decoded(Away([&] { return e.Detokenize(ids); })); });
          },
          "token_ids"_a)
      .def(
          "token_string",
          [](EngineHandle& e, TokenId token) { return Counted([&] { return Decoded(e.TokenString(token)); }); },
          "token"_a)
      .def("outcome",
           [](EngineHandle& e) { return Counted([&] { return Decoded(Away([&] { return e.Outcome(); })); }); })
      .def("metrics",
           [](EngineHandle& e) { return Counted([&] { return Decoded(Away([&] { return e.MetricsText(); })); }); });
  m.def(
      "check_body",
      [](const nb::bytes& body, bool chat) {
        Counted([&] {
          const std::string text = BytesOf(body);
          Away([&] { CheckBody(text, chat); });
        });
      },
      "body"_a, "chat"_a);
  m.def("engine_options", [] { return Counted([] { return KindsOf(OptionKinds<EngineOptions>()); }); });
}

void BindAnswers(nb::module_& m) {
  nb::class_<Answers>(m, "Answers")
      .def(
          "__init__",
          [](Answers* self, std::shared_ptr<EngineHandle> engine, bool tells) {
            Counted([&] { new (self) Answers(std::move(engine), tells); });
          },
          "engine"_a, "tells"_a)
      .def(
          "submit",
          [](Answers& a, int64_t index, const ReadyRequest& request, bool pieces) {
            return Counted([&] { return nb::cast(Away([&] { return a.Submit(index, request, pieces); })); });
          },
          "index"_a, "request"_a, "pieces"_a)
      .def(
          "wait_for_room",
          [](Answers& a, const ReadyRequest& request, double timeout_s) {
            Counted([&] { Away([&] { a.WaitForRoom(request, timeout_s); }); });
          },
          "request"_a, "timeout_s"_a)
      .def(
          "wait", [](Answers& a, double timeout_s) { Counted([&] { Away([&] { a.Wait(timeout_s); }); }); },
          "timeout_s"_a)
      .def("take_ended",
           [](Answers& a) { return Counted([&] { return Answers::ToPython(Away([&] { return a.TakeEnded(); })); }); })
      .def("take_pieces",
           [](Answers& a) { return Counted([&] { return Answers::ToPython(Away([&] { return a.TakePieces(); })); }); })
      .def("cancel", [](Answers& a) { Counted([&] { Away([&] { a.Cancel(); }); }); })
      .def(
          "cancel_one", [](Answers& a, int64_t index) { Counted([&] { Away([&] { a.CancelOne(index); }); }); },
          "index"_a)
      .def("fileno", [](const Answers& a) { return Counted([&] { return nb::cast(a.descriptor()); }); });
}

void BindSimulation(nb::module_& m) {
  m.def("simulation_options", [] { return Counted([] { return KindsOf(OptionKinds<sim::SimOptions>()); }); });
  m.def(
      "simulate",
      [](const GivenOptions& options) {
        return Counted([&] {
          const OptionTexts texts = TextsOf(options);
          const SimulationText text = Watched([&](StopToken stop) { return Simulate(texts, stop); });
          return nb::make_tuple(Decoded(text.result), TextListOf(text.notes));
        });
      },
      "options"_a);
  m.def(
      "plan_costs",
      [](const GivenOptions& options) {
        return Counted([&] {
          const OptionTexts texts = TextsOf(options);
          const sim::PlannedLoad load = Away([&] { return PriceJobOf(texts); });
          const offline::BatchCostModel& c = load.cost;
          return nb::make_tuple(
              nb::make_tuple(c.flops_per_token, c.attention_flops, c.kv_bytes_per_token, c.flops_per_s, c.bytes_per_s),
              nb::make_tuple(load.overlap.linear, load.overlap.quadratic));
        });
      },
      "options"_a);
}

using Figures = std::tuple<double, double, double, double, double>;

void BindPlanner(nb::module_& m) {
  nb::class_<PlannedJob>(m, "PlannedJob")
      .def(
          "__init__",
          [](PlannedJob* self, int64_t memory_limit_bytes) {
            Counted([&] { new (self) PlannedJob(memory_limit_bytes); });
          },
          "memory_limit_bytes"_a)
      .def(
          "add",
          [](PlannedJob& job, const std::vector<TokenId>& prompt, int32_t max_tokens, bool exactly, uint32_t group) {
            Counted([&] { job.Add(prompt, max_tokens, exactly, group); });
          },
          "prompt"_a, "max_tokens"_a, "exactly"_a, "group"_a)
      .def(
          "plan",
          [](PlannedJob& job, const Figures& costs, const std::string& order, int32_t shards, int64_t kv_tokens,
             double split_share, const std::pair<double, double>& overlap, uint64_t seed) {
            return Counted([&] {
              const auto [flops_per_token, attention_flops, kv_bytes_per_token, flops_per_s, bytes_per_s] = costs;
              return job.Plan({.cost = {flops_per_token, attention_flops, kv_bytes_per_token, flops_per_s, bytes_per_s},
                               .order = order,
                               .shards = shards,
                               .kv_tokens = kv_tokens,
                               .split_share = split_share,
                               .overlap_linear = overlap.first,
                               .overlap_quadratic = overlap.second,
                               .seed = seed});
            });
          },
          "costs"_a, "order"_a, "shards"_a, "kv_tokens"_a, "split_share"_a, "overlap"_a, "seed"_a);
}

}  // namespace
}  // namespace tactus::python

NB_MODULE(_native, m) {
  namespace python = tactus::python;
  m.attr("version") = tactus::Version();
  nanobind::set_leak_warnings(false);  // a thread that is cut off by interpreter shutdown keeps its objects
  python::BeginCalls(nanobind::module_::import_("tactus.errors").attr("UnavailableError"));
  m.def("end_calls", &python::EndCalls);
  m.def("calls_under_way", &python::CallsUnderWay);
  python::BindEngine(m);
  python::BindAnswers(m);
  python::BindSimulation(m);
  python::BindPlanner(m);
}
