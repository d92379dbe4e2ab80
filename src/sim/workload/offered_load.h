// The options of a load, shared by `tactus sim` and `tactus bench`: each option is declared once.
#pragma once

#include <string>

#include "sim/workload/workload.h"
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
    v.Field("data", data, {.help = "folder to search for FILE of --workload; also TACTUS_DATA"});
    v.Field("rate", rate,
            {.unit = "requests/s",
             .min = 0,
             .max = 1e6,
             .help = "open loop with this arrival rate; 0: closed loop, or a trace's arrival times"});
    v.Field("arrivals", arrivals, {.help = "arrival process: poisson, gamma:CV, constant or jitter:DURATION"});
    v.Field("concurrency", concurrency,
            {.unit = "requests",
             .min = 0,
             .max = 1 << 20,
             .help = "closed loop with this number of requests in flight; 0: open loop"});
    v.Field("seed", seed, {.min = 0, .help = "random seed of lengths, arrivals, objectives and so on"});
    v.Field("slo", slo, {.help = "objectives for requests without any in the workload: ttft=500ms,tbt=100ms,jct=10s"});
    v.Field("request-class", request_class,
            {.help = "class for requests without one in the workload: a label in the result; a name of --slo-class if "
                     "the server declares classes"});
    v.Field("slo-mix", slo_mix,
            {.help = "classes of requests by share, with objectives drawn per request: "
                     "'chat:0.5:ttft=10x,tbt=140..234ms;batch:0.2:none'; or, without shares, by the parts of a mix: "
                     "workload: 'chat:ttft=10x;code:none'; Nx: N times the request's latency when it runs alone"});
    v.Field("ignore-eos", ignore_eos,
            {.help = "requests set ignore_eos and max_tokens, so that answers have exactly the workload's lengths; "
                     "off: answers end by themselves (in `tactus sim` the server then assumes --default-max-tokens)"});
  }
};

// The workload and arrivals of the options, with the rows of its file.
struct ParsedLoad {
  WorkloadSpec spec;
  ArrivalSpec arrivals;
};
// kInvalidArgument with the flag as param for missing or contradictory options; else as TraceFile::Read. `offline`: all
// requests are present from the start, so there is no rate.
Result<ParsedLoad> ParseLoad(const OfferedLoad& options, bool offline = false);

}  // namespace tactus::sim
