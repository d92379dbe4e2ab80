// What a load is, for `tactus sim` and `tactus bench` alike: each option declared once.
#pragma once

#include <string>

#include "sim/workload.h"
#include "tactus/option_fields.h"

namespace tactus::sim {

struct OfferedLoad {
  std::string workload = "chat", arrivals = "poisson", data;
  std::string slo, request_class, slo_mix;
  int64_t concurrency = 0, seed = 0;
  double rate = 0;
  bool ignore_eos = true;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Load");
    v.Field("workload", workload,
            {.help = "random:in=512,out=128 | prefix:shared=1024,unique=128,out=64 | chat | code | summarize | "
                     "long-output | sharegpt | long-context | mix:chat=0.65,long-context=0.35 | multi-turn | "
                     "lengths:FILE | trace:FILE[:scale=X]"});
    v.Field("data", data, {.help = "folder in which FILE of --workload is looked up too; also TACTUS_DATA"});
    v.Field("rate", rate,
            {.unit = "requests/s",
             .min = 0,
             .max = 1e6,
             .help = "open loop with this arrival rate; 0: closed loop, or a trace's own times"});
    v.Field("arrivals", arrivals, {.help = "arrival process: poisson, gamma:CV, constant or jitter:DURATION"});
    v.Field(
        "concurrency", concurrency,
        {.unit = "requests", .min = 0, .max = 1 << 20, .help = "closed loop with so many requests in flight; 0: none"});
    v.Field("seed", seed, {.min = 0, .help = "seed of all that is drawn: lengths, arrivals, objectives and the like"});
    v.Field("slo", slo,
            {.help = "objectives of requests for which the workload states none: ttft=500ms,tbt=100ms,jct=10s"});
    v.Field("request-class", request_class,
            {.help = "class of requests for which the workload states none: a label of the result, and one of "
                     "--slo-class where the server declares any"});
    v.Field("slo-mix", slo_mix,
            {.help = "classes of requests by share, with objectives that are drawn for each request: "
                     "'chat:0.5:ttft=10x,tbt=140..234ms;batch:0.2:none', or by the parts of mix: without shares, "
                     "'chat:ttft=10x;code:none'; Nx: so many times what the request takes alone"});
    v.Field(
        "ignore-eos", ignore_eos,
        {.help = "answers have exactly the workload's lengths, and requests say so; off: they end by themselves (in "
                 "`tactus sim` the server then assumes --default-max-tokens)"});
  }
};

// The workload and the arrivals that the options name, with the rows of its file.
struct ParsedLoad {
  WorkloadSpec spec;
  ArrivalSpec arrivals;
};
// kInvalidArgument with the flag as param for options that say nothing or contradict each other; else as
// TraceFile::Read.
// `offline`: all requests are there from the beginning, so nothing says how fast they come.
Result<ParsedLoad> ParseLoad(const OfferedLoad& options, bool offline = false);

}  // namespace tactus::sim
