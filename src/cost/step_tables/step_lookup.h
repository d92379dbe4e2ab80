// Step times from plain tables, for times that another program or machine states per operator: a step is a constant, a
// time by its tokens, a time per chunk and a time for its decodes.
//
// File: CSV with '#' remarks as in a step profile (step_table.h), then the header and rows of four kinds in any order:
//   table,a,b,ms
//   step,0,0,MS                     every step (optional)
//   tokens,TOKENS,0,MS              the part that depends on the step's tokens alone
//   chunk,TOKENS,CONTEXT,MS         one prompt chunk (a full grid of TOKENS x CONTEXT)
//   decode,SEQUENCES,CONTEXT,MS     the decodes, by their number and mean context (a full grid; without it decodes
//                                   cost only their tokens)
// Listed points are returned exactly; between them time is (bi)linear, below the first point constant, beyond the last
// it continues with the last slope. Nothing is smoothed: a falling table yields falling times.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cost/step_tables/step_table.h"

namespace tactus::cost {

inline constexpr char kLookupHeader[] = "table,a,b,ms";

struct LookupRow {
  std::string table;  // step | tokens | chunk | decode
  double a = 0, b = 0, ms = 0;
  std::string where;  // file and line, for messages
};

// kDataLoss: a repeated point, a grid with holes, no tokens table.
Result<std::unique_ptr<StepProfile>> MakeStepLookup(const std::vector<LookupRow>& rows,
                                                    std::map<std::string, std::string> remarks);

}  // namespace tactus::cost
